//! One published state: everything an answer is made from, immutable and cheap to clone.
//!
//! Services, namespaces and slices lie in numbered places; hash multimaps lead there from names
//! and addresses. The next state shares whatever did not change.

use std::cmp::Ordering;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::address::Address;
use crate::buckets::Buckets;
use crate::chunks::Chunks;
use crate::few::Few;
use crate::name::Name;
use crate::object::{Protocol, Resource};
use crate::slots::Slots;
use crate::text::ShortText;
use crate::zone::Zone;

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

/// A set of resources that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(u8);

impl Needs {
    pub(crate) const NOTHING: Needs = Needs(0);
    pub(crate) const SERVICES: Needs = Needs(1 << Resource::Services as u8);
    pub(crate) const SLICES: Needs = Needs(1 << Resource::EndpointSlices as u8);
    pub(crate) const NAMESPACES: Needs = Needs(1 << Resource::Namespaces as u8);
    pub(crate) const PODS: Needs = Needs(1 << Resource::Pods as u8);
    /// Which names are ours at all (E44).
    pub(crate) const CONFIGURATION: Needs = Needs(1 << Resource::ALL.len());

    pub(crate) const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }
}

/// A namespace that has an object or a Service.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceEntry {
    /// One wire-form label.
    pub(crate) label: Box<[u8]>,
    /// Its Namespace object is known.
    pub(crate) has_object: bool,
    /// Its labels match the namespace selector.
    pub(crate) is_selected: bool,
    /// It is in the list of exposed namespaces, if there is one.
    pub(crate) is_listed: bool,
    /// Services known in it.
    pub(crate) services: u32,
    /// Service entries and Pods that refer to this place; the writer empties it at 0 without object.
    pub(crate) users: u32,
    /// Whether anything in it is visible (N40, §4.4 note 1); follows from the rest.
    pub(crate) visible: bool,
}

/// Two wire-form labels; 46 octets hold nearly all, and make 48 with what says how many.
pub(crate) type ServiceWire = Few<u8, 46>;
/// Cluster IPs: the API server allows one of each family.
pub(crate) type ClusterIps = Few<Address, 2>;

/// A Service, and the published endpoints of its slices; either may come first.
#[derive(Clone, Debug)]
pub(crate) struct ServiceEntry {
    /// Two wire-form labels: its name and its namespace's.
    pub(crate) wire: ServiceWire,
    /// Place of its namespace.
    pub(crate) namespace: u32,
    pub(crate) object: Option<Arc<ServiceObject>>,
    /// Places of its slices, ascending.
    pub(crate) slices: Vec<u32>,
    /// Published endpoints by (address, slice, label).
    pub(crate) by_address: Chunks<Row>,
    /// Those with a name that is not made of the address, by (name, address, slice).
    pub(crate) by_name: Chunks<Row>,
    /// Rows with an IPv4 address: the first so many.
    pub(crate) v4_rows: u32,
    /// Rows whose address is that of the row before.
    pub(crate) repeated_v4: u32,
    pub(crate) repeated_v6: u32,
}

impl ServiceEntry {
    /// The labels of its name and its namespace's, without length octets.
    pub(crate) fn labels(&self) -> (&[u8], &[u8]) {
        let (service, namespace) = self.wire.split_at(usize::from(self.wire[0]) + 1);
        (&service[1..], &namespace[1..])
    }
}

/// What the Service object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceObject {
    pub(crate) kind: Kind,
    pub(crate) ports: Box<[Port]>,
    /// Port numbers, each once, as written.
    pub(crate) port_numbers: Box<[u16]>,
    /// It matches the Service selector (N40).
    pub(crate) is_selected: bool,
}

/// The kinds of Service that DNS tells apart (§3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Cluster IPs in our order.
    ClusterIp(ClusterIps),
    Headless,
    ExternalName(Box<Name>),
    /// An externalName that names nothing: not in DNS (RR47).
    Unserved,
}

/// A port of a Service or a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// Lower case, empty when unnamed.
    pub(crate) name: Box<[u8]>,
    pub(crate) number: u16,
    pub(crate) protocol: Protocol,
}

/// What the rows of one slice share.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SliceEntry {
    pub(crate) ports: Box<[Port]>,
    /// How many rows it has.
    pub(crate) rows: u32,
    /// Endpoint names in wire form, one behind the other.
    pub(crate) text: Box<[u8]>,
}

/// One published endpoint address in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) address: Address,
    /// Place of the slice.
    pub(crate) slice: u32,
    pub(crate) label: RowLabel,
}

/// Where a row's endpoint name stands, and two facts about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowLabel(u32);

impl RowLabel {
    const OWN_POD: u32 = 1 << 31;
    const HOSTNAME: u32 = 1 << 30;
    const DERIVED: u32 = HOSTNAME_FREE - 1;

    /// A name made of the address.
    pub(crate) fn derived(own_pod: bool) -> RowLabel {
        RowLabel(Self::DERIVED | if own_pod { Self::OWN_POD } else { 0 })
    }

