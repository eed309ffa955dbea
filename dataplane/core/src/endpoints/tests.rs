//! What SRV replies of large Services are made of: every pair is met once, whichever comes first, and each comes first as
//! often as any other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{FEW_ROWS, FirstPair, PortFilter};
use crate::index::Index;
use crate::object::{
    Change, Endpoint, Key, Object, Protocol, Service, ServiceKind, Slice, SlicePort,
};
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

/// Names with one port and with three, names of both families, names made of addresses, one that is both, and one that
/// several endpoints share.
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
fn round(records: &Records, first: Option<FirstPair<'_>>) -> Vec<(String, u16)> {
    let mut pairs = Vec::new();
    entry(records).visit_pairs(records, PortFilter::Any, first, &mut |name, port| {
        pairs.push((String::from_utf8(name.to_vec()).unwrap(), port));
        true
    });
    pairs
}

#[test]
fn wr24_a_round_meets_each_pair_once_wherever_it_begins() {
    let records = of_all_kinds().records();
    let all: BTreeSet<_> = round(&records, None).into_iter().collect();
    // 5 + 5 names of one port, 10 of three; 8 + 2 + 5 addresses of one, two, two; the borne one has two more; `shared`.
    assert_eq!(all.len(), 10 + 10 * 3 + 8 + 2 * 2 + 5 * 2 + 2 + 2);
    let mut began = BTreeSet::new();
    for seed in 0..1_500 {
        let first = entry(&records).draw_pair(&records, PortFilter::Any, seed << 32);
        let pairs = round(&records, Some(first.unwrap()));
        assert_eq!(pairs.len(), all.len());
        assert_eq!(pairs.iter().cloned().collect::<BTreeSet<_>>(), all);
        began.insert(pairs[0].clone());
    }
    assert_eq!(began, all, "each pair is first at some time");
}

#[test]
fn wr24_each_pair_of_a_large_service_is_first_as_often_as_any_other() {
    let records = of_all_kinds().records();
    let mut counts: BTreeMap<(String, u16), u32> = BTreeMap::new();
    let times = 33_000;
    for seed in 0..times {
        let first = entry(&records).draw_pair(&records, PortFilter::Any, u64::from(seed));
        entry(&records).visit_pairs(&records, PortFilter::Any, first, &mut |name, port| {
            *counts.entry((String::from_utf8(name.to_vec()).unwrap(), port)).or_default() += 1;
            false
        });
    }
    let expected = times / counts.len() as u32;
    for (pair, count) in counts {
        // Five standard deviations of five hundred.
        assert!(count.abs_diff(expected) < 112, "{pair:?} is first {count} times, not {expected}");
    }
}

#[test]
fn wr24_pairs_of_small_and_of_crowded_services_are_counted_instead() {
    let few = FEW_ROWS as u8;
    let named: Vec<_> =
        (0..few).map(|number| ([1, number], Some(format!("db-{number}")))).collect();
    let crowded: Vec<_> = (0..100).map(|number| ([1, number], Some("db".to_owned()))).collect();
    let without_ports: Vec<_> = (0..100).map(|number| ([1, number], None)).collect();
    for slice in [
        slice(0, false, &[80], &named),
        slice(0, false, &[80], &crowded),
        slice(0, false, &[], &without_ports),
    ] {
        let records = index([slice]).records();
        assert!(entry(&records).draw_pair(&records, PortFilter::Any, 1).is_none());
    }
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
    assert_eq!(round(&records, None).len(), 17 + 1);
}
