//! What an object of a list takes away from what is held of it. An endpoint or an address may have moved to an object that
//! comes later in the list, so what is taken away shows at its end only (E21).

use core::net::IpAddr;

use super::Index;
use super::built::Built;
use super::services::cluster_ips;
use super::slices::missing_in;
use crate::object::{Change, Object, Pod, Service, ServiceKind, Slice};
use crate::wire::address::Address;

impl Index {
    /// Whether this change would remove an endpoint, a port or an address that is held of the object.
    pub fn takes_away(&self, change: &Change) -> bool {
        let object = match change {
            Change::Delete(resource, key) => return self.held(*resource, key).is_some(),
            Change::Apply(object) => object,
        };
        let Some(held) = self.held(object.resource(), &object.key()) else {
            return false;
        };
        let (uid, version) = match object {
            Object::Service(service) => (service.uid, service.version),
            Object::Slice(slice) => (slice.uid, slice.version),
            Object::Namespace(namespace) => (namespace.uid, namespace.version),
            Object::Pod(pod) => (pod.uid, pod.version),
        };
        // In a reset, the same version may be of another history (K22).
        let is_same = version != 0 && held == (uid, version) && !self.is_reset(object.resource());
        !is_same
            && match object {
                Object::Service(service) => self.service_takes_away(service),
                Object::Slice(slice) => self.slice_takes_away(slice),
                Object::Namespace(_) => false,
                Object::Pod(pod) => self.pod_takes_away(pod),
            }
    }

    fn service_takes_away(&self, service: &Service) -> bool {
        let held = self.held.services.get(&service.key);
        let entry = held.and_then(|held| self.next.services.get(held.slot));
        let had = cluster_ips(entry.and_then(|entry| entry.object.as_ref()));
        let has: &[IpAddr] = match &service.kind {
            ServiceKind::ClusterIp(addresses) => addresses,
            ServiceKind::Headless | ServiceKind::ExternalName(_) => &[],
        };
        lack_one(has, had)
    }

    fn slice_takes_away(&self, slice: &Slice) -> bool {
        let Some(held) = self.held.slices.get(&slice.key) else {
            return false;
        };
        let (Some(entry), Some(service)) =
            (self.next.slices.get(held.slot), self.next.services.get(held.service))
        else {
            return false;
        };
        if entry.rows.is_empty() {
            return false;
        }
        let (service, _) = service.labels();
        if service != slice.service.as_bytes() {
            return true;
        }
        let mut built = Built::new(held.slot, self.most_label_octets(held.service));
        built.read(slice, self.next.zone.settings.endpoint_names, &entry.text);
        *built.ports(slice) != *entry.ports.all
            || missing_in(&built.entry.rows, &entry.rows).next().is_some()
            // It would lose what it has, and what leaves with other objects may make room.
            || !self.has_room(held.service, built.entry.rows.len(), entry.rows.len())
    }

    fn pod_takes_away(&self, pod: &Pod) -> bool {
        let held = self.held.pods.get(&pod.key);
        let had = held.map_or(&[][..], |held| &held.addresses);
        let has: &[IpAddr] = if pod.finished { &[] } else { &pod.addresses };
        lack_one(has, had)
    }
}

/// Whether one of the addresses that there were is not among those that there are.
fn lack_one(has: &[IpAddr], had: &[Address]) -> bool {
    had.iter().any(|had| !has.iter().any(|&has| Address::from(has) == *had))
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::object::{Endpoint, Key, Protocol, Resource, SlicePort};
    use crate::testing::settings;

    fn slice(version: u64, service: &str, endpoints: &[(u8, &str)], ports: &[u16]) -> Change {
        let endpoint = |&(end, hostname): &(u8, &str)| Endpoint {
            addresses: vec![IpAddr::from([10, 1, 0, end])],
            ready: true,
            hostname: Some(hostname.into()),
            target: None,
        };
        let port = |&port: &u16| SlicePort { name: "".into(), port, protocol: Protocol::Tcp };
        Change::Apply(Object::Slice(Slice {
            key: Key::new("shop", "db-x"),
            uid: 1,
            version,
            service: service.into(),
            ipv6: false,
            ports: ports.iter().map(port).collect(),
            endpoints: endpoints.iter().map(endpoint).collect(),
        }))
    }

    fn service(version: u64, addresses: &[u8]) -> Change {
        let address = |&end: &u8| IpAddr::from([10, 96, 0, end]);
        let kind = match addresses {
            [] => ServiceKind::Headless,
            [..] => ServiceKind::ClusterIp(addresses.iter().map(address).collect()),
        };
        let (labels, ports) = (Vec::new(), Vec::new());
        let key = Key::new("shop", "db");
        Change::Apply(Object::Service(Service { key, uid: 1, version, labels, kind, ports }))
    }

    fn pod(version: u64, addresses: &[u8], finished: bool) -> Change {
        let address = |&end: &u8| IpAddr::from([10, 1, 0, end]);
        let addresses = addresses.iter().map(address).collect();
        let (key, uid, host_network) = (Key::new("shop", "db-0"), 1, false);
        Change::Apply(Object::Pod(Pod { key, uid, version, addresses, host_network, finished }))
    }

    #[test]
    fn e21_what_an_object_lacks_of_what_is_held_is_taken_away_and_nothing_else() {
        let mut index = Index::new(settings());
        let (a, b) = ((1, "a"), (2, "b"));
        for change in [slice(1, "db", &[a, b], &[80]), service(1, &[1, 2]), pod(1, &[1], false)] {
            assert!(!index.takes_away(&change), "nothing is held yet: {change:?}");
            index.apply(change);
        }
        for (change, expected) in [
            (slice(1, "db", &[], &[]), false),
            (slice(2, "db", &[a, b], &[80]), false),
            (slice(2, "db", &[b, a, (3, "c")], &[80]), false),
            (slice(2, "db", &[b], &[80]), true),
            (slice(2, "db", &[a, (2, "other")], &[80]), true),
            (slice(2, "db", &[a, b], &[81]), true),
            (slice(2, "other", &[a, b], &[80]), true),
            (slice(0, "db", &[a], &[80]), true),
            (service(2, &[2, 1]), false),
            (service(2, &[1]), true),
            (service(2, &[]), true),
            (pod(2, &[1, 2], false), false),
            (pod(2, &[2], false), true),
            (pod(2, &[1], true), true),
            (Change::Delete(Resource::EndpointSlices, Key::new("shop", "db-x")), true),
            (Change::Delete(Resource::EndpointSlices, Key::new("shop", "unknown")), false),
        ] {
            assert_eq!(index.takes_away(&change), expected, "{change:?}");
        }
    }
}
