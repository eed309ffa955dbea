//! Fields whose meaning differs (pure). Items of lists are known by their name, so that an item that moved is no change of
//! all that follow it. Where the order has a meaning, it is a change of its own.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

/// The field that identifies an item of a list.
const KEYS: [&str; 3] = ["name", "domain", "address"];
/// What tells items of one key apart.
const OTHERS: &[&str] = &["/type", "/port", "/transport", "/tls/serverName"];
/// The lists whose order has a meaning: by it servers are asked.
const ORDERED: &str = ".servers";
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
            let identify = identities(old, new);
            let mut seen = BTreeSet::new();
            for item in old.iter().chain(new) {
                let id = identify(item);
                if seen.insert(id.clone()) {
                    let of = |all: &[Value]| -> Vec<Value> {
                        all.iter().filter(|it| identify(it) == id).cloned().collect()
                    };
                    let path = format!("{path}[{id}]");
                    match (&of(old)[..], &of(new)[..]) {
                        (old @ ([] | [_]), new @ ([] | [_])) => {
                            compare(&path, old.first(), new.first(), changes);
                        }
                        // Nothing tells them apart, so they are one value.
                        (old, new) if old != new => {
                            changes.push(change(&path, all_shown(old), all_shown(new)));
                        }
                        _ => {}
                    }
                }
            }
            let order = |of: &[Value]| -> Vec<String> { of.iter().map(&identify).collect() };
            let (old, new) = (order(old), order(new));
            if path.ends_with(ORDERED) && have_moved(&old, &new) {
                changes.push(change(path, Some(old.join(", ")), Some(new.join(", "))));
            }
        }
        _ => changes.push(change(path, before.map(shown), after.map(shown))),
    }
}

fn change(path: &str, before: Option<String>, after: Option<String>) -> SettingChange {
    SettingChange { field: path.to_owned(), before, after, is_immutable: false }
}

/// Whether the items that both lists have are in another order.
fn have_moved(old: &[String], new: &[String]) -> bool {
    let of_both = |of: &[String], others: &[String]| -> Vec<String> {
        let others: BTreeSet<_> = others.iter().collect();
        of.iter().filter(|it| others.contains(it)).cloned().collect()
    };
    of_both(old, new) != of_both(new, old)
}

/// What an item of these lists is known by: its name, and where one of the lists has several of that name, also what tells
/// RRsets of one name and servers of one address apart.
fn identities<'a>(old: &'a [Value], new: &'a [Value]) -> impl Fn(&Value) -> String + use<'a> {
    let several = |of: &[Value]| {
        let mut seen = BTreeSet::new();
        let again: Vec<String> =
            of.iter().filter_map(key).filter(|it| !seen.insert(it.clone())).collect();
        again
    };
    let several: BTreeSet<String> = several(old).into_iter().chain(several(new)).collect();
    move |item| {
        let key = key(item).unwrap_or_default();
        let others = if several.contains(&key) { OTHERS } else { &[] };
        let others = others.iter().filter_map(|path| item.pointer(path));
        let others = others.map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
        std::iter::once(key.clone()).chain(others).collect::<Vec<_>>().join(" ")
    }
}

fn key(item: &Value) -> Option<String> {
    KEYS.iter().find_map(|key| item.get(key)?.as_str().map(str::to_owned))
}

fn are_named(items: &[Value]) -> bool {
    items.iter().all(|item| key(item).is_some())
}

fn all_shown(items: &[Value]) -> Option<String> {
    (!items.is_empty()).then(|| shown(&Value::Array(items.to_vec())))
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

    #[test]
    fn servers_that_change_places_are_one_change_and_hosts_none() {
        let server = |address: &str| json!({"address": address});
        let [a, b, c] = ["10.0.0.2", "10.0.0.3", "10.0.0.4"].map(server);
        let hosts = |names: [&str; 2]| json!({"hosts": names.map(|it| json!({"name": it, "addresses": ["192.0.2.1"]}))});
        let of =
            |servers: &[&Value]| json!({"upstreams": {"policy": "Sequential", "servers": servers}});
        let stub = |servers: &[&Value]| json!({"stubDomains": [{"domain": "corp.example", "servers": servers}]});
        let swapped = r#" Some("10.0.0.2, 10.0.0.3") Some("10.0.0.3, 10.0.0.2")"#;
        let (upstreams, stubs) =
            ("spec.upstreams.servers", "spec.stubDomains[corp.example].servers");
        let added = r#" None Some("{\"address\":\"10.0.0.4\"}")"#;
        for (before, after, expected) in [
            (hosts(["a.example", "b.example"]), hosts(["b.example", "a.example"]), vec![]),
            (of(&[&a, &b]), of(&[&b, &a]), vec![format!("{upstreams}{swapped}")]),
            (stub(&[&a, &b]), stub(&[&b, &a]), vec![format!("{stubs}{swapped}")]),
            (of(&[&a, &b]), of(&[&c, &a, &b]), vec![format!("{upstreams}[10.0.0.4]{added}")]),
        ] {
            let found = settings(&before, &after, &[]).into_iter();
            let found: Vec<_> =
                found.map(|it| format!("{} {:?} {:?}", it.field, it.before, it.after)).collect();
            assert_eq!(found, expected, "{before} {after}");
        }
    }

    #[test]
    fn several_items_of_one_name_are_compared_apart_and_equal_ones_are_one_value() {
        let record = |rtype: &str, value: &str| json!({"name": "a.example", "type": rtype, "values": [value]});
        let records = |first: &str, second: &str| json!({"records": [record("A", first), record("TXT", second)]});
        let server = |port: u16| json!({"address": "192.0.2.1", "port": port, "transport": "UDP"});
        let tls = |name: &str| json!({"address": "192.0.2.1", "port": 853, "transport": "TLS", "tls": {"serverName": name}});
        let servers = |all: [Value; 2]| json!({"upstreams": {"servers": all}});
        let twice = |ttl: u32| {
            let host = |ttl: u32| json!({"name": "b.example", "ttlSeconds": ttl});
            json!({"hosts": [host(5), host(ttl)]})
        };
        for (before, after, expected) in [
            (
                records("192.0.2.1", "x"),
                records("192.0.2.9", "x"),
                &["spec.records[a.example A].values"][..],
            ),
            (
                servers([server(53), server(5353)]),
                servers([server(53), server(5354)]),
                &[
                    "spec.upstreams.servers[192.0.2.1 5353 UDP]",
                    "spec.upstreams.servers[192.0.2.1 5354 UDP]",
                ],
            ),
            (
                servers([server(53), server(5353)]),
                servers([server(5353), server(53)]),
                &["spec.upstreams.servers"],
            ),
            (
                servers([tls("a.example"), tls("b.example")]),
                servers([tls("a.example"), tls("c.example")]),
                &[
                    "spec.upstreams.servers[192.0.2.1 853 TLS b.example]",
                    "spec.upstreams.servers[192.0.2.1 853 TLS c.example]",
                ],
            ),
            (twice(5), twice(9), &["spec.hosts[b.example]"]),
            (twice(9), twice(9), &[]),
        ] {
            let found: Vec<_> =
                settings(&before, &after, &[]).into_iter().map(|it| it.field).collect();
            assert_eq!(found, expected, "{before} {after}");
        }
    }
}
