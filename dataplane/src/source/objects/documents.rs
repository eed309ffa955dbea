//! The text of one manifest file to objects: YAML or JSON, several documents, `List`s, any kinds.
//! A text that cannot be parsed is refused as a whole, with the line; an object that cannot be
//! understood is named and skipped, and the others are kept (E15).

mod stream;
mod syntax;
mod unread;
mod incomplete;

use std::collections::BTreeMap;

use crds::manifest::{self, Places};
use dataplane_core::{Key, Object};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::convert::{self, Reasons};
use super::derive;
use super::encoded::Kept;
use super::slim;
use crate::status::Skipped;
use syntax::first_line;

pub use syntax::{ParseError, Syntax};
pub use unread::Unread;

/// Namespace of an object that names none, as `kubectl apply` would have it.
const DEFAULT_NAMESPACE: &str = "default";
/// `List`s inside `List`s: they are hardly ever written, so two levels are enough.
const MAX_LIST_DEPTH: usize = 2;
/// The field of a `List` with its objects.
const ITEMS: &str = "items";
/// Longest text in which the lines of a ClusterDNS are looked up.
const MAX_PLACED: usize = 4 << 20;

#[derive(Debug, Default)]
pub struct Manifests {
    /// Services, EndpointSlices, Namespaces and Pods, as written.
    pub objects: Vec<Entry>,
    /// Endpoints, used for Services without EndpointSlices of their own.
    pub endpoints: Vec<Endpoints>,
    /// ClusterDNS objects, unchecked.
    pub configurations: Vec<UncheckedConfiguration>,
    /// What is not served in full and why.
    pub skipped: Vec<Skipped>,
    /// Objects that cannot be read.
    pub unread: Vec<Unread>,
    /// Objects of kinds that DNS does not read, counted.
    pub other_kinds: BTreeMap<String, usize>,
}

/// One object, and its source where slices may have to be derived.
#[derive(Debug)]
pub struct Entry {
    /// The part that the index gets.
    pub object: Kept,
    /// Other parts that are needed to derive slices.
    pub origin: SliceSource,
}

/// One object of the kind Endpoints.
#[derive(Debug)]
pub struct Endpoints {
    /// Its Service, which has its name.
    pub service: Key,
    /// The slices that it was turned into; none if it has no addresses.
    pub slices: Vec<Kept>,
}

/// The objects from which slices are derived.
#[derive(Debug)]
pub enum SliceSource {
    /// A Service with a selector.
    Selecting(Box<derive::Selecting>),
    /// A Pod that has not finished.
    Pod(Box<derive::Pod>),
    /// No other part is needed.
    Other,
}

#[derive(Clone, Debug)]
pub struct UncheckedConfiguration {
    pub name: String,
    pub object: Value,
    /// Where its fields are written.
    pub places: Places,
}

/// Whether the content is the same: the lines of fields do not count.
impl PartialEq for UncheckedConfiguration {
    fn eq(&self, other: &UncheckedConfiguration) -> bool {
        let UncheckedConfiguration { name, object, places: _ } = self;
        *name == other.name && *object == other.object
    }
}

/// Reads a text.
///
/// # Errors
/// When it is not well-formed; then none of it is used.
pub fn parse(text: &str, syntax: Syntax) -> Result<Manifests, ParseError> {
    let mut manifests: Manifests = syntax::read::<stream::Document, _>(text, syntax)?;
    manifests.place_configurations(text);
    Ok(manifests)
}

