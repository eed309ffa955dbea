//! Who claims the PTR of an address that is not its own: cluster IPs of Services that are not shown, addresses that several
//! namespaces publish, and addresses of records of the resource.

use core::net::IpAddr;

use super::objects::namespace;
use super::*;
use crate::decide::trace::trace;
use crate::object::{Endpoint, Key, Object, ServiceKind, Slice, TargetRef};
use crate::settings::{ExtraData, ExtraRecord};

/// The cluster IP of `victim/service-9`, see [`cluster`].
const CLUSTER_IP: [u8; 4] = [10, 96, 0, 9];
/// An address of no object but those that name it.
const ADDRESS: [u8; 4] = [10, 9, 0, 1];
const REVERSE_ADDRESS: &str = "1.0.9.10.in-addr.arpa.";

/// A slice of one endpoint, which says that it is a Pod of its namespace or says nothing.
fn slice(namespace: &str, service: &str, address: [u8; 4], own_pod: bool) -> Change {
    let target = own_pod.then(|| TargetRef { namespace: "".into(), name: "pod".into() });
    let addresses = vec![IpAddr::from(address)];
    Change::Apply(Object::Slice(Slice {
        key: Key::new(namespace, format!("{service}-x")),
        uid: 1,
        version: 0,
        service: service.into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: vec![Endpoint { addresses, ready: true, hostname: None, target }],
    }))
}

/// A headless Service with such a slice.
fn publish(index: &mut Index, namespace: &str, address: [u8; 4], own_pod: bool) {
    index.apply(service(namespace, "thief", ServiceKind::Headless, &[]));
    index.apply(slice(namespace, "thief", address, own_pod));
}

fn host(name: &str, ttl_s: u32) -> ExtraRecord {
    ExtraRecord {
        owner: Name::from_text(name).unwrap(),
        wildcard: false,
        ttl_s,
        data: ExtraData::Addresses(vec![IpAddr::from(ADDRESS)]),
        reverse: true,
        override_cluster_zone: false,
    }
}

fn ptr(records: &Records, name: &str) -> Asked {
    decide(records, name, rtype::PTR, Transport::Tcp, 1)
}

/// The cluster IP while another namespace has a slice that lists it.
fn stolen(settings: Settings, is_empty: bool) -> Asked {
    let mut index = cluster(settings);
    publish(&mut index, "evil", CLUSTER_IP, true);
    index.apply(slice("victim", "service-9", ADDRESS, true));
    if is_empty {
        let key = Key::new("victim", "service-9-x");
        index.apply(Change::Delete(Resource::EndpointSlices, key));
    }
    index.publish(2);
    ptr(&index.records(), "9.0.96.10.in-addr.arpa.")
}

#[test]
fn rr60_a_service_that_is_hidden_while_empty_keeps_its_cluster_ip_from_others() {
    let hiding = |cidrs: &[&str]| {
        let reverse_cidrs = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
        Settings { hide_empty_services: true, reverse_cidrs, ..all_is_ours() }
    };
    let of = |asked: Asked| (asked.reason, asked.withheld);
    let ours: &[&str] = &["10.96.0.0/16"];
    for cidrs in [ours, &[]] {
        assert_eq!(of(stolen(hiding(cidrs), false)), (Reason::Found, 0));
    }
    assert_eq!(of(stolen(hiding(ours), true)), (Reason::NxDomain, 0));
    assert_eq!(of(stolen(hiding(&[]), true)), (Reason::Forward, 0));
}

#[test]
fn rr60_a_service_that_exposure_hides_keeps_its_cluster_ip_from_others() {
    let mut settings = all_is_ours();
    settings.exposure.namespaces = vec!["evil".into()];
    assert_eq!(stolen(settings, false).reason, Reason::NxDomain);
}

/// What makes a cluster withhold the PTRs of [`ADDRESS`], of all namespaces that publish it.
type Withheld = fn(&mut Index);

/// Rows of Services that are not seen, because they are of the type ExternalName: as many as one namespace may have.
fn publish_unseen(index: &mut Index, namespace: &str) {
    for own_pods in [true, false] {
        let shape = Shape { endpoints: 64, one_address: true, own_pods, ..Shape::small() };
        apply(index, shape.service_and_slices(namespace, &format!("{own_pods}-unseen-1"), 1));
    }
}

/// As many as are looked at.
fn publish_too_many(index: &mut Index) {
    ["evil", "evil-2"].iter().for_each(|name| publish_unseen(index, name));
    index.apply(namespace("young"));
    publish(index, "young", ADDRESS, false);
}

const ALL_WITHHELD: [(&str, PodRecords, Withheld); 4] = [
    ("several namespaces say that it is their Pod", PodRecords::Insecure, |index| {
        publish(index, "evil", ADDRESS, true);
        publish(index, "evil-2", ADDRESS, true);
    }),
    ("a Pod of another namespace has it", PodRecords::Verified, |index| {
        publish(index, "evil", ADDRESS, true);
        index.apply(Shape::small().pod("victim"));
    }),
    ("too many rows are not seen", PodRecords::Insecure, publish_too_many),
    ("too many rows are not seen", PodRecords::Verified, publish_too_many),
];

