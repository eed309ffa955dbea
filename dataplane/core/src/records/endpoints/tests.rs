//! What SRV replies of large Services are made of: every pair is met once, whichever comes first, and each comes first as
//! often as any other.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_LISTS, PortFilter};
use crate::index::Index;
use crate::object::{
    Change, Endpoint, Key, Object, Protocol, Resource, Service, ServiceKind, Slice, SlicePort,
};
use crate::random::scrambled;
use crate::records::{Records, ServiceEntry};
use crate::testing::settings;

/// A slice of `db`: its ports, and of each endpoint the last two octets of its address and its hostname.
fn slice(number: u8, ipv6: bool, ports: &[u16], endpoints: &[([u8; 2], Option<String>)]) -> Change {
    let endpoint = |([a, b], hostname): &([u8; 2], Option<String>)| Endpoint {
        addresses: vec![match ipv6 {
            false => IpAddr::from([10, 1, *a, *b]),
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, u16::from(*a), u16::from(*b)]),
        }],
        ready: true,
        hostname: hostname.as_deref().map(Into::into),
        target: None,
    };
    let port = |&port: &u16| SlicePort { name: "".into(), port, protocol: Protocol::Tcp };
    Change::Apply(Object::Slice(Slice {
        key: Key::new("shop", format!("db-{number}")),
        uid: u128::from(number) + 1,
        version: 1,
        service: "db".into(),
        ipv6,
        ports: ports.iter().map(port).collect(),
        endpoints: endpoints.iter().map(endpoint).collect(),
    }))
}

fn index(slices: impl IntoIterator<Item = Change>) -> Index {
    let mut index = Index::new(settings());
    index.apply(Change::Apply(Object::Service(Service {
        key: Key::new("shop", "db"),
        uid: 1,
        version: 1,
        labels: Vec::new(),
        kind: ServiceKind::Headless,
        ports: Vec::new(),
    })));
    slices.into_iter().for_each(|slice| {
        index.apply(slice);
    });
    index.publish(1);
    index
}

/// Names with one port and with three, names of both families, names made of addresses, a hostname that is also such a
/// name, and a name that several endpoints share.
fn of_all_kinds() -> Index {
    let name = |number: u8| Some(format!("db-{number}"));
    let borne: Vec<_> = (0..20).map(|number| ([1, number], name(number))).collect();
    let derived: Vec<_> = (0..15).map(|number| ([2, number], None)).collect();
    let mut odd: Vec<_> = (0..5).map(|number| ([3, number], Some("shared".to_owned()))).collect();
    odd.push(([4, 1], Some("10-1-2-3".to_owned())));
    index([
        slice(0, false, &[5432], &borne[..10]),
        slice(1, false, &[5432, 9187, 9999], &borne[10..]),
        slice(2, true, &[5432], &borne[5..15]),
        slice(3, false, &[80], &derived[..10]),
        slice(4, false, &[80, 81], &derived[8..]),
        slice(5, false, &[1, 2], &odd),
    ])
}

fn entry(records: &Records) -> &ServiceEntry {
    records.service(b"\x02db\x04shop").unwrap().1
}

/// All pairs in the order of a round.
fn round(records: &Records, filter: PortFilter<'_>, seed: u64) -> Vec<(String, u16)> {
    let (entry, mut pairs) = (entry(records), Vec::new());
    let lists = entry.lists(records, filter);
    let first = (entry.draw_pair(records, &lists, seed), seed);
    entry.visit_pairs(records, &lists, first, 65_535, &mut |name, port| {
        pairs.push((String::from_utf8(name.to_vec()).unwrap(), port));
        true
    });
    pairs
}

