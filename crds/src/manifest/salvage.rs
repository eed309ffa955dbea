//! Finds further errors in an unreadable document: each field of the wrong shape is replaced by a valid value, so
//! that the others can be read and checked. The result is never run.

use serde_json::{Map, Value, json};

use super::{ManifestError, read_value, shape};
use crate::ClusterDNS;
use crate::config::UnknownFields;

/// Most rounds. Each one replaces every field that the reader names, so few are needed.
const MAX_ROUNDS: usize = 8;

/// What was read in spite of mistakes.
pub(super) struct Salvaged {
    /// The resource, with other values in the fields that cannot be read.
    pub(super) resource: ClusterDNS,
    /// Those fields.
    pub(super) mended: Vec<String>,
    /// Fields that this version does not know.
    pub(super) unknown: UnknownFields,
}

/// Reads what can be read; `None` where too much is wrong for that.
pub(super) fn salvage(mut document: Value, error: &ManifestError) -> Option<Salvaged> {
    let fields = |error: &ManifestError| -> Vec<String> {
        error.mistakes().iter().map(|mistake| mistake.field.clone()).collect()
    };
    let (mut mended, mut next) = (Vec::new(), fields(error));
    for _ in 0..MAX_ROUNDS {
        for field in &next {
            mend(&mut document, field)?;
        }
        mended.append(&mut next);
        match read_value(document.clone()) {
            Ok((resource, unknown)) => return Some(Salvaged { resource, mended, unknown }),
            Err(error) => next = fields(&error),
        }
        if next.iter().any(|field| mended.contains(field)) {
            return None;
        }
    }
    None
}

/// Puts a value of the right shape at this path.
fn mend(document: &mut Value, path: &str) -> Option<()> {
    if path == "metadata" {
        document["metadata"] = json!({"name": "default"});
        return Some(());
    }
    let (mut value, mut schema) = (document, shape::schema());
    if !path.starts_with("spec") {
        return None;
    }
    for step in path.split(['.', '[']) {
        match step.strip_suffix(']') {
            Some(index) => {
                schema = &schema["items"];
                value = value.as_array_mut()?.get_mut(index.parse::<usize>().ok()?)?;
            }
            None => {
                let below = schema["properties"].get(step);
                schema = below.or_else(|| schema.get("additionalProperties"))?;
                value = value.as_object_mut()?.entry(step).or_insert(Value::Null);
            }
        }
    }
    *value = of_shape(schema);
    Some(())
}

/// Any value that the schema allows.
fn of_shape(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|choices| choices.first()) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!("1Mi");
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten();
            let fields = required
                .filter_map(Value::as_str)
                .map(|name| (name.to_owned(), of_shape(&schema["properties"][name])));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Some("array") => json!([]),
        Some("boolean") => json!(false),
        Some("integer" | "number") => {
            json!(schema["minimum"].as_f64().map_or(0, |least| least as i64))
        }
        Some(_) | None => json!(""),
    }
}
