//! The object that we applied, cut out of what the API server has by its `managedFields`. So an operator that starts while a spec
//! is refused knows how the objects should be that one before it wrote. Pure.

use kube::ResourceExt;
use kube::core::{DynamicObject, TypeMeta};
use serde_json::{Map, Value, json};

use super::fingerprint::{fields, step};
use crate::desired::Kind;
use crate::runtime::resources;

/// The selector of a Service.
pub(super) const SELECTOR: &str = "/spec/selector";

/// Whether it could be created again from these fields alone. Another client may have taken over one of them and deleted the
/// object later: a Role without rules keeps every pod from its configuration, a NetworkPolicy without its rules keeps every client
/// out, and without its selector it holds for all pods of the namespace.
pub(super) fn is_whole(kind: Kind, ours: &DynamicObject) -> bool {
    let fields: &[&str] = match kind {
        Kind::ClusterRole | Kind::Role => &["/rules"],
        Kind::ClusterRoleBinding | Kind::RoleBinding => &["/roleRef", "/subjects"],
        Kind::Service => &[SELECTOR, "/spec/ports"],
        Kind::NetworkPolicy => &["/spec/podSelector", "/spec/ingress"],
        Kind::Deployment | Kind::DaemonSet => &["/spec/selector", CONTAINERS],
        Kind::HorizontalPodAutoscaler => {
            &["/spec/scaleTargetRef", "/spec/minReplicas", "/spec/maxReplicas"]
        }
        Kind::ServiceAccount
        | Kind::ConfigMap
        | Kind::PodDisruptionBudget
        | Kind::PodMonitor
        | Kind::PrometheusRule => &[],
    };
    let mut containers = ours.data.pointer(CONTAINERS).and_then(Value::as_array).into_iter();
    fields.iter().all(|field| ours.data.pointer(field).is_some())
        && containers.all(|all| !all.is_empty() && all.iter().all(|it| it["image"].is_string()))
}

const CONTAINERS: &str = "/spec/template/spec/containers";

/// Our fields of this object, and what names it. None where we own nothing, or not all that the owners say is there: it is
/// applied as a whole, so what would be missing in it would be removed.
pub(super) fn owned(kind: Kind, live: &DynamicObject) -> Option<DynamicObject> {
    let whole = serde_json::to_value(live).ok()?;
    let mut ours = part(fields(&whole)?, &whole)?;
    ours["metadata"]["name"] = json!(live.name_any());
    if let Some(namespace) = live.namespace() {
        ours["metadata"]["namespace"] = json!(namespace);
    }
    let mut ours: DynamicObject = serde_json::from_value(ours).ok()?;
    let resource = resources::resource(kind);
    ours.types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
    Some(ours)
}

