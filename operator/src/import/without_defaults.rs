//! The ClusterDNS as people would write it: only what differs from the defaults, what matters most first.

use crds::ClusterDNS;
use crds::v1alpha1::{Access, Cache, Identity, Limits, Logging, Metrics, Rollout, Service};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

/// The resource as JSON, without status and default values; `spec.domain` is always kept.
pub fn written(dns: &ClusterDNS) -> Value {
    let mut spec = value(&dns.spec);
    let domain = spec["domain"].clone();
    leave_out(&mut spec, &value(&crds::ClusterDNSSpec::default()));
    for (field, defaults) in section_defaults() {
        if let Some(part) = spec.get_mut(field) {
            leave_out(part, &defaults);
        }
    }
    let record = json!({"ttlSeconds": crds::defaults::RECORD_TTL_SECONDS, "reverse": true, "overrideClusterZone": false});
    for field in ["hosts", "records"] {
        for entry in list(&mut spec, field) {
            leave_out(entry, &record);
        }
    }
    if let Some(upstreams) = spec.get_mut("upstreams") {
        group(upstreams);
    }
    for stub in list(&mut spec, "stubDomains") {
        group(stub);
    }
    let mut all = Map::new();
    all.insert("domain".to_owned(), domain);
    if let Value::Object(fields) = spec {
        all.extend(fields.into_iter().filter(|(_, value)| *value != json!({})));
    }
    json!({
        "apiVersion": format!("{}/{}", crds::GROUP, crds::v1alpha1::VERSION),
        "kind": "ClusterDNS",
        "metadata": {"name": dns.metadata.name},
        "spec": all,
    })
}

/// What an absent section of a spec means: each of these is as if all its defaults were written.
pub fn section_defaults() -> [(&'static str, Value); 8] {
    [
        ("cache", value(&Cache::default())),
        ("access", value(&Access::default())),
        ("limits", value(&Limits::default())),
        ("identity", value(&Identity::default())),
        ("logging", value(&Logging::default())),
        ("service", value(&Service::default())),
        ("rollout", value(&Rollout::default())),
        ("metrics", value(&Metrics::default())),
    ]
}

/// Fields that come first, in this order, wherever they are; others follow in that of the alphabet.
const FIRST: [&str; 29] = [
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    "name",
    "namespace",
    "domain",
    "ttlSeconds",
    "podRecords",
    "endpointNames",
    "hideEmptyServices",
    "reverseCIDRs",
    "exposure",
    "hosts",
    "records",
    "federations",
    "upstreams",
    "stubDomains",
    "type",
    "address",
    "addresses",
    "target",
    "port",
    "transport",
    "servers",
    "policy",
    "cache",
    "access",
    "limits",
];

/// A value whose fields are written in the order in which people read them.
pub(super) struct Ordered<'a>(pub(super) &'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let rank = |key: &str| FIRST.iter().position(|first| *first == key);
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                fields.sort_by_key(|(key, _)| (rank(key).unwrap_or(FIRST.len()), *key));
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(key, &Ordered(value))?;
                }
                map.end()
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Ordered)),
            other => other.serialize(serializer),
        }
    }
}

fn group(group: &mut Value) {
    leave_out(group, &json!({"policy": "Random", "caseRandomisation": false}));
    for server in list(group, "servers") {
        leave_out(server, &json!({"transport": "UDP"}));
    }
}

fn list<'a>(of: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    of.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Removes the fields that have these values by default.
fn leave_out(from: &mut Value, defaults: &Value) {
    if let Value::Object(fields) = from {
        fields.retain(|key, value| defaults.get(key) != Some(value) && !value.is_null());
    }
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}
