//! Which edits of another client are put back at once, however often: until then clients get other answers, or none. Pure.

use serde_json::Value;

use crate::desired::Kind;

/// Fields that hold the number of pods.
const SIZES: [&str; 3] = ["/spec/replicas", "/spec/minReplicas", "/spec/maxReplicas"];
/// Fields of a template that say on which nodes its pods are.
const NODES: [&str; 3] = [
    "/spec/template/spec/nodeSelector",
    "/spec/template/spec/affinity",
    "/spec/template/spec/tolerations",
];

/// Pods follow the ConfigMap within a second, clients are led by the Service and may be kept out by the NetworkPolicy, without
/// their rights pods learn of no change, and fewer pods than wanted, or on fewer nodes, may be too few. All are reported too.
pub(super) fn is_urgent(kind: Kind, wanted: &Value, live: &Value) -> bool {
    match kind {
        Kind::ConfigMap | Kind::Service | Kind::NetworkPolicy => true,
        Kind::ServiceAccount | Kind::ClusterRole | Kind::ClusterRoleBinding => true,
        Kind::Role | Kind::RoleBinding => true,
        Kind::Deployment | Kind::HorizontalPodAutoscaler => {
            SIZES.iter().any(|field| size(live, field) < size(wanted, field))
        }
        // It has no number: it has pods where these fields allow them, and ends the others at once.
        Kind::DaemonSet => NODES.iter().any(|field| {
            let live = live.pointer(field).unwrap_or(&Value::Null);
            wanted.pointer(field).is_some_and(|wanted| !has(live, wanted))
        }),
        Kind::PodDisruptionBudget | Kind::PodMonitor | Kind::PrometheusRule => false,
    }
}

fn size(object: &Value, field: &str) -> Option<i64> {
    object.pointer(field)?.as_i64()
}

/// Whether a value has all that is wanted. The API server adds defaults, and others may add fields.
fn has(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| has(live.get(key).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, it)| has(live, it))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn o4_only_what_clients_depend_on_is_urgent() {
        let wanted = json!({"spec": {"replicas": 2, "minReplicas": 2, "type": "ClusterIP"}});
        for (kind, edited, expected) in [
            (Kind::ConfigMap, json!({"data": {"stable.json": "{}"}}), true),
            (Kind::Service, json!({"spec": {"type": "ExternalName"}}), true),
            (Kind::NetworkPolicy, json!({"spec": {"ingress": []}}), true),
            (Kind::RoleBinding, json!({"subjects": []}), true),
            (Kind::Deployment, json!({"spec": {"replicas": 0, "minReplicas": 2}}), true),
            (Kind::Deployment, json!({"spec": {"minReplicas": 2}}), true),
            (Kind::Deployment, json!({"spec": {"replicas": 9, "minReplicas": 2}}), false),
            (
                Kind::HorizontalPodAutoscaler,
                json!({"spec": {"replicas": 2, "minReplicas": 1}}),
                true,
            ),
            (Kind::PodDisruptionBudget, json!({}), false),
        ] {
            assert_eq!(is_urgent(kind, &wanted, &edited), expected, "{kind:?} {edited}");
        }
    }

    #[test]
    fn o4_a_daemonset_that_is_kept_from_nodes_is_urgent() {
        let template = |nodes: Value, tolerations: Value| {
            json!({"spec": {"template": {"spec": {
            "nodeSelector": nodes, "tolerations": tolerations, "affinity": {"nodeAffinity": {"a": [{"b": 1}]}}}}}})
        };
        let linux = || json!({"kubernetes.io/os": "linux"});
        let wanted = template(linux(), json!([{"operator": "Exists"}]));
        for (edited, expected) in [
            (template(json!({"x": "y"}), json!([{"operator": "Exists"}])), true),
            (template(linux(), json!([])), true),
            (template(linux(), Value::Null), true),
            (json!({}), true),
            (
                template(
                    json!({"kubernetes.io/os": "linux", "x": "y"}),
                    json!([{"operator": "Exists"}]),
                ),
                false,
            ),
            (wanted.clone(), false),
        ] {
            assert_eq!(is_urgent(Kind::DaemonSet, &wanted, &edited), expected, "{edited}");
        }
        assert!(!is_urgent(Kind::DaemonSet, &json!({}), &wanted), "none of these is wanted");
    }
}
