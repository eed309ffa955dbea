//! The managed fields of objects, and what of them typed clients can read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

/// The managed fields of a reply, as typed clients decode them.
#[derive(Deserialize)]
#[allow(dead_code, reason = "decoded only to see whether it can be")]
struct Managed {
    #[serde(default)]
    metadata: Option<Managers>,
    #[serde(default)]
    items: Option<Vec<Managed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "decoded only to see whether it can be")]
struct Managers {
    #[serde(default)]
    managed_fields: Option<Vec<ManagedFieldsEntry>>,
}

/// An object, or a list of objects, with the managed fields that can be read; none: it has no others, or is no object.
pub(super) fn readable_reply(text: &[u8]) -> Option<Vec<u8>> {
    if serde_json::from_slice::<Managed>(text).is_ok() {
        return None;
    }
    let mut list: BTreeMap<String, &RawValue> = serde_json::from_slice(text).ok()?;
    let Some(items) = list.get("items") else { return with_readable_managers(text).ok() };
    let items: Vec<&RawValue> = serde_json::from_str(items.get()).ok()?;
    let readable = |item: &&RawValue| {
        let text = with_readable_managers(item.get().as_bytes()).ok()?;
        RawValue::from_string(String::from_utf8(text).ok()?).ok()
    };
    let items: Option<Vec<Box<RawValue>>> = items.iter().map(readable).collect();
    let items = to_raw_value(&items?).ok()?;
    list.insert("items".to_owned(), &items);
    serde_json::to_vec(&list).ok()
}

/// A merge patch that writes the managed fields of an object without the entries that cannot be read, if there are any. The
/// API server gives an entry without a time the one that it had, so the whole entry goes: its manager owns nothing then.
pub(super) fn patch_of_managers(object: &[u8]) -> Option<Vec<u8>> {
    if serde_json::from_slice::<Managed>(object).is_ok() {
        return None;
    }
    let object: BTreeMap<String, &RawValue> = serde_json::from_slice(object).ok()?;
    let metadata: BTreeMap<String, &RawValue> =
        serde_json::from_str(object.get("metadata")?.get()).ok()?;
    // Over the version that was read only.
    let version = metadata.get("resourceVersion")?;
    let managers: Vec<&RawValue> =
        serde_json::from_str(metadata.get("managedFields")?.get()).unwrap_or_default();
    let readable = |entry: &&RawValue| serde_json::from_str(entry.get()).ok();
    let managers: Vec<ManagedFieldsEntry> = managers.iter().filter_map(readable).collect();
    // An empty entry is how a client says that there is no manager.
    let managers = if managers.is_empty() { vec![ManagedFieldsEntry::default()] } else { managers };
    let metadata = BTreeMap::from([
        ("resourceVersion", to_raw_value(version).ok()?),
        ("managedFields", to_raw_value(&managers).ok()?),
    ]);
    serde_json::to_vec(&BTreeMap::from([("metadata", metadata)])).ok()
}

/// The same JSON with the managed fields that can be read; all else is as it is.
pub(super) fn with_readable_managers(text: &[u8]) -> serde_json::Result<Vec<u8>> {
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
