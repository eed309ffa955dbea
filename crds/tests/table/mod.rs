//! Tables of specs in YAML: reading them, and writing out `{times: 64, of: a}` and `{list: 16, of: ...}`.

use crds::ClusterDNS;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// One row: what a user writes, and what is said about it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) rule: String,
    #[serde(default)]
    pub(crate) name: Value,
    #[serde(default)]
    pub(crate) old: Value,
    /// The addresses that the Service has then.
    #[serde(default)]
    pub(crate) has: Vec<String>,
    #[serde(default)]
    pub(crate) spec: Value,
    #[serde(default)]
    pub(crate) field: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) server: String,
}

impl Row {
    /// The resource as written, mistakes and all.
    pub(crate) fn document(&self) -> Value {
        self.document_with(&self.spec)
    }

    /// The resource as it was before, if the row is about a change.
    pub(crate) fn old_document(&self) -> Option<Value> {
        let mut document = (!self.old.is_null()).then(|| self.document_with(&self.old))?;
        document["status"] = json!({"clusterIPs": self.has});
        Some(document)
    }

    fn document_with(&self, spec: &Value) -> Value {
        let name = if self.name.is_null() { json!("default") } else { written_out(&self.name) };
        let spec = if spec.is_null() { json!({}) } else { written_out(spec) };
        json!({
            "apiVersion": "clusterdns.dev/v1alpha1",
            "kind": "ClusterDNS",
            "metadata": {"name": name},
            "spec": spec,
        })
    }

    /// The resource as it is read.
    pub(crate) fn resource(&self) -> ClusterDNS {
        let document = self.document();
        let (resource, unknown) =
            crds::manifest::read_value(document).unwrap_or_else(|e| panic!("{}: {e}", self.rule));
        assert!(unknown.is_empty(), "{}: unknown fields {unknown}", self.rule);
        resource
    }

    /// The resource that was there before, if the row is about a change.
    pub(crate) fn old_resource(&self) -> Option<ClusterDNS> {
        let old = self.old_document()?;
        Some(serde_json::from_value(old).unwrap_or_else(|e| panic!("{}: old: {e}", self.rule)))
    }
}

pub(crate) fn rows(text: &str) -> Vec<Row> {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn written_out(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let count = |key: &str| fields.get(key).and_then(Value::as_u64);
            if let Some(times) = count("times") {
                let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
                json!(text("of").repeat(times as usize) + text("then"))
            } else if let Some(length) = count("list") {
                (0..length).map(|index| numbered(&written_out(&fields["of"]), index)).collect()
            } else {
                fields
                    .iter()
                    .map(|(key, value)| (key.clone(), written_out(value)))
                    .collect::<Map<_, _>>()
                    .into()
            }
        }
        Value::Array(items) => items.iter().map(written_out).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn numbered(value: &Value, index: u64) -> Value {
    match value {
        Value::String(text) => json!(text.replace("%d", &index.to_string())),
        Value::Array(items) => items.iter().map(|item| numbered(item, index)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), numbered(value, index)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
