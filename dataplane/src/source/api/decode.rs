//! JSON from the API server to objects of the core, straight from the text: no generic value, no
//! copy. An error in one object affects only that object (E15).

use std::borrow::Cow;
use std::fmt;

use dataplane_core::{Key, Object, Resource};
use serde::de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::source::objects::convert::{self, Reasons};
use crate::source::objects::slim;

/// `metadata` of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageMetadata {
    /// The version of the store that the list shows; empty where it is missing.
    pub(super) resource_version: String,
    /// Leads to the next page.
    #[serde(rename = "continue")]
    pub(super) token: Option<String>,
}

/// A line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// JSON of the object, not decoded yet.
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    pub(super) metadata: slim::Metadata,
}

/// The error that the API server sent instead of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ApiStatus {
    /// The status code, as HTTP has it.
    pub(super) code: u16,
    /// What the API server says about it.
    pub(super) message: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ConfigMap {
    /// The documents, by key; `None` is the same as empty.
    #[serde(default)]
    pub(super) data: Option<std::collections::BTreeMap<String, String>>,
}

/// An object as the index reads it, and the parts of it that are not served.
#[derive(Debug)]
pub(super) struct Decoded {
    /// Namespace and name, which are known even where the rest is not served.
    pub(super) key: Key,
    /// Its resourceVersion; 0 for one that is not a number.
    pub(super) version: u64,
    /// For the index; `None` for one that gives no names, such as a slice of type FQDN.
    pub(super) object: Option<Object>,
    /// The parts of it that are not served.
    pub(super) reasons: Option<String>,
    /// When what it follows from changed.
    pub(super) last_change: Option<String>,
}

/// An object that cannot be understood at all.
#[derive(Debug)]
pub(super) struct Undecodable {
    /// Its key, where at least that can be read.
    pub(super) key: Option<Key>,
    /// Its resourceVersion; 0 for one that is not a number.
    pub(super) version: u64,
    /// Which field has a type that it cannot have.
    pub(super) error: String,
}

/// Reads one object.
///
/// # Errors
/// An object with fields of the wrong type; none of it is served.
pub(super) fn object(resource: Resource, text: &[u8]) -> Result<Decoded, Undecodable> {
    let mut reasons = Reasons::default();
    let (metadata, object) = match resource {
        Resource::Services => {
            let from: slim::Service = read(text)?;
            let service = convert::service(&from, &mut reasons);
            (from.metadata, Some(Object::Service(service)))
        }
        Resource::EndpointSlices => {
            let from: slim::EndpointSlice = read(text)?;
            let slice = convert::slice(&from, &mut reasons).unwrap_or_else(|reason| {
                reasons.add(reason);
                None
            });
            (from.metadata, slice.map(Object::Slice))
        }
        Resource::Namespaces => {
            let from: slim::Namespace = read(text)?;
            let namespace = convert::namespace(&from);
            (from.metadata, Some(Object::Namespace(namespace)))
        }
        Resource::Pods => {
            let from: slim::Pod = read(text)?;
            let pod = convert::pod(&from, &mut reasons);
            (from.metadata, Some(Object::Pod(pod)))
        }
    };
    Ok(Decoded {
        key: convert::key(&metadata),
        version: convert::version(&metadata),
        object,
        reasons: reasons.text(),
        last_change: metadata.last_change,
    })
}

fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Undecodable> {
    serde_json::from_slice(text).map_err(|error| {
        let named = named(text);
        Undecodable {
            key: named.as_ref().map(|named| convert::key(&named.metadata)),
            version: named.map_or(0, |named| convert::version(&named.metadata)),
            error: error.to_string(),
        }
    })
}

/// The metadata of any object as JSON; `None` where it has none that can be read. An object is read no further than its metadata,
/// which the API server writes before the rest: it may have a thousand endpoints.
pub(super) fn named(text: &[u8]) -> Option<Named> {
    let mut metadata = None;
    // Ends with an error where there is metadata: nothing else ends reading.
    let _ =
        UpToMetadata(&mut metadata).deserialize(&mut serde_json::Deserializer::from_slice(text));
    match metadata {
        Some(metadata) => Some(Named { metadata }),
        None => serde_json::from_slice(text).ok(),
    }
}

/// Reads an object up to its metadata, and keeps that.
struct UpToMetadata<'a>(&'a mut Option<slim::Metadata>);

impl<'de> DeserializeSeed<'de> for UpToMetadata<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, object: D) -> Result<(), D::Error> {
        object.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for UpToMetadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<Cow<'_, str>>()? {
            if field == "metadata" {
                *self.0 = Some(fields.next_value()?);
                return Err(A::Error::custom("the rest is not read"));
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// A resourceVersion as a number; 0 for one that is not a number.
pub(super) fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_is_named() {
        let text = r#"{"metadata":{"name":"bad","namespace":"shop"},"spec":{"ports":"none"}}"#;
        let bad = object(Resource::Services, text.as_bytes()).unwrap_err();
        assert_eq!(bad.key.unwrap().to_string(), "shop/bad");
        assert!(bad.error.contains("invalid type"), "{}", bad.error);
    }

    #[test]
    fn metadata_is_the_same_wherever_it_is_and_nothing_behind_it_is_read() {
        let key = |text: &str| {
            let named = named(text.as_bytes())?;
            Some(convert::key(&named.metadata).to_string())
        };
        let metadata = r#""metadata":{"name":"a","namespace":"shop","resourceVersion":"7"}"#;
        for object in [
            format!("{{{metadata}}}"),
            format!(r#"{{"kind":"Service","metadata2":{{}},{metadata},"spec":{{}}}}"#),
            format!(
                r#"{{"spec":{{"metadata":{{"name":"b"}}}},"ports":[{{"name":"c"}}],{metadata}}}"#
            ),
        ] {
            assert_eq!(key(&object).as_deref(), Some("shop/a"), "{object}");
        }
        for (object, known) in [
            ("{}", Some("")),
            (r#"{"spec":{}}"#, Some("")),
            (r#"{"metadata":{}}"#, Some("")),
            (r#"{"metadata":null}"#, None),
            (r#"{"metadata":7,"spec":{}}"#, None),
            (r#"{"metadata":{"name":7}}"#, None),
            (r#"{"metadata":{"name":"a""#, None),
            ("7", None),
            ("", None),
        ] {
            assert_eq!(key(object).as_deref(), known, "{object}");
            let whole = serde_json::from_str::<Named>(object).ok();
            let whole = whole.map(|named| convert::key(&named.metadata).to_string());
            assert_eq!(key(object), whole, "{object}");
        }
        // What follows is not looked at: the line of the watch was read as JSON before.
        assert_eq!(key(&format!("{{{metadata},!")).as_deref(), Some("shop/a"));
    }

    #[test]
    fn k20_of_annotations_only_the_last_change_is_kept() {
        let text = format!(
            r#"{{"metadata":{{"name":"a","annotations":{{"big":"{}","endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z"}}}},
            "addressType":"IPv4"}}"#,
            "x".repeat(1 << 20)
        );
        let decoded = object(Resource::EndpointSlices, text.as_bytes()).unwrap();
        assert_eq!(decoded.last_change.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert!(decoded.object.is_none() && decoded.reasons.unwrap().contains("service-name"));
    }
}