#[test]
fn wr24_a_round_meets_each_pair_once_wherever_it_begins() {
    let records = of_all_kinds().records();
    // 5 + 5 names with one port, 10 with three. Names made of addresses: 8 with one port, 2 + 5 with two. The hostname
    // that is also such a name has two pairs more, `shared` two.
    let count = 10 + 10 * 3 + 8 + 2 * 2 + 5 * 2 + 2 + 2;
    let all: BTreeSet<_> = round(&records, PortFilter::Any, 0).into_iter().collect();
    assert_eq!(all.len(), count);
    let mut began = BTreeSet::new();
    for seed in 0..1_500_u64 {
        let pairs = round(&records, PortFilter::Any, scrambled(5, seed));
        assert_eq!(pairs.len(), all.len());
        assert_eq!(pairs.iter().cloned().collect::<BTreeSet<_>>(), all);
        began.insert(pairs[0].clone());
    }
    assert_eq!(began, all, "each pair is first at some time");
}

#[test]
fn wr24_each_pair_of_a_service_is_first_as_often_as_any_other() {
    let records = of_all_kinds().records();
    let entry = entry(&records);
    let lists = entry.lists(&records, PortFilter::Any);
    let mut counts: BTreeMap<(String, u16), u32> = BTreeMap::new();
    let times = 33_000;
    for seed in 0..times {
        let seed = scrambled(9, u64::from(seed));
        let first = (entry.draw_pair(&records, &lists, seed), seed);
        entry.visit_pairs(&records, &lists, first, 512, &mut |name, port| {
            *counts.entry((String::from_utf8(name.to_vec()).unwrap(), port)).or_default() += 1;
            false
        });
    }
    let expected = times / counts.len() as u32;
    for (pair, count) in counts {
        // Five standard deviations of 500, and some more for pairs whose chance is not exactly equal.
        assert!(count.abs_diff(expected) < 125, "{pair:?} is first {count} times, not {expected}");
    }
}

/// A Service of one list of ports, and all pairs that it has. Of each endpoint the last octets of its address and its hostname.
fn of_one_list(endpoints: &[([u8; 2], Option<String>)]) -> (Index, BTreeSet<(String, u16)>) {
    let name = |([a, b], hostname): &([u8; 2], Option<String>)| {
        hostname.clone().unwrap_or_else(|| format!("10-1-{a}-{b}"))
    };
    let all = endpoints.iter().map(|endpoint| (name(endpoint), 5432)).collect();
    let slices = endpoints.chunks(100).zip(0..);
    let slices = slices.map(|(some, number)| slice(number, false, &[5432], some));
    (index(slices), all)
}

#[test]
fn rr32_endpoints_with_and_without_hostnames_do_not_hide_each_other() {
    let named = |number: u8| ([1, number], Some(format!("db-{number}")));
    let shared = |number: u8| ([1, number], Some("db".to_owned()));
    // Its name is that which the address of another endpoint makes.
    let spelled = |number: u8| ([2, number], Some(format!("10-1-1-{number}")));
    let plain = |number: u8| ([1, number], None);
    let one_beside = |a: u8| (2..=101).map(named).chain([([a, 50], None)]).collect();
    let cases: [Vec<_>; 8] = [
        one_beside(0),
        (2..=50).chain(52..=102).map(named).chain([([1, 51], None)]).collect(),
        one_beside(2),
        (1..=60).map(shared).chain([([1, 0], None)]).collect(),
        (1..=60).map(shared).chain([([2, 0], None)]).collect(),
        (0..100)
            .map(|number| if number % 2 == 0 { named(number) } else { plain(number) })
            .collect(),
        (1..=100).map(plain).chain((1..=100).map(spelled)).chain([([0, 9], None)]).collect(),
        (1..=100).map(plain).chain((1..=100).map(spelled)).chain([([3, 9], None)]).collect(),
    ];
    for (case, endpoints) in cases.iter().enumerate() {
        let (index, all) = of_one_list(endpoints);
        let records = index.records();
        for seed in 0..1_000 {
            let pairs = round(&records, PortFilter::Any, scrambled(7, seed));
            assert_eq!(pairs.len(), all.len(), "case {case}, seed {seed}");
            assert_eq!(pairs.into_iter().collect::<BTreeSet<_>>(), all, "case {case}");
        }
    }
}

