//! The objects held, given back one by one: enough of each to rebuild the same answers (E40).
//!
//! An export goes in steps with changes in between, so that no event waits for it and nothing is copied as a whole.
//! Each object is as it was at one moment of the export; an object that changes after it was exported is in the next
//! export.

#![allow(
    clippy::indexing_slicing,
    reason = "places that the index gave itself, in lists that it filled"
)]

use alloc::boxed::Box;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;

use super::Index;
use super::built::MAX_PORTS;
use super::held::{HeldNamespace, HeldPod, HeldService, HeldSlice};
use super::numbered_table::NumberedTable;
use crate::object::{
    Endpoint, Key, Namespace, Object, Pod, Resource, Service, ServiceKind, ServicePort, Slice,
    SlicePort, TargetRef,
};
use crate::records::{DataSource, Kind, Port, Ports, Row};

/// Written as the namespace of a Pod of another namespace than the slice's. The real one is not kept; no namespace
/// can have this name.
const FOREIGN_NAMESPACE: &str = "-";

/// How far an export of all objects has come; each call continues there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Index into [`Resource::ALL`].
    resource: usize,
    /// The place that the next object is looked for from.
    place: u32,
}

impl Index {
    /// Gives the next objects of the resources that have data, until their rows and ports exceed
    /// `budget`. Returns whether there may be more.
    pub fn export(&self, export: &mut Export, budget: usize, mut to: impl FnMut(Object)) -> bool {
        let mut left = budget;
        while let Some(&resource) = Resource::ALL.get(export.resource) {
            if self.next.source(resource) != DataSource::None {
                let from = core::mem::take(&mut export.place);
                let next = match resource {
                    Resource::Services => {
                        step(&self.held.services, from, &mut left, |key, held| {
                            self.service_of(key, held, &mut to)
                        })
                    }
                    Resource::EndpointSlices => {
                        step(&self.held.slices, from, &mut left, |key, held| {
                            self.slice_of(key, held, &mut to)
                        })
                    }
                    Resource::Namespaces => {
                        step(&self.held.namespaces, from, &mut left, |key, held| {
                            to(namespace_of(key, held));
                            1
                        })
                    }
                    Resource::Pods => step(&self.held.pods, from, &mut left, |key, held| {
                        to(pod_of(key, held));
                        1
                    }),
                };
                if let Some(next) = next {
                    export.place = next;
                    return true;
                }
            }
            export.resource += 1;
        }
        false
    }

    /// Gives a Service; what it cost.
    fn service_of(&self, key: &Key, held: &HeldService, to: &mut impl FnMut(Object)) -> usize {
        let entry = self.next.services.get(held.slot);
        let Some(object) = entry.and_then(|entry| entry.object.as_ref()) else {
            return 1;
        };
        let kind = match &object.kind {
            Kind::ClusterIp(addresses) => {
                ServiceKind::ClusterIp(addresses.iter().map(|&address| address.into()).collect())
            }
            Kind::Headless => ServiceKind::Headless,
            Kind::ExternalName(target) => ServiceKind::ExternalName(target.to_string().into()),
            Kind::Unserved => ServiceKind::ExternalName("".into()),
        };
        let ports = all_ports(&object.ports).map(|port| ServicePort {
            name: text(&port.name),
            port: port.number,
            protocol: port.protocol,
        });
        to(Object::Service(Service {
            key: key.clone(),
            uid: held.held.uid,
            version: held.held.version,
            labels: held.labels.to_vec(),
            kind,
            ports: ports.collect(),
        }));
        1 + object.ports.all.len()
    }

    /// Gives a slice; what it cost. Endpoints that are not ready answer nothing and are left out.
    fn slice_of(&self, key: &Key, held: &HeldSlice, to: &mut impl FnMut(Object)) -> usize {
        let (Some(service), Some(entry)) =
            (self.next.services.get(held.service), self.next.slices.get(held.slot))
        else {
            return 1;
        };
        let ports = all_ports(&entry.ports).map(|port| SlicePort {
            name: text(&port.name),
            port: port.number,
            protocol: port.protocol,
        });
        to(Object::Slice(Slice {
            key: key.clone(),
            uid: held.held.uid,
            version: held.held.version,
            service: text(service.labels().0),
            ipv6: entry.rows.first().is_some_and(|row| !row.address.is_v4()),
            ports: ports.collect(),
            endpoints: entry.rows.iter().map(|row| self.endpoint_of(row)).collect(),
        }));
        1 + entry.ports.all.len() + entry.rows.len()
    }

    fn endpoint_of(&self, row: &Row) -> Endpoint {
        let name = self.next.name_of(row).map(text);
        let (hostname, pod) = match row.label.is_hostname() {
            true => (name, None),
            false => (None, name),
        };
        let own_pod = row.label.is_own_pod();
        let target = (own_pod || pod.is_some()).then(|| TargetRef {
            namespace: if own_pod { "" } else { FOREIGN_NAMESPACE }.into(),
            name: pod.unwrap_or_default(),
        });
        Endpoint { addresses: vec![row.address.into()], ready: true, hostname, target }
    }
}

fn namespace_of(key: &Key, held: &HeldNamespace) -> Object {
    Object::Namespace(Namespace {
        name: key.name.clone(),
        uid: held.held.uid,
        version: held.held.version,
        labels: held.labels.to_vec(),
    })
}

/// A Pod that has finished has no addresses left, which answers the same.
fn pod_of(key: &Key, held: &HeldPod) -> Object {
    Object::Pod(Pod {
        key: key.clone(),
        uid: held.held.uid,
        version: held.held.version,
        addresses: held.addresses.iter().map(|&address| address.into()).collect(),
        host_network: held.host_network,
        finished: false,
    })
}

/// Gives objects from a place on until `left` is used up; where more may follow.
fn step<T>(
    objects: &NumberedTable<T>,
    from: u32,
    left: &mut usize,
    mut give: impl FnMut(&Key, &T) -> usize,
) -> Option<u32> {
    for (place, key, object) in objects.from(from) {
        let cost = give(key, object);
        *left = left.saturating_sub(cost);
        if *left == 0 {
            return Some(place + 1);
        }
    }
    None
}

/// The ports of an object. If it had more than are kept, one is repeated, so that the reader knows that there were
/// more.
fn all_ports(ports: &Ports) -> impl Iterator<Item = &Port> {
    let count = if ports.is_cut { MAX_PORTS + 1 } else { ports.all.len() };
    ports.all.iter().chain(core::iter::repeat_with(|| &ports.all[0])).take(count)
}

/// Names in the records are ASCII labels; Kubernetes allows no others.
fn text(octets: &[u8]) -> Box<str> {
    String::from_utf8_lossy(octets).into()
}

#[cfg(test)]
mod tests;
