//! Answers that depend on objects which no client sees: a change of such an object is published where it changes one.

use core::net::IpAddr;

use super::tests::{hidden_namespaces_stay_hidden, namespace, service, slice};
use super::*;
use crate::object::{Endpoint, Service, ServiceKind, Slice};
use crate::records::MAX_PUBLISHERS;
use crate::settings::Settings;
use crate::testing::settings;

/// An address that the slice of a tenant and a cluster IP may both have.
const CONTESTED: [u8; 4] = [10, 1, 7, 7];

fn cluster_ips(addresses: &[[u8; 4]]) -> ServiceKind {
    ServiceKind::ClusterIp(addresses.iter().map(|&octets| IpAddr::from(octets)).collect())
}

fn service_in(namespace: &str, name: &str, kind: ServiceKind) -> Change {
    let key = Key::new(namespace, name);
    let (labels, ports) = (Vec::new(), Vec::new());
    Change::Apply(Object::Service(Service { key, uid: 8, version: 1, labels, kind, ports }))
}

fn delete(resource: Resource, name: &str) -> Change {
    Change::Delete(resource, Key::new("shop", name))
}

/// Applies a change that clients must see, or must not.
fn play(index: &mut Index, change: Change, is_seen: bool) {
    let shown = format!("{change:?}");
    assert_eq!(index.apply(change).visible, is_seen, "{shown}");
    assert_eq!(index.publish(1).is_some(), is_seen, "{shown}");
}

#[test]
fn rr60_a_hidden_cluster_ip_takes_the_ptr_of_endpoints_at_once_and_gives_it_back() {
    let empty_are_hidden = Settings { hide_empty_services: true, ..settings() };
    for settings in [empty_are_hidden, hidden_namespaces_stay_hidden()] {
        let mut index = Index::new(settings);
        let thief = Change::Apply(Object::Slice(Slice {
            key: Key::new("thief", "s"),
            uid: 9,
            version: 1,
            service: "bait".into(),
            ipv6: false,
            ports: Vec::new(),
            endpoints: vec![Endpoint {
                addresses: vec![CONTESTED.into()],
                ready: true,
                hostname: None,
                target: None,
            }],
        }));
        for change in [
            namespace("thief", false),
            namespace("shop", true),
            service_in("thief", "bait", ServiceKind::Headless),
            thief,
        ] {
            index.apply(change);
        }
        index.publish(1);
        play(&mut index, service("cart", 1, cluster_ips(&[CONTESTED])), true);
        play(&mut index, service("cart", 2, cluster_ips(&[CONTESTED, [10, 96, 0, 1]])), false);
        play(&mut index, service("cart", 3, cluster_ips(&[[10, 96, 0, 1]])), true);
        play(&mut index, service("cart", 4, cluster_ips(&[CONTESTED])), true);
        play(&mut index, service("cart", 5, ServiceKind::ExternalName("".into())), true);
        play(&mut index, service("cart", 6, cluster_ips(&[CONTESTED])), true);
        play(&mut index, delete(Resource::Services, "cart"), true);
        // E14 for all others.
        play(&mut index, service("db", 1, cluster_ips(&[[10, 96, 0, 2]])), false);
        play(&mut index, delete(Resource::Services, "db"), false);
    }
}

#[test]
fn l12_a_hidden_row_that_takes_the_place_of_a_seen_one_is_published() {
    let crowd = MAX_PUBLISHERS as u8;
    let at_one_address = |service: &str, number: u8, hostname: &str| {
        let endpoint = Endpoint {
            addresses: vec![CONTESTED.into()],
            ready: true,
            hostname: Some(hostname.into()),
            target: None,
        };
        Change::Apply(Object::Slice(Slice {
            key: Key::new("shop", format!("{service}-{number}")),
            uid: 200,
            version: 1,
            service: service.into(),
            ipv6: false,
            ports: Vec::new(),
            endpoints: vec![endpoint],
        }))
    };
    let mut index = Index::new(settings());
    // Its Service does not exist yet, and its place is before the other one.
    index.apply(slice("absent", 0, 1, 1..2));
    index.apply(service("db", 1, ServiceKind::Headless));
    for number in 0..crowd {
        index.apply(at_one_address("db", number, &format!("db-{number}")));
    }
    index.publish(1);
    let seen = |index: &Index| {
        let rows = index.next.addresses.get(IpAddr::from(CONTESTED).into()).iter();
        let visible = rows.filter(|(_, row)| index.is_visible(row.service));
        visible.count()
    };
    assert_eq!(seen(&index), MAX_PUBLISHERS);
    play(&mut index, at_one_address("absent", 1, "a"), true);
    assert_eq!(seen(&index), MAX_PUBLISHERS - 1);
    play(&mut index, delete(Resource::EndpointSlices, "absent-1"), true);
    assert_eq!(seen(&index), MAX_PUBLISHERS);
    // Fewer than that take no places.
    index.apply(delete(Resource::EndpointSlices, "db-0"));
    index.publish(1);
    play(&mut index, at_one_address("absent", 1, "a"), false);
    play(&mut index, slice("absent", 2, 1, 1..200), false);
}
