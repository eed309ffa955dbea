//! Which edits of another client are put back at once, however often: until then clients get other answers, or none. Pure.

use serde_json::Value;

use crate::desired::Kind;

/// Fields that hold the number of pods.
const SIZES: [&str; 3] = ["/spec/replicas", "/spec/minReplicas", "/spec/maxReplicas"];
/// Fields of a template that say on which nodes its pods are, and that each have one owner. What others add beside them stays, so
/// it must not be urgent. What is only preferred changes nothing for a DaemonSet.
const NODES: [&str; 4] = [
    "/spec/template/spec/nodeSelector",
    "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
    "/spec/template/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution",
    "/spec/template/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution",
];
const TOLERATIONS: &str = "/spec/template/spec/tolerations";

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
        Kind::DaemonSet => {
            NODES.iter().any(|at| differs(wanted, live, at)) || tolerates_less(wanted, live)
        }
        Kind::PodDisruptionBudget | Kind::PodMonitor | Kind::PrometheusRule => false,
    }
}

fn size(object: &Value, field: &str) -> Option<i64> {
    object.pointer(field)?.as_i64()
}

/// Each member and each item narrows it, so one more is a difference too.
fn differs(wanted: &Value, live: &Value, at: &str) -> bool {
    let live = live.pointer(at).map(plain);
    wanted.pointer(at).is_some_and(|wanted| Some(plain(wanted)) != live)
}

/// One more is harmless, and to put it back without a pause would replace pods without end.
fn tolerates_less(wanted: &Value, live: &Value) -> bool {
    let all = |object: &Value| -> Vec<Value> {
        let items = object.pointer(TOLERATIONS).and_then(Value::as_array);
        items.into_iter().flatten().map(toleration).collect()
    };
    let live = all(live);
    all(wanted).iter().any(|wanted| !live.contains(wanted))
}

fn toleration(it: &Value) -> Value {
    let mut it = plain(it);
    if let Some(members) = it.as_object_mut() {
        members.retain(|key, value| !(key == "operator" && value == "Equal"));
    }
    it
}

/// As the API server writes it: without what is null or an empty list.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let all = members.iter().map(|(key, value)| (key.clone(), plain(value)));
            let is_said = |value: &Value| !value.is_null() && value.as_array() != Some(&Vec::new());
            Value::Object(all.filter(|(_, value)| is_said(value)).collect())
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
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
        let template = |nodes: Value, tolerations: Value, term: Value| {
            let required = json!({"nodeSelectorTerms": [term]});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            json!({"spec": {"template": {"spec": {
                "nodeSelector": nodes, "tolerations": tolerations, "affinity": affinity}}}})
        };
        let linux = || json!({"kubernetes.io/os": "linux"});
        let all =
            || json!([{"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "b"}]);
        let term =
            || json!({"matchExpressions": [{"key": "x", "operator": "Exists", "values": []}]});
        let wanted = template(linux(), all(), term());
        let mut beside = wanted.clone();
        beside["spec"]["template"]["spec"]["affinity"]["podAffinity"] = json!({"theirs": [1]});
        let shown = json!({"matchExpressions": [{"key": "x", "operator": "Exists"}]});
        for (edited, expected) in [
            (template(json!({"x": "y"}), all(), term()), true),
            (template(json!({"kubernetes.io/os": "linux", "x": "y"}), all(), term()), true),
            (template(linux(), json!([]), term()), true),
            (template(linux(), Value::Null, term()), true),
            (template(linux(), json!([{"operator": "Exists"}]), term()), true),
            (
                template(
                    linux(),
                    json!([{"operator": "Exists", "key": "c"}, {"key": "a", "value": "b"}]),
                    term(),
                ),
                true,
            ),
            (
                template(
                    linux(),
                    json!([{"key": "a", "value": "b"}, {"key": "theirs"}, {"operator": "Exists"}]),
                    term(),
                ),
                false,
            ),
            (template(linux(), all(), shown.clone()), false),
            (
                template(
                    linux(),
                    all(),
                    json!({"matchExpressions": term()["matchExpressions"], "matchFields": [{"key": "y"}]}),
                ),
                true,
            ),
            (json!({}), true),
            (beside, false),
            (wanted.clone(), false),
        ] {
            assert_eq!(is_urgent(Kind::DaemonSet, &wanted, &edited), expected, "{edited}");
        }
        assert!(!is_urgent(Kind::DaemonSet, &json!({}), &wanted), "none of these is wanted");
    }
}
