//! Objects as the API server sends them, decoded one by one: one that cannot be read costs itself, not its list. Anyone who
//! may edit an object may write into its managed fields what the API server takes and no typed client reads: a time in the
//! year 10000, or fields in fields 200 deep. Only such entries are changed or left out, because decisions read the others.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// An object that cannot be decoded, and what names it.
#[derive(Debug)]
pub(super) struct Undecodable {
    pub(super) metadata: Named,
    pub(super) error: serde_json::Error,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

/// `metadata` of an object, and nothing else of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OfObject {
    metadata: Named,
}

impl std::fmt::Display for Undecodable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Named { name, namespace, .. } = &self.metadata;
        write!(f, "{}/{name}: {}", namespace.as_deref().unwrap_or_default(), self.error)
    }
}

impl Undecodable {
    /// An object of the same name that has nothing else: to say that the state before is outdated. None for a kind that
    /// has no such object.
    pub(super) fn nameless<K: DeserializeOwned>(&self) -> Option<K> {
        let object = serde_json::json!({"metadata": self.metadata, "spec": {}});
        serde_json::from_value(object).ok()
    }
}

/// Reads one object, if need be without what no client can read of its managed fields.
///
/// # Errors
/// Another field has a value that its type cannot have.
pub(super) fn object<K: DeserializeOwned>(text: &[u8]) -> Result<K, Undecodable> {
    let as_it_is = serde_json::from_slice(text);
    let read = as_it_is
        .or_else(|_| with_readable_managers(text).and_then(|text| serde_json::from_slice(&text)));
    read.map_err(|error| {
        let OfObject { metadata } = serde_json::from_slice(text).unwrap_or_default();
        Undecodable { metadata, error }
    })
}

/// The version of an object, or of a bookmark.
///
/// # Errors
/// It is no object.
pub(super) fn version(text: &str) -> serde_json::Result<String> {
    let OfObject { metadata } = serde_json::from_str(text)?;
    Ok(metadata.resource_version.unwrap_or_default())
}

/// The same JSON with the managed fields that can be read; all else is as it is.
fn with_readable_managers(text: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut object: BTreeMap<String, &RawValue> = serde_json::from_slice(text)?;
    let slim = match object.get("metadata") {
        Some(metadata) => {
            let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(metadata.get())?;
            let managers = fields.remove("managedFields").map(readable).unwrap_or_default();
            let managers = to_raw_value(&managers)?;
            fields.insert("managedFields".to_owned(), &managers);
            Some(to_raw_value(&fields)?)
        }
        None => None,
    };
    if let Some(slim) = &slim {
        object.insert("metadata".to_owned(), slim);
    }
    serde_json::to_vec(&object)
}

/// The entries that can be read, at least without their times. A manager without a time still owns its fields.
fn readable(managers: &RawValue) -> Vec<ManagedFieldsEntry> {
    let managers: Vec<&RawValue> = serde_json::from_str(managers.get()).unwrap_or_default();
    let entry = |manager: &&RawValue| {
        serde_json::from_str(manager.get()).ok().or_else(|| {
            let mut fields: BTreeMap<String, &RawValue> =
                serde_json::from_str(manager.get()).ok()?;
            fields.remove("time");
            serde_json::from_str(to_raw_value(&fields).ok()?.get()).ok()
        })
    };
    managers.iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;
    use kube::core::DynamicObject;

    use super::*;

    /// What the API server shows of a time that was written as 9999-12-31T23:59:59-01:00.
    const YEAR_10000: &str =
        r#"{"manager":"m","operation":"Update","time":"10000-01-01T00:59:59Z"}"#;

    #[test]
    fn k23_what_managed_fields_say_keeps_no_object_from_being_read() {
        let deep = format!(r#"{{"fieldsV1":{}{{}}{}}}"#, r#"{"f:a":"#.repeat(200), "}".repeat(200));
        for hostile in [YEAR_10000, &deep, "7", r#"{"time":"\u0000"}"#] {
            let text = format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"managedFields":[{hostile}],"name":"a","labels":{{"b":"c"}}}},
                "spec":{{"nodeName":"n","containers":[]}}}}"#
            );
            let pod: Pod = object(text.as_bytes()).unwrap();
            assert_eq!((pod.name_any().as_str(), pod.labels()["b"].as_str()), ("a", "c"));
            assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n"));
            let any: DynamicObject = object(text.as_bytes()).unwrap();
            assert_eq!(
                (any.name_any().as_str(), &any.data["spec"]["nodeName"]),
                ("a", &"n".into())
            );
        }
        assert!(object::<Pod>(b"{}").is_ok(), "without metadata");
    }

    #[test]
    fn k23_managers_that_can_be_read_keep_their_fields() {
        let deep = format!(r#"{{"fieldsV1":{}{{}}{}}}"#, r#"{"f:a":"#.repeat(200), "}".repeat(200));
        let good = r#"{"manager":"kubectl","operation":"Apply","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:spec":{}}}"#;
        let text = format!(
            r#"{{"metadata":{{"name":"a","managedFields":[{YEAR_10000},{deep},{good}]}}}}"#
        );
        let pod: Pod = object(text.as_bytes()).unwrap();
        let of = |entry: &ManagedFieldsEntry| (entry.manager.clone(), entry.time.is_some());
        let managers: Vec<_> = pod.managed_fields().iter().map(of).collect();
        assert_eq!(managers, [(Some("m".into()), false), (Some("kubectl".into()), true)]);
        assert!(pod.managed_fields()[1].fields_v1.is_some());
    }

    #[test]
    fn k23_an_object_that_cannot_be_read_is_named() {
        let text = r#"{"metadata":{"name":"a","namespace":"dns","resourceVersion":"7","deletionTimestamp":"10000-01-01T00:59:59Z"}}"#;
        let undecodable = object::<Pod>(text.as_bytes()).unwrap_err();
        assert!(undecodable.to_string().starts_with("dns/a: "), "{undecodable}");
        assert_eq!(undecodable.metadata.resource_version.as_deref(), Some("7"));
        let nameless: Pod = undecodable.nameless().unwrap();
        assert_eq!(
            (nameless.namespace().as_deref(), nameless.name_any().as_str()),
            (Some("dns"), "a")
        );
        assert!(undecodable.nameless::<crds::ClusterDNS>().is_some());
        assert!(object::<Pod>(b"no JSON").unwrap_err().metadata.name.is_empty());
    }
}
