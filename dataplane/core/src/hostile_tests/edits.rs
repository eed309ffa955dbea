//! Row L12, edits: what a small change of a large object costs. Its sender pays some octets for it; the one thread that
//! applies events for everybody must not pay for every row.

use core::net::{IpAddr, Ipv4Addr};

use super::objects::namespace;
use super::*;
use crate::object::{Endpoint, Key, Object, Pod, Problem, Slice};

/// As many as the API server allows in one slice.
const ENDPOINTS: usize = 1_000;

fn endpoint(slice: usize, number: usize, addresses: usize, hostname: bool) -> Endpoint {
    let address = |index: usize| {
        let row = (slice * ENDPOINTS + number) * addresses + index;
        IpAddr::from(Ipv4Addr::from(0x0a09_0000 + row as u32))
    };
    let hostname = hostname.then(|| format!("host-{number}").into());
    Endpoint {
        addresses: (0..addresses).map(address).collect(),
        ready: true,
        hostname,
        target: None,
    }
}

fn slice(number: usize, endpoints: Vec<Endpoint>) -> Change {
    Change::Apply(Object::Slice(Slice {
        key: Key::new("evil", format!("wide-{number}")),
        uid: 1,
        version: 0,
        service: "wide".into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints,
    }))
}

fn headless() -> Change {
    service("evil", "wide", crate::object::ServiceKind::Headless, &[])
}

/// What one event costs with its publication.
fn steps(index: &mut Index, change: Change) -> u64 {
    let apply = || {
        index.apply(change);
        index.publish(3)
    };
    count_steps(apply).1
}

#[test]
fn l12_a_small_edit_of_a_large_slice_costs_what_it_changes() {
    const ENDPOINTS: usize = 200;
    const EDITS: usize = 220;
    const ADDRESSES: usize = 5;
    let fresh = || -> Vec<Endpoint> {
        (0..ENDPOINTS).map(|number| endpoint(0, number, ADDRESSES, true)).collect()
    };
    type Edit = fn(usize, &mut Vec<Endpoint>);
    let kinds: [(&str, Edit); 5] = [
        ("the first name is another", |edit, all| {
            all[0].hostname = Some(format!("{edit}-{}", "n".repeat(edit % 50)).into());
        }),
        ("the first name comes and goes", |edit, all| {
            all[0].hostname = (edit % 2 == 0).then(|| "host-0".into());
        }),
        ("one is ready and is not", |edit, all| all[edit % 7].ready = edit % 2 == 0),
        ("the first becomes the last", |_, all| all.rotate_left(1)),
        ("the first comes and goes", |edit, all| match edit % 2 {
            0 => drop(all.remove(0)),
            _ => all.insert(0, endpoint(0, 0, ADDRESSES, true)),
        }),
    ];
    for (kind, edit) in kinds {
        let mut index = cluster(all_is_ours());
        apply(&mut index, vec![headless(), slice(0, fresh())]);
        let mut endpoints = fresh();
        let mut total = 0;
        for number in 0..EDITS {
            edit(number, &mut endpoints);
            total += steps(&mut index, slice(0, endpoints.clone()));
        }
        // The rows of one endpoint leave, and come back.
        let each = STEPS_PER_EVENT + STEPS_PER_ROW * 2 * ADDRESSES as u64;
        let mean = total / EDITS as u64;
        assert!(mean <= each, "{kind}: {mean} steps an edit, not {each}");
    }
}

#[test]
fn l12_addresses_beyond_the_first_of_an_endpoint_are_few_and_come_last() {
    let mut index = cluster(all_is_ours());
    index.apply(headless());
    let wide = |number| endpoint(0, number, 100, true);
    let applied = index.apply(slice(0, (0..ENDPOINTS).map(wide).collect()));
    let what = "addresses in one slice beyond the first of each endpoint";
    assert_eq!(applied.problems, [Problem::TooMany { what, limit: 1_000 }]);
    let records = index.publish(2).unwrap();
    let last = "host-999.wide.evil.svc.cluster.local.";
    assert_eq!(ask(&records, last, rtype::A, Transport::Tcp, 0).answers(), 1);
    let all = ask(&records, "wide.evil.svc.cluster.local.", rtype::A, Transport::Tcp, 0);
    assert_eq!(all.answers(), 2_000);
}

