//! The fields of an object that we own, cut out by the `managedFields` that the API server keeps. So a foreign change of
//! one of them is noticed without knowledge of how the API server defaults and normalises what we send.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::names::FIELD_MANAGER;

/// A fingerprint of our fields and their values; none where we own nothing.
pub(super) fn fingerprint(object: &Value) -> Option<u64> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let is_ours = |entry: &&Value| {
        entry["manager"] == FIELD_MANAGER
            && entry["operation"] == "Apply"
            && entry["subresource"].is_null()
    };
    let fields = &entries.iter().find(is_ours)?["fieldsV1"];
    let mut hasher = DefaultHasher::new();
    walk(fields, Some(object), &mut hasher);
    Some(hasher.finish())
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
}
