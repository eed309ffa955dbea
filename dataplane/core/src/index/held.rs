//! What the writer keeps about each object beside the records: enough to compare, replace and remove it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::numbered_table::NumberedTable;
use crate::object::{Key, Resource};
use crate::wire::address::Address;

/// Which version of an object is held, and the list it was last seen in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) uid: u128,
    pub(super) version: u64,
    pub(super) generation: u32,
}

/// Labels that are selected on.
pub(super) type KeptLabels = Box<[(Box<str>, Box<str>)]>;

#[derive(Debug)]
pub(super) struct HeldService {
    pub(super) held: Held,
    pub(super) slot: u32,
    pub(super) labels: KeptLabels,
}

#[derive(Debug)]
pub(super) struct HeldSlice {
    pub(super) held: Held,
    /// Number of its entry in `Records::slices`.
    pub(super) slot: u32,
    /// Number of its Service in `Records::services`.
    pub(super) service: u32,
}

#[derive(Debug)]
pub(super) struct HeldNamespace {
    pub(super) held: Held,
    pub(super) slot: u32,
    pub(super) labels: KeptLabels,
}

#[derive(Debug)]
pub(super) struct HeldPod {
    pub(super) held: Held,
    pub(super) slot: u32,
    /// Number of its namespace in `Records::namespaces`.
    pub(super) namespace: u32,
    /// Addresses with a name; none once it has finished.
    pub(super) addresses: Box<[Address]>,
    pub(super) host_network: bool,
}

/// Every object held, by resource and key.
#[derive(Debug, Default)]
pub(super) struct HeldObjects {
    pub(super) services: NumberedTable<HeldService>,
    pub(super) slices: NumberedTable<HeldSlice>,
    pub(super) namespaces: NumberedTable<HeldNamespace>,
    /// How many of these are called like a top-level domain.
    pub(super) like_top_level_domains: usize,
    pub(super) pods: NumberedTable<HeldPod>,
}

impl HeldObjects {
    pub(super) fn count(&self, resource: Resource) -> usize {
        match resource {
            Resource::Services => self.services.len(),
            Resource::EndpointSlices => self.slices.len(),
            Resource::Namespaces => self.namespaces.len(),
            Resource::Pods => self.pods.len(),
        }
    }

    pub(super) fn get(&self, resource: Resource, key: &Key) -> Option<&Held> {
        match resource {
            Resource::Services => self.services.get(key).map(|object| &object.held),
            Resource::EndpointSlices => self.slices.get(key).map(|object| &object.held),
            Resource::Namespaces => self.namespaces.get(key).map(|object| &object.held),
            Resource::Pods => self.pods.get(key).map(|object| &object.held),
        }
    }

    pub(super) fn get_mut(&mut self, resource: Resource, key: &Key) -> Option<&mut Held> {
        match resource {
            Resource::Services => self.services.get_mut(key).map(|object| &mut object.held),
            Resource::EndpointSlices => self.slices.get_mut(key).map(|object| &mut object.held),
            Resource::Namespaces => self.namespaces.get_mut(key).map(|object| &mut object.held),
            Resource::Pods => self.pods.get_mut(key).map(|object| &mut object.held),
        }
    }

    /// The keys of all objects of a resource that are gone, by what is remembered of them.
    pub(super) fn vanished(&self, resource: Resource, is_gone: impl Fn(&Held) -> bool) -> Vec<Key> {
        fn keys<'a, T: 'a>(
            objects: impl Iterator<Item = (&'a Key, &'a T)>,
            held: impl Fn(&T) -> &Held,
            is_gone: impl Fn(&Held) -> bool,
        ) -> Vec<Key> {
            objects
                .filter(|(_, object)| is_gone(held(object)))
                .map(|(key, _)| key.clone())
                .collect()
        }
        match resource {
            Resource::Services => keys(self.services.iter(), |object| &object.held, is_gone),
            Resource::EndpointSlices => keys(self.slices.iter(), |object| &object.held, is_gone),
            Resource::Namespaces => keys(self.namespaces.iter(), |object| &object.held, is_gone),
            Resource::Pods => keys(self.pods.iter(), |object| &object.held, is_gone),
        }
    }
}
