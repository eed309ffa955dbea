//! What lies at the places of the records: namespaces, Services, slices, and the rows of endpoints.

use std::sync::Arc;

use crate::address::Address;
use crate::chunks::Chunks;
use crate::few::Few;
use crate::name::Name;
use crate::object::Protocol;

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
/// Places of slices; two or three are common (one of each family, one that is being replaced), and
/// five need no more room than the reference to more.
pub(crate) type SlicePlaces = Few<u32, 5>;

/// A Service, and the published endpoints of its slices; either may come first.
// In this order, because what most replies read lies in the first lines of memory then.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct ServiceEntry {
    /// Two wire-form labels: its name and its namespace's.
    pub(crate) wire: ServiceWire,
    /// In place: what is asked most is answered from here without another trip to memory.
    pub(crate) object: Option<ServiceObject>,
    /// Place of its namespace.
    pub(crate) namespace: u32,
    /// Published endpoints by (address, slice, label).
    pub(crate) by_address: Chunks<Row>,
    /// Those with a name that is not made of the address, by (name, address, slice).
    pub(crate) by_name: Chunks<Row>,
    /// Rows with an IPv4 address: the first so many.
    pub(crate) v4_rows: u32,
    /// Rows whose address is that of the row before.
    pub(crate) repeated_v4: u32,
    pub(crate) repeated_v6: u32,
    /// Places of its slices, ascending.
    pub(crate) slices: SlicePlaces,
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
    pub(crate) ports: Arc<Ports>,
    /// It matches the Service selector (N40).
    pub(crate) is_selected: bool,
}

/// The kinds of Service that DNS tells apart (§3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Cluster IPs in our order.
    ClusterIp(ClusterIps),
    Headless,
    ExternalName(Arc<Name>),
    /// An externalName that names nothing: not in DNS (RR47).
    Unserved,
}

/// The ports of a Service or a slice, shared by all that have the same.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ports {
    pub(crate) all: Box<[Port]>,
    /// Port numbers, each once, in the same order.
    pub(crate) numbers: Box<[u16]>,
}

/// A port of a Service or a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Port {
    /// Lower case, empty when unnamed.
    pub(crate) name: Box<[u8]>,
    pub(crate) number: u16,
    pub(crate) protocol: Protocol,
}

/// What the rows of one slice share.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SliceEntry {
    pub(crate) ports: Arc<Ports>,
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

/// A row, or a cluster IP, as its address leads to it: what a PTR is made of, without the Service's
/// own rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Publisher {
    /// Place of the Service.
    pub(crate) service: u32,
    /// Place of the slice; [`Publisher::NO_SLICE`] for a cluster IP.
    pub(crate) slice: u32,
    pub(crate) label: RowLabel,
}

impl Publisher {
    /// No place: places are handed out from 0.
    const NO_SLICE: u32 = u32::MAX;

    /// A Service whose cluster IP the address is.
    pub(crate) fn cluster_ip(service: u32) -> Publisher {
        Publisher { service, slice: Self::NO_SLICE, label: RowLabel(0) }
    }

    pub(crate) fn is_cluster_ip(&self) -> bool {
        self.slice == Self::NO_SLICE
    }
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

    pub(super) fn offset(self) -> usize {
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
