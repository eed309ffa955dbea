//! The entries of the records: namespaces, Services, slices, and the rows of endpoints.

#![allow(clippy::indexing_slicing, reason = "places that the index gave, in lists that it filled")]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cmp::Ordering;

use crate::records::ports::Ports;
use crate::trees::chunks::Chunks;
use crate::trees::few::Few;
use crate::wire::address::Address;
use crate::wire::name::Name;

/// A namespace that has an object or a Service.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceEntry {
    /// Length octet and label, lower case.
    pub(crate) label: Box<[u8]>,
    /// Its Namespace object is known.
    pub(crate) has_object: bool,
    /// Its labels match the namespace selector.
    pub(crate) is_selected: bool,
    /// It is in the list of exposed namespaces, if there is one.
    pub(crate) is_listed: bool,
    /// Number of Services in this namespace.
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
// In this order, because most replies then read the first cache lines only.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct ServiceEntry {
    /// Two wire-form labels: its name and its namespace's.
    pub(crate) wire: ServiceWire,
    /// Stored in place: the most frequent questions are answered from here without another access to memory.
    pub(crate) object: Option<ServiceObject>,
    /// Number of its namespace in `Records::namespaces`.
    pub(crate) namespace: u32,
    /// Published endpoints by (address, slice, label).
    pub(crate) by_address: Chunks<Row>,
    /// Those with a name that is not made of the address, by (name, address, slice).
    pub(crate) by_name: Chunks<Row>,
    /// Number of rows with an IPv4 address; they come first.
    pub(crate) v4_rows: u32,
    /// Rows whose address is that of the row before.
    pub(crate) repeated_v4: u32,
    pub(crate) repeated_v6: u32,
    /// Its slices that publish endpoints, by their lists of ports.
    pub(crate) by_list: Chunks<Listed>,
    /// Rows named by their address, in the order of `by_address`, while others have names. Empty while none has: then they
    /// are `by_address` itself.
    pub(crate) beside_named: Chunks<Row>,
    /// How many slices it has, with or without published endpoints.
    pub(crate) slices: u32,
}

impl ServiceEntry {
    /// The labels of its name and its namespace's, without length octets.
    pub(crate) fn labels(&self) -> (&[u8], &[u8]) {
        let (service, namespace) = self.wire.split_at(usize::from(self.wire[0]) + 1);
        (&service[1..], &namespace[1..])
    }
}

/// What the Service object specifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceObject {
    pub(crate) kind: Kind,
    pub(crate) ports: Arc<Ports>,
    /// It matches the Service selector (N40).
    pub(crate) is_selected: bool,
}

/// The kinds of Service that differ in DNS (§3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Cluster IPs in our order.
    ClusterIp(ClusterIps),
    Headless,
    ExternalName(Arc<Name>),
    /// An externalName that names nothing: not in DNS (RR47).
    Unserved,
}

/// What the rows of one slice share.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SliceEntry {
    pub(crate) ports: Arc<Ports>,
    /// Its published rows by address.
    pub(crate) rows: Arc<[Row]>,
    /// Endpoint names in wire form, one behind the other.
    pub(crate) text: Box<[u8]>,
}

/// A slice that publishes endpoints, by the list of ports they have and their family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listed {
    list: u32,
    ipv6: bool,
    /// Number of the slice in `Records::slices`.
    pub(crate) slice: u32,
}

impl Listed {
    /// A slice with the list of this number ([`Ports::number`]).
    pub(crate) fn new(list: u32, ipv6: bool, slice: u32) -> Listed {
        Listed { list, ipv6, slice }
    }

    /// The number of its list.
    pub(crate) fn number(&self) -> u32 {
        self.list
    }

    /// Whether its endpoints have IPv6 addresses.
    pub(crate) fn ipv6(&self) -> bool {
        self.ipv6
    }
}

/// One published endpoint address in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) address: Address,
    /// Number of the slice in `Records::slices`.
    pub(crate) slice: u32,
    pub(crate) label: RowLabel,
}

/// Rows of one address and namespace that readers see; as many again whose targetRef is a Pod of that
/// namespace, so that no namespace takes the places of another.
pub(crate) const MAX_PUBLISHERS: usize = 64;

/// What an address leads to: a row or a cluster IP, with all that a PTR is made of, so that the Service's own rows
/// are not read.
///
/// Cluster IPs come first, then rows of own Pods, each by namespace: who may claim an address is decided
/// without a look at every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publisher {
    /// Number of the Service in `Records::services`.
    pub(crate) service: u32,
    /// Number of the namespace in `Records::namespaces`.
    pub(crate) namespace: u32,
    /// Place of the slice; [`Publisher::NO_SLICE`] for a cluster IP.
    pub(crate) slice: u32,
    pub(crate) label: RowLabel,
}

impl Publisher {
    /// Not a place: places begin at 0.
    const NO_SLICE: u32 = u32::MAX;

    /// A Service whose cluster IP the address is.
    pub(crate) fn cluster_ip(service: u32, namespace: u32) -> Publisher {
        Publisher { service, namespace, slice: Self::NO_SLICE, label: RowLabel(0) }
    }

    /// The rows of an address that share its places with this one: those of the same kind and namespace,
    /// as a number that sorts like them.
    pub(crate) fn share(&self) -> u64 {
        match self.is_cluster_ip() {
            true => u64::from(self.namespace),
            false => Self::share_of(self.label.is_own_pod(), self.namespace),
        }
    }

    /// The share of the endpoints of a namespace, of its own Pods or of others.
    pub(crate) fn share_of(is_own_pod: bool, namespace: u32) -> u64 {
        let kind = if is_own_pod { 1 } else { 2 };
        kind << 32 | u64::from(namespace)
    }

    pub(crate) fn is_cluster_ip(&self) -> bool {
        self.slice == Self::NO_SLICE
    }
}

impl Ord for Publisher {
    fn cmp(&self, other: &Publisher) -> Ordering {
        let key = |row: &Publisher| {
            (row.share(), !row.label.is_hostname(), row.service, row.slice, row.label)
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Publisher {
    fn partial_cmp(&self, other: &Publisher) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The place of a row's endpoint name, and two facts about the endpoint.
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

/// A Pod that holds an address; those that share their node's come last, each by namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodHolder {
    pub(crate) host_network: bool,
    /// Number of the namespace in `Records::namespaces`.
    pub(crate) namespace: u32,
    /// Place of the Pod, so that two Pods of one namespace are two rows.
    pub(crate) pod: u32,
}
