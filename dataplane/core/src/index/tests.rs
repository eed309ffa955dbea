//! What the writer promises: no publication without a change, nothing old comes back, a deleted object frees its
//! place, and one change costs what changed.

use core::net::IpAddr;

use super::*;
use crate::object::{Endpoint, Namespace, Service, ServiceKind, Slice};
use crate::settings::{Requirement, Selector, SelectorOperator, ServiceAddresses, Settings};
use crate::testing::settings;
use crate::wire::address::Address;

pub(super) fn namespace(name: &str, hidden: bool) -> Change {
    let labels = if hidden { vec![("hidden".into(), "true".into())] } else { Vec::new() };
    Change::Apply(Object::Namespace(Namespace { name: name.into(), uid: 1, version: 1, labels }))
}

pub(super) fn service(name: &str, version: u64, kind: ServiceKind) -> Change {
    let key = Key::new("shop", name);
    let (labels, ports) = (Vec::new(), Vec::new());
    Change::Apply(Object::Service(Service { key, uid: 7, version, labels, kind, ports }))
}

/// Slice number `number` of a Service, with these last octets below 10.1.`number`.
pub(super) fn slice(
    service: &str,
    number: u8,
    version: u64,
    ends: impl Iterator<Item = u8>,
) -> Change {
    let endpoint = |end| Endpoint {
        addresses: vec![IpAddr::from([10, 1, number, end])],
        ready: true,
        hostname: None,
        target: None,
    };
    Change::Apply(Object::Slice(Slice {
        key: Key::new("shop", format!("{service}-{number}")),
        uid: 100 + u128::from(number),
        version,
        service: service.into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: ends.map(endpoint).collect(),
    }))
}

pub(super) fn hidden_namespaces_stay_hidden() -> Settings {
    let mut settings = settings();
    settings.exposure.namespace_selector = Selector(vec![Requirement {
        key: "hidden".into(),
        operator: SelectorOperator::DoesNotExist,
    }]);
    settings
}

#[test]
fn e14_what_no_client_can_see_is_not_published() {
    let mut index = Index::new(hidden_namespaces_stay_hidden());
    index.apply(namespace("shop", true));
    index.publish(100);
    assert!(!index.apply(service("cart", 1, ServiceKind::Headless)).visible);
    assert!(!index.apply(slice("cart", 0, 1, 1..9)).visible);
    assert!(index.publish(200).is_none());
    assert!(index.apply(namespace("shop", false)).visible, "the label was taken off");
    assert_eq!(index.publish(300).unwrap().serial(), 300);
}

#[test]
fn e14_a_named_endpoint_that_is_not_ready_yet_changes_nothing_and_then_one_name() {
    let slice_of = |version, ready: &[bool]| {
        let endpoint = |(number, &ready): (usize, &bool)| Endpoint {
            addresses: vec![IpAddr::from([10, 1, 0, number as u8 + 1])],
            ready,
            hostname: Some(format!("db-{number}").into()),
            target: None,
        };
        Change::Apply(Object::Slice(Slice {
            key: Key::new("shop", "db-x"),
            uid: 9,
            version,
            service: "db".into(),
            ipv6: false,
            ports: Vec::new(),
            endpoints: ready.iter().enumerate().map(endpoint).collect(),
        }))
    };
    let mut index = Index::new(settings());
    index.apply(service("db", 1, ServiceKind::Headless));
    assert!(!index.apply(slice_of(1, &[false])).visible, "nothing is ready");
    assert!(index.apply(slice_of(2, &[true])).visible);
    index.publish(100);
    assert!(!index.apply(slice_of(3, &[true, false])).visible, "db-1 starts");
    assert!(index.publish(200).is_none());
    assert!(index.apply(slice_of(4, &[true, true])).visible, "db-1 is ready");
    let records = index.publish(300).unwrap();
    let (_, entry) = records.service(b"\x02db\x04shop").unwrap();
    let names = entry.by_address.starting_at(0).map(|row| records.name_of(row).unwrap());
    assert!(names.eq([b"db-0", b"db-1"]));
    assert!(index.apply(slice_of(5, &[true])).visible, "db-1 is gone");
}

#[test]
fn e14_repeated_events_and_unknown_deletions_change_nothing() {
    let mut index = Index::new(settings());
    for change in [service("cart", 1, ServiceKind::Headless), slice("cart", 0, 1, 1..9)] {
        assert!(index.apply(change.clone()).visible);
        assert!(!index.apply(change).visible);
    }
    index.publish(100);
    for resource in Resource::ALL {
        assert!(!index.apply(Change::Delete(resource, Key::new("shop", "unknown"))).visible);
    }
    assert!(index.publish(200).is_none());
}