impl Manifests {
    /// Nothing that DNS could serve or run is in it.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.endpoints.is_empty() && self.configurations.is_empty()
    }

    /// Adds what comes later in the same text.
    fn append(&mut self, later: Manifests) {
        let Manifests { objects, endpoints, configurations, skipped, unread, other_kinds } = later;
        self.objects.extend(objects);
        self.endpoints.extend(endpoints);
        self.configurations.extend(configurations);
        self.skipped.extend(skipped);
        self.unread.extend(unread);
        for (kind, count) in other_kinds {
            *self.other_kinds.entry(kind).or_default() += count;
        }
    }

    /// Sorts one document, or one item of a `List`, by its kind.
    fn add(&mut self, document: Value, list_of: Option<(&str, &str)>, depth: usize) {
        if document.is_null() {
            return;
        }
        let text_of = |field: &str| document.get(field).and_then(Value::as_str);
        // Items of a ServiceList need not repeat their kind.
        let kind = text_of("kind").or(list_of.map(|(_, kind)| kind)).unwrap_or("").to_owned();
        let version =
            text_of("apiVersion").or(list_of.map(|(version, _)| version)).unwrap_or("").to_owned();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match (group, kind.as_str()) {
            ("", "Service") => self.add_service(document),
            ("discovery.k8s.io", "EndpointSlice") => self.add_slice(document),
            ("", "Endpoints") => self.add_endpoints(document),
            ("", "Namespace") => self.add_namespace(document),
            ("", "Pod") => self.add_pod(document),
            (_, list) if list.ends_with("List") && depth < MAX_LIST_DEPTH => {
                self.add_list(document, &version, list, depth);
            }
            // Also one whose kind or apiVersion is misspelled: its check refuses it. Passed over, it would leave the
            // defaults in use, and they send private names to public servers.
            (_, kind) if manifest::is_meant(&version, kind) => self.add_configuration(document),
            (group, kind) => match (unread::misspelled(&version, kind), group, kind) {
                (Some((meant, reason)), ..) => {
                    self.unread.push(Unread::of(meant, &document).because(reason));
                }
                (None, "", "") => self.count_other("(not a Kubernetes object)"),
                (None, "", kind) => self.count_other(kind),
                (None, group, kind) => self.count_other(&format!("{kind}.{group}")),
            },
        }
    }

    fn add_list(&mut self, mut list: Value, version: &str, kind: &str, depth: usize) {
        let Some(Value::Array(items)) = list.get_mut(ITEMS).map(Value::take) else {
            self.count_other(kind);
            return;
        };
        let item_kind = kind.trim_end_matches("List");
        let list_of = (!item_kind.is_empty()).then_some((version, item_kind));
        for item in items {
            self.add(item, list_of, depth + 1);
        }
    }

    fn add_service(&mut self, document: Value) {
        let Some(service) = self.decode::<slim::Service>("Service", document) else { return };
        let mut reasons = Reasons::default();
        let converted = convert::service(&service, &mut reasons);
        incomplete::unknown_type(&service.spec).into_iter().for_each(|it| reasons.add(it));
        if reasons.text().is_none() {
            let missing = incomplete::without_address(&service.spec, &converted.kind);
            missing.into_iter().for_each(|it| reasons.add(it));
        }
        self.report("Service", &service.metadata, &reasons);
        let origin = match service.spec.selector.is_empty() {
            true => SliceSource::Other,
            false => SliceSource::Selecting(Box::new(derive::Selecting::of(&service))),
        };
        self.add_object(Object::Service(converted), origin);
    }

    fn add_slice(&mut self, document: Value) {
        let kind = "EndpointSlice";
        let Some(slice) = self.decode::<slim::EndpointSlice>(kind, document) else { return };
        if let Some(reason) = convert::unknown_address_type(&slice) {
            self.unread.push(Unread::named(kind, &slice.metadata).because(first_line(&reason)));
            return;
        }
        let mut reasons = Reasons::default();
        match convert::slice(&slice, &mut reasons) {
            Ok(Some(converted)) => self.add_object(Object::Slice(converted), SliceSource::Other),
            Ok(None) => {}
            Err(reason) => reasons.add(reason),
        }
        self.report(kind, &slice.metadata, &reasons);
    }

    fn add_endpoints(&mut self, document: Value) {
        let Some(endpoints) = self.decode::<slim::Endpoints>("Endpoints", document) else { return };
        let mut reasons = Reasons::default();
        let slices = convert::slices_of_endpoints(&endpoints, &mut reasons);
        let slices = slices.into_iter().map(|slice| Kept::new(Object::Slice(slice))).collect();
        let service = convert::key(&endpoints.metadata);
        self.endpoints.push(Endpoints { service, slices });
        self.report("Endpoints", &endpoints.metadata, &reasons);
    }

    fn add_namespace(&mut self, document: Value) {
        let Some(namespace) = self.decode::<slim::Namespace>("Namespace", document) else { return };
        let converted = convert::namespace(&namespace);
        self.add_object(Object::Namespace(converted), SliceSource::Other);
    }

    fn add_pod(&mut self, document: Value) {
        let Some(pod) = self.decode::<slim::Pod>("Pod", document) else { return };
        let mut reasons = Reasons::default();
        let converted = convert::pod(&pod, &mut reasons);
        if converted.addresses.is_empty() && !converted.finished && reasons.text().is_none() {
            reasons.add(
                "it has no status.podIPs, so no name can point to it: a manifest as committed has \
                 no status; write the Pod's address there, or an EndpointSlice"
                    .into(),
            );
        }
        self.report("Pod", &pod.metadata, &reasons);
        let origin = match converted.finished {
            true => SliceSource::Other,
            false => SliceSource::Pod(Box::new(derive::Pod::of(&pod, &converted))),
        };
        self.add_object(Object::Pod(converted), origin);
    }

    fn add_object(&mut self, object: Object, origin: SliceSource) {
        self.objects.push(Entry { object: Kept::new(object), origin });
    }

    fn add_configuration(&mut self, object: Value) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
        let (name, places) = (name.to_owned(), Places::default());
        self.configurations.push(UncheckedConfiguration { name, object, places });
    }

    /// For messages: the text is read once more, so only where there is a ClusterDNS and not in a dump of a cluster.
    fn place_configurations(&mut self, text: &str) {
        if self.configurations.is_empty() || text.len() > MAX_PLACED {
            return;
        }
        let places = manifest::places(text);
        // Otherwise they are not those of the same documents: a wrong line is worse than none.
        if places.len() == self.configurations.len() {
            for (configuration, places) in self.configurations.iter_mut().zip(places) {
                configuration.places = places;
            }
        }
    }

    /// Reads an object of a kind we know, or names it among those that cannot be read.
    fn decode<T: DeserializeOwned + HasMetadata>(
        &mut self,
        kind: &'static str,
        document: Value,
    ) -> Option<T> {
        let unread = Unread::of(kind, &document);
        let reason = if !unread.has_name() {
            "it has no metadata.name".to_owned()
        } else {
            match serde_path_to_error::deserialize::<_, T>(document) {
                Ok(mut object) => {
                    complete(object.metadata(), kind);
                    return Some(object);
                }
                Err(error) => first_line(&error.to_string()),
            }
        };
        self.unread.push(unread.because(reason));
        None
    }

    fn report(&mut self, kind: &'static str, metadata: &slim::Metadata, reasons: &Reasons) {
        if let Some(reason) = reasons.text() {
            self.skipped.push(Skipped {
                kind,
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                reason: first_line(&reason),
            });
        }
    }

    fn count_other(&mut self, kind: &str) {
        *self.other_kinds.entry(first_line(kind)).or_default() += 1;
    }
}

