//! A ClusterDNS from a file: for the data plane without an API server, and for offline commands.
//!
//! Such files have no API server to default and prune them: serde fills in the same defaults, and unknown
//! fields are listed, because a misspelled section would otherwise be silently absent.

mod yaml;
mod numbers;
mod shape;
mod salvage;
mod places;

use std::fmt::{self, Display};

use serde_json::{Map, Value};

use crate::ClusterDNS;
use crate::config::UnknownFields;
use crate::v1alpha1::VERSION;

pub use places::{Place, Places, places, places_of};
pub use yaml::{documents, not_yaml, options};

/// What is said of a ClusterDNS without `spec`. For the API server the field is required; to take a file whose lines lost
/// their indentation for the defaults would send the names of its stub domains to other servers.
pub const SPEC_IS_MISSING: &str =
    "is missing or empty, and the API server refuses that: write spec: {} for the defaults";

/// A ClusterDNS as it was read.
#[derive(Clone, Debug)]
pub struct Found {
    /// The resource, defaults filled in, unchecked.
    pub resource: ClusterDNS,
    /// Fields that this version does not know and ignores.
    pub unknown: UnknownFields,
    /// Where its fields are written, for messages about them.
    pub places: Places,
    /// It has `spec:` with something below it. An API server refuses a resource without it.
    pub has_spec: bool,
}

/// Fields that decide which others there are: of an unreadable one, nothing is known about these.
const DECIDING: [(&str, &[&str]); 3] = [
    ("].type", &["].addresses", "].target", "].strings", "].services"]),
    ("].transport", &["].tls", "].port"]),
    ("].operator", &["].values", "].value"]),
];

/// The readable part of a ClusterDNS that cannot be read as a whole.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The resource, with other values in the fields that cannot be read.
    pub resource: ClusterDNS,
    /// Those fields: messages about them, or about fields below them, must not be shown.
    pub mended: Vec<String>,
    /// Fields that this version does not know and ignores.
    pub unknown: UnknownFields,
    /// Where its fields are written.
    pub places: Places,
}

impl Rest {
    /// Was another value put into this field, into one above it, or into one that decides what this field may be?
    pub fn is_mended(&self, field: &str) -> bool {
        let is_at_or_below = |path: &str| {
            let rest = field.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let follows = |path: &String| {
            let decides = DECIDING
                .iter()
                .find_map(|(decides, others)| Some((path.strip_suffix(decides)?, others)));
            decides.is_some_and(|(of, others)| {
                others.iter().any(|other| is_at_or_below(&format!("{of}{other}")))
            })
        };
        self.mended.iter().any(|path| is_at_or_below(path) || follows(path))
    }
}

/// Why a document is not a ClusterDNS: one mistake or more, one a line.
#[derive(Clone, Debug)]
pub struct ManifestError {
    file: String,
    mistakes: Vec<Mistake>,
    rest: Option<Box<Rest>>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where in the file, where that is known.
    pub place: Option<Place>,
    /// The field, such as `spec.ttlSeconds`; empty where it is not about one.
    pub field: String,
    /// What is wrong, and what to write.
    pub message: String,
}

/// Reads one YAML or JSON document. `file` is for the message only.
///
/// # Errors
/// What is wrong, and where.
pub fn read(text: &str, file: &str) -> Result<(ClusterDNS, UnknownFields), ManifestError> {
    let document = serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| ManifestError::no_document(&error, file))?;
    let places = places(text).into_iter().next().unwrap_or_default();
    read_value(document).map_err(|error| error.at(file, &places))
}

/// Reads every ClusterDNS of a text of any documents and `List`s, also one whose kind or group is misspelled; other kinds
/// are passed over, and so is `status`. `file` is for the
/// messages only.
///
/// # Errors
/// The text is not YAML: none of it was read.
pub fn read_all(
    text: &str,
    file: &str,
) -> Result<Vec<Result<Found, ManifestError>>, ManifestError> {
    let documents = documents(text).map_err(|error| ManifestError::no_document(&error, file))?;
    let mut places = places(text).into_iter();
    let of_document = |mut document: Value| match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(_) | None => vec![document],
    };
    let all = documents.into_iter().flat_map(of_document);
    let found = all.filter(is_meant_for_us).map(|mut document| {
        // The API server ignores it in what is applied. In an export of a newer cluster it has fields that are not known here.
        document.as_object_mut().and_then(|fields| fields.remove("status"));
        let places = places.next().unwrap_or_default();
        let has_spec = !document["spec"].is_null();
        match read_value(document.clone()) {
            Ok((resource, unknown)) => Ok(Found { resource, unknown, places, has_spec }),
            Err(error) => {
                let rest = salvage::salvage(document, &error);
                let error = error.at(file, &places);
                let rest = rest.map(|salvaged| {
                    let salvage::Salvaged { resource, mended, unknown } = salvaged;
                    Box::new(Rest { resource, mended, unknown, places })
                });
                Err(ManifestError { rest, ..error })
            }
        }
    });
    Ok(found.collect())
}

