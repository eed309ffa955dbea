//! A text of manifests to the ClusterDNS in it. Everything else is passed over, so that whole repositories can be named.

use crds::ClusterDNS;
use crds::config::UnknownFields;
use crds::v1alpha1::VERSION;
use serde_json::Value;

use super::places::Places;

/// A ClusterDNS as written.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where its fields are.
    pub places: Places,
    /// What it is, or the field that cannot be read and why.
    pub read: Result<(ClusterDNS, UnknownFields), (String, String)>,
}

/// Every ClusterDNS of a text.
///
/// # Errors
/// Line, and why the text is not YAML: nothing of it was read.
pub fn documents(text: &str) -> Result<Vec<Document>, (usize, String)> {
    // A template of Helm, or what else is in a repository, need not be YAML.
    if !text.contains(crds::GROUP) {
        return Ok(Vec::new());
    }
    let values: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let line = error.location().map_or(0, |place| place.line() as usize);
        (line, first_line(&error.without_snippet().to_string()))
    })?;
    let places = Places::of(text);
    debug_assert_eq!(values.len(), places.len());
    let objects = values.into_iter().zip(places).flat_map(|(value, places)| objects(value, places));
    Ok(objects
        .filter(|(value, _)| is_cluster_dns(value))
        .map(|(value, places)| read(value, places))
        .collect())
}

/// The items of a list, or the one object that this is.
fn objects(mut value: Value, places: Places) -> Vec<(Value, Places)> {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| (item, places.below(&format!("items[{index}]"))))
            .collect(),
        Some(_) | None => vec![(value, places)],
    }
}

/// Of any version: one that is not ours is a mistake worth a word.
fn is_cluster_dns(value: &Value) -> bool {
    let group = value["apiVersion"].as_str().and_then(|text| text.split('/').next());
    value["kind"] == "ClusterDNS" && group == Some(crds::GROUP)
}

fn read(value: Value, places: Places) -> Document {
    let read = crds::manifest::read_value(value.clone())
        .map_err(|error| unreadable(value, &error.to_string()));
    Document { places, read }
}

/// The field in which reading stopped.
fn unreadable(value: Value, reason: &str) -> (String, String) {
    let known = format!("{}/{VERSION}", crds::GROUP);
    if value["apiVersion"] != known.as_str() {
        return ("apiVersion".to_owned(), format!("this program reads {known}: write that"));
    }
    match serde_path_to_error::deserialize::<_, ClusterDNS>(value) {
        Err(error) => {
            let (path, why) = (error.path().to_string(), first_line(&error.inner().to_string()));
            (with_missing(&path, &why), why)
        }
        Ok(_) => ("kind".to_owned(), reason.to_owned()),
    }
}

/// A field that is missing is named in the message only; the path is that of what it is missing from.
fn with_missing(path: &str, why: &str) -> String {
    let missing = why.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match (path, missing) {
        (".", Some(field)) => field.to_owned(),
        (path, Some(field)) => format!("{path}.{field}"),
        (path, None) => path.to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