    /// A name at this offset of the slice's text.
    pub(crate) fn at(offset: usize, hostname: bool, own_pod: bool) -> RowLabel {
        RowLabel(
            offset as u32
                | if hostname { Self::HOSTNAME } else { 0 }
                | if own_pod { Self::OWN_POD } else { 0 },
        )
    }

    pub(crate) fn is_derived(self) -> bool {
        self.0 & Self::DERIVED == Self::DERIVED
    }

    /// The name came from `hostname`, not from the Pod's name or the address (RR62).
    pub(crate) fn is_hostname(self) -> bool {
        self.0 & Self::HOSTNAME != 0
    }

    /// The endpoint's targetRef is a Pod of the slice's own namespace (RR63).
    pub(crate) fn is_own_pod(self) -> bool {
        self.0 & Self::OWN_POD != 0
    }

    fn offset(self) -> usize {
        (self.0 & Self::DERIVED) as usize
    }
}

/// The offsets of names end here: the two bits above are flags.
const HOSTNAME_FREE: u32 = 1 << 30;

/// A Pod that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodHolder {
    /// Place of its namespace.
    pub(crate) namespace: u32,
    pub(crate) host_network: bool,
    /// Place of the Pod, so that two Pods of one namespace are two rows.
    pub(crate) pod: u32,
}

/// One published state of the index: readers take one and answer from it.
#[derive(Clone, Debug)]
pub struct Records {
    pub(crate) zone: Arc<Zone>,
    pub(crate) namespaces: Slots<NamespaceEntry>,
    pub(crate) services: Slots<ServiceEntry>,
    pub(crate) slices: Slots<SliceEntry>,
    /// Hash of a namespace's label → places.
    pub(crate) namespace_names: Buckets<u64, u32>,
    /// Hash of a Service's two labels → places.
    pub(crate) service_names: Buckets<u64, u32>,
    /// Cluster IP → Services.
    pub(crate) cluster_ips: Buckets<Address, u32>,
    /// Endpoint address → Services.
    pub(crate) endpoint_addresses: Buckets<Address, u32>,
    /// Pod address → Pods.
    pub(crate) pod_addresses: Buckets<Address, PodHolder>,
    pub(crate) sources: [DataSource; Resource::ALL.len()],
    /// Whether the zone is that of a configuration; if not, nobody knows what is ours (E44).
    pub(crate) is_configured: bool,
    /// Unix seconds of the last visible change (RR70).
    pub(crate) serial: u32,
    /// The same of the last change of configuration (RR83).
    pub(crate) configuration_serial: u32,
    pub(crate) hasher: RandomState,
}

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
            cluster_ips: Buckets::new(hasher.clone()),
            endpoint_addresses: Buckets::new(hasher.clone()),
            pod_addresses: Buckets::new(hasher.clone()),
            sources: [DataSource::None; Resource::ALL.len()],
            is_configured: true,
            serial: 0,
            configuration_serial: 0,
            hasher,
        }
    }

    /// Where the data of a resource comes from.
    pub fn source(&self, resource: Resource) -> DataSource {
        self.sources[resource as usize]
    }

    /// The serial of the SOA records (RR70).
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// The resources of a set that have no data (N9).
    pub(crate) fn lacks(&self, needs: Needs) -> bool {
        let needs_configuration = needs.0 & Needs::CONFIGURATION.0 != 0;
        (needs_configuration && !self.is_configured)
            || Resource::ALL.iter().any(|&resource| {
                needs.0 >> resource as u8 & 1 == 1 && self.source(resource) == DataSource::None
            })
    }

    /// When the oldest snapshot that a set depends on was confirmed, in Unix seconds (E42).
    pub(crate) fn snapshot(&self, needs: Needs) -> Option<u64> {
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
        let object = entry.object.as_deref()?;
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

    /// The ports of the slice that a row came in.
    pub(crate) fn ports(&self, row: &Row) -> &[Port] {
        self.slices.get(row.slice).map_or(&[], |slice| &slice.ports)
    }
}

/// Hash of wire-form labels.
pub(crate) fn hash(hasher: &RandomState, wire: &[u8]) -> u64 {
    use std::hash::BuildHasher;
    hasher.hash_one(wire)
}

/// The endpoint name of a row that has one of its own.
pub(crate) fn named<'a>(slices: &'a Slots<SliceEntry>, row: &Row) -> Option<&'a [u8]> {
    if row.label.is_derived() {
        return None;
    }
    let text = slices.get(row.slice)?.text.get(row.label.offset()..)?;
    text.get(1..=usize::from(*text.first()?))
}

/// The order of [`ServiceEntry::by_address`].
pub(crate) fn address_order(a: &Row, b: &Row) -> Ordering {
    (a.address, a.slice, a.label).cmp(&(b.address, b.slice, b.label))
}

/// The order of [`ServiceEntry::by_name`].
pub(crate) fn name_order(slices: &Slots<SliceEntry>, a: &Row, b: &Row) -> Ordering {
    named(slices, a).cmp(&named(slices, b)).then_with(|| address_order(a, b))
}
