//! What a real API server takes: the changes of a soak, made to keep its rules (pure). What it still refuses is
//! counted, and is no change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dataplane_core::{
    Key, Namespace, Object, Protocol, Resource, Service, ServiceKind, ServicePort, Slice,
};
use serde_json::{Value, json};

use crate::soak::history::Place;
use crate::soak::objects::manifest;

/// Two names of Services that it refuses, because they begin with a digit, and what they become.
const OTHER_NAMES: [(&str, &str); 2] = [("1st", "web"), ("10-244-0-1", "cart")];
/// What each Service with a cluster IP has at least.
const PORT: (&str, u16, Protocol) = ("http", 80, Protocol::Tcp);

/// What an API server makes by itself, as far as questions can meet it.
pub(super) fn own_objects() -> Vec<Object> {
    let name = "default";
    let service = Service {
        key: Key::new(name, "kubernetes"),
        uid: 0,
        version: 0,
        labels: Vec::new(),
        kind: ServiceKind::ClusterIp(vec![Ipv4Addr::new(10, 96, 0, 1).into()]),
        ports: vec![ServicePort { name: "https".into(), port: 443, protocol: Protocol::Tcp }],
    };
    let namespace = Namespace { name: name.into(), uid: 0, version: 0, labels: Vec::new() };
    vec![Object::Namespace(namespace), Object::Service(service)]
}

/// The object as it can be written beside these.
pub(super) fn fit(object: Object, beside: &BTreeMap<Place, Object>) -> Object {
    match object {
        Object::Service(service) => Object::Service(fit_service(service, beside)),
        Object::Slice(slice) => Object::Slice(fit_slice(slice)),
        Object::Namespace(_) | Object::Pod(_) => object,
    }
}

fn fit_service(mut service: Service, beside: &BTreeMap<Place, Object>) -> Service {
    if let Some((_, other)) = OTHER_NAMES.iter().find(|(name, _)| *name == &*service.key.name) {
        service.key.name = (*other).into();
    }
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let several = service.ports.len() > 1;
    service.ports.retain(|port| {
        (!several || !port.name.is_empty())
            && numbers.insert((port.port, port.protocol as usize))
            && names.insert(port.name.clone())
    });
    if let ServiceKind::ClusterIp(addresses) = &mut service.kind {
        let others = beside.values().filter_map(|other| match other {
            Object::Service(other) if other.key != service.key => Some(cluster_ips(other)),
            _ => None,
        });
        let taken: BTreeSet<IpAddr> = others.flatten().copied().collect();
        for address in addresses.iter_mut().filter(|address| taken.contains(address)) {
            *address = own_address(&service.key, *address);
        }
        if service.ports.is_empty() {
            let (name, port, protocol) = PORT;
            service.ports.push(ServicePort { name: name.into(), port, protocol });
        }
    }
    service
}

fn cluster_ips(service: &Service) -> &[IpAddr] {
    match &service.kind {
        ServiceKind::ClusterIp(addresses) => addresses,
        ServiceKind::Headless | ServiceKind::ExternalName(_) => &[],
    }
}

/// An address that only this Service gets, in the family of another.
fn own_address(key: &Key, like: IpAddr) -> IpAddr {
    let text = format!("{}/{}", key.namespace, key.name);
    let number = |number: u16, octet: u8| number.wrapping_mul(31).wrapping_add(octet.into());
    let number = text.bytes().fold(0, number);
    let [high, low] = number.to_be_bytes();
    match like {
        IpAddr::V4(_) => Ipv4Addr::new(10, 98, high, low).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, number).into(),
    }
}

fn fit_slice(mut slice: Slice) -> Slice {
    let mut names = BTreeSet::new();
    slice.ports.retain(|port| names.insert(port.name.clone()));
    for endpoint in &mut slice.endpoints {
        // No label of a host: `_tcp`.
        endpoint.hostname.take_if(|name| name.starts_with('_'));
    }
    slice
}

/// Whether it must be deleted and made again, because the API server changes none of this.
pub(super) fn must_be_replaced(before: &Object, after: &Object) -> bool {
    match (before, after) {
        (Object::Service(before), Object::Service(after)) => before.kind != after.kind,
        (Object::Slice(before), Object::Slice(after)) => before.ipv6 != after.ipv6,
        (Object::Pod(before), Object::Pod(after)) => before.host_network != after.host_network,
        _ => false,
    }
}

/// The object with the fields besides that a real API server asks for.
pub(super) fn complete(object: &Object) -> Value {
    let mut value = manifest(object);
    match object {
        Object::Service(service) if cluster_ips(service).len() > 1 => {
            value["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
        }
        Object::Pod(_) => {
            value["spec"]["containers"] = json!([{"name": "main", "image": "main"}]);
        }
        Object::Service(_) | Object::Slice(_) | Object::Namespace(_) => {}
    }
    value
}

/// Where objects of a kind are made, and where this one is.
pub(super) fn paths(resource: Resource, key: &Key) -> (String, String) {
    let namespace = &key.namespace;
    let all = match resource {
        Resource::Namespaces => "/api/v1/namespaces".to_owned(),
        Resource::Services => format!("/api/v1/namespaces/{namespace}/services"),
        Resource::Pods => format!("/api/v1/namespaces/{namespace}/pods"),
        Resource::EndpointSlices => {
            format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
        }
    };
    let one = format!("{all}/{}", key.name);
    (all, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::Random;
    use crate::soak::churn::{Change, change};

    /// What an API server takes: each cluster IP once, ports with names of their own, no name that it refuses.
    #[test]
    fn the_changes_of_a_soak_are_made_to_keep_the_rules_of_an_api_server() {
        let (mut random, mut objects) = (Random::new(3), BTreeMap::new());
        for number in 0..2_000 {
            let Change::Put(object) = change(&mut random, number) else { continue };
            let object = fit(object, &objects);
            objects.insert((object.resource(), object.key()), object);
            let services = objects.values().filter_map(|object| match object {
                Object::Service(service) => Some(service),
                _ => None,
            });
            let mut addresses = BTreeSet::new();
            for service in services {
                assert!(service.key.name.starts_with(|first: char| first.is_ascii_lowercase()));
                assert!(cluster_ips(service).iter().all(|address| addresses.insert(*address)));
                let has_port = !service.ports.is_empty() || cluster_ips(service).is_empty();
                assert!(has_port, "{service:?}");
                let names: BTreeSet<&str> = service.ports.iter().map(|port| &*port.name).collect();
                assert_eq!(names.len(), service.ports.len(), "{service:?}");
                assert!(names.len() < 2 || !names.contains(""), "{service:?}");
            }
        }
        assert!(objects.len() > 20);
    }
}
