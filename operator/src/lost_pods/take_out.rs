//! The one write: it sets a lost pod not ready, as the node lifecycle controller does with the pods of a node that it
//! gave up (O20). A living kubelet sets the condition back by itself, so a mistake heals. A standby operator may do
//! this too, because the leader may be on the node that died. The number of lost pods is read from the API server
//! right before, to respect the limit.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use super::ask::Target;
use super::{Lookout, silence};
use crate::names;
use crate::observe::pods;
use crate::runtime::time_limit::within;

/// The message of the pod's condition.
const MESSAGE: &str = "nothing answers there: asked over UDP, TCP and HTTP by the operator of ClusterDNS and by another pod of \
                       this Service";

/// Whether this loss is settled: written, or refused for good. Otherwise the next round decides again.
pub(super) async fn take_out(it: &Lookout, dns: &str, lost: &Target) -> bool {
    let pods = Api::<Pod>::namespaced(it.client.clone(), &lost.namespace);
    let its = ListParams::default().labels(&format!("{}={dns}", names::INSTANCE));
    let all = match within(pods.list(&its)).await {
        Ok(all) => all.items,
        Err(error) => {
            tracing::warn!(
                "pod {} is lost and stays in the Service, because its peers cannot be listed: {error:#}",
                lost.name
            );
            return false;
        }
    };
    // The leader may have taken it out a moment ago, and its kubelet set it back.
    let ready_until = match it.writes.leads() {
        true => Timestamp::MAX,
        false => Timestamp::now() - silence::AGAIN_AFTER,
    };
    let Some(version) = version(&all, &lost.uid, ready_until) else { return false };
    let body = json!({
        "metadata": {"uid": lost.uid, "resourceVersion": version},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": pods::LOST, "message": MESSAGE,
            "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}]},
    });
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(&body);
    let written = it.writes.send_unled("Pod", pods.patch_status(&lost.name, &params, &patch)).await;
    match written {
        Ok(_) => {
            it.metrics.pod_lost();
            tracing::warn!(
                "pod {}/{} on node {} does not answer: the operator took it out of the Service; check the node",
                lost.namespace,
                lost.name,
                lost.node
            );
            true
        }
        Err(error) => {
            tracing::warn!(
                "pod {}/{} is lost and stays in the Service, because it cannot be patched: {error}",
                lost.namespace,
                lost.name
            );
            // RBAC or a policy refuses the write: it is not tried again before the pod may be taken out again.
            matches!(error.code(), Some(401 | 403 | 422))
        }
    }
}

/// The version of the pod to patch; none: it is not ready any more, it became ready after `ready_until`, or too many are not
/// ready.
fn version(all: &[Pod], uid: &str, ready_until: Timestamp) -> Option<String> {
    let was_ready = |pod: &Pod| pods::ready_since(pod).is_some_and(|since| since <= ready_until);
    let pod = all.iter().find(|pod| pods::uid(pod) == uid && was_ready(pod))?;
    let ready = all.iter().filter(|pod| pods::is_ready(pod)).count();
    let already = all.iter().filter(|pod| pods::is_lost(pod)).count();
    (silence::room(ready, already) > 0).then(|| pod.resource_version())?
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pod(uid: &str, ready: &str, since: &str) -> Pod {
        let conditions: Value =
            json!([{"type": "Ready", "status": ready, "lastTransitionTime": since}]);
        let pod = json!({"metadata": {"name": uid, "uid": uid, "resourceVersion": "7"}, "status": {"conditions": conditions}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn o20_a_pod_that_a_kubelet_just_set_back_is_left_to_the_operator_that_leads() {
        let all = [
            pod("a", "True", "2026-01-01T00:00:00Z"),
            pod("b", "True", "2026-01-01T09:59:30Z"),
            pod("c", "False", "2026-01-01T00:00:00Z"),
        ];
        let a_minute_ago = "2026-01-01T09:59:00Z".parse().unwrap();
        assert_eq!(version(&all, "a", a_minute_ago).as_deref(), Some("7"));
        assert_eq!(version(&all, "b", a_minute_ago), None, "ready for half a minute only");
        assert_eq!(version(&all, "b", Timestamp::MAX).as_deref(), Some("7"), "it leads");
        assert_eq!(version(&all, "c", Timestamp::MAX), None, "not ready");
    }
}
