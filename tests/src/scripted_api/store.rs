//! What the scripted API server has: objects with versions that only grow, and the events since the last compaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::fault_proxy::Seen;

/// Kinds, and where they are listed. `{}` is a namespace.
const PATHS: [(&str, &str); 5] = [
    ("Service", "/api/v1/services"),
    ("EndpointSlice", "/apis/discovery.k8s.io/v1/endpointslices"),
    ("Namespace", "/api/v1/namespaces"),
    ("Pod", "/api/v1/pods"),
    ("ConfigMap", "/api/v1/namespaces/{}/configmaps"),
];

/// Kind, namespace, name.
type Key = (String, String, String);

/// Objects, versions, events. A clone is another server with the same state.
#[derive(Clone, Debug)]
pub struct Store {
    objects: BTreeMap<Key, Value>,
    events: Vec<Event>,
    version: u64,
    /// Events up to here are forgotten.
    compacted: u64,
    /// Most objects of a page.
    pub(super) page: usize,
    /// Number of uids given so far.
    uids: u64,
    /// What later pages of lists hold, by token: as often as they are asked for, as an API server does.
    rests: BTreeMap<u64, Rest>,
    /// Number of tokens given so far.
    tokens: u64,
}

/// Tokens that are known. A page is asked for soon after the one before it.
const MAX_RESTS: usize = 100;

/// The part of a list that was not asked for yet.
#[derive(Clone, Debug)]
struct Rest {
    version: u64,
    /// The whole list.
    items: Arc<Vec<Value>>,
    /// The first that was not given yet.
    from: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    kind: &'static str,
    pub(super) object: Value,
}

/// What is listed or watched together.
#[derive(Clone, Debug)]
pub(super) struct Collection {
    kind: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

/// A request that is answered with an error status.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) code: u16,
    pub(super) message: String,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            objects: BTreeMap::new(),
            events: Vec::new(),
            // Not 0, which watches take for "any".
            version: 1,
            compacted: 0,
            page: usize::MAX,
            uids: 0,
            rests: BTreeMap::new(),
            tokens: 0,
        }
    }
}

impl Event {
    pub(super) fn line(&self) -> Bytes {
        Bytes::from(format!("{}\n", json!({"type": self.kind, "object": self.object})))
    }
}

impl Collection {
    /// All objects of a kind; of ConfigMaps those of any namespace.
    pub(super) fn of_kind(kind: &str) -> Collection {
        let known = PATHS.iter().find(|(known, _)| *known == kind);
        let (kind, _) = known.unwrap_or_else(|| panic!("{kind} is not served"));
        Collection { kind, namespace: None, name: None }
    }

    pub(super) fn of_request(seen: &Seen) -> Option<Collection> {
        let (kind, namespace) =
            PATHS.iter().find_map(|(kind, path)| match path.split_once("{}") {
                None => {
                    let (root, plural) = path.rsplit_once('/')?;
                    match seen.path.strip_prefix(root)?.strip_suffix(plural)? {
                        "/" => Some((*kind, None)),
                        of_one => {
                            let namespace =
                                of_one.strip_prefix("/namespaces/")?.strip_suffix('/')?;
                            Some((*kind, Some(namespace.to_owned())))
                        }
                    }
                }
                Some((before, after)) => {
                    let namespace = seen.path.strip_prefix(before)?.strip_suffix(after)?;
                    Some((*kind, Some(namespace.to_owned())))
                }
            })?;
        let name = seen
            .parameter("fieldSelector")
            .and_then(|selector| selector.strip_prefix("metadata.name%3D").map(str::to_owned));
        Some(Collection { kind, namespace, name })
    }

    pub(super) fn path(&self) -> String {
        let (_, path) = PATHS.iter().find(|(kind, _)| *kind == self.kind).expect("a known kind");
        path.replace("{}", self.namespace.as_deref().unwrap_or("default"))
    }

    pub(super) fn is_of(&self, kind: &str) -> bool {
        self.kind == kind
    }

    pub(super) fn has_kind_of(&self, other: &Collection) -> bool {
        self.kind == other.kind
    }

    pub(super) fn holds(&self, object: &Value) -> bool {
        let (kind, namespace, name) = key(object);
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == value)
        };
        kind == self.kind && is(&self.namespace, &namespace) && is(&self.name, &name)
    }
}

impl Store {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn put(&mut self, object: Value) -> Event {
        let is_new = !self.objects.contains_key(&key(&object));
        self.put_in_secret(object.clone());
        let object = self.objects[&key(&object)].clone();
        let kind = if is_new { "ADDED" } else { "MODIFIED" };
        let event = Event { version: self.version, kind, object };
        self.events.push(event.clone());
        event
    }

