//! The octets of a snapshot: a head, objects one by one, a checksum over everything.
//!
//! ```text
//! magic · format u32 · length u32, head (JSON) · { length u32, object }* · 0 u32 · SHA-256
//! ```
//! Numbers are little-endian. A length of 0 ends the objects, so that a cut is seen even where the
//! checksum happens to be there. A file is read only if its checksum is right, and even then it cannot
//! make the reader panic or allocate more than a small multiple of one object.

use std::collections::BTreeMap;
use std::net::IpAddr;

use dataplane_core::{
    Endpoint, Key, Namespace, Object, Pod, Protocol, Resource, Service, ServiceKind, ServicePort,
    Slice, SlicePort, TargetRef,
};
use serde::{Deserialize, Serialize};

/// The magic number at the start of every snapshot.
pub(super) const MAGIC: &[u8; 20] = b"ClusterDNS snapshot\n";
/// Grows with every change of the octets after the magic: another format is not read.
pub(super) const FORMAT: u32 = 1;
/// Octets of the checksum: SHA-256.
pub(super) const CHECKSUM: usize = 32;
/// Largest head: a configuration has 1 MiB at most, and JSON within JSON may double it.
pub(super) const MAX_HEAD: usize = 4 << 20;
/// Largest object: 10,000 endpoints with the longest names, and 1,024 ports.
pub(super) const MAX_OBJECT: usize = 4 << 20;
/// Largest snapshot. 10,000 Services with 100,000 endpoints and 150,000 Pods have about 30 MB.
pub(super) const MAX_FILE: u64 = 256 << 20;

/// The head: facts about all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    /// The cluster domain, such as `cluster.local`: names of objects must fit below it.
    pub(super) cluster_domain: String,
    /// Names the cluster: uid of its Namespace `kube-system`, in hexadecimal (E42).
    pub(super) kube_system_uid: Option<String>,
    /// When the API server last confirmed each resource, in Unix seconds; others have no objects here.
    pub(super) confirmed_at_s: BTreeMap<String, u64>,
    /// The parts of objects that were kept.
    pub(super) kept: Kept,
    /// Objects are missing, because there was no room for all. Snapshots of before do not say it.
    #[serde(default)]
    pub(super) is_partial: bool,
    /// The configuration to run when there is no other (E46), as `Config::to_json` writes it.
    pub(super) configuration: String,
}

/// The parts of objects that only some configurations read. Records rebuilt without a label that is
/// selected on would hide what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    /// Keys of Namespace labels.
    pub(super) namespace_labels: Vec<String>,
    /// Keys of Service labels.
    pub(super) service_labels: Vec<String>,
    /// Names of the Pods behind endpoints.
    pub(super) pod_names: bool,
}

/// The start of a file: everything before the first object. `None` if the head is too large.
pub(super) fn start(head: &Head) -> Option<Vec<u8>> {
    let head = serde_json::to_vec(head).ok().filter(|head| head.len() <= MAX_HEAD)?;
    let mut octets = MAGIC.to_vec();
    octets.extend(FORMAT.to_le_bytes());
    octets.extend((head.len() as u32).to_le_bytes());
    octets.extend(head);
    Some(octets)
}

/// The end mark after the last object.
pub(super) const END: [u8; 4] = 0_u32.to_le_bytes();

/// Adds an object with its length; false if it is larger than anything Kubernetes stores.
pub(super) fn put_object(to: &mut Vec<u8>, object: &Object) -> bool {
    let start = to.len();
    to.extend([0; 4]);
    let is_whole = Output(to).object(object).is_some();
    let length = to.len() - start - 4;
    if !is_whole || length > MAX_OBJECT {
        to.truncate(start);
        return false;
    }
    to[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    true
}

/// The octets of an object alone; `None` if the format has no room for it.
pub(crate) fn octets(object: &Object) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    Output(&mut octets).object(object)?;
    Some(octets)
}

/// The resource and the name of an object, without reading the rest.
pub(crate) fn id(octets: &[u8]) -> Option<(Resource, Key)> {
    let mut input = Input(octets);
    let resource = match input.octet()? {
        SERVICE => Resource::Services,
        SLICE => Resource::EndpointSlices,
        NAMESPACE => Resource::Namespaces,
        POD => Resource::Pods,
        _ => return None,
    };
    Some((resource, input.key()?))
}

