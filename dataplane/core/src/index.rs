//! Objects in, published records out: the writer's side. One change costs what changed, not what
//! is held: it copies a few nodes and leaves the rest shared with what readers have.

mod built;
mod export;
mod held;
mod identify;
mod left_out;
mod losses;
mod names;
mod numbered_table;
mod namespaces;
mod pods;
mod ports;
mod publishers;
pub(crate) mod reads;
mod services;
mod slices;
mod top_level_domains;
mod versions;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

pub use export::Export;
pub use identify::Identified;

use crate::index::held::{Held, HeldObjects};
use crate::index::left_out::LeftOut;
use crate::index::ports::PortLists;
use crate::index::publishers::HiddenRows;
use crate::index::reads::{KeptAs, Reads, Relist};
use crate::index::versions::Versions;
use crate::object::{Change, Key, Object, Problem, Resource};
use crate::records::zone::Zone;
use crate::records::{DataSource, PodHolder, Publisher, Records};
use crate::settings::{Exposure, Selector, Settings};
use crate::trees::slots::FreeSlots;

/// What one change did to the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether any answer may differ now; [`Index::publish`] makes it visible.
    pub visible: bool,
    /// Parts of the object that are not served, with reasons (E15). Replaces earlier problems.
    pub problems: Vec<Problem>,
}

impl Applied {
    fn refused(problem: Problem) -> Applied {
        Applied { visible: false, problems: vec![problem] }
    }
}

/// The writer: it turns each change into the next records, and holds what it needs for that.
#[derive(Debug)]
pub struct Index {
    /// The next records; they share with `published` everything that has not changed since.
    next: Records,
    published: Arc<Records>,
    /// Something visible has changed since the last publish.
    changed: bool,
    configured: bool,
    held: HeldObjects,
    ports: PortLists,
    waiting: HiddenRows<Publisher>,
    waiting_pods: HiddenRows<PodHolder>,
    left_out: LeftOut,
    /// The list that each resource's objects are stamped with (E21).
    generations: [u32; Resource::ALL.len()],
    /// The versions of each resource that were seen.
    versions: [Versions; Resource::ALL.len()],
    /// Labels that it selects on are kept besides those of the settings, see [`Index::keep_labels_of`].
    also_kept: Exposure,
    /// The list that came from a snapshot; 0 where there was none.
    snapshots: [u32; Resource::ALL.len()],
    free_services: FreeSlots,
    free_slices: FreeSlots,
    free_namespaces: FreeSlots,
    free_pods: FreeSlots,
}

#[allow(clippy::indexing_slicing, reason = "arrays with one place for each Resource")]
impl Index {
    /// An empty index: every resource's source is [`DataSource::None`].
    pub fn new(settings: Settings) -> Index {
        let next = Records::empty(Zone::new(settings));
        Index {
            published: Arc::new(next.clone()),
            next,
            changed: true,
            configured: true,
            held: HeldObjects::default(),
            ports: PortLists::default(),
            waiting: HiddenRows::default(),
            waiting_pods: HiddenRows::default(),
            left_out: LeftOut::default(),
            generations: [0; Resource::ALL.len()],
            versions: [Versions::default(); Resource::ALL.len()],
            also_kept: Exposure::default(),
            snapshots: [0; Resource::ALL.len()],
            free_services: FreeSlots::default(),
            free_slices: FreeSlots::default(),
            free_namespaces: FreeSlots::default(),
            free_pods: FreeSlots::default(),
        }
    }

    /// An empty index where a configuration is expected and not known yet (E44): everything but
    /// special-use names and class CH is "not ready", nothing is forwarded. [`Index::configure`] ends that.
    pub fn unconfigured(settings: Settings) -> Index {
        let mut index = Index::new(settings);
        index.next.set_configured(false);
        index.published = Arc::new(index.next.clone());
        index
    }

    /// From now on the labels that this exposure reads are kept as well. It can then take over once every Service and
    /// Namespace was applied again (K24). The default exposure ends that.
    pub fn keep_labels_of(&mut self, exposure: Exposure) {
        self.also_kept = exposure;
    }

    /// Takes another configuration (E5); visible with the next publish. Returns which objects must
    /// be applied again first, because fields that it needs were not stored.
    pub fn configure(&mut self, settings: Settings) -> Relist {
        if settings == self.next.zone.settings && self.next.is_configured() {
            return Relist::Nothing;
        }
        self.next.set_configured(true);
        let old = Arc::clone(&self.next.zone);
        self.next.zone = Arc::new(Zone::new(settings));
        self.changed = true;
        self.configured = true;
        let new = &self.next.zone.settings;
        let relist = Reads::of(&old.settings).relist_for(&Reads::of(new), KeptAs::Records);
        if new.exposure != old.settings.exposure {
            self.select_namespaces();
            self.select_services();
        }
        relist
    }

