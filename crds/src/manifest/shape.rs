//! Fields of the wrong shape, in the schema's words: what was expected there, and what was found. The reader's own
//! words name types of the program and stop at the first mistake.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::bounds;
use crate::check::shown;
use crate::v1alpha1;

/// A field of the wrong shape.
#[derive(Debug)]
pub(super) struct Misshapen {
    pub(super) field: String,
    pub(super) message: String,
}

/// The fields of a document that do not have the shape of the schema. `refused` is the field at which the reader
/// stopped: null is a mistake only there, because most fields may be null.
pub(super) fn mistakes(document: &Value, refused: &str) -> Vec<Misshapen> {
    walk(document, refused, false)
}

/// Finds what the reader takes and the schema does not: lists where fields belong, as it would take their entries for fields
/// in the order of the program's types, and numbers with a fraction where a quantity belongs.
pub(super) fn misread(document: &Value) -> Vec<Misshapen> {
    walk(document, "", true)
}

fn walk(document: &Value, refused: &str, is_read: bool) -> Vec<Misshapen> {
    let mut found = Walk { refused, is_read, mistakes: Vec::new() };
    found.look(document, schema(), String::new());
    found.mistakes.truncate(bounds::REPORTED);
    found.mistakes
}

pub(super) fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let crd =
            serde_json::to_value(v1alpha1::crd()).expect("a CustomResourceDefinition is JSON");
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    })
}

struct Walk<'a> {
    refused: &'a str,
    /// Look only for what the reader takes.
    is_read: bool,
    mistakes: Vec<Misshapen>,
}

impl Walk<'_> {
    fn look(&mut self, value: &Value, schema: &Value, path: String) {
        match value {
            Value::Null if !self.is_read && path == self.refused => {
                let message = format!(
                    "expected {}, found nothing: leave the field out for its default",
                    expected(schema)
                );
                self.mistakes.push(Misshapen { field: path, message });
            }
            Value::Null => {}
            _ if !self.fits(value, schema) => {
                let message = format!("expected {}, found {}", expected(schema), found(value));
                self.mistakes.push(Misshapen { field: path, message });
            }
            Value::Object(fields) => {
                for (key, value) in fields {
                    let below =
                        schema["properties"].get(key).or(schema.get("additionalProperties"));
                    if let Some(below) = below {
                        self.look(value, below, joined(&path, key));
                    }
                }
                self.look_for_missing(fields, schema, &path);
            }
            Value::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    self.look(item, &schema["items"], format!("{path}[{place}]"));
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

impl Walk<'_> {
    fn fits(&self, value: &Value, schema: &Value) -> bool {
        match self.is_read {
            true => {
                let is_list = value.is_array() && schema["type"] == "object";
                let is_wrong_number = is_quantity(schema) && is_fraction(value);
                !(is_list || is_wrong_number)
            }
            false => fits(value, schema),
        }
    }

    /// Fields that must be there. The spec need not: every field in it has a default.
    fn look_for_missing(&mut self, fields: &Map<String, Value>, schema: &Value, path: &str) {
        if self.is_read || path.is_empty() {
            return;
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Value::as_str).filter(|key| !fields.contains_key(*key)) {
            let message = format!("is missing: write {}", expected(&schema["properties"][key]));
            self.mistakes.push(Misshapen { field: joined(path, key), message });
        }
    }
}

fn is_quantity(schema: &Value) -> bool {
    schema["x-kubernetes-int-or-string"] == true
}

/// Is it a number that is no integer for the API server?
fn is_fraction(value: &Value) -> bool {
    value.is_number() && !value.is_i64()
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Whether a value has the type, is one of the choices, and is within the range. What is inside is another step.
fn fits(value: &Value, schema: &Value) -> bool {
    if is_quantity(schema) {
        return value.is_string() || value.as_i64().is_some_and(|number| number >= 0);
    }
    let is_typed = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some(_) | None => true,
    };
    let is_chosen = schema["enum"].as_array().is_none_or(|choices| choices.contains(value));
    let within = |bound: &str, is_within: fn(f64, f64) -> bool| match (
        value.as_f64(),
        schema[bound].as_f64(),
    ) {
        (Some(number), Some(bound)) => is_within(number, bound),
        _ => true,
    };
    is_typed
        && is_chosen
        && within("minimum", |n, min| n >= min)
        && within("maximum", |n, max| n <= max)
}

/// What belongs there, for a person.
fn expected(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
        return format!("one of {}", choices.join(", "));
    }
    if is_quantity(schema) {
        return "a quantity such as 16Mi, as text or as a whole number".to_owned();
    }
    match schema["type"].as_str() {
        Some("object") => fields(schema),
        Some("array") => format!("a list, each entry {}", expected(&schema["items"])),
        Some("string") => "text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => format!("a whole number{}", range(schema)),
        Some("number") => format!("a number{}", range(schema)),
        Some(_) | None => "something else".to_owned(),
    }
}

/// An object, by the fields that it must have: they show its shape to who wrote their value in its place.
fn fields(schema: &Value) -> String {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let required: Vec<String> = required.map(|key| format!("{key}: …")).collect();
    match required.is_empty() {
        true => "fields (name: value)".to_owned(),
        false => format!("fields such as {}", required.join(", ")),
    }
}

fn range(schema: &Value) -> String {
    match (&schema["minimum"], &schema["maximum"]) {
        (Value::Null, Value::Null) => String::new(),
        (min, Value::Null) => format!(" from {} up", whole(min)),
        (Value::Null, max) => format!(" up to {}", whole(max)),
        (min, max) => format!(" from {} to {}", whole(min), whole(max)),
    }
}

/// Bounds are floating-point numbers in the schema.
fn whole(bound: &Value) -> String {
    bound.as_f64().map(|bound| bound.to_string()).unwrap_or_default()
}

fn found(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => shown(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "fields (name: value)".to_owned(),
    }
}