#[test]
fn rr63_a_ptr_that_is_withheld_is_counted_and_explained_also_where_none_is_left() {
    let name = Name::from_text(REVERSE_ADDRESS).unwrap();
    for (what, pods, withhold) in ALL_WITHHELD {
        for is_ours in [true, false] {
            for is_host in [true, false] {
                let mut settings = Settings { pods, ..all_is_ours() };
                if !is_ours {
                    settings.reverse_cidrs.clear();
                }
                if is_host {
                    settings.extra.push(host("db.corp.example", 30));
                }
                let mut index = cluster(settings);
                withhold(&mut index);
                index.publish(2);
                let records = index.records();
                let expected = match (is_host, is_ours) {
                    (true, _) => Reason::Found,
                    (false, true) => Reason::NxDomain,
                    (false, false) => Reason::Forward,
                };
                let asked = ptr(&records, REVERSE_ADDRESS);
                assert_eq!((asked.reason, asked.withheld), (expected, 1), "{what}");
                let hops = trace(&records, &name, rtype::PTR);
                let cited = hops[0].rules.iter().filter(|rule| rule.id == "RR63").count();
                assert_eq!((cited, hops[0].notes.len()), (1, 1), "{what}: {hops:?}");
            }
        }
    }
}

/// The PTR of [`ADDRESS`], which a younger namespace publishes too, within the budget of its steps.
fn young(mut index: Index, what: &str) -> Asked {
    index.apply(namespace("young"));
    publish(&mut index, "young", ADDRESS, false);
    index.publish(2);
    let cheap = cheap_reply(&cluster(all_is_ours()).records());
    let asked = ptr(&index.records(), REVERSE_ADDRESS);
    asked.is_within_the_budget(cheap, what);
    asked
}

#[test]
fn rr63_rows_of_one_namespace_that_are_not_seen_withhold_no_ptr_of_another() {
    for pods in [PodRecords::Insecure, PodRecords::Verified] {
        let mut index = cluster(Settings { pods, ..all_is_ours() });
        publish_unseen(&mut index, "evil");
        let asked = young(index, "rows of one namespace");
        assert_eq!((asked.answers(), asked.withheld), (1, 0), "{pods:?}");
    }
}

#[test]
fn n41_the_ptr_of_a_namespace_that_is_seen_is_there_beside_hundreds_that_are_hidden() {
    for (hidden, own_pods) in [(130, false), (130, true), (500, false), (500, true)] {
        let mut settings = all_is_ours();
        settings.exposure.namespaces = vec!["young".into()];
        let mut index = cluster(settings);
        for number in 0..hidden {
            let name = format!("hidden-{number}");
            index.apply(namespace(&name));
            publish(&mut index, &name, ADDRESS, own_pods);
        }
        let asked = young(index, "names of hidden namespaces");
        assert_eq!((asked.answers(), asked.withheld), (1, 0), "{hidden} hidden");
    }
}

/// The rows of one that is seen come first, or last: where the first ones are looked at for the PTRs, the others were
/// looked at for the rule.
#[test]
fn l12_rows_that_are_not_seen_cost_their_budget_beside_one_that_is() {
    for (pods, victim, own_pod) in [
        (PodRecords::Insecure, "victim", true),
        (PodRecords::Insecure, "victim", false),
        (PodRecords::Verified, "victim", true),
        (PodRecords::Insecure, "evil-3", true),
        (PodRecords::Insecure, "evil-2", true),
    ] {
        let mut index = cluster(Settings { pods, ..all_is_ours() });
        let cheap = cheap_reply(&index.records());
        index.apply(namespace("evil-3"));
        ["evil", "evil-2"].iter().for_each(|name| publish_unseen(&mut index, name));
        publish(&mut index, victim, ADDRESS, own_pod);
        index.publish(2);
        let asked = ptr(&index.records(), REVERSE_ADDRESS);
        asked.is_within_the_budget(cheap, &format!("{pods:?} {victim} {own_pod}"));
    }
}

#[test]
fn rr63_nothing_is_counted_as_withheld_before_it_is_known() {
    let mut index = Index::new(all_is_ours());
    for name in ["evil", "evil-2"] {
        index.apply(namespace(name));
        publish(&mut index, name, ADDRESS, true);
    }
    for (is_ready, expected) in [(false, (Reason::NotReady, 0)), (true, (Reason::NxDomain, 1))] {
        if is_ready {
            Resource::ALL.iter().for_each(|&resource| {
                index.end_list(resource, 0, DataSource::Live);
            });
        }
        index.publish(2);
        let asked = ptr(&index.records(), REVERSE_ADDRESS);
        assert_eq!((asked.reason, asked.withheld), expected);
    }
}

#[test]
fn rr79_automatic_ptrs_of_one_address_have_the_least_ttl_of_their_records() {
    for ttls in [[600, 30], [30, 600]] {
        let mut settings = all_is_ours();
        settings.extra = vec![host("a.example", ttls[0]), host("b.example", ttls[1])];
        let asked = ptr(&cluster(settings).records(), REVERSE_ADDRESS);
        assert_eq!(asked.answers(), 2);
        // Behind the question: each owner is a pointer, followed by type and class, the TTL, and data of a length.
        let mut at = 12 + Name::from_text(REVERSE_ADDRESS).unwrap().wire().len() + 4;
        for _ in 0..2 {
            assert_eq!(asked.reply[at + 6..at + 10], 30_u32.to_be_bytes());
            at +=
                12 + usize::from(u16::from_be_bytes([asked.reply[at + 10], asked.reply[at + 11]]));
        }
    }
}
