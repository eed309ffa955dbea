//! The one write: a lost pod is not ready any more, as the node lifecycle controller says of a node that it gave up (O20). A
//! kubelet that lives sets it back by itself, so a mistake heals. Also the operator that waits for the lease may do this:
//! the one that has it may be on the node that died. The number of lost pods is read from the API server right
//! before, to respect the limit.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use super::ask::Target;
use super::{Lookout, silence};
use crate::names;
use crate::observe::pods;
use crate::runtime::read::within;

/// What the pod's condition says.
const MESSAGE: &str = "nothing answers there: asked over UDP, TCP and HTTP by the operator of ClusterDNS and by another pod of \
                       this Service";

/// Whether it was done, or will not be done. What was not is decided again in the next round.
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
    let Some(version) = version(&all, lost) else { return false };
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
            // A right or a policy says no: not asked again before it may be taken out again.
            matches!(error.code(), Some(401 | 403 | 422))
        }
    }
}

/// The version of the pod to patch; none: it is not ready any more, or too many are not.
fn version(all: &[Pod], lost: &Target) -> Option<String> {
    let pod = all.iter().find(|pod| pods::uid(pod) == lost.uid && pods::is_ready(pod))?;
    let ready = all.iter().filter(|pod| pods::is_ready(pod)).count();
    let already = all.iter().filter(|pod| pods::is_lost(pod)).count();
    (silence::room(ready, already) > 0).then(|| pod.resource_version())?
}