/// Reads an object; `None` if the octets are not exactly one.
pub(crate) fn object(octets: &[u8]) -> Option<Object> {
    let mut input = Input(octets);
    let object = input.object()?;
    input.0.is_empty().then_some(object)
}

const SERVICE: u8 = 1;
const SLICE: u8 = 2;
const NAMESPACE: u8 = 3;
const POD: u8 = 4;

const CLUSTER_IP: u8 = 0;
const HEADLESS: u8 = 1;
const EXTERNAL_NAME: u8 = 2;

/// Octets of the shortest item of any list, an endpoint without addresses and names.
const SHORTEST_ITEM: usize = 3;

const READY: u8 = 1;
const HAS_HOSTNAME: u8 = 2;
const HAS_TARGET: u8 = 4;

/// Appends; `None` where a length does not fit.
struct Output<'a>(&'a mut Vec<u8>);

impl Output<'_> {
    fn object(&mut self, object: &Object) -> Option<()> {
        match object {
            Object::Service(service) => {
                let Service { key, uid, version, labels, kind, ports } = service;
                self.0.push(SERVICE);
                self.identity(key, *uid, *version)?;
                self.labels(labels)?;
                match kind {
                    ServiceKind::ClusterIp(addresses) => {
                        self.0.push(CLUSTER_IP);
                        self.addresses(addresses)?;
                    }
                    ServiceKind::Headless => self.0.push(HEADLESS),
                    ServiceKind::ExternalName(name) => {
                        self.0.push(EXTERNAL_NAME);
                        self.text(name)?;
                    }
                }
                self.list(ports, |to, ServicePort { name, port, protocol }| {
                    to.port(name, *port, *protocol)
                })
            }
            Object::Slice(slice) => {
                let Slice { key, uid, version, service, ipv6, ports, endpoints } = slice;
                self.0.push(SLICE);
                self.identity(key, *uid, *version)?;
                self.text(service)?;
                self.0.push(u8::from(*ipv6));
                self.list(ports, |to, SlicePort { name, port, protocol }| {
                    to.port(name, *port, *protocol)
                })?;
                self.list(endpoints, Output::endpoint)
            }
            Object::Namespace(Namespace { name, uid, version, labels }) => {
                self.0.push(NAMESPACE);
                self.identity(&Key::new("", name.clone()), *uid, *version)?;
                self.labels(labels)
            }
            Object::Pod(Pod { key, uid, version, addresses, host_network, finished }) => {
                self.0.push(POD);
                self.identity(key, *uid, *version)?;
                self.addresses(addresses)?;
                self.0.extend([u8::from(*host_network), u8::from(*finished)]);
                Some(())
            }
        }
    }

    fn endpoint(&mut self, endpoint: &Endpoint) -> Option<()> {
        let Endpoint { addresses, ready, hostname, target } = endpoint;
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        self.0.push(
            flag(*ready, READY)
                | flag(hostname.is_some(), HAS_HOSTNAME)
                | flag(target.is_some(), HAS_TARGET),
        );
        self.addresses(addresses)?;
        if let Some(hostname) = hostname {
            self.text(hostname)?;
        }
        if let Some(TargetRef { namespace, name }) = target {
            self.text(namespace)?;
            self.text(name)?;
        }
        Some(())
    }

    fn identity(&mut self, key: &Key, uid: u128, version: u64) -> Option<()> {
        self.text(&key.namespace)?;
        self.text(&key.name)?;
        self.0.extend(uid.to_le_bytes());
        self.0.extend(version.to_le_bytes());
        Some(())
    }

    fn labels(&mut self, labels: &[(Box<str>, Box<str>)]) -> Option<()> {
        self.list(labels, |to, (key, value)| {
            to.text(key)?;
            to.text(value)
        })
    }

    fn port(&mut self, name: &str, port: u16, protocol: Protocol) -> Option<()> {
        self.text(name)?;
        self.0.extend(port.to_le_bytes());
        self.0.push(match protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => 1,
            Protocol::Sctp => 2,
        });
        Some(())
    }

    fn addresses(&mut self, addresses: &[IpAddr]) -> Option<()> {
        self.list(addresses, |to, address| {
            match address {
                IpAddr::V4(v4) => {
                    to.0.push(4);
                    to.0.extend(v4.octets());
                }
                IpAddr::V6(v6) => {
                    to.0.push(6);
                    to.0.extend(v6.octets());
                }
            }
            Some(())
        })
    }

    fn list<T>(
        &mut self,
        items: &[T],
        mut put: impl FnMut(&mut Self, &T) -> Option<()>,
    ) -> Option<()> {
        self.0.extend(u16::try_from(items.len()).ok()?.to_le_bytes());
        items.iter().try_for_each(|item| put(self, item))
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.0.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
        self.0.extend(text.as_bytes());
        Some(())
    }
}