#[test]
fn e14_an_older_version_of_the_same_object_is_ignored() {
    let mut index = Index::new(settings());
    index.apply(service("cart", 5, ServiceKind::Headless));
    index.apply(slice("cart", 0, 5, 1..3));
    assert!(!index.apply(slice("cart", 0, 4, 1..9)).visible);
    assert!(!index.apply(service("cart", 4, ServiceKind::ClusterIp(Vec::new()))).visible);
    assert!(index.apply(slice("cart", 0, 6, 1..9)).visible);
}

#[test]
fn e14_an_event_of_an_object_whose_name_another_one_has_taken_is_ignored() {
    let mut index = Index::new(settings());
    let namespace = |uid, version| {
        let (name, labels) = ("shop".into(), Vec::new());
        Change::Apply(Object::Namespace(Namespace { name, uid, version, labels }))
    };
    for (uid, version, held) in [(2, 9, (2, 9)), (1, 8, (2, 9)), (3, 12, (3, 12))] {
        index.apply(namespace(uid, version));
        assert_eq!(index.held(Resource::Namespaces, &Key::new("", "shop")), Some(held));
    }
}

#[test]
fn rr70_the_serial_grows_even_when_the_clock_does_not() {
    let mut index = Index::new(settings());
    assert_eq!(index.publish(1_000).unwrap().serial(), 1_000);
    index.apply(service("cart", 1, ServiceKind::Headless));
    assert!(index.apply(slice("cart", 0, 1, 1..2)).visible);
    assert_eq!(index.publish(500).unwrap().serial(), 1_001);
}

#[test]
fn e21_a_list_removes_what_is_not_in_it_but_not_what_is_newer() {
    let mut index = Index::new(settings());
    for (name, version) in [("old", 3), ("kept", 4), ("newer", 50)] {
        index.apply(service(
            name,
            version,
            ServiceKind::ClusterIp(vec![IpAddr::from([10, 0, 0, 1])]),
        ));
    }
    index.begin_list(Resource::Services);
    index.apply(service("kept", 4, ServiceKind::ClusterIp(vec![IpAddr::from([10, 0, 0, 1])])));
    assert_eq!(index.objects(Resource::Services), 3, "until it is complete nothing goes");
    assert_eq!(index.end_list(Resource::Services, 40, DataSource::Live), 1);
    assert_eq!(index.objects(Resource::Services), 2);
}

#[test]
fn an_object_that_only_an_older_list_shows_is_still_part_of_it() {
    let mut index = Index::new(settings());
    index.apply(service("cart", 5, ServiceKind::Headless));
    index.begin_list(Resource::Services);
    index.apply(service("cart", 4, ServiceKind::Headless));
    assert_eq!(index.end_list(Resource::Services, 100, DataSource::Live), 0);
}

#[test]
fn everything_that_leaves_gives_its_place_back() {
    let mut index = Index::new(settings());
    for _ in 0..3 {
        index.apply(namespace("shop", false));
        index.apply(service("cart", 1, ServiceKind::Headless));
        index.apply(slice("cart", 0, 1, 1..200));
        index.apply(Change::Delete(Resource::Services, Key::new("shop", "cart")));
        index.apply(Change::Delete(Resource::EndpointSlices, Key::new("shop", "cart-0")));
        index.apply(Change::Delete(Resource::Namespaces, Key::new("", "shop")));
    }
    let places = [&index.free_services, &index.free_slices, &index.free_namespaces];
    assert_eq!(places.map(FreeSlots::bound), [0, 0, 0]);
    assert!(index.ports.is_empty());
    assert!(index.next.namespace(b"\x04shop").is_none());
    assert!(index.next.service(b"\x04cart\x04shop").is_none());
    assert!(index.next.addresses.get(IpAddr::from([10, 1, 0, 1]).into()).is_empty());
}

/// Octets allocated by one changed endpoint and its publication, in a Service of this many slices
/// of 100 endpoints, beside this many other Services.
fn cost(slices: u8, others: usize) -> u64 {
    let mut index = Index::new(settings());
    index.apply(service("big", 1, ServiceKind::Headless));
    (0..slices).for_each(|number| {
        index.apply(slice("big", number, 1, 0..100));
    });
    for other in 0..others {
        let address = IpAddr::from((0x0a80_0000 + other as u32).to_be_bytes());
        index.apply(service(&format!("other-{other}"), 1, ServiceKind::ClusterIp(vec![address])));
    }
    index.publish(1);
    let change = slice("big", slices - 1, 2, 1..101);
    allocation_counter::measure(|| {
        index.apply(change);
        index.publish(2);
    })
    .bytes_total
}

