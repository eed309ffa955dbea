//! One published state: everything an answer is made from, immutable and cheap to clone. A reply is built from one
//! state, so that its sections and the existence of its name agree (E10).
//!
//! Services, namespaces and slices have numbered places; hash multimaps lead there from names
//! and addresses. The next state shares all that did not change.

pub(crate) mod zone;
mod entries;
pub(crate) mod endpoints;
mod ports;
pub(crate) mod extra;
mod needs;
mod federations;

use alloc::sync::Arc;
use core::cmp::Ordering;
use core::net::IpAddr;

use foldhash::fast::RandomState;

use crate::object::Resource;
use crate::records::zone::Zone;
use crate::steps::step;
use crate::trees::buckets::Buckets;
use crate::trees::slots::Slots;
use crate::wire::address::Address;
use crate::wire::name::Name;
use crate::wire::text::ShortText;

pub(crate) use entries::{
    ClusterIps, Kind, Listed, MAX_PUBLISHERS, NamespaceEntry, PodHolder, Publisher, Row, RowLabel,
    ServiceEntry, ServiceObject, ServiceWire, SliceEntry,
};
pub(crate) use needs::Needs;
pub(crate) use ports::{Port, PortName, Ports};

/// Where the data of one resource comes from at the moment (§4.4, E51).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// No complete list yet.
    None,
    /// Loaded from disk, confirmed by the API server at this time, not since.
    Snapshot {
        /// Unix seconds.
        confirmed_at_s: u64,
    },
    /// A complete list of this process's lifetime.
    Live,
}

/// One published state of the index: readers take one and answer from it.
#[derive(Clone, Debug)]
pub struct Records {
    pub(crate) zone: Arc<Zone>,
    pub(crate) namespaces: Slots<NamespaceEntry>,
    pub(crate) services: Slots<ServiceEntry>,
    pub(crate) slices: Slots<SliceEntry>,
    /// Hash of a namespace's label → places.
    pub(crate) namespace_names: Buckets<u32, u32>,
    /// Hash of a Service's two labels → places.
    pub(crate) service_names: Buckets<u32, u32>,
    /// Cluster IP → Services; endpoint address → the rows that publish it.
    pub(crate) addresses: Buckets<Address, Publisher>,
    pub(crate) pod_addresses: Buckets<Address, PodHolder>,
    sources: [DataSource; Resource::ALL.len()],
    /// Whether the zone is that of a configuration; if not, it is not known which names are ours (E44).
    is_configured: bool,
    /// What the names of our loop probes have in common (A43).
    pub(crate) replicas: u64,
    /// Resources without data, and resources from a snapshot; both follow from the fields above.
    missing: Needs,
    from_snapshots: Needs,
    /// Unix seconds of the last visible change (RR70).
    pub(crate) serial: u32,
    /// The same of the last change of configuration (RR83).
    pub(crate) configuration_serial: u32,
    pub(crate) hasher: RandomState,
}

#[allow(clippy::indexing_slicing, reason = "arrays with one place for each Resource")]
impl Records {
    pub(crate) fn empty(zone: Zone) -> Records {
        let hasher = RandomState::default();
        Records {
            zone: Arc::new(zone),
            namespaces: Slots::default(),
            services: Slots::default(),
            slices: Slots::default(),
            namespace_names: Buckets::new(hasher.clone()),
            service_names: Buckets::new(hasher.clone()),
            addresses: Buckets::new(hasher.clone()),
            pod_addresses: Buckets::new(hasher.clone()),
            sources: [DataSource::None; Resource::ALL.len()],
            is_configured: true,
            replicas: 0,
            missing: Needs::OBJECTS.and(Needs::LOCATION),
            from_snapshots: Needs::NOTHING,
            serial: 0,
            configuration_serial: 0,
            hasher,
        }
    }

    /// Where the data of a resource comes from.
    pub fn source(&self, resource: Resource) -> DataSource {
        self.sources[resource as usize]
    }

    pub(crate) fn set_source(&mut self, resource: Resource, source: DataSource) {
        self.sources[resource as usize] = source;
        let of = |resource| Needs(1 << resource as u8);
        self.missing = self.missing.without(of(resource));
        self.from_snapshots = self.from_snapshots.without(of(resource));
        match source {
            DataSource::None => self.missing = self.missing.and(of(resource)),
            DataSource::Snapshot { .. } => {
                self.from_snapshots = self.from_snapshots.and(of(resource));
            }
            DataSource::Live => {}
        }
    }

    /// Whether the zone is that of a configuration (E44).
    pub(crate) fn is_configured(&self) -> bool {
        self.is_configured
    }

    pub(crate) fn set_configured(&mut self, is_configured: bool) {
        self.is_configured = is_configured;
        self.missing = match is_configured {
            true => self.missing.without(Needs::CONFIGURATION),
            false => self.missing.and(Needs::CONFIGURATION),
        };
    }

    /// The cluster domain in wire form.
    pub fn domain(&self) -> &[u8] {
        self.zone.apex()
    }

