//! Objects of a file that cannot be read, by the head of their document. An edit with a value of the wrong type must not
//! delete what was served: the file's last good version of such an object stays.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use dataplane_core::{Key, Resource};
use serde_json::Value;

use super::syntax::first_line;
use super::{DEFAULT_NAMESPACE, Endpoints, Entry, Manifests};
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
    /// As it is shown.
    namespace: String,
    /// As it is shown.
    name: String,
    /// Which object it is, as far as that can be read.
    identity: Identity,
    reason: String,
    instead: Instead,
}

/// The name, the namespace and the kind of an object; `None`: it cannot be read.
type Identity = (Option<String>, Option<String>, &'static str);

/// The kind and the key of an object.
type Id = (&'static str, Key);

/// What is served instead of an object that cannot be read.
#[derive(Clone, Debug)]
enum Instead {
    Nothing,
    /// What the file said of it before.
    LastGood,
    /// Another document of the same file with its name.
    Namesake,
    /// An object that went as this one came, which has no readable name: they may be the same.
    Gone(Id),
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
        let has_name = !name.is_empty() && field("/metadata/name").is_string();
        // Without a name, the line of the namespace may be lost too: then it does not mean the default one.
        let has_namespace = match field("/metadata/namespace") {
            Value::Null => has_name,
            other => other.is_string(),
        };
        Unread::new(kind, (namespace, has_namespace), (name, has_name))
    }

    /// One that has a name, and cannot be used.
    pub(super) fn named(kind: &'static str, metadata: &slim::Metadata) -> Unread {
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        Unread::new(kind, (namespace, true), (name, true))
    }

    /// With whether its namespace and its name can be read.
    fn new(kind: &'static str, namespace: (String, bool), name: (String, bool)) -> Unread {
        let ((namespace, has_namespace), (name, has_name)) = (namespace, name);
        let known_namespace = match (kind, namespace.as_str()) {
            ("Namespace", _) => Some(String::new()),
            (_, "") => has_namespace.then(|| DEFAULT_NAMESPACE.to_owned()),
            (_, namespace) => has_namespace.then(|| namespace.to_owned()),
        };
        let identity = (has_name.then(|| name.clone()), known_namespace, kind);
        let (reason, instead) = (String::new(), Instead::Nothing);
        Unread { kind, namespace, name, identity, reason, instead }
    }

    pub(super) fn because(self, reason: String) -> Unread {
        Unread { reason, ..self }
    }

    pub(super) fn has_name(&self) -> bool {
        !self.name.is_empty()
    }

    /// As it is reported.
    pub fn skipped(&self) -> Skipped {
        let instead = match &self.instead {
            Instead::Nothing => "nothing of it is served".to_owned(),
            Instead::LastGood => "its last good content stays in use".to_owned(),
            Instead::Namesake => {
                "the file has this object once more, and that one is served".to_owned()
            }
            Instead::Gone((kind, key)) => first_line(&format!(
                "it may be {kind} {key}, which the file does not have any more: its last good content stays in use"
            )),
        };
        Skipped {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            reason: format!("{}; {instead}", self.reason),
        }
    }

    /// `None`: its name or its namespace cannot be read.
    fn id(&self) -> Option<Id> {
        let (Some(name), Some(namespace), kind) = &self.identity else { return None };
        Some((kind, Key::new(namespace.as_str(), name.as_str())))
    }

    /// By which a document without a readable name is found again in the next version of its file.
    fn head(&self) -> (&'static str, String, String) {
        (self.kind, self.namespace.clone(), self.name.clone())
    }
}

impl Manifests {
    /// Keeps what the file said before of the objects that cannot be read now.
    pub fn keep_unread(&mut self, before: Manifests) {
        if self.unread.is_empty() {
            return;
        }
        let there: HashSet<Id> = self.ids().collect();
        let mut were = HashSet::new();
        let is_gone = |id: &Id| !there.contains(id) && were.insert(id.clone());
        let gone: Vec<Id> = before.ids().filter(is_gone).collect();
        let Manifests { objects, endpoints, unread: unread_before, .. } = before;

        let (mut kept, mut nameless) = (HashSet::new(), Vec::new());
        for unread in &mut self.unread {
            unread.instead = match unread.id() {
                Some(id) if there.contains(&id) => Instead::Namesake,
                Some(id) if were.contains(&id) => {
                    kept.insert(id);
                    Instead::LastGood
                }
                Some(_) => Instead::Nothing,
                None => {
                    nameless.push(unread);
                    continue;
                }
            };
        }
        // One that was nameless before has what it had then. It is not what this edit took away.
        let mut known: HashMap<_, VecDeque<Instead>> = HashMap::new();
        for unread in unread_before.into_iter().filter(|unread| unread.id().is_none()) {
            known.entry(unread.head()).or_default().push_back(unread.instead);
        }
        let mut new: BTreeMap<Identity, Vec<&mut Unread>> = BTreeMap::new();
        for unread in nameless {
            match known.get_mut(&unread.head()).and_then(VecDeque::pop_front) {
                Some(Instead::Gone(id)) if were.contains(&id) && kept.insert(id.clone()) => {
                    unread.instead = Instead::Gone(id);
                }
                Some(_) => {}
                None => new.entry(unread.identity.clone()).or_default().push(unread),
            }
        }
        // Those with most that can be read come first: they are the least likely to take another's object.
        for (identity, documents) in new.into_iter().rev() {
            let may_be = |id: &&Id| is_possible(&identity, id) && !kept.contains(*id);
            let possible: Vec<Id> = gone.iter().filter(may_be).cloned().collect();
            // Some of them were deleted, and nothing says which: a deleted one must not stay for good.
            if possible.len() > documents.len() {
                continue;
            }
            for (unread, id) in documents.into_iter().zip(possible) {
                kept.insert(id.clone());
                unread.instead = Instead::Gone(id);
            }
        }
        let is_kept = |entry: &Entry| kept.contains(&id_of(entry.object.id()));
        self.objects.extend(objects.into_iter().filter(is_kept));
        let is_kept = |it: &Endpoints| kept.contains(&(ENDPOINTS, it.service.clone()));
        self.endpoints.extend(endpoints.into_iter().filter(is_kept));
    }

    fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        let objects = self.objects.iter().map(|entry| id_of(entry.object.id()));
        objects.chain(self.endpoints.iter().map(|it| (ENDPOINTS, it.service.clone())))
    }
}

/// Whether the object may be the one of which this is known.
fn is_possible((name, namespace, kind): &Identity, (of, key): &Id) -> bool {
    let fits = |known: &Option<String>, text: &str| known.as_ref().is_none_or(|it| it == text);
    kind == of && fits(name, &key.name) && fits(namespace, &key.namespace)
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