#[test]
fn k17_one_changed_endpoint_costs_the_same_in_every_service_and_cluster() {
    let small = cost(1, 10);
    let large_service = cost(50, 10);
    let large_cluster = cost(1, 20_000);
    // The results may differ by a few KiB: copied chunks and buckets may be more or less full.
    assert!(
        large_service < small + 16_384,
        "{large_service} octets for 5,000 endpoints, {small} for 100"
    );
    assert!(
        large_cluster < small + 16_384,
        "{large_cluster} octets beside 20,000 Services, {small} beside 10"
    );
}

/// The cluster IP of our own Service; and that of another Service beside the name of ours.
fn fixed_addresses() -> [ServiceAddresses; 2] {
    let at = |end, service| ServiceAddresses::Fixed {
        addresses: vec![IpAddr::from([10, 96, 0, end])],
        service,
    };
    [at(10, None), at(11, Some(Key::new("shop", "dns")))]
}

#[test]
fn o20_endpoints_of_the_own_service_are_known_by_its_name_or_its_cluster_ip() {
    let by_name = ServiceAddresses::OfService { namespace: "shop".into(), name: "dns".into() };
    let [by_address, listed_elsewhere] = fixed_addresses();
    for service_addresses in [by_name, by_address, listed_elsewhere] {
        let mut index = Index::new(Settings { service_addresses, ..settings() });
        let cluster_ip = |end| ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, end])]);
        index.apply(service("dns", 1, cluster_ip(10)));
        index.apply(service("other", 1, cluster_ip(11)));
        index.apply(slice("dns", 0, 1, 1..3));
        index.apply(slice("other", 1, 1, 1..3));
        index.publish(100);
        let records = index.records();
        let is_behind = |address: [u8; 4]| records.is_behind_own_service(address.into());
        assert!(is_behind([10, 1, 0, 1]) && is_behind([10, 1, 0, 2]));
        assert!(!is_behind([10, 1, 1, 1]), "an endpoint of another Service");
        assert!(!is_behind([10, 1, 0, 9]) && !is_behind([10, 96, 0, 10]), "no endpoint");
    }
}

#[test]
fn o20_endpoints_of_the_own_service_are_published_although_no_client_sees_it() {
    let by_name = ServiceAddresses::OfService { namespace: "shop".into(), name: "dns".into() };
    let [by_address, listed_elsewhere] = fixed_addresses();
    for service_addresses in [by_name, by_address, listed_elsewhere] {
        let has_no_name =
            matches!(service_addresses, ServiceAddresses::Fixed { service: None, .. });
        let mut shown = Settings { service_addresses, ..settings() };
        shown.exposure.namespaces = vec!["elsewhere".into()];
        let mut index = Index::new(shown);
        index.publish(1);
        let cluster_ip = |end| ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, end])]);
        assert!(index.apply(service("dns", 1, cluster_ip(10))).visible);
        index.publish(2);
        for (version, end) in [(1, 1), (2, 2)] {
            index.apply(slice("dns", 0, version, end..end + 1));
            let records = index.publish(2 + version).expect("its pods are others");
            let is_behind = |end| records.is_behind_own_service(IpAddr::from([10, 1, 0, end]));
            assert!(is_behind(end) && !is_behind(end - 1));
        }
        index.apply(service("other", 1, cluster_ip(11)));
        index.apply(slice("other", 1, 1, 1..3));
        assert!(index.publish(9).is_none(), "of other hidden Services nothing is published");
        index.apply(Change::Delete(Resource::Services, Key::new("shop", "dns")));
        let records = index.publish(10).expect("it is gone");
        assert_eq!(records.is_behind_own_service(IpAddr::from([10, 1, 0, 2])), !has_no_name);
    }
}

/// A slice of 200 endpoints of both kinds of names, with addresses and names that occur twice.
fn mixed_slice(name: &str, service: &str, endpoints: u8) -> Change {
    let endpoint = |number: u8| Endpoint {
        addresses: vec![IpAddr::from([10, 1, 2, number / 2 * 2])],
        ready: true,
        hostname: number.is_multiple_of(3).then(|| format!("db-{}", 250 - number / 4).into()),
        target: None,
    };
    Change::Apply(Object::Slice(Slice {
        key: Key::new("shop", name),
        uid: 9,
        version: 1,
        service: service.into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: (0..endpoints).map(endpoint).collect(),
    }))
}