    /// Whether an endpoint of our own Service has this address (O20). Only the rows of that Service are searched, so that rows
    /// of other namespaces at the same address change nothing.
    pub fn is_behind_own_service(&self, address: IpAddr) -> bool {
        let has_it = |entry: &ServiceEntry| entry.has_address(address.into());
        if self.zone.own_service().is_some() {
            return self.own_service().is_some_and(has_it);
        }
        // The API server gives a cluster IP to one Service.
        self.zone.service_addresses.iter().flatten().any(|&own| {
            let holders = self.addresses.get(own).iter().take(MAX_PUBLISHERS);
            let holders = holders.take_while(|(_, holder)| holder.is_cluster_ip());
            holders.filter_map(|(_, holder)| self.services.get(holder.service)).any(has_it)
        })
    }

    /// The Service that the configuration names as ours, if it names one and the Service is there.
    pub(crate) fn own_service(&self) -> Option<&ServiceEntry> {
        let (namespace, name) = self.zone.own_service()?;
        let parts: [&[u8]; 5] = [
            &[name.len() as u8],
            name.as_bytes(),
            &[namespace.len() as u8],
            namespace.as_bytes(),
            b"\0",
        ];
        let wire = Name::compose(&parts)?;
        let (_root, wire) = wire.wire().split_last()?;
        self.service(wire).map(|(_, entry)| entry)
    }

    /// The serial of the SOA records (RR70).
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// What [`crate::Index::set_replicas`] was given.
    pub fn replicas(&self) -> u64 {
        self.replicas
    }

    /// The resources of a set that have no data (N9).
    pub(crate) fn lacks(&self, needs: Needs) -> bool {
        needs.0 & self.missing.0 != 0
    }

    /// When the oldest snapshot that a set depends on was confirmed, in Unix seconds (E42).
    pub(crate) fn snapshot(&self, needs: Needs) -> Option<u64> {
        if needs.0 & self.from_snapshots.0 == 0 {
            return None;
        }
        Resource::ALL
            .iter()
            .filter(|&&resource| needs.0 >> resource as u8 & 1 == 1)
            .filter_map(|&resource| match self.source(resource) {
                DataSource::Snapshot { confirmed_at_s } => Some(confirmed_at_s),
                DataSource::None | DataSource::Live => None,
            })
            .min()
    }

    /// The place of a namespace by its wire-form label.
    pub(crate) fn namespace(&self, label: &[u8]) -> Option<u32> {
        let candidates = self.namespace_names.get(hash(&self.hasher, label));
        candidates
            .iter()
            .map(|row| row.1)
            .find(|&slot| self.namespaces.get(slot).is_some_and(|entry| *entry.label == *label))
    }

    /// The place and entry of a Service by its two wire-form labels, visible or not.
    pub(crate) fn service(&self, wire: &[u8]) -> Option<(u32, &ServiceEntry)> {
        let candidates = self.service_names.get(hash(&self.hasher, wire));
        candidates.iter().find_map(|row| {
            let entry = self.services.get(row.1)?;
            (*entry.wire == *wire).then_some((row.1, entry))
        })
    }

    /// The object of a Service, if clients may see it (N40, N41).
    pub(crate) fn visible<'r>(&'r self, entry: &'r ServiceEntry) -> Option<&'r ServiceObject> {
        let object = entry.object.as_ref()?;
        let namespace = self.namespaces.get(entry.namespace)?;
        let hidden_when_empty = self.zone.settings.hide_empty_services
            && matches!(object.kind, Kind::ClusterIp(_))
            && entry.by_address.is_empty();
        let served = match object.kind {
            Kind::ClusterIp(_) | Kind::Headless | Kind::ExternalName(_) => true,
            Kind::Unserved => false,
        };
        (namespace.visible && object.is_selected && served && !hidden_when_empty).then_some(object)
    }

    /// The endpoint name of a row without length octet; one made of the address is written to `place`.
    pub(crate) fn label<'a>(&'a self, row: &Row, place: &'a mut ShortText) -> &'a [u8] {
        match named(&self.slices, row) {
            Some(name) => name,
            None => {
                *place = ShortText::of(row.address);
                place.as_bytes()
            }
        }
    }

    /// The endpoint name of a row that is not made of the address, without length octet.
    pub(crate) fn name_of(&self, row: &Row) -> Option<&[u8]> {
        named(&self.slices, row)
    }
}

pub(crate) fn hash(hasher: &RandomState, wire: &[u8]) -> u32 {
    use core::hash::{BuildHasher, Hasher};
    step(wire.len() / 8);
    // Without the length that a hash of a slice includes: names contain their own lengths.
    let mut state = hasher.build_hasher();
    state.write(wire);
    (state.finish() >> 32) as u32
}

/// The endpoint name of a row that has one of its own.
pub(crate) fn named<'a>(slices: &'a Slots<SliceEntry>, row: &Row) -> Option<&'a [u8]> {
    if row.label.is_derived() {
        return None;
    }
    let text = slices.get(row.slice)?.text.get(row.label.offset()..)?;
    text.get(1..=usize::from(*text.first()?))
}

/// The order of [`ServiceEntry::by_address`]: of one address, rows that are named by it come first.
pub(crate) fn address_order(a: &Row, b: &Row) -> Ordering {
    let key = |row: &Row| (row.address, !row.label.is_derived(), row.slice, row.label);
    key(a).cmp(&key(b))
}

/// The order of [`ServiceEntry::by_name`].
pub(crate) fn name_order(slices: &Slots<SliceEntry>, a: &Row, b: &Row) -> Ordering {
    named(slices, a).cmp(&named(slices, b)).then_with(|| address_order(a, b))
}
