//! The objects as the API would show them: a plain list, with the rules of §7.3 for lists and old events.

use dataplane_core::{Change, DataSource, Key, Object, Resource};

/// Every object held, and where each resource's data comes from.
#[derive(Clone, Debug)]
pub struct Store {
    /// All objects, of all resources, in no particular order.
    pub objects: Vec<Object>,
    /// One per resource: its source, and the keys of the list in progress.
    lists: Vec<(Resource, DataSource, Option<Vec<Key>>)>,
}

impl Default for Store {
    fn default() -> Store {
        let lists = Resource::ALL.map(|resource| (resource, DataSource::None, None)).to_vec();
        Store { objects: Vec::new(), lists }
    }
}

/// uid and resource version.
fn identity(object: &Object) -> (u128, u64) {
    match object {
        Object::Service(service) => (service.uid, service.version),
        Object::Slice(slice) => (slice.uid, slice.version),
        Object::Namespace(namespace) => (namespace.uid, namespace.version),
        Object::Pod(pod) => (pod.uid, pod.version),
    }
}

impl Store {
    fn list(&mut self, resource: Resource) -> &mut (Resource, DataSource, Option<Vec<Key>>) {
        self.lists.iter_mut().find(|list| list.0 == resource).expect("every resource has one")
    }

    /// Where the data of a resource comes from.
    pub fn source(&self, resource: Resource) -> DataSource {
        self.lists.iter().find(|list| list.0 == resource).expect("every resource has one").1
    }

    fn position(&self, resource: Resource, key: &Key) -> Option<usize> {
        self.objects.iter().position(|object| object.resource() == resource && object.key() == *key)
    }

    /// One event (E14: an object older than the one held, with the same uid, is ignored).
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Apply(object) => {
                let (resource, key) = (object.resource(), object.key());
                if let Some(seen) = &mut self.list(resource).2 {
                    seen.push(key.clone());
                }
                match self.position(resource, &key) {
                    None => self.objects.push(object),
                    Some(at) => {
                        let (uid, version) = identity(&object);
                        let (held_uid, held_version) = identity(&self.objects[at]);
                        if uid != held_uid || version >= held_version {
                            self.objects[at] = object;
                        }
                    }
                }
            }
            Change::Delete(resource, key) => {
                if let Some(at) = self.position(resource, &key) {
                    self.objects.remove(at);
                }
            }
        }
    }

    /// A list begins; one that was in progress has failed and counts for nothing (E22).
    pub fn begin_list(&mut self, resource: Resource) {
        self.list(resource).2 = Some(Vec::new());
    }

    /// A list ends: what it did not show and is not newer is gone (E21).
    pub fn end_list(&mut self, resource: Resource, list_version: u64, source: DataSource) {
        let list = self.list(resource);
        list.1 = source;
        let seen = list.2.take().unwrap_or_default();
        self.objects.retain(|object| {
            object.resource() != resource
                || seen.contains(&object.key())
                || (list_version != 0 && identity(object).1 > list_version)
        });
    }
}
