//! A ClusterDNS from a file: for the data plane without an API server, and for offline commands.
//!
//! Such files have no API server to default and prune them: serde fills in the same defaults, and fields that nobody
//! knows are listed, because a misspelled section would otherwise be silently absent.

use serde::Deserialize;
use serde_json::Value;

use crate::ClusterDNS;
use crate::config::UnknownFields;
use crate::v1alpha1::VERSION;

/// Reads one YAML or JSON document. `file` is for the message only.
pub fn read(text: &str, file: &str) -> Result<(ClusterDNS, UnknownFields), ManifestError> {
    let at = |error: serde_saphyr::Error| {
        let place = error
            .location()
            .map(|place| format!(":{}:{}", place.line(), place.column()))
            .unwrap_or_default();
        // The rest of the message is an excerpt of the file.
        let reason = error.without_snippet().to_string();
        ManifestError(format!("{file}{place}: {reason}"))
    };
    let head: Head = serde_saphyr::from_str(text).map_err(at)?;
    head.check().map_err(|reason| ManifestError(format!("{file}: {reason}")))?;
    let mut unknown = UnknownFields::default();
    let resource = serde_saphyr::with_deserializer_from_str(text, |document| {
        serde_ignored::deserialize(document, |path| add(&mut unknown, &path))
    })
    .map_err(at)?;
    Ok((resource, unknown))
}

/// Reads a document that was parsed already, for example one of many in a folder.
pub fn read_value(value: Value) -> Result<(ClusterDNS, UnknownFields), ManifestError> {
    let head = Head::deserialize(&value).map_err(|error| ManifestError(error.to_string()))?;
    head.check().map_err(ManifestError)?;
    let mut unknown = UnknownFields::default();
    let resource = serde_ignored::deserialize(value, |path| add(&mut unknown, &path))
        .map_err(|error: serde_json::Error| ManifestError(error.to_string()))?;
    Ok((resource, unknown))
}

/// Why a document is not a ClusterDNS: place, and what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(String);

#[derive(Deserialize)]
struct Head {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
}

impl Head {
    fn check(&self) -> Result<(), String> {
        let expected = format!("{}/{VERSION}", crate::GROUP);
        if self.api_version == expected && self.kind == "ClusterDNS" {
            Ok(())
        } else {
            Err(format!(
                "apiVersion {:?} and kind {:?} are not a ClusterDNS: write apiVersion: {expected} and kind: ClusterDNS",
                self.api_version, self.kind
            ))
        }
    }
}

/// The two fields of [`Head`] are unknown to the resource's own type, which has them as constants.
fn add(unknown: &mut UnknownFields, path: &serde_ignored::Path<'_>) {
    let path = path.to_string();
    if path != "apiVersion" && path != "kind" {
        unknown.add(path);
    }
}