/// What of this value the fields own.
fn part(fields: &Value, value: &Value) -> Option<Value> {
    let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else {
        return Some(value.clone());
    };
    // "." owns that the value is there, not its content.
    let inner = fields.iter().filter(|(key, _)| *key != ".");
    match value {
        Value::Object(_) => {
            let named = |(key, fields): (&String, &Value)| {
                Some((key.strip_prefix("f:")?.to_owned(), part(fields, step(value, key)?)?))
            };
            inner.map(named).collect::<Option<Map<String, Value>>>().map(Value::Object)
        }
        Value::Array(all) => {
            let placed = |(key, fields): (&String, &Value)| {
                let element = step(value, key)?;
                let place = all.iter().position(|it| std::ptr::eq(it, element))?;
                Some((place, part(fields, element)?))
            };
            let mut elements: Vec<(usize, Value)> = inner.map(placed).collect::<Option<_>>()?;
            elements.sort_by_key(|(place, _)| *place);
            Some(elements.into_iter().map(|(_, element)| element).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::from;
    use crate::names::FIELD_MANAGER;

    fn live() -> Value {
        let ports = json!([
            {"containerPort": 53, "name": "dns", "protocol": "UDP"},
            {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
            {"containerPort": 9153, "name": "theirs", "protocol": "TCP"},
        ]);
        let port = |protocol: &str| format!(r#"k:{{"containerPort":53,"protocol":"{protocol}"}}"#);
        let owned_ports = json!({".": {}, port("TCP"): {".": {}, "f:containerPort": {}, "f:name": {}, "f:protocol": {}},
            port("UDP"): {".": {}, "f:containerPort": {}, "f:name": {}, "f:protocol": {}}});
        let container = json!({".": {}, "f:name": {}, "f:args": {}, "f:ports": owned_ports});
        let spec = json!({"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {r#"k:{"name":"dns"}"#: container},
            "f:volumes": {r#"k:{"name":"state"}"#: {".": {}, "f:name": {}, "f:emptyDir": {"f:sizeLimit": {}}}}}}});
        json!({"metadata": {"name": "d", "namespace": "dns", "uid": "u", "resourceVersion": "7", "generation": 3,
                "labels": {"ours": "1", "theirs": "1"}, "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "d", "uid": "o"}],
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:ours": {}}, "f:ownerReferences": {r#"k:{"uid":"o"}"#: {}}},
                    "f:spec": spec}}]},
            "spec": {"replicas": 3, "paused": false, "template": {"spec": {"dnsPolicy": "Default", "containers": [
                {"name": "sidecar"}, {"name": "dns", "args": ["x"], "ports": ports, "tty": false}],
                "volumes": [{"name": "state", "emptyDir": {"sizeLimit": "1Gi", "medium": ""}}, {"name": "theirs"}]}}},
            "status": {"replicas": 3}})
    }

    #[test]
    fn o4_what_we_applied_is_cut_out_of_the_object_and_nothing_else() {
        let live = live();
        let ours = owned(Kind::Deployment, &from(live.clone())).unwrap();
        let ports = json!([
            {"containerPort": 53, "name": "dns", "protocol": "UDP"},
            {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
        ]);
        let expected = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "dns", "labels": {"ours": "1"},
                "ownerReferences": live["metadata"]["ownerReferences"]},
            "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "dns", "args": ["x"], "ports": ports}],
                "volumes": [{"name": "state", "emptyDir": {"sizeLimit": "1Gi"}}]}}}});
        assert_eq!(serde_json::to_value(&ours).unwrap(), expected);
    }

    #[test]
    fn o4_an_object_from_which_another_client_took_what_it_needs_is_not_whole() {
        let containers = json!([{"name": "dns", "image": "i"}]);
        let workload =
            json!({"spec": {"selector": {}, "template": {"spec": {"containers": containers}}}});
        let binding = json!({"roleRef": {}, "subjects": []});
        let autoscaler =
            json!({"spec": {"scaleTargetRef": {}, "minReplicas": 2, "maxReplicas": 3}});
        for (kind, whole, needed) in [
            (Kind::ClusterRole, json!({"rules": []}), &["/rules"][..]),
            (Kind::Role, json!({"rules": []}), &["/rules"]),
            (Kind::ClusterRoleBinding, binding.clone(), &["/roleRef", "/subjects"]),
            (Kind::RoleBinding, binding, &["/roleRef", "/subjects"]),
            (
                Kind::Service,
                json!({"spec": {"selector": {}, "ports": []}}),
                &["/spec/selector", "/spec/ports"],
            ),
            (
                Kind::NetworkPolicy,
                json!({"spec": {"podSelector": {}, "ingress": []}}),
                &["/spec/podSelector", "/spec/ingress"],
            ),
            (Kind::Deployment, workload.clone(), &["/spec/selector", "/spec/template", IMAGE]),
            (Kind::DaemonSet, workload, &["/spec/selector", "/spec/template", IMAGE]),
            (
                Kind::HorizontalPodAutoscaler,
                autoscaler,
                &["/spec/scaleTargetRef", "/spec/minReplicas", "/spec/maxReplicas"],
            ),
            (Kind::ServiceAccount, json!({}), &[]),
        ] {
            let is_whole = |object: &Value| {
                let mut object = object.clone();
                object["metadata"] = json!({"name": "x"});
                is_whole(kind, &from(object))
            };
            assert!(is_whole(&whole), "{kind:?}");
            for field in needed {
                let (parent, key) = field.rsplit_once('/').unwrap();
                let mut part = whole.clone();
                part.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
                assert!(!is_whole(&part), "{kind:?} without {field}");
            }
        }
    }

    const IMAGE: &str = "/spec/template/spec/containers/0/image";

    #[test]
    fn o4_where_something_of_ours_is_missing_nothing_is_cut_out() {
        let cut = |change: &dyn Fn(&mut Value)| {
            let mut live = live();
            change(&mut live);
            owned(Kind::Deployment, &from(live))
        };
        let template = |live: &mut Value| live["spec"]["template"]["spec"].take();
        assert_eq!(cut(&|live| _ = template(live)), None);
        assert_eq!(
            cut(&|live| live["spec"]["template"]["spec"]["containers"][1]["name"] = json!("x")),
            None
        );
        assert_eq!(cut(&|live| live["metadata"]["managedFields"][0]["manager"] = json!("x")), None);
    }
}
