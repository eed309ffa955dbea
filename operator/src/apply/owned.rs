//! The object that we applied, cut out of what the API server has by its `managedFields`. So an operator that starts while a spec
//! is refused knows how the objects should be that one before it wrote. Pure.

use kube::ResourceExt;
use kube::core::{DynamicObject, TypeMeta};
use serde_json::{Map, Value, json};

use super::fingerprint::{fields, step};
use crate::desired::Kind;
use crate::runtime::resources;

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
