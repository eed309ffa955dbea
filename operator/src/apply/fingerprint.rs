//! The fields of an object that we own, cut out by the `managedFields` that the API server keeps. So a foreign change of
//! one of them is noticed without knowledge of how the API server defaults and normalises what we send.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::names::{FIELD_MANAGER, HANDOVER_MANAGER};

/// A fingerprint of our fields and their values; none where we own nothing.
pub(super) fn fingerprint(object: &Value) -> Option<u64> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let fields = &entries.iter().find(|entry| is_ours(entry))?["fieldsV1"];
    let mut hasher = DefaultHasher::new();
    walk(fields, Some(object), &mut hasher);
    Some(hasher.finish())
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && entry["subresource"].is_null()
}

/// What others own of that which we want.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Paths, such as `spec.template.spec.containers[name=dns].image`.
    pub(super) fields: BTreeSet<String>,
    pub(super) managers: BTreeSet<String>,
}

/// Fields that we want and do not own any more, and who owns them: another client has written another value. Of a field
/// that was removed nothing is left.
pub(super) fn taken(wanted: &Value, live: &Value) -> Taken {
    let entries = live["metadata"]["managedFields"].as_array();
    let entries = || entries.into_iter().flatten();
    let mut ours = BTreeSet::new();
    for entry in entries().filter(|entry| is_ours(entry)) {
        leaves(&entry["fieldsV1"], live, "", &mut ours);
    }
    let mut taken = Taken::default();
    let is_other = |entry: &&Value| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        ![FIELD_MANAGER, HANDOVER_MANAGER].contains(&manager) && entry["subresource"] != "status"
    };
    for entry in entries().filter(is_other) {
        let mut theirs = BTreeSet::new();
        leaves(&entry["fieldsV1"], wanted, "", &mut theirs);
        theirs.retain(|path| !ours.contains(path));
        if !theirs.is_empty() {
            taken.managers.insert(entry["manager"].as_str().unwrap_or("unknown").to_owned());
            taken.fields.append(&mut theirs);
        }
    }
    taken
}

/// The owned paths that end in this value, for people.
fn leaves(fields: &Value, value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else {
        found.insert(path.to_owned());
        return;
    };
    for (key, inner) in fields {
        if let Some(value) = step(value, key) {
            leaves(inner, value, &format!("{path}{}", shown(key, path.is_empty())), found);
        }
    }
}

fn shown(key: &str, is_first: bool) -> String {
    let (form, name) = key.split_once(':').unwrap_or_default();
    match (form, serde_json::from_str(name)) {
        ("f", _) if is_first => name.to_owned(),
        ("f", _) => format!(".{name}"),
        ("k", Ok(Value::Object(keys))) => {
            let text =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let keys = keys.iter().map(|(key, value)| format!("{key}={}", text(value)));
            format!("[{}]", keys.collect::<Vec<_>>().join(","))
        }
        (_, _) => format!("[{name}]"),
    }
}

/// Hashes every owned path and, where it ends, the value there.
fn walk(fields: &Value, value: Option<&Value>, hasher: &mut DefaultHasher) {
    let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else {
        value.map(Value::to_string).hash(hasher);
        return;
    };
    for (key, inner) in fields {
        key.hash(hasher);
        // "." owns the existence of the field, not its content.
        if key == "." {
            value.is_some().hash(hasher);
            continue;
        }
        walk(inner, value.and_then(|value| step(value, key)), hasher);
    }
}

/// One step of a path: `f:` a field, `k:` the element of a list with these keys, `v:` a member of a set, `i:` an index.
fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let (form, name) = key.split_once(':')?;
    match form {
        "f" => value.get(name),
        "k" => {
            let keys: Value = serde_json::from_str(name).ok()?;
            let keys = keys.as_object()?;
            value.as_array()?.iter().find(|element| has(element, keys))
        }
        "v" => {
            let member: Value = serde_json::from_str(name).ok()?;
            value.as_array()?.iter().find(|element| **element == member)
        }
        "i" => value.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}

