//! What the core needs of the configuration, checked beforehand by `crds::check`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use ipnet::IpNet;

use crate::object::Key;
use crate::wire::name::Name;

/// Everything configurable that decides an answer (docs/dns.md §1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `Z`, such as `cluster.local.`.
    pub cluster_domain: Name,
    /// TTL of records derived from Kubernetes, 0 to 3600 seconds; `N` is `min(ttl_s, 5)`.
    pub ttl_s: u32,
    /// Which pod names exist (§3.6).
    pub pods: PodRecords,
    /// How endpoints without a hostname are named (RR23).
    pub endpoint_names: EndpointNames,
    /// A ClusterIP Service without a published endpoint does not exist (RR15).
    pub hide_empty_services: bool,
    /// Ranges whose reverse names are ours even on a miss (A2); at most 64.
    pub reverse_cidrs: Vec<IpNet>,
    /// Addresses of `ns.dns.Z` (RR72).
    pub service_addresses: ServiceAddresses,
    /// What is visible (§4.5).
    pub exposure: Exposure,
    /// Federations of kube-dns (§3.11); at most 16.
    pub federations: Vec<Federation>,
    /// Extra records in written order (§3.9); at most 4,096.
    pub extra: Vec<ExtraRecord>,
    /// Stub domains in written order; the group of entry `i` is `i + 1`, group 0 is the default upstreams.
    pub stub_domains: Vec<Name>,
    /// Types that a group is never asked for (FW45), at the place of its number, at most 8 each; beyond the end of the list
    /// nothing is withheld.
    pub withheld_types: Vec<Vec<u16>>,
    /// Whether group 0 exists; false is `upstreams.none` (A20).
    pub default_upstreams: bool,
    /// Largest UDP reply, and what we advertise: 512 to 4096 octets.
    pub udp_payload_size: u16,
    /// Answer the CHAOS names of §2.4.
    pub chaos: bool,
    /// Answer the NSID option (WR13).
    pub nsid: bool,
    /// Address ranges allowed to ask (N7); empty means everyone.
    pub clients: Vec<IpNet>,
    /// `cachesize.bind.` (A52).
    pub cache_entries: u32,
}

/// Which names exist below `pod.Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRecords {
    /// No pod records: NXDOMAIN (RR52).
    Disabled,
    /// Every address in a visible namespace (RR53).
    Insecure,
    /// Addresses of Pods of that namespace (RR54).
    Verified,
}

/// How an endpoint without a hostname is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointNames {
    /// Dashed address, `10-244-1-31` (RR23).
    Address,
    /// By its Pod's name, where that is one label.
    PodName,
}

/// Where the addresses of `ns.dns.Z` come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAddresses {
    /// Addresses that are written down.
    Fixed {
        /// In written order.
        addresses: Vec<IpAddr>,
        /// Our own Service, which need not have them; `None`: the Service that has one of them.
        service: Option<Key>,
    },
    /// The cluster IPs of this Service, once it is known.
    OfService {
        /// `metadata.namespace` of the Service.
        namespace: Box<str>,
        /// `metadata.name` of the Service.
        name: Box<str>,
    },
}

/// A federation of kube-dns (§3.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Federation {
    /// Its name: one label.
    pub name: Name,
    /// `<zone>.<region>.<domain>`, where its Services are in other clusters; `None` while zone or region is not known
    /// (RR97).
    pub domain: Option<Name>,
}

/// Which namespaces and Services are visible (N40); the default shows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Visible namespaces; empty means no list.
    pub namespaces: Vec<Box<str>>,
    /// Selector on namespace labels; empty selects everything.
    pub namespace_selector: Selector,
    /// Selector on Service labels; empty selects everything.
    pub service_selector: Selector,
}

/// A label selector: all requirements must hold (`matchLabels` are `In` with one value).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Key of the label.
    pub key: Box<str>,
    /// How its value is compared.
    pub operator: SelectorOperator,
}

/// The operators of a Kubernetes label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorOperator {
    /// The label exists with one of these values.
    In(Vec<Box<str>>),
    /// The label does not exist, or has none of these values.
    NotIn(Vec<Box<str>>),
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

impl Selector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &[(Box<str>, Box<str>)]) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.iter().find(|(key, _)| *key == requirement.key).map(|(_, v)| v);
            match (&requirement.operator, value) {
                (SelectorOperator::In(values), Some(value)) => values.contains(value),
                (SelectorOperator::In(_), None) => false,
                (SelectorOperator::NotIn(values), Some(value)) => !values.contains(value),
                (SelectorOperator::NotIn(_), None) => true,
                (SelectorOperator::Exists, value) => value.is_some(),
                (SelectorOperator::DoesNotExist, value) => value.is_none(),
            }
        })
    }

    /// Whether the selector reads this label key.
    pub fn reads(&self, key: &str) -> bool {
        self.0.iter().any(|requirement| &*requirement.key == key)
    }
}

/// One extra RRset (RR76-RR84). Owners may repeat with different data types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraRecord {
    /// The owner; for a wildcard the name without its `*` label.
    pub owner: Name,
    /// `*.owner` rather than `owner` (RR82).
    pub wildcard: bool,
    /// 0 to 86,400 seconds.
    pub ttl_s: u32,
    /// Type and RDATA.
    pub data: ExtraData,
    /// Automatic PTR of addresses (RR79).
    pub reverse: bool,
    /// May replace the cluster's data at this exact name (A13).
    pub override_cluster_zone: bool,
}

// There are few, and they live long: a box would save nothing.
#[allow(clippy::large_enum_variant)]
/// Data of an extra record; several types at one owner are several records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraData {
    /// A and AAAA in one list, 1 to 64.
    Addresses(Vec<IpAddr>),
    /// Absolute name, lower case.
    Cname(Name),
    /// DNAME target (RR85); the owner is no wildcard.
    Dname(Name),
    /// Character-strings of one TXT record, 1 to 16 of at most 255 octets.
    Txt(Vec<Box<[u8]>>),
    /// SRV records, 1 to 64.
    Srv(Vec<SrvData>),
}

/// Data of one SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvData {
    /// Priority: lower is tried first (RFC 2782).
    pub priority: u16,
    /// Weight among targets of one priority (RFC 2782).
    pub weight: u16,
    /// Port that the target serves.
    pub port: u16,
    /// Owner of the address records (RFC 2782).
    pub target: Name,
}
