//! Objects of a file that cannot be read, by the head of their document. An edit with a value of the wrong type must not
//! delete what was served: the file's last good version of such an object stays.

use std::collections::HashSet;

use dataplane_core::{Key, Resource};
use serde_json::Value;

use super::syntax::first_line;
use super::{DEFAULT_NAMESPACE, Manifests};
use crate::source::objects::slim;
use crate::status::Skipped;

const ENDPOINTS: &str = "Endpoints";
/// The kinds that are read, with the `apiVersion` of each.
const KINDS: [(&str, &str); 5] = [
    ("Service", "v1"),
    (ENDPOINTS, "v1"),
    ("Namespace", "v1"),
    ("Pod", "v1"),
    ("EndpointSlice", "discovery.k8s.io/v1"),
];
/// Their groups.
const GROUPS: [&str; 2] = ["", "discovery.k8s.io"];

/// An object that cannot be read.
#[derive(Debug)]
pub struct Unread {
    kind: &'static str,
    namespace: String,
    name: String,
    reason: String,
    /// Which object it is, is not known: its name or its namespace cannot be read.
    is_nameless: bool,
    /// What the file said of it before is served.
    is_kept: bool,
}

impl Unread {
    /// By the head of its document; why it cannot be read comes later.
    pub(super) fn of(kind: &'static str, document: &Value) -> Unread {
        let field = |path: &str| document.pointer(path).unwrap_or(&Value::Null);
        // A name that is not a string is shown too, so that it can be found: `name: 123`.
        let named = |path: &str| match field(path) {
            Value::Null => String::new(),
            Value::String(text) => first_line(text),
            other => first_line(&other.to_string()),
        };
        let (namespace, name) = (named("/metadata/namespace"), named("/metadata/name"));
        let is_text = |path: &str| field(path).is_string();
        let has_namespace =
            field("/metadata/namespace").is_null() || is_text("/metadata/namespace");
        let is_nameless = name.is_empty() || !is_text("/metadata/name") || !has_namespace;
        Unread { kind, namespace, name, reason: String::new(), is_nameless, is_kept: false }
    }

    /// One that has a name, and cannot be used.
    pub(super) fn named(kind: &'static str, metadata: &slim::Metadata) -> Unread {
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        let reason = String::new();
        Unread { kind, namespace, name, reason, is_nameless: false, is_kept: false }
    }

    pub(super) fn because(self, reason: String) -> Unread {
        Unread { reason, ..self }
    }

    pub(super) fn has_name(&self) -> bool {
        !self.name.is_empty()
    }

    /// As it is reported.
    pub fn skipped(&self) -> Skipped {
        let instead = match self.is_kept {
            true => "its last good content stays in use",
            false => "nothing of it is served",
        };
        Skipped {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            reason: format!("{}; {instead}", self.reason),
        }
    }

    fn id(&self) -> Id {
        let namespace = match (self.kind, self.namespace.as_str()) {
            ("Namespace", _) => "",
            (_, "") => DEFAULT_NAMESPACE,
            (_, namespace) => namespace,
        };
        (self.kind, Key::new(namespace, self.name.as_str()))
    }
}

type Id = (&'static str, Key);

impl Manifests {
    /// Keeps what the file said before of the objects that cannot be read now. Of one whose name cannot be read, it may be
    /// any of its kind that is not there any more.
    pub fn keep_unread(&mut self, before: Manifests) {
        if self.unread.is_empty() {
            return;
        }
        let (mut ids, mut kinds) = (HashSet::new(), HashSet::new());
        for unread in &self.unread {
            match unread.is_nameless {
                true => kinds.insert(unread.kind),
                false => ids.insert(unread.id()),
            };
        }
        let objects = self.objects.iter().map(|entry| id_of(entry.object.id()));
        let endpoints = self.endpoints.iter().map(|it| (ENDPOINTS, it.service.clone()));
        let there: HashSet<Id> = objects.chain(endpoints).collect();
        let mut kept = HashSet::new();
        let mut is_kept = |id: Id| {
            let stays = !there.contains(&id) && (ids.contains(&id) || kinds.contains(id.0));
            if stays {
                kept.insert(id);
            }
            stays
        };
        let Manifests { objects, endpoints, .. } = before;
        let objects = objects.into_iter().filter(|entry| is_kept(id_of(entry.object.id())));
        self.objects.extend(objects.collect::<Vec<_>>());
        let endpoints = endpoints.into_iter().filter(|it| is_kept((ENDPOINTS, it.service.clone())));
        self.endpoints.extend(endpoints.collect::<Vec<_>>());
        for unread in &mut self.unread {
            unread.is_kept = match unread.is_nameless {
                true => kept.iter().any(|(kind, _)| *kind == unread.kind),
                false => kept.contains(&unread.id()),
            };
        }
    }
}

fn id_of((resource, key): (Resource, Key)) -> Id {
    let kind = match resource {
        Resource::Services => "Service",
        Resource::EndpointSlices => "EndpointSlice",
        Resource::Namespaces => "Namespace",
        Resource::Pods => "Pod",
    };
    (kind, key)
}

/// The kind that is meant by one that is not read, and why that one is not read; `None`: another kind is meant.
pub(super) fn misspelled(version: &str, kind: &str) -> Option<(&'static str, String)> {
    let group = version.split_once('/').map_or("", |(group, _)| group);
    GROUPS.iter().find(|known| is_near(group, known))?;
    let (meant, of) = KINDS.iter().find(|(known, _)| is_near(kind, known))?;
    let reason = format!(
        "apiVersion {version:?} and kind {kind:?} are not read: write apiVersion: {of} and kind: {meant}"
    );
    Some((meant, first_line(&reason)))
}

/// Is it the same, except for the case of letters and one slip: a letter that is missing, too much or another one, or two that
/// changed places?
fn is_near(written: &str, known: &str) -> bool {
    // Longer ones differ by more than one letter.
    if written.len() > known.len() + 1 {
        return false;
    }
    let [written, known] = [written, known].map(|text| text.to_ascii_lowercase().into_bytes());
    let same = written.iter().zip(&known).take_while(|(a, b)| a == b).count();
    let (written, known) = (&written[same..], &known[same..]);
    let same = written.iter().rev().zip(known.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&written[..written.len() - same], &known[..known.len() - same]) {
        ([] | [_], [] | [_]) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_with_one_slip_is_the_one_that_is_meant_and_others_are_others() {
        for (version, kind, meant) in [
            ("v1", "service", Some("Service")),
            ("v1", "Servce", Some("Service")),
            ("v1", "Services", Some("Service")),
            ("v1", "Sevrice", Some("Service")),
            ("", "POD", Some("Pod")),
            ("discovery.k8s.io/v1", "Endpointslice", Some("EndpointSlice")),
            ("v1", "EndpointSlice", Some("EndpointSlice")),
            ("discovery.k8.io/v1", "EndpointSlice", Some("EndpointSlice")),
            ("v1", "Node", None),
            ("v1", "Secret", None),
            ("v1", "ServiceAccount", None),
            ("v1", "", None),
            ("serving.knative.dev/v1", "Service", None),
            ("metrics.k8s.io/v1beta1", "PodMetrics", None),
        ] {
            let found = misspelled(version, kind).map(|(meant, _)| meant);
            assert_eq!(found, meant, "{version} {kind}");
        }
    }
}