    /// All replicas of one ClusterDNS are given the same number, and no others: they answer the loop probes that have it in
    /// their names (A43). Visible with the next publish, at once where nothing was published.
    pub fn set_replicas(&mut self, replicas: u64) {
        self.changed |= self.next.replicas != replicas;
        self.next.replicas = replicas;
        if self.next.serial == 0 {
            self.published = Arc::new(self.next.clone());
        }
    }

    /// That number.
    pub fn replicas(&self) -> u64 {
        self.next.replicas
    }

    /// Applies one change; an object older than the one held (same uid, lower version) is ignored (E14).
    pub fn apply(&mut self, change: Change) -> Applied {
        let applied = match change {
            Change::Apply(Object::Service(service)) => self.apply_service(service),
            Change::Apply(Object::Slice(slice)) => self.apply_slice(slice),
            Change::Apply(Object::Namespace(namespace)) => self.apply_namespace(namespace),
            Change::Apply(Object::Pod(pod)) => self.apply_pod(pod),
            Change::Delete(resource, key) => {
                Applied { visible: self.delete(resource, &key), problems: Vec::new() }
            }
        };
        self.changed |= applied.visible;
        applied
    }

    fn delete(&mut self, resource: Resource, key: &Key) -> bool {
        match resource {
            Resource::Services => self.delete_service(key),
            Resource::EndpointSlices => self.delete_slice(key),
            Resource::Namespaces => self.delete_namespace(&key.name),
            Resource::Pods => self.delete_pod(key),
        }
    }

    /// Expects the objects of a snapshot, thousands of them in a row: what is cheaper to build at once than change by
    /// change is built when they are published, or when one of them is removed. Only an empty index gains from it.
    pub fn expect_many(&mut self) {
        self.waiting.gather(&self.next.addresses);
        self.waiting_pods.gather(&self.next.pod_addresses);
    }

    /// Starts a list of one resource: everything applied from here on belongs to it (E21).
    pub fn begin_list(&mut self, resource: Resource) {
        self.generations[resource as usize] += 1;
    }

    /// The list in progress is consistent and of this version (0: it has none). Returns whether it
    /// is below a version already seen: then it is a reset, in which versions held are forgotten
    /// (K22). Call it before the first object is applied; after that, begin the list again.
    pub fn list_is_at(&mut self, resource: Resource, version: u64) -> bool {
        self.versions[resource as usize].list_is_at(version)
    }

    /// The source was seen at this version, as a bookmark or an event says.
    pub fn saw_version(&mut self, resource: Resource, version: u64) {
        self.versions[resource as usize].saw(version);
    }

    /// The newest version that was seen; 0 where there were none.
    pub fn newest_version(&self, resource: Resource) -> u64 {
        self.versions[resource as usize].newest()
    }

    /// The next complete list is a reset, also with a lower version: it is of another cluster.
    pub fn expect_reset(&mut self, resource: Resource) {
        self.versions[resource as usize].expect_reset();
    }

    /// Whether the list in progress is a reset.
    pub fn is_reset(&self, resource: Resource) -> bool {
        self.versions[resource as usize].is_reset()
    }

    /// Ends a list: what was not applied since it began is removed, unless it is newer than
    /// `list_version` (0: no versions) and the list is no reset. The resource has this source now.
    /// Returns how many objects were removed.
    pub fn end_list(&mut self, resource: Resource, list_version: u64, source: DataSource) -> usize {
        let generation = self.generations[resource as usize];
        let versions = self.versions[resource as usize];
        let vanished = self.held.vanished(resource, |held: &Held| {
            held.generation != generation && !versions.may_be_newer(held, list_version)
        });
        self.versions[resource as usize].listed(list_version);
        for key in &vanished {
            self.changed |= self.delete(resource, key);
        }
        if matches!(source, DataSource::Snapshot { .. }) {
            self.snapshots[resource as usize] = generation;
        }
        if self.next.source(resource) != source {
            self.next.set_source(resource, source);
            self.changed = true;
        }
        vanished.len()
    }

    /// Removes what came from a snapshot and no live list has confirmed (E42: it is of another
    /// cluster). Returns how many objects were removed.
    pub fn forget_snapshot(&mut self) -> usize {
        let mut removed = 0;
        for resource in Resource::ALL {
            let generation = core::mem::take(&mut self.snapshots[resource as usize]);
            let is_old = |held: &Held| held.generation <= generation;
            if generation == 0 {
                continue;
            }
            for key in self.held.vanished(resource, is_old) {
                self.changed |= self.delete(resource, &key);
                removed += 1;
            }
            if matches!(self.next.source(resource), DataSource::Snapshot { .. }) {
                self.next.set_source(resource, DataSource::None);
                self.changed = true;
            }
        }
        removed
    }

