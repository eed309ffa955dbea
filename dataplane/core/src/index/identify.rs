//! Which objects the records were made of: names, uids and versions, for people who ask why.

use alloc::vec::Vec;

use super::Index;
use crate::decide::trace::Source;
use crate::object::{Key, Resource};

/// An object held, as it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// Its kind.
    pub resource: Resource,
    /// Namespace and name.
    pub key: Key,
    /// As [`Service::uid`](crate::Service::uid).
    pub uid: u128,
    /// As [`Service::version`](crate::Service::version).
    pub version: u64,
}

impl Index {
    /// The objects behind these sources, in their order. `None` is one that has gone or changed its place since the
    /// records were published. It walks the slices held, or the Pods, once; never while a client waits.
    pub fn identify(&self, sources: &[Source]) -> Vec<Option<Identified>> {
        let mut found: Vec<Option<Identified>> =
            sources.iter().map(|source| self.by_key(source)).collect();
        let wants = |is_wanted: fn(&Source) -> bool| sources.iter().any(is_wanted);
        if wants(|source| matches!(source, Source::Slice { .. })) {
            for (key, slice) in self.held.slices.iter() {
                for (source, place) in sources.iter().zip(&mut found) {
                    if let Source::Slice { namespace, service, place: slot } = source
                        && *slot == slice.slot
                        && key.namespace == *namespace
                        && self.is_of(slice.service, service)
                    {
                        *place = self.identified(Resource::EndpointSlices, key.clone());
                    }
                }
            }
        }
        if wants(|source| matches!(source, Source::Pod { .. })) {
            for (key, pod) in self.held.pods.iter() {
                for (source, place) in sources.iter().zip(&mut found) {
                    if let Source::Pod { namespace, place: slot } = source
                        && *slot == pod.slot
                        && key.namespace == *namespace
                    {
                        *place = self.identified(Resource::Pods, key.clone());
                    }
                }
            }
        }
        found
    }

    fn by_key(&self, source: &Source) -> Option<Identified> {
        match source {
            Source::Service { namespace, name } => {
                self.identified(Resource::Services, Key::new(namespace.clone(), name.clone()))
            }
            Source::Namespace { name } => {
                self.identified(Resource::Namespaces, Key::new("", name.clone()))
            }
            Source::Slice { .. } | Source::Pod { .. } => None,
        }
    }

    fn identified(&self, resource: Resource, key: Key) -> Option<Identified> {
        let (uid, version) = self.held(resource, &key)?;
        Some(Identified { resource, key, uid, version })
    }

    /// Whether the Service at this place has this name.
    fn is_of(&self, place: u32, service: &str) -> bool {
        self.next.services.get(place).is_some_and(|entry| entry.labels().0 == service.as_bytes())
    }
}