#[test]
fn rr36_an_address_that_hundreds_of_endpoints_share_hides_no_other_of_its_slice() {
    let of = |a: u8| (0..200).map(move |number| ([a, 7], Some(format!("n-{a}-{number}"))));
    let shared: Vec<_> = of(1).chain(of(2)).chain([([3, 7], None)]).collect();
    // Only some endpoints have the port.
    let other = slice(1, false, &[], &[([9, 9], None)]);
    let records = index([slice(0, false, &[80], &shared), other]).records();
    let entry = entry(&records);
    let lists = entry.lists(&records, PortFilter::Any);
    for seed in 0..200 {
        let mut addresses = BTreeSet::new();
        let visit = &mut |address| addresses.insert(IpAddr::from(address));
        let seed = scrambled(4, seed);
        let met = entry.visit_subset_addresses(&records, &lists, (false, 512), seed, visit);
        assert_eq!((met, addresses.len()), (super::Met::All, 3));
    }
}

#[test]
fn rr31_a_hostname_that_many_share_hides_no_other_where_some_have_no_port() {
    let shared = (1..=200).map(|number| ([1, number], Some("db".to_owned())));
    let shared: Vec<_> = shared.chain([([1, 0], None), ([2, 0], None)]).collect();
    let other = slice(1, false, &[], &[([9, 9], None)]);
    let records = index([slice(0, false, &[80], &shared), other]).records();
    for seed in 0..200 {
        let mut pairs = round(&records, PortFilter::Any, scrambled(6, seed));
        pairs.sort();
        let all = ["10-1-1-0", "10-1-2-0", "db"].map(|name| (name.to_owned(), 80));
        assert_eq!(pairs, all);
    }
}

#[test]
fn wr23_a_walk_that_would_take_too_many_looks_says_that_it_is_cut() {
    // One address in many slices, and names by turns in each: both give no record after the first slice.
    let names = |number: u8| Some(format!("db-{}", number % 2));
    let endpoints: Vec<_> = (0..40).map(|number| ([1, number], names(number))).collect();
    let shared: Vec<_> = (0..40).map(|number| slice(number, false, &[80], &endpoints)).collect();
    let last = slice(40, false, &[80], &[([2, 2], Some("last".to_owned()))]);
    let other = slice(41, false, &[], &[([9, 9], None)]);
    let records = index(shared.into_iter().chain([last, other])).records();
    let entry = entry(&records);
    let lists = entry.lists(&records, PortFilter::Any);
    let mut short = 0;
    for seed in 0..100 {
        let seed = scrambled(8, seed);
        let (mut addresses, mut pairs) = (BTreeSet::new(), BTreeSet::new());
        let visit = &mut |address| addresses.insert(IpAddr::from(address));
        let met = entry.visit_subset_addresses(&records, &lists, (false, 4_096), seed, visit);
        assert!(met == super::Met::Part || addresses.len() == 41);
        let visit = &mut |name: &[u8], port| pairs.insert((name.to_vec(), port));
        let is_cut = entry.visit_pairs(&records, &lists, (None, seed), 4_096, visit);
        assert!(is_cut || pairs.len() == 3);
        short += u32::from(addresses.len() < 41 && pairs.len() < 3);
    }
    assert!(short > 0, "nothing was cut");
}

#[test]
fn wr23_ports_of_a_name_that_very_many_share_are_cut_and_said_to_be() {
    let of =
        |a: u8| -> Vec<_> { (0..60).map(|number| ([a, number], Some("db".to_owned()))).collect() };
    let records = index([slice(0, false, &[80], &of(1)), slice(1, false, &[81], &of(2))]).records();
    let entry = entry(&records);
    let name = super::EndpointName::read(b"db");
    let mut ports = Vec::new();
    let met = entry.visit_endpoint_ports(&records, name, 1, &mut |port| {
        ports.push(port);
        true
    });
    assert_eq!((met, &ports[..]), (super::Met::Part, &[80][..]));
    let lists = entry.lists(&records, PortFilter::Any);
    let first = (entry.draw_pair(&records, &lists, 1), 1);
    assert!(entry.visit_pairs(&records, &lists, first, 512, &mut |_, _| true));
    // Of a few, each is asked.
    let few = |a: u8| (0..8).map(|number| ([a, number], Some("db".to_owned()))).collect::<Vec<_>>();
    let slices = [slice(0, false, &[80], &few(1)), slice(1, false, &[81], &few(2))];
    let records = index(slices).records();
    let met = self::entry(&records).visit_endpoint_ports(&records, name, 1, &mut |_| true);
    assert_eq!(met, super::Met::All);
}