#[test]
fn the_rows_of_a_first_slice_are_those_that_it_has_as_a_second_one() {
    for endpoints in [0, 1, 10, 64, 200] {
        let rows_of = |has_other_slice: bool| {
            let mut index = Index::new(settings());
            index.apply(service("db", 1, ServiceKind::Headless));
            if has_other_slice {
                index.apply(slice("db", 7, 1, 1..2));
            }
            index.apply(mixed_slice("db-x", "db", endpoints));
            index.apply(Change::Delete(Resource::EndpointSlices, Key::new("shop", "db-7")));
            let (_, entry) = index.next.service(b"\x02db\x04shop").unwrap();
            let shown = |row: &crate::records::Row| {
                let publishers = index.next.addresses.get(row.address).iter();
                (row.address, row.label, publishers.map(|(_, it)| it.label).collect::<Vec<_>>())
            };
            let by_address: Vec<_> = entry.by_address.starting_at(0).map(shown).collect();
            let by_name: Vec<_> = entry.by_name.starting_at(0).map(shown).collect();
            let beside: Vec<_> = entry.beside_named.starting_at(0).map(shown).collect();
            (by_address, by_name, beside, entry.v4_rows, entry.repeated_v4, entry.repeated_v6)
        };
        assert_eq!(rows_of(false), rows_of(true), "{endpoints} endpoints");
    }
}

#[test]
fn rr31_endpoints_without_a_name_are_listed_beside_those_that_have_one() {
    let mut index = Index::new(settings());
    index.apply(service("db", 1, ServiceKind::Headless));
    let mut mixed = 0;
    for step in 0..400_u64 {
        let number = (crate::random::scrambled(3, step) % 4) as u8;
        let key = format!("db-{number}");
        index.apply(match crate::random::scrambled(5, step) % 5 {
            0 => Change::Delete(Resource::EndpointSlices, Key::new("shop", key)),
            1 => slice("db", number, step, 0..(step % 90) as u8),
            _ => mixed_slice(&key, "db", (step % 200) as u8),
        });
        let (_, entry) = index.next.service(b"\x02db\x04shop").unwrap();
        let rows = || entry.by_address.starting_at(0);
        let beside = entry.beside_named.starting_at(0);
        if rows().all(|row| row.label.is_derived()) {
            assert_eq!((beside.count(), entry.by_name.len()), (0, 0));
        } else {
            assert!(beside.eq(rows().filter(|row| row.label.is_derived())), "after {step}");
            mixed += 1;
        }
    }
    assert!(mixed > 100);
}

#[test]
fn an_index_that_expects_many_objects_holds_what_it_would_hold_without() {
    let kind = || ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, 1])]);
    // More rows of one address than readers see.
    let mut changes = Vec::new();
    for number in 0..100_u8 {
        changes.push(service(&format!("db-{number}"), 1, kind()));
        changes.push(mixed_slice(&format!("db-{number}"), &format!("db-{number}"), 40));
    }
    let is_the_same = |one: &Index, other: &Index| {
        let last = |octets| Address::from(IpAddr::from(octets));
        let addresses = (0..=255).map(|end| last([10, 1, 2, end])).chain([last([10, 96, 0, 1])]);
        for address in addresses {
            assert_eq!(one.next.addresses.get(address), other.next.addresses.get(address));
        }
        assert_eq!(one.waiting.is_empty(), other.waiting.is_empty());
    };
    let (mut one, mut many) = (Index::new(settings()), Index::new(settings()));
    many.expect_many();
    for change in &changes {
        let (applied, expected) = (many.apply(change.clone()), one.apply(change.clone()));
        assert_eq!(applied.visible, expected.visible);
    }
    one.publish(1).unwrap();
    many.publish(1).unwrap();
    is_the_same(&one, &many);
    assert!(!many.waiting.is_empty());
    // What comes later, and what goes, finds the rows where they would be.
    many.expect_many();
    for number in (0..100_u8).step_by(3) {
        let key = Key::new("shop", format!("db-{number}"));
        for resource in [Resource::EndpointSlices, Resource::Services] {
            one.apply(Change::Delete(resource, key.clone()));
            many.apply(Change::Delete(resource, key.clone()));
        }
    }
    is_the_same(&one, &many);
    let first = format!("db-{}", 1);
    for change in [mixed_slice(&first, &first, 30), mixed_slice(&first, "db-2", 50)] {
        assert_eq!(many.apply(change.clone()).visible, one.apply(change).visible);
    }
    is_the_same(&one, &many);
}
