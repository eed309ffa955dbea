//! Fields that another client put beside ours, so that the API server refuses ours: a port with the name of ours, the other bound
//! of a disruption budget. Server-side apply leaves what others own. So they become ours first, and the next apply, which does not
//! have them, takes them away in the write that puts ours back. Pure.

use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use super::fingerprint::is_ours;
use crate::desired::{CONTAINER, Kind};
use crate::runtime::write::WriteError;

/// The code of an API server for an object that is not valid.
const INVALID: u16 = 422;

/// A place in managed fields.
type Path = Vec<String>;

/// A merge patch over the version that was seen, after which what others put beside ours is ours; none: that is not why it was
/// refused, or others have nothing there.
pub(super) fn taken_over(
    kind: Kind,
    wanted: &DynamicObject,
    live: &DynamicObject,
    refusal: &WriteError,
) -> Option<Value> {
    refusal.code().filter(|code| *code == INVALID)?;
    let paths = disputed(kind, (wanted, live), &refusal.to_string());
    let (uid, version) = (live.uid()?, live.resource_version()?);
    let managers = managers(serde_json::to_value(live.managed_fields()).ok()?, &paths)?;
    let metadata = json!({"uid": uid, "resourceVersion": version, "managedFields": managers});
    Some(json!({"metadata": metadata}))
}

/// Where fields of others stand against ours, by the words of the refusal. No more than that: an injected container stays.
fn disputed(
    kind: Kind,
    (wanted, live): (&DynamicObject, &DynamicObject),
    refusal: &str,
) -> Vec<Path> {
    let path = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Path>();
    match kind {
        Kind::Service if refusal.contains("spec.ports") => {
            let port = |key: Value| path(&["f:spec", "f:ports", &format!("k:{key}")]);
            named_as_ours(wanted, live).map(port).collect()
        }
        Kind::PodDisruptionBudget if refusal.contains("cannot be both set") => {
            ["f:minAvailable", "f:maxUnavailable"].map(|bound| path(&["f:spec", bound])).into()
        }
        Kind::Deployment | Kind::DaemonSet => {
            let of_pods = |list: &str, name: &str| {
                let key = format!("k:{}", json!({"name": name}));
                path(&["f:spec", "f:template", "f:spec", list, &key])
            };
            let mut paths = Vec::new();
            for field in refused_fields(refusal, "spec.template.spec.containers[") {
                let mut of_ours = of_pods("f:containers", CONTAINER);
                of_ours.push(format!("f:{field}"));
                paths.push(of_ours);
            }
            if refusal.contains("spec.template.spec.volumes") {
                let volumes = wanted.data.pointer("/spec/template/spec/volumes");
                let names = volumes.and_then(Value::as_array).into_iter().flatten();
                let names = names.filter_map(|volume| volume["name"].as_str());
                paths.extend(names.map(|name| of_pods("f:volumes", name)));
            }
            paths
        }
        Kind::Service
        | Kind::PodDisruptionBudget
        | Kind::ServiceAccount
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ConfigMap
        | Kind::NetworkPolicy
        | Kind::HorizontalPodAutoscaler
        | Kind::PodMonitor
        | Kind::PrometheusRule => Vec::new(),
    }
}

/// The keys of ports that have the name of one of our ports and are not ours.
fn named_as_ours<'o>(
    wanted: &'o DynamicObject,
    live: &'o DynamicObject,
) -> impl Iterator<Item = Value> + 'o {
    let ports = |object: &'o DynamicObject| {
        object.data.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten()
    };
    let key = |port: &Value| json!({"port": port["port"], "protocol": port["protocol"]});
    let is_foreign = move |port: &&Value| {
        ports(wanted).any(|own| own["name"] == port["name"])
            && !ports(wanted).any(|own| key(own) == key(port))
    };
    ports(live).filter(is_foreign).map(key)
}