/// Whether the head of a document is that of a `List`.
fn is_list(head: &Map<String, Value>) -> bool {
    head.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
}

trait HasMetadata {
    fn metadata(&mut self) -> &mut slim::Metadata;
}

impl HasMetadata for slim::Service {
    fn metadata(&mut self) -> &mut slim::Metadata {
        &mut self.metadata
    }
}

impl HasMetadata for slim::EndpointSlice {
    fn metadata(&mut self) -> &mut slim::Metadata {
        &mut self.metadata
    }
}

impl HasMetadata for slim::Endpoints {
    fn metadata(&mut self) -> &mut slim::Metadata {
        &mut self.metadata
    }
}

impl HasMetadata for slim::Namespace {
    fn metadata(&mut self) -> &mut slim::Metadata {
        &mut self.metadata
    }
}

impl HasMetadata for slim::Pod {
    fn metadata(&mut self) -> &mut slim::Metadata {
        &mut self.metadata
    }
}

/// Adds the defaults of an API server to an object from a file, and removes its versions: going back to an older dump
/// is a change like any other, so E14 must not compare versions.
fn complete(metadata: &mut slim::Metadata, kind: &str) {
    metadata.uid = None;
    metadata.resource_version = None;
    if kind == "Namespace" {
        metadata.namespace.clear();
    } else if metadata.namespace.is_empty() {
        DEFAULT_NAMESPACE.clone_into(&mut metadata.namespace);
    }
}

#[cfg(test)]
mod tests;
