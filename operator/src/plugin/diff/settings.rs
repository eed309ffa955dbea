//! Fields whose meaning differs (pure). Items of lists are known by their name, so that an item that moved is no change of
//! all that follow it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

/// The field that identifies an item of a list.
const KEYS: [&str; 3] = ["name", "domain", "address"];
/// Characters of a value that are shown.
const MAX_SHOWN: usize = 200;

/// A changed field of the spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingChange {
    /// Path of the field in the spec.
    pub field: String,
    /// What it is; none where it is not written.
    pub before: Option<String>,
    /// Its value after the edit; none where it is removed.
    pub after: Option<String>,
    /// The API server refuses another value.
    pub is_immutable: bool,
}

/// What differs between two specs. The API server refuses a change of these fields.
pub(super) fn settings(before: &Value, after: &Value, immutable: &[&str]) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    compare("spec", Some(before), Some(after), &mut changes);
    for change in &mut changes {
        change.is_immutable = immutable.contains(&change.field.as_str());
    }
    changes
}

fn compare(
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    changes: &mut Vec<SettingChange>,
) {
    let before = before.filter(|value| !value.is_null());
    let after = after.filter(|value| !value.is_null());
    if before == after {
        return;
    }
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                compare(&format!("{path}.{key}"), old.get(key), new.get(key), changes);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if are_named(old) && are_named(new) => {
            let mut seen = BTreeSet::new();
            for item in old.iter().chain(new) {
                let key = key(item).unwrap_or_default();
                if seen.insert(key.clone()) {
                    let of = |all: &[Value]| {
                        let its: Vec<&Value> =
                            all.iter().filter(|it| self::key(it).as_ref() == Some(&key)).collect();
                        match its[..] {
                            [] => None,
                            [one] => Some(one.clone()),
                            // Several RRsets of one name.
                            _ => Some(Value::Array(its.into_iter().cloned().collect())),
                        }
                    };
                    let (old, new) = (of(old), of(new));
                    compare(&format!("{path}[{key}]"), old.as_ref(), new.as_ref(), changes);
                }
            }
        }
        _ => {
            let field = path.to_owned();
            changes.push(SettingChange {
                field,
                before: before.map(shown),
                after: after.map(shown),
                is_immutable: false,
            });
        }
    }
}

fn key(item: &Value) -> Option<String> {
    KEYS.iter().find_map(|key| item.get(key)?.as_str().map(str::to_owned))
}

fn are_named(items: &[Value]) -> bool {
    items.iter().all(|item| key(item).is_some())
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    crate::shortened::shortened(&text, MAX_SHOWN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_of_lists_are_known_by_name_and_immutable_fields_are_said() {
        let before = json!({"domain": "cluster.local", "ttlSeconds": 5, "reverseCIDRs": ["10.0.0.0/8"],
            "hosts": [{"name": "a.example", "addresses": ["192.0.2.1"]}, {"name": "b.example", "addresses": ["192.0.2.2"]}]});
        let after = json!({"domain": "other.local", "ttlSeconds": 30, "reverseCIDRs": [], "cache": null,
            "hosts": [{"name": "b.example", "addresses": ["192.0.2.9"]}, {"name": "c.example", "addresses": ["192.0.2.3"]}]});
        let found: Vec<_> = settings(&before, &after, &["spec.domain"])
            .into_iter()
            .map(|it| format!("{} {:?} {:?} {}", it.field, it.before, it.after, it.is_immutable))
            .collect();
        assert_eq!(
            found,
            [
                r#"spec.domain Some("cluster.local") Some("other.local") true"#,
                r#"spec.hosts[a.example] Some("{\"addresses\":[\"192.0.2.1\"],\"name\":\"a.example\"}") None false"#,
                r#"spec.hosts[b.example].addresses Some("[\"192.0.2.2\"]") Some("[\"192.0.2.9\"]") false"#,
                r#"spec.hosts[c.example] None Some("{\"addresses\":[\"192.0.2.3\"],\"name\":\"c.example\"}") false"#,
                r#"spec.reverseCIDRs Some("[\"10.0.0.0/8\"]") Some("[]") false"#,
                r#"spec.ttlSeconds Some("5") Some("30") false"#,
            ]
        );
        assert!(settings(&before, &before, &[]).is_empty());
    }
}