/// Octets that are not read yet; `None` from any method means that they are not an object.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn object(&mut self) -> Option<Object> {
        let kind = self.octet()?;
        let (key, uid, version) = (self.key()?, self.number()?, self.number()?);
        let (uid, version) = (u128::from_le_bytes(uid), u64::from_le_bytes(version));
        Some(match kind {
            SERVICE => Object::Service(Service {
                key,
                uid,
                version,
                labels: self.labels()?,
                kind: self.service_kind()?,
                ports: self.list(|from| {
                    let (name, port, protocol) = from.port()?;
                    Some(ServicePort { name, port, protocol })
                })?,
            }),
            SLICE => Object::Slice(Slice {
                key,
                uid,
                version,
                service: self.text()?,
                ipv6: self.flag()?,
                ports: self.list(|from| {
                    let (name, port, protocol) = from.port()?;
                    Some(SlicePort { name, port, protocol })
                })?,
                endpoints: self.list(Input::endpoint)?,
            }),
            NAMESPACE => Object::Namespace(Namespace {
                name: key.name,
                uid,
                version,
                labels: self.labels()?,
            }),
            POD => Object::Pod(Pod {
                key,
                uid,
                version,
                addresses: self.addresses()?,
                host_network: self.flag()?,
                finished: self.flag()?,
            }),
            _ => return None,
        })
    }

    fn service_kind(&mut self) -> Option<ServiceKind> {
        match self.octet()? {
            CLUSTER_IP => Some(ServiceKind::ClusterIp(self.addresses()?)),
            HEADLESS => Some(ServiceKind::Headless),
            EXTERNAL_NAME => Some(ServiceKind::ExternalName(self.text()?)),
            _ => None,
        }
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let flags = self.octet()?;
        let addresses = self.addresses()?;
        let hostname = if flags & HAS_HOSTNAME == 0 { None } else { Some(self.text()?) };
        let target = if flags & HAS_TARGET == 0 {
            None
        } else {
            Some(TargetRef { namespace: self.text()?, name: self.text()? })
        };
        Some(Endpoint { addresses, ready: flags & READY != 0, hostname, target })
    }

    fn key(&mut self) -> Option<Key> {
        Some(Key::new(self.text()?, self.text()?))
    }

    fn labels(&mut self) -> Option<Vec<(Box<str>, Box<str>)>> {
        self.list(|from| Some((from.text()?, from.text()?)))
    }

    fn port(&mut self) -> Option<(Box<str>, u16, Protocol)> {
        let (name, port) = (self.text()?, u16::from_le_bytes(self.number()?));
        let protocol = match self.octet()? {
            0 => Protocol::Tcp,
            1 => Protocol::Udp,
            2 => Protocol::Sctp,
            _ => return None,
        };
        Some((name, port, protocol))
    }

    fn addresses(&mut self) -> Option<Vec<IpAddr>> {
        self.list(|from| match from.octet()? {
            4 => Some(IpAddr::from(from.number::<4>()?)),
            6 => Some(IpAddr::from(from.number::<16>()?)),
            _ => None,
        })
    }

    /// Room is reserved for no more items than the octets that are left can have, so that a wrong length reserves little.
    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::from(u16::from_le_bytes(self.number()?));
        let mut items = Vec::with_capacity(count.min(self.0.len() / SHORTEST_ITEM));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Some(items)
    }

    fn text(&mut self) -> Option<Box<str>> {
        let length = u16::from_le_bytes(self.number()?);
        let (text, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(Into::into)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.octet()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn octet(&mut self) -> Option<u8> {
        let (&octet, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(octet)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*number)
    }
}

#[cfg(test)]
mod tests;