    /// Publishes what has changed, if anything visible has; `now_s` (Unix seconds) becomes the
    /// serial, which always grows.
    pub fn publish(&mut self, now_s: u64) -> Option<Arc<Records>> {
        self.waiting.settle(&mut self.next.addresses);
        self.waiting_pods.settle(&mut self.next.pod_addresses);
        if !core::mem::take(&mut self.changed) {
            return None;
        }
        // Serial numbers are 32 bits wide and wrap (RFC 1982); seconds reach that in 2106.
        self.next.serial = (now_s as u32).max(self.next.serial.wrapping_add(1));
        if core::mem::take(&mut self.configured) {
            self.next.configuration_serial = self.next.serial;
        }
        self.published = Arc::new(self.next.clone());
        Some(Arc::clone(&self.published))
    }

    /// The records of the last `publish`; readers may hold older ones.
    pub fn records(&self) -> Arc<Records> {
        Arc::clone(&self.published)
    }

    /// Where the data of a resource comes from, published or not.
    pub fn source(&self, resource: Resource) -> DataSource {
        self.next.source(resource)
    }

    /// uid and version of an object held, as they were applied.
    pub fn held(&self, resource: Resource, key: &Key) -> Option<(u128, u64)> {
        self.held.get(resource, key).map(|held| (held.uid, held.version))
    }

    /// Endpoint addresses and ports that are held of a slice, which the next change of it may remove, and those of slices that
    /// were left out and may come in then; of other objects 1.
    pub fn rows(&self, resource: Resource, key: &Key) -> usize {
        let slice = match resource {
            Resource::EndpointSlices => self.held.slices.get(key),
            Resource::Services | Resource::Namespaces | Resource::Pods => None,
        };
        let entry = slice.and_then(|held| Some((held.service, self.next.slices.get(held.slot)?)));
        entry.map_or(1, |(service, entry)| {
            let rows = entry.rows.len();
            rows + entry.ports.all.len() + self.may_take_in(service, rows)
        })
    }

    /// Number of objects held, of lists that are not complete too.
    pub fn objects(&self, resource: Resource) -> usize {
        self.held.count(resource)
    }

    /// The list in progress has this object, although it could not be applied: [`Index::end_list`] keeps what is held of it.
    pub fn was_listed(&mut self, resource: Resource, key: &Key) {
        let generation = self.generations[resource as usize];
        if let Some(held) = self.held.get_mut(resource, key) {
            held.generation = generation;
        }
    }

    /// Number of Namespaces held that are called like a top-level domain (S1).
    pub fn namespaces_like_top_level_domains(&self) -> usize {
        self.held.like_top_level_domains
    }

    /// The stamp of an object that is applied now; `None` if a newer one is held (E14).
    fn stamp(&mut self, resource: Resource, key: &Key, uid: u128, version: u64) -> Option<Held> {
        let generation = self.generations[resource as usize];
        let versions = &mut self.versions[resource as usize];
        match self.held.get_mut(resource, key) {
            Some(held) if versions.is_older(held, generation, version) => {
                // It is still part of the list it came in.
                held.generation = generation;
                None
            }
            Some(_) | None => {
                versions.saw(version);
                Some(Held { uid, version, generation })
            }
        }
    }
}

/// One DNS label as Kubernetes names are (RFC 1123 §2.1): lower case, digits, inner dashes.
fn is_label(text: &str) -> bool {
    let octets = text.as_bytes();
    (1..=63).contains(&octets.len())
        && octets.iter().all(|o| o.is_ascii_lowercase() || o.is_ascii_digit() || *o == b'-')
        && octets.first() != Some(&b'-')
        && octets.last() != Some(&b'-')
}

/// A label in wire form behind `to`.
fn push_label(to: &mut Vec<u8>, label: &str) {
    to.push(label.len() as u8);
    to.extend(label.bytes().map(|octet| octet.to_ascii_lowercase()));
}

/// Labels that one of the selectors reads, the only ones that are kept.
fn kept_labels(
    labels: &[(Box<str>, Box<str>)],
    selectors: [&Selector; 2],
) -> Box<[(Box<str>, Box<str>)]> {
    let is_read = |key: &str| selectors.iter().any(|selector| selector.reads(key));
    labels.iter().filter(|(key, _)| is_read(key)).cloned().collect()
}

#[cfg(test)]
mod edits;
#[cfg(test)]
mod hidden;
#[cfg(test)]
mod tests;
