//! What the write says: the pod is not ready, as long as it is the one that was read.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::Target;
use crate::observe::pods;

/// The message of the pod's condition.
const MESSAGE: &str = "nothing answers there: asked over UDP, TCP and HTTP by the operator of ClusterDNS and by another pod of \
                       this Service";

/// The API server refuses it where the pod has changed since this version: it may have become ready again, or be another pod with
/// its name.
pub(super) fn not_ready(lost: &Target, version: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {"uid": lost.uid, "resourceVersion": version},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": pods::LOST, "message": MESSAGE,
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::lost_pods::ask;

    #[test]
    fn o20_a_pod_is_set_not_ready_only_at_the_version_that_was_read() {
        let mut pod: k8s_openapi::api::core::v1::Pod = fixtures::from(json!({
            "metadata": {"name": "pod-1", "namespace": "dns", "uid": "its-uid"},
            "spec": {"nodeName": "node", "containers": [{"name": "dns",
                "ports": [{"name": "metrics", "containerPort": 9153}]}]},
            "status": {"podIP": "10.244.0.1"},
        }));
        pod.metadata.resource_version = Some("8".to_owned());
        let lost = ask::target(&fixtures::dns("{}"), &pod).unwrap();
        let now = "2026-01-01T10:00:00.5Z".parse().unwrap();
        let condition = json!({"type": "Ready", "status": "False", "reason": "PodLost", "message": MESSAGE,
            "lastTransitionTime": "2026-01-01T10:00:00Z"});
        assert_eq!(
            not_ready(&lost, "7", now),
            json!({
                "metadata": {"uid": "its-uid", "resourceVersion": "7"},
                "status": {"conditions": [condition]},
            })
        );
    }
}