fn has(element: &Value, keys: &serde_json::Map<String, Value>) -> bool {
    keys.iter().all(|(key, value)| element.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment() -> Value {
        json!({
            "metadata": {"name": "d", "labels": {"ours": "1", "theirs": "1"}, "managedFields": [
                {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}},
                {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:ours": {}}},
                    "f:spec": {"f:finalizers": {"v:\"a\"": {}}, "f:containers": {
                        "k:{\"name\":\"dns\"}": {".": {}, "f:image": {}, "f:args": {}}}}}},
                {"manager": FIELD_MANAGER, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
            ]},
            "spec": {"replicas": 3, "finalizers": ["a", "b"], "containers": [
                {"name": "sidecar", "image": "s"}, {"name": "dns", "image": "d:1", "args": ["x"]}]},
            "status": {"ready": 1},
        })
    }

    #[test]
    fn o4_only_what_is_ours_counts() {
        let before = fingerprint(&deployment()).unwrap();
        type Edit = fn(&mut Value);
        let foreign: [(&str, Edit); 6] = [
            ("another's label", |d| d["metadata"]["labels"]["theirs"] = json!("2")),
            ("what an autoscaler owns", |d| d["spec"]["replicas"] = json!(9)),
            ("another container", |d| d["spec"]["containers"][0]["image"] = json!("t")),
            ("another container gone", |d| {
                _ = d["spec"]["containers"].as_array_mut().unwrap().remove(0)
            }),
            ("a field of ours that we never set", |d| {
                d["spec"]["containers"][1]["tty"] = json!(true)
            }),
            ("status", |d| d["status"]["ready"] = json!(2)),
        ];
        for (what, edit) in foreign {
            let mut edited = deployment();
            edit(&mut edited);
            assert_eq!(fingerprint(&edited), Some(before), "{what}");
        }
        let ours: [(&str, Edit); 6] = [
            ("our label", |d| d["metadata"]["labels"]["ours"] = json!("2")),
            ("our label gone", |d| {
                _ = d["metadata"]["labels"].as_object_mut().unwrap().remove("ours")
            }),
            ("our image", |d| d["spec"]["containers"][1]["image"] = json!("d:2")),
            ("our list", |d| d["spec"]["containers"][1]["args"] = json!([])),
            ("our member of a set", |d| d["spec"]["finalizers"] = json!(["b"])),
            ("our ownership taken", |d| {
                let ours =
                    &mut d["metadata"]["managedFields"][1]["fieldsV1"]["f:metadata"]["f:labels"];
                _ = ours.as_object_mut().unwrap().remove("f:ours");
            }),
        ];
        for (what, edit) in ours {
            let mut edited = deployment();
            edit(&mut edited);
            assert_ne!(fingerprint(&edited), Some(before), "{what}");
        }
        assert_eq!(fingerprint(&json!({"metadata": {"name": "d"}})), None);
    }

    #[test]
    fn o4_what_another_client_took_is_named_with_its_manager() {
        let mut live = deployment();
        let wanted = json!({"metadata": {"labels": {"ours": "1"}}, "spec": {"replicas": 2,
            "containers": [{"name": "dns", "image": "d:1", "args": ["x"], "ports": [{"port": 53, "protocol": "UDP"}]}]}});
        assert_eq!(taken(&wanted, &live), Taken::default(), "all is ours or another's");
        let managers = live["metadata"]["managedFields"].as_array_mut().unwrap();
        let container = r#"k:{"name":"dns"}"#;
        let port = r#"k:{"port":53,"protocol":"UDP"}"#;
        managers.push(json!({"manager": "argocd", "operation": "Update", "fieldsV1": {
            "f:metadata": {"f:labels": {"f:theirs": {}}},
            "f:spec": {"f:paused": {}, "f:containers": {container: {
                ".": {}, "f:image": {}, "f:tty": {}, "f:ports": {port: {"f:protocol": {}}}}}}}}));
        managers.push(json!({"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}}));
        managers.push(json!({"manager": "kubelet", "operation": "Update", "subresource": "status",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:ours": {}}}}}));
        // Both say the same.
        let path = "spec.containers[name=dns].ports[port=53,protocol=UDP].protocol";
        let found = taken(&wanted, &live);
        assert_eq!(found.fields, [path.to_owned(), "spec.replicas".to_owned()].into());
        assert_eq!(
            found.managers,
            ["argocd".to_owned(), "kube-controller-manager".to_owned()].into()
        );
        let ours = &mut live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:containers"];
        _ = ours[container].as_object_mut().unwrap().remove("f:image");
        assert!(taken(&wanted, &live).fields.contains("spec.containers[name=dns].image"));
    }
}