/// Is it a ClusterDNS, or meant to be one?
fn is_meant_for_us(document: &Value) -> bool {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    is_meant(text("apiVersion"), text("kind"))
}

/// Are these of a ClusterDNS, or of what is meant to be one? A document that is passed over for a misspelled word would
/// leave the defaults in use.
pub fn is_meant(version: &str, kind: &str) -> bool {
    names_us("apiVersion", version) || names_us("kind", kind)
}

/// Does this `kind` or `apiVersion` say that a document is meant for us?
fn names_us(key: &str, value: &str) -> bool {
    match key {
        "kind" => value.eq_ignore_ascii_case("ClusterDNS"),
        "apiVersion" => value.split('/').next() == Some(crate::GROUP),
        _ => false,
    }
}

/// Reads a document that was parsed already, for example one of many in a folder.
///
/// # Errors
/// What is wrong, by field.
pub fn read_value(mut document: Value) -> Result<(ClusterDNS, UnknownFields), ManifestError> {
    check_head(&document)?;
    numbers::as_sent(&mut document);
    // The type has the two as constants; an absent spec is an empty one, as every field has a default.
    let mut fields = document.as_object().cloned().unwrap_or_default();
    fields.retain(|key, value| !matches!(key.as_str(), "apiVersion" | "kind") && !value.is_null());
    fields.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    let mut unknown = UnknownFields::default();
    let mut track = serde_path_to_error::Track::new();
    let reader = serde_path_to_error::Deserializer::new(Value::Object(fields), &mut track);
    let read = serde_ignored::deserialize(reader, |path| unknown.add(path.to_string()));
    let refused = track.path().to_string();
    let mistakes = match &read {
        Ok(_) => shape::misread(&document),
        Err(_) => shape::mistakes(&document, &refused),
    };
    match (read, mistakes.is_empty()) {
        (Ok(resource), true) => Ok((resource, unknown)),
        // The schema finds no mistake: use the reader's own words.
        (Err(error), true) => Err(ManifestError::of(&refused, error.to_string())),
        (_, false) => Err(misshapen(mistakes)),
    }
}

fn misshapen(mistakes: Vec<shape::Misshapen>) -> ManifestError {
    let mistake = |found: shape::Misshapen| Mistake {
        place: None,
        field: found.field,
        message: found.message,
    };
    let mistakes = mistakes.into_iter().map(mistake).collect();
    ManifestError { file: String::new(), mistakes, rest: None }
}

fn check_head(document: &Value) -> Result<(), ManifestError> {
    let expected = format!("{}/{VERSION}", crate::GROUP);
    let text = |field: &str| document[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == expected && kind == "ClusterDNS" {
        return match &document["metadata"] {
            Value::Null => {
                let message = "is missing: write metadata: {name: default}".to_owned();
                Err(ManifestError::of("metadata", message))
            }
            _ => Ok(()),
        };
    }
    let message = format!(
        "apiVersion {version:?} and kind {kind:?} are not a ClusterDNS this program reads: write apiVersion: {expected} and kind: ClusterDNS"
    );
    Err(ManifestError::of(if version == expected { "kind" } else { "apiVersion" }, message))
}

impl ManifestError {
    fn of(field: &str, message: String) -> ManifestError {
        let mistake = Mistake { place: None, field: field.to_owned(), message };
        ManifestError { file: String::new(), mistakes: vec![mistake], rest: None }
    }

    /// Not a document at all.
    fn no_document(error: &serde_saphyr::Error, file: &str) -> ManifestError {
        let (place, message) = not_yaml(error);
        let mistake = Mistake { place, field: String::new(), message };
        ManifestError { file: file.to_owned(), mistakes: vec![mistake], rest: None }
    }

    /// The same, of this file.
    fn at(mut self, file: &str, places: &Places) -> ManifestError {
        file.clone_into(&mut self.file);
        for mistake in &mut self.mistakes {
            mistake.place = places.of(&mistake.field);
        }
        self
    }

    /// The readable rest, to look for other mistakes; only [`read_all`] fills it.
    pub fn rest(&self) -> Option<&Rest> {
        self.rest.as_deref()
    }

    /// What is wrong; never empty.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, mistake) in self.mistakes.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            match (self.file.as_str(), mistake.place) {
                ("", _) => {}
                (file, None) => write!(f, "{file}: ")?,
                (file, Some(place)) => write!(f, "{file}:{place}: ")?,
            }
            if !mistake.field.is_empty() {
                write!(f, "{}: ", mistake.field)?;
            }
            f.write_str(&mistake.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ManifestError {}