/// The fields of items of a list that a refusal names, such as `livenessProbe` of `containers[0].livenessProbe.exec`.
fn refused_fields<'r>(refusal: &'r str, list: &str) -> Vec<&'r str> {
    let behind = refusal.split(list).skip(1);
    let field = |text: &'r str| {
        let (_, text) = text.split_once("].")?;
        let end = text.find(|letter: char| !letter.is_ascii_alphanumeric());
        Some(&text[..end.unwrap_or(text.len())]).filter(|field| !field.is_empty())
    };
    behind.filter_map(field).collect()
}

/// The managers of an object after these fields of others have become ours; none: others have none of them.
fn managers(entries: Value, paths: &[Path]) -> Option<Value> {
    let Value::Array(mut entries) = entries else { return None };
    let ours = entries.iter().position(is_ours)?;
    let mut own = entries.remove(ours);
    let mut has_gained = false;
    for entry in &mut entries {
        // Fields of another version of the API may have other names, and the one who scales writes `replicas` only.
        if entry["apiVersion"] != own["apiVersion"] || !entry["subresource"].is_null() {
            continue;
        }
        for path in paths {
            if let Some(theirs) = cut(&mut entry["fieldsV1"], path) {
                add(&mut own["fieldsV1"], path, theirs);
                has_gained = true;
            }
        }
    }
    entries.retain(|entry| entry["fieldsV1"].as_object().is_none_or(|fields| !fields.is_empty()));
    entries.push(own);
    has_gained.then_some(Value::Array(entries))
}

/// Takes out what is at this path.
fn cut(fields: &mut Value, path: &[String]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    let fields = fields.as_object_mut()?;
    if rest.is_empty() {
        return fields.remove(first);
    }
    let inner = fields.get_mut(first)?;
    let found = cut(inner, rest)?;
    // Without a member it would say that the field itself is owned.
    if inner.as_object().is_some_and(Map::is_empty) {
        fields.remove(first);
    }
    Some(found)
}