#[test]
fn l12_endpoints_without_the_port_are_not_walked_and_hide_none_that_have_it() {
    let crowd = |number: u8| -> Vec<_> { (0..250).map(|end| ([number, end], None)).collect() };
    let mut slices: Vec<_> =
        (0..8).map(|number| slice(number, false, &[], &crowd(number))).collect();
    slices.push(slice(20, false, &[80], &[([9, 9], Some("z".to_owned())), ([9, 8], None)]));
    slices.push(slice(21, true, &[80], &[([9, 9], Some("z".to_owned()))]));
    let records = index(slices).records();
    let entry = entry(&records);
    for seed in 0..100 {
        let seed = scrambled(1, seed);
        let mut pairs = round(&records, PortFilter::Any, seed);
        pairs.sort();
        assert_eq!(pairs, [("10-1-9-8".to_owned(), 80), ("z".to_owned(), 80)]);
        let lists = entry.lists(&records, PortFilter::Any);
        for (ipv6, expected) in [(false, 2), (true, 1)] {
            let mut addresses = BTreeSet::new();
            let visit = &mut |address| addresses.insert(IpAddr::from(address));
            let met = entry.visit_subset_addresses(&records, &lists, (ipv6, 512), seed, visit);
            assert_eq!(met, super::Met::All);
            assert_eq!(addresses.len(), expected);
        }
    }
}

#[test]
fn l12_a_service_with_too_many_lists_says_so_and_denies_no_port() {
    let many = MAX_LISTS as u8 + 1;
    let one = |number: u8| {
        slice(number, false, &[u16::from(number) + 1], &[([number, 1], Some("a".to_owned()))])
    };
    let mut index = index((0..many - 1).map(one));
    let applied = index.apply(one(many - 1));
    let problems: Vec<_> = applied.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["more than 16 different lists of ports in the slices of one Service"]);
    index.publish(2);
    let records = index.records();
    let name = crate::records::PortName { name: b"x", protocol: Protocol::Tcp };
    let lists = entry(&records).lists(&records, PortFilter::Named(name));
    assert_eq!(lists.presence(), super::Presence::Unknown);
    index.apply(Change::Delete(Resource::EndpointSlices, Key::new("shop", "db-0")));
    index.publish(3);
    let records = index.records();
    let lists = entry(&records).lists(&records, PortFilter::Named(name));
    assert_eq!(lists.presence(), super::Presence::Absent);
}

#[test]
fn l12_of_too_many_lists_all_data_planes_look_at_the_same() {
    let one = |&number: &u8| slice(number, false, &[u16::from(number) + 1], &[([number, 1], None)]);
    let seen = |order: &[u8]| {
        let records = index(order.iter().map(one)).records();
        let lists = entry(&records).lists(&records, PortFilter::Any);
        lists.iter().flat_map(|list| list.numbers.iter()).collect::<Vec<u16>>()
    };
    let upwards: Vec<u8> = (0..40).collect();
    let downwards: Vec<u8> = (0..40).rev().collect();
    assert_eq!(seen(&upwards).len(), MAX_LISTS);
    assert_eq!(seen(&upwards), seen(&downwards));
}

#[test]
fn rr32_a_name_shared_by_a_thousand_endpoints_hides_no_other() {
    let ports: Vec<u16> = (1..=17).collect();
    let crowd = |slice: u8| -> Vec<_> {
        (0..250).map(|number| ([slice, number], Some("a".to_owned()))).collect()
    };
    let mut slices: Vec<_> =
        (0..4).map(|number| slice(number, false, &ports, &crowd(number))).collect();
    slices.push(slice(9, false, &[80], &[([9, 9], Some("z".to_owned()))]));
    let records = index(slices).records();
    for seed in 0..50 {
        assert_eq!(round(&records, PortFilter::Any, scrambled(3, seed)).len(), 17 + 1);
    }
}