#[test]
fn l12_a_service_has_no_more_rows_than_one_event_can_pay_for() {
    const ADDRESSES: usize = 2;
    let whole = |number| {
        slice(number, (0..ENDPOINTS).map(|at| endpoint(number, at, ADDRESSES, false)).collect())
    };
    let mut index = cluster(all_is_ours());
    apply(&mut index, vec![headless()]);
    let mut problems: Vec<_> = (0..52).map(|number| index.apply(whole(number)).problems).collect();
    let what = "endpoint addresses in the slices of one Service";
    let too_many = vec![Problem::Crowded { what, limit: 100_000 }];
    assert_eq!(problems.split_off(50), [too_many.clone(), too_many]);
    assert!(problems.iter().all(Vec::is_empty));
    index.publish(2);
    // Rows that nearly all lie in half-filled chunks are the worst that an event copies.
    let mut smaller: Vec<_> = (0..ENDPOINTS).map(|at| endpoint(7, at, ADDRESSES, false)).collect();
    smaller[0].ready = false;
    let cost = steps(&mut index, slice(7, smaller));
    assert!(cost <= STEPS_PER_EVENT + STEPS_PER_ROW * 2 * ADDRESSES as u64, "{cost} steps");
    let is_there = |index: &Index, number: usize| {
        let address = endpoint(number, 5, ADDRESSES, false).addresses[0];
        let name =
            format!("{}.wide.evil.svc.cluster.local.", address.to_string().replace('.', "-"));
        ask(&index.records(), &name, rtype::A, Transport::Tcp, 0).answers() == 1
    };
    assert!(is_there(&index, 49) && !is_there(&index, 50) && !is_there(&index, 51));
    // What is deleted makes room for one that was left out; the other one may be edited and deleted meanwhile.
    index.apply(whole(51));
    let gone = Change::Delete(Resource::EndpointSlices, Key::new("evil", "wide-3"));
    let cost = steps(&mut index, gone);
    // The rows of one slice leave, those of another come.
    let rows = 2 * ENDPOINTS * ADDRESSES;
    assert!(cost <= STEPS_PER_EVENT + STEPS_PER_ROW * rows as u64, "{cost} steps");
    assert!(is_there(&index, 50) && !is_there(&index, 51) && !is_there(&index, 3));
    index.apply(Change::Delete(Resource::EndpointSlices, Key::new("evil", "wide-51")));
    index.apply(Change::Delete(Resource::EndpointSlices, Key::new("evil", "wide-4")));
    index.publish(4);
    assert!(is_there(&index, 50) && !is_there(&index, 51) && !is_there(&index, 4));
    // A slice of one row makes room for one of thousands: its namespace pays for them.
    index.apply(whole(7));
    let mut one = endpoint(60, 0, ADDRESSES, false);
    one.addresses.truncate(1);
    index.apply(slice(60, vec![one]));
    assert!(!index.apply(whole(51)).problems.is_empty(), "one row too many");
    let key = Key::new("evil", "wide-60");
    let rows = index.rows(Resource::EndpointSlices, &key);
    let cost = steps(&mut index, Change::Delete(Resource::EndpointSlices, key));
    assert!(is_there(&index, 51));
    assert!(cost <= STEPS_PER_EVENT + STEPS_PER_ROW * rows as u64, "{cost} steps, {rows} rows");
}

#[test]
fn l12_the_first_hostname_of_a_wide_service_costs_one_endpoint() {
    const ADDRESSES: usize = 2;
    let of = |number, hostname: bool| {
        let mut all: Vec<_> =
            (0..ENDPOINTS).map(|at| endpoint(number, at, ADDRESSES, false)).collect();
        all[500].hostname = hostname.then(|| "first".into());
        slice(number, all)
    };
    let mut index = cluster(all_is_ours());
    apply(&mut index, vec![headless()]);
    for number in 0..45 {
        index.apply(of(number, false));
    }
    index.publish(2);
    for hostname in [true, false, true] {
        let cost = steps(&mut index, of(7, hostname));
        // Without it the text of its slice is shorter, so all rows of that slice leave and come.
        let rows = if hostname { 2 * ADDRESSES } else { 2 * ENDPOINTS * ADDRESSES };
        assert!(cost <= STEPS_PER_EVENT + STEPS_PER_ROW * rows as u64, "{cost} steps");
    }
    let cost = steps(&mut index, of(8, true));
    assert!(cost <= STEPS_PER_EVENT + STEPS_PER_ROW * 2 * ADDRESSES as u64, "{cost} steps");
    for name in ["first", "10-9-0-0"] {
        let asked = format!("{name}.wide.evil.svc.cluster.local.");
        let answers = ask(&index.records(), &asked, rtype::A, Transport::Tcp, 0).answers();
        assert!(answers > 0, "{name}");
    }
}

#[test]
fn l12_a_slice_that_moves_to_another_service_costs_its_rows_twice() {
    const ADDRESSES: usize = 2;
    let whole = |number| -> Vec<_> {
        (0..ENDPOINTS).map(|at| endpoint(number, at, ADDRESSES, true)).collect()
    };
    let of = |change: Change, to: &str| match change {
        Change::Apply(Object::Slice(slice)) => {
            Change::Apply(Object::Slice(Slice { service: to.into(), ..slice }))
        }
        other => other,
    };
    let mut index = cluster(all_is_ours());
    let kind = || crate::object::ServiceKind::Headless;
    apply(&mut index, vec![headless(), service("evil", "other", kind(), &[])]);
    // Both Services are large: a row leaves one and comes into the other between thousands.
    for number in 0..12 {
        let to = if number < 6 { "wide" } else { "other" };
        apply(&mut index, vec![of(slice(number, whole(number)), to)]);
    }
    apply(&mut index, vec![slice(12, whole(12))]);
    let budget = STEPS_PER_EVENT + STEPS_PER_ROW * 2 * (ENDPOINTS * ADDRESSES) as u64;
    for to in ["other", "wide", "other", "nowhere", "wide"] {
        let moved = steps(&mut index, of(slice(12, whole(12)), to));
        assert!(moved <= budget, "to {to}: {moved} steps, not {budget}");
    }
}

#[test]
fn l12_a_pod_event_costs_the_same_however_many_share_its_address() {
    let pod = |number: usize| {
        Change::Apply(Object::Pod(Pod {
            key: Key::new("evil", format!("pod-{number}")),
            uid: 1,
            version: 0,
            addresses: vec![IpAddr::from([10, 9, 0, 1])],
            host_network: true,
            finished: false,
        }))
    };
    let mut index = Index::new(all_is_ours());
    index.apply(namespace("evil"));
    let costs: Vec<u64> = (0..3_000).map(|number| steps(&mut index, pod(number))).collect();
    assert!(costs[2_999] <= costs[200] * 2, "{} steps, then {}", costs[200], costs[2_999]);
    for number in 0..3_000 {
        index.apply(Change::Delete(Resource::Pods, Key::new("evil", format!("pod-{number}"))));
    }
    assert_eq!(index.objects(Resource::Pods), 0);
}
