//! The fields of an object that we own, cut out by the `managedFields` that the API server keeps. So a foreign change of
//! one of them is noticed without knowledge of how the API server defaults and normalises what we send.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::names::{FIELD_MANAGER, HANDOVER_MANAGER};

/// A fingerprint of our fields and their values; none where we own nothing.
pub(super) fn fingerprint(object: &Value) -> Option<u64> {
    let fields = fields(object)?;
    let mut hasher = DefaultHasher::new();
    walk(fields, Some(object), &mut hasher);
    Some(hasher.finish())
}

/// The fields that we own, as `managedFields` have them.
pub(super) fn fields(object: &Value) -> Option<&Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    Some(&entries.iter().find(|entry| is_ours(entry))?["fieldsV1"])
}

/// Is it the entry of what we applied?
pub(super) fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && entry["subresource"].is_null()
}

/// Paths of fields, such as `spec.template.spec.containers[name=dns].image`, and the field managers that own each.
pub(super) type Owners = BTreeMap<String, BTreeSet<String>>;

/// Fields that we want and do not own any more, and who owns them: another client has written another value.
pub(super) fn taken(wanted: &Value, live: &Value) -> Owners {
    let entries = || entries(live);
    let mut ours = BTreeSet::new();
    for entry in entries().filter(|entry| is_ours(entry)) {
        leaves(&entry["fieldsV1"], live, "", &mut ours);
    }
    let mut taken = Owners::default();
    let is_other = |entry: &&Value| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        ![FIELD_MANAGER, HANDOVER_MANAGER].contains(&manager) && entry["subresource"] != "status"
    };
    for entry in entries().filter(is_other) {
        let mut theirs = BTreeSet::new();
        leaves(&entry["fieldsV1"], wanted, "", &mut theirs);
        for path in theirs.into_iter().filter(|path| !ours.contains(path)) {
            let manager = entry["manager"].as_str().unwrap_or("unknown").to_owned();
            taken.entry(path).or_default().insert(manager);
        }
    }
    taken
}

/// Fields that we want and that no one owns: another client has removed them.
pub(super) fn removed(wanted: &Value, live: &Value) -> BTreeSet<String> {
    let owned: Vec<&Value> = entries(live).map(|entry| &entry["fieldsV1"]).collect();
    let mut found = BTreeSet::new();
    for (key, value) in wanted.as_object().into_iter().flatten() {
        let owned = inner(&owned, key);
        match key.as_str() {
            // They have no owners.
            "apiVersion" | "kind" => {}
            "metadata" => {
                for key in ["labels", "annotations", "ownerReferences"] {
                    unowned(
                        &value[key],
                        &inner(&owned, key),
                        &format!("metadata.{key}"),
                        &mut found,
                    );
                }
            }
            _ => unowned(value, &owned, key, &mut found),
        }
    }
    found
}

/// What of this value none of these owners has, for people.
fn unowned(value: &Value, owned: &[&Value], path: &str, found: &mut BTreeSet<String>) {
    // Such a value may have no owner.
    let is_empty = match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    };
    let is_leaf = |owned: &&Value| owned.as_object().is_none_or(serde_json::Map::is_empty);
    if is_empty || owned.iter().any(is_leaf) {
        return;
    }
    if owned.is_empty() {
        found.insert(path.to_owned());
        return;
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        unowned(value, &inner(owned, key), &format!("{path}.{key}"), found);
    }
    for (place, element) in value.as_array().into_iter().flatten().enumerate() {
        let entries = owned.iter().filter_map(|owned| owned.as_object()).flatten();
        let its = entries.filter(|(key, _)| is_key_of(key, element, place));
        let its: Vec<&Value> = its.map(|(_, inner)| inner).collect();
        let name = element["name"].as_str().map(|name| format!("name={name}"));
        let name = name.unwrap_or_else(|| place.to_string());
        unowned(element, &its, &format!("{path}[{name}]"), found);
    }
}

/// What each of them has below this field.
fn inner<'a>(owned: &[&'a Value], key: &str) -> Vec<&'a Value> {
    owned.iter().filter_map(|owned| owned.get(format!("f:{key}"))).collect()
}

/// Whether this is the key of this element of a list. A part of the key that it does not have is a default.
fn is_key_of(key: &str, element: &Value, place: usize) -> bool {
    let Some((form, text)) = key.split_once(':') else { return false };
    match (form, serde_json::from_str(text)) {
        ("k", Ok(Value::Object(keys))) => {
            keys.iter().all(|(key, value)| element.get(key).is_none_or(|its| its == value))
        }
        ("v", Ok(member)) => *element == member,
        ("i", Ok(number)) => number == place,
        (_, _) => false,
    }
}

fn entries(live: &Value) -> impl Iterator<Item = &Value> {
    live["metadata"]["managedFields"].as_array().into_iter().flatten()
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
pub(super) fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
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
                        "k:{\"name\":\"dns\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}}}}},
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
        assert_eq!(taken(&wanted, &live), Owners::default(), "all is ours or another's");
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
        let by = |path: &str, manager: &str| (path.to_owned(), [manager.to_owned()].into());
        let expected = [by(path, "argocd"), by("spec.replicas", "kube-controller-manager")].into();
        assert_eq!(found, expected, "each with its own manager");
        let ours = &mut live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:containers"];
        _ = ours[container].as_object_mut().unwrap().remove("f:image");
        assert!(taken(&wanted, &live).contains_key("spec.containers[name=dns].image"));
    }

    #[test]
    fn o4_what_another_client_removed_is_named() {
        let wanted = json!({"apiVersion": "v1", "kind": "D", "metadata": {"name": "d", "uid": "u", "labels": {"ours": "1"}},
            "spec": {"finalizers": ["a"], "nothing": null, "containers": [
                {"name": "dns", "image": "d:1", "args": ["x"], "env": []}]}});
        assert_eq!(removed(&wanted, &deployment()), BTreeSet::new());
        let container = r#"k:{"name":"dns"}"#;
        let after = |remove: &dyn Fn(&mut Value)| {
            let mut live = deployment();
            remove(&mut live["metadata"]["managedFields"][1]["fieldsV1"]);
            Vec::from_iter(removed(&wanted, &live))
        };
        let of = |fields: &mut Value, key: &str| {
            _ = fields.as_object_mut().unwrap().remove(key);
        };
        assert_eq!(
            after(&|ours| of(&mut ours["f:metadata"], "f:labels")),
            ["metadata.labels.ours"]
        );
        let args = |ours: &mut Value| of(&mut ours["f:spec"]["f:containers"][container], "f:args");
        assert_eq!(after(&args), ["spec.containers[name=dns].args"]);
        let all = |ours: &mut Value| of(&mut ours["f:spec"], "f:containers");
        assert_eq!(after(&all), ["spec.containers"]);
        // A port whose protocol is the default, beside one that is gone.
        let ports = json!({"spec": {"ports": [{"port": 53}, {"name": "tcp", "port": 54}]}});
        let owned = json!({"f:spec": {"f:ports": {r#"k:{"port":53,"protocol":"TCP"}"#: {".": {}, "f:port": {}}}}});
        let live = json!({"metadata": {"managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": owned}]}});
        assert_eq!(Vec::from_iter(removed(&ports, &live)), ["spec.ports[name=tcp]"]);
    }
}
