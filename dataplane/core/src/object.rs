//! The slim objects the index is fed with: what DNS needs of a Kubernetes object and nothing else.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

/// The kinds of object the index holds, each listed and watched on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Services of every type.
    Services,
    /// EndpointSlices; Endpoints are turned into slices before they get here.
    EndpointSlices,
    /// Whether names of a namespace exist, and labels that `exposure` selects by.
    Namespaces,
    /// Pods; needed only while pod records are verified.
    Pods,
}

impl Resource {
    /// Every resource, in the order of their discriminants.
    pub const ALL: [Resource; 4] =
        [Resource::Services, Resource::EndpointSlices, Resource::Namespaces, Resource::Pods];

    /// The plural name of the resource in the Kubernetes API, lower case.
    pub const fn plural(self) -> &'static str {
        match self {
            Resource::Services => "services",
            Resource::EndpointSlices => "endpointslices",
            Resource::Namespaces => "namespaces",
            Resource::Pods => "pods",
        }
    }
}

/// Namespace and name of an object; the namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`, empty for a Namespace.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
}

impl Key {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A Service as DNS sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid` as a number (a UUID's 128 bits, otherwise a hash); 0 when there is none (files).
    pub uid: u128,
    /// `metadata.resourceVersion`; 0 when there is none or it is not a number.
    pub version: u64,
    /// The labels; the index keeps only those that the exposure settings select on.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// What kind of names it gives (RR13-RR19).
    pub kind: ServiceKind,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
}

/// What decides which names a Service has (docs/dns.md §3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// ClusterIP, NodePort or LoadBalancer: `spec.clusterIPs` that parse; may be empty.
    ClusterIp(Vec<IpAddr>),
    /// The first cluster IP is `None`.
    Headless,
    /// `spec.externalName` as written.
    ExternalName(Box<str>),
}

/// Transport protocol of a port; the label below `_` in SRV names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// `TCP`, also when absent.
    Tcp,
    /// `_udp` in names of SRV records; the API writes `UDP`.
    Udp,
    /// `_sctp` in names of SRV records.
    Sctp,
}

/// One of `spec.ports` of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Port name, empty when unnamed.
    pub name: Box<str>,
    /// `port`, the Service's own number.
    pub port: u16,
    /// Kubernetes takes TCP where none is written.
    pub protocol: Protocol,
}

/// One of `ports` of an EndpointSlice; ports without a number never get here (RR35).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Port name, empty when unnamed or null.
    pub name: Box<str>,
    /// `port`, the target port.
    pub port: u16,
    /// `protocol`, TCP when null.
    pub protocol: Protocol,
}

/// An EndpointSlice as DNS sees it. Slices of addressType FQDN never get here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Namespace and name of the slice.
    pub key: Key,
    /// As [`Service::uid`].
    pub uid: u128,
    /// As [`Service::version`].
    pub version: u64,
    /// Label `kubernetes.io/service-name`.
    pub service: Box<str>,
    /// addressType IPv6 rather than IPv4; endpoints of the other family are not published.
    pub ipv6: bool,
    /// `ports` that have a number.
    pub ports: Vec<SlicePort>,
    /// `endpoints`, ready or not: the index publishes those of RR20.
    pub endpoints: Vec<Endpoint>,
}

/// One of `endpoints` of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `addresses` that parse, of any family.
    pub addresses: Vec<IpAddr>,
    /// `conditions.ready`, true when absent.
    pub ready: bool,
    /// `hostname` as written.
    pub hostname: Option<Box<str>>,
    /// `targetRef` when its kind is Pod.
    pub target: Option<TargetRef>,
}

/// The Pod behind an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRef {
    /// Namespace of the Pod; empty means the slice's own.
    pub namespace: Box<str>,
    /// Name of the Pod.
    pub name: Box<str>,
}

/// A Namespace as DNS sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// `metadata.name`.
    pub name: Box<str>,
    /// As [`Service::uid`].
    pub uid: u128,
    /// As [`Service::version`].
    pub version: u64,
    /// As [`Service::labels`].
    pub labels: Vec<(Box<str>, Box<str>)>,
}

/// A Pod as DNS sees it (only with verified pod records).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: Key,
    /// As [`Service::uid`].
    pub uid: u128,
    /// As [`Service::version`].
    pub version: u64,
    /// `status.podIPs` (else `[status.podIP]`) that parse.
    pub addresses: Vec<IpAddr>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `status.phase` is Succeeded or Failed: its names are gone (RR54).
    pub finished: bool,
}

/// One object of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// Its name, type, addresses and ports.
    Service(Service),
    /// Endpoints of a Service.
    Slice(Slice),
    /// Existence and labels of a namespace.
    Namespace(Namespace),
    /// Its addresses, for verified pod records.
    Pod(Pod),
}

impl Object {
    /// The resource it belongs to.
    pub fn resource(&self) -> Resource {
        match self {
            Object::Service(_) => Resource::Services,
            Object::Slice(_) => Resource::EndpointSlices,
            Object::Namespace(_) => Resource::Namespaces,
            Object::Pod(_) => Resource::Pods,
        }
    }

    /// Namespace and name; of a Namespace the first one is empty.
    pub fn key(&self) -> Key {
        match self {
            Object::Service(service) => service.key.clone(),
            Object::Slice(slice) => slice.key.clone(),
            Object::Namespace(namespace) => Key::new("", namespace.name.clone()),
            Object::Pod(pod) => pod.key.clone(),
        }
    }
}

/// One typed event for the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was added or changed: its whole present content.
    Apply(Object),
    /// The object is gone.
    Delete(Resource, Key),
}

/// Why an object, or a part of it, is not served (E15). The rest of it is served.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// A name is not one DNS label of 1 to 63 octets.
    NotALabel(Box<str>),
    /// `spec.externalName` is empty, an IP literal or not a domain name (RR47).
    BadExternalName(Box<str>),
    /// A record's owner or target would exceed 255 octets (§3.1).
    NameTooLong(Box<str>),
    /// An endpoint address is of the other family, unspecified, loopback, multicast or IPv4-mapped (RR20).
    BadAddress(IpAddr),
    /// A named limit on the size of an object was reached; what is beyond it is not served.
    TooMany {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit: this many are served.
        limit: usize,
    },
    /// The same of a limit that several objects share: the object is served as soon as others leave room.
    Crowded {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit: this many are served.
        limit: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NotALabel(name) => {
                write!(f, "{name:?} is not a DNS label of 1 to 63 octets")
            }
            Problem::BadExternalName(name) => {
                write!(f, "externalName {name:?} is not a domain name")
            }
            Problem::NameTooLong(name) => write!(f, "the name {name:?} would exceed 255 octets"),
            Problem::BadAddress(address) => {
                write!(f, "the endpoint address {address} cannot be published")
            }
            Problem::TooMany { what, limit } | Problem::Crowded { what, limit } => {
                write!(f, "more than {limit} {what}")
            }
        }
    }
}