    pub(super) fn put_in_secret(&mut self, mut object: Value) -> u64 {
        let key = key(&object);
        self.version += 1;
        let uid = match self.objects.get(&key) {
            Some(held) => held["metadata"]["uid"].clone(),
            None if object["metadata"]["uid"].is_string() => object["metadata"]["uid"].clone(),
            None => {
                self.uids += 1;
                format!("00000000-0000-4000-8000-{:012x}", self.uids).into()
            }
        };
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(key, object);
        self.version
    }

    pub(super) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(&(kind.into(), namespace.into(), name.into())).cloned()
    }

    pub(super) fn delete(&mut self, kind: &str, namespace: &str, name: &str) -> Option<Event> {
        let mut object = self.objects.remove(&(kind.into(), namespace.into(), name.into()))?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let event = Event { version: self.version, kind: "DELETED", object };
        self.events.push(event.clone());
        Some(event)
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
        self.events.clear();
        self.rests.clear();
    }

    pub(super) fn list(
        &mut self,
        collection: &Collection,
        token: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Value, Refused> {
        let page = self.page.min(limit.unwrap_or(usize::MAX));
        let rest = match token {
            None => {
                let objects = self.objects.values().filter(|object| collection.holds(object));
                let items = Arc::new(objects.cloned().collect());
                Rest { version: self.version, items, from: 0 }
            }
            Some(token) => {
                let rest = token.parse().ok().and_then(|token: u64| self.rests.get(&token));
                let gone = || Refused::gone("the provided continue parameter is too old");
                rest.cloned().ok_or_else(gone)?
            }
        };
        let Rest { version, items, from } = rest;
        let to = from.saturating_add(page).min(items.len());
        let page = items[from..to].to_vec();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if to < items.len() {
            self.tokens += 1;
            self.rests.insert(self.tokens, Rest { version, items, from: to });
            if self.rests.len() > MAX_RESTS {
                self.rests.pop_first();
            }
            metadata["continue"] = self.tokens.to_string().into();
        }
        Ok(json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": page}))
    }

    pub(super) fn events_since(
        &self,
        collection: &Collection,
        version: &str,
    ) -> Result<Vec<Event>, Refused> {
        let version: u64 = version.parse().unwrap_or_default();
        if version < self.compacted {
            return Err(Refused::gone("too old resource version"));
        }
        if version > self.version {
            let message =
                format!("Too large resource version: {version}, current: {}", self.version);
            return Err(Refused { code: 504, message });
        }
        let later = self.events.iter().filter(|event| event.version > version);
        Ok(later.filter(|event| collection.holds(&event.object)).cloned().collect())
    }
}

impl Refused {
    fn gone(message: &str) -> Refused {
        Refused { code: 410, message: message.to_owned() }
    }
}

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> Value {
        json!({"kind": "Service", "metadata": {"namespace": "shop", "name": name}})
    }

    #[test]
    fn a_list_is_of_one_moment_and_its_later_pages_expire() {
        let mut store = Store { page: 1, ..Store::default() };
        store.put(service("a"));
        store.put(service("b"));
        let services = Collection::of_kind("Service");
        let first = store.list(&services, None, None).unwrap();
        store.put(service("c"));
        let token = first["metadata"]["continue"].as_str().map(str::to_owned);
        let second = store.clone().list(&services, token.as_deref(), None).unwrap();
        assert_eq!(second["metadata"], json!({"resourceVersion": "3"}));
        assert_eq!(second["items"][0]["metadata"]["name"], "b");
        store.compact();
        assert_eq!(store.list(&services, token.as_deref(), None).unwrap_err().code, 410);
    }

    #[test]
    fn a_watch_continues_from_a_known_version() {
        let mut store = Store::default();
        let before = store.put(service("a")).version;
        store.put(service("a"));
        store.delete("Service", "shop", "a").unwrap();
        let services = Collection::of_kind("Service");
        let since =
            |store: &Store, version: u64| store.events_since(&services, &version.to_string());
        let kinds: Vec<&str> =
            since(&store, before).unwrap().iter().map(|event| event.kind).collect();
        assert_eq!(kinds, ["MODIFIED", "DELETED"]);
        assert_eq!(since(&store, 99).unwrap_err().code, 504);
        store.compact();
        assert_eq!(since(&store, before).unwrap_err().code, 410);
    }
}