fn add(fields: &mut Value, path: &[String], found: Value) {
    match path.split_first() {
        Some((first, rest)) => {
            let Some(fields) = fields.as_object_mut() else { return };
            add(fields.entry(first.clone()).or_insert_with(|| json!({})), rest, found);
        }
        None => {
            let (Some(fields), Value::Object(found)) = (fields.as_object_mut(), found) else {
                return;
            };
            for (key, inner) in found {
                add(fields.entry(key).or_insert_with(|| json!({})), &[], inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::Error;
    use kube::core::Status;

    use super::*;
    use crate::fixtures::from;
    use crate::names::FIELD_MANAGER;

    const BOTH: &str = "spec: Invalid value: minAvailable and maxUnavailable cannot be both set";
    const PROBES: &str = "spec.template.spec.containers[0].livenessProbe.exec: Forbidden: may not specify more than 1 handler type";
    const VOLUMES: &str = "spec.template.spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type";

    fn refused(code: u16, message: &str) -> WriteError {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        WriteError::Refused(Box::new(Error::Api(Box::new(status))))
    }

    /// An object with these fields of ours and of another client.
    fn live(ours: Value, theirs: Value) -> DynamicObject {
        let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let ports = json!([
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns", "port": 5353, "protocol": "UDP"},
            {"name": "metrics", "port": 9153, "protocol": "TCP"},
        ]);
        let mut scaled = entry("autoscaler", "Update", json!({"f:spec": {"f:replicas": {}}}));
        scaled["subresource"] = json!("scale");
        from(
            json!({"spec": {"ports": ports}, "metadata": {"name": "x", "uid": "u", "resourceVersion": "7", "managedFields": [
            entry("kubectl-edit", "Update", theirs), entry(FIELD_MANAGER, "Apply", ours), scaled]}}),
        )
    }

    fn wanted() -> DynamicObject {
        let pod = json!({"volumes": [{"name": "state", "emptyDir": {}}]});
        let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}]);
        from(
            json!({"metadata": {"name": "x"}, "spec": {"ports": ports, "template": {"spec": pod}}}),
        )
    }

    /// What others keep, and what is ours then.
    fn after(kind: Kind, refusal: &str, ours: Value, theirs: Value) -> Option<(Value, Value)> {
        let patch = taken_over(kind, &wanted(), &live(ours, theirs), &refused(422, refusal))?;
        assert_eq!(
            (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
            (&json!("u"), &json!("7"))
        );
        let managers = patch["metadata"]["managedFields"].as_array().unwrap().clone();
        let of = |manager: &str| {
            let found = managers.iter().find(|entry| entry["manager"] == manager);
            found.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
        };
        assert_eq!(of("autoscaler"), json!({"f:spec": {"f:replicas": {}}}));
        Some((of("kubectl-edit"), of(FIELD_MANAGER)))
    }

    #[test]
    fn o4_what_stands_against_ours_becomes_ours_and_nothing_else() {
        const METRICS: &str = r#"k:{"port":9153,"protocol":"TCP"}"#;
        let port = |port: u16| format!(r#"k:{{"port":{port},"protocol":"UDP"}}"#);
        let (theirs, ours) = (json!({".": {}, "f:name": {}}), json!({".": {}, "f:port": {}}));
        let pod = |container: &str, fields: Value| {
            let key = format!(r#"k:{{"name":"{container}"}}"#);
            json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {key: fields}}}}})
        };
        let volume = |fields: Value| {
            let volumes = json!({r#"k:{"name":"state"}"#: fields});
            json!({"f:spec": {"f:template": {"f:spec": {"f:volumes": volumes}}}})
        };
        let probe = json!({"f:livenessProbe": {"f:exec": {}}, "f:env": {}});
        let beside_proxy = |fields: Value| {
            let mut pod = pod(CONTAINER, fields);
            pod["f:spec"]["f:template"]["f:spec"]["f:containers"][r#"k:{"name":"proxy"}"#] =
                json!({".": {}});
            pod
        };
        let (injected, kept) = (beside_proxy(probe), beside_proxy(json!({"f:env": {}})));
        for (kind, refusal, before, expected) in [
            (
                Kind::Service,
                "spec.ports[1].name: Duplicate value: \"dns\"",
                (
                    json!({"f:spec": {"f:ports": {port(53): ours.clone()}}}),
                    json!({"f:spec": {"f:ports": {port(5353): theirs.clone(), METRICS: theirs.clone()}}}),
                ),
                (
                    json!({"f:spec": {"f:ports": {METRICS: theirs.clone()}}}),
                    json!({"f:spec": {"f:ports": {port(53): ours, port(5353): theirs}}}),
                ),
            ),
            (
                Kind::PodDisruptionBudget,
                BOTH,
                (json!({"f:spec": {"f:selector": {}}}), json!({"f:spec": {"f:minAvailable": {}}})),
                (Value::Null, json!({"f:spec": {"f:selector": {}, "f:minAvailable": {}}})),
            ),
            (
                Kind::Deployment,
                PROBES,
                (pod(CONTAINER, json!({"f:image": {}})), injected),
                (kept, pod(CONTAINER, json!({"f:image": {}, "f:livenessProbe": {"f:exec": {}}}))),
            ),
            (
                Kind::DaemonSet,
                VOLUMES,
                (volume(json!({"f:emptyDir": {}})), volume(json!({"f:hostPath": {"f:path": {}}}))),
                (Value::Null, volume(json!({"f:emptyDir": {}, "f:hostPath": {"f:path": {}}}))),
            ),
        ] {
            assert_eq!(after(kind, refusal, before.0, before.1), Some(expected), "{kind:?}");
        }
    }

    #[test]
    fn o4_another_refusal_changes_no_owner() {
        let (ours, theirs) =
            (json!({"f:spec": {"f:selector": {}}}), json!({"f:spec": {"f:minAvailable": {}}}));
        let budget = Kind::PodDisruptionBudget;
        assert!(after(budget, BOTH, ours.clone(), theirs.clone()).is_some());
        assert_eq!(
            after(budget, "spec.selector: Invalid value", ours.clone(), theirs.clone()),
            None
        );
        assert_eq!(after(budget, BOTH, ours.clone(), ours.clone()), None, "nothing of others");
        assert_eq!(after(Kind::Deployment, BOTH, ours.clone(), theirs.clone()), None);
        let live = live(ours, theirs);
        assert_eq!(taken_over(budget, &wanted(), &live, &refused(409, BOTH)), None);
    }
}
