//! Who gets a place, and who is turned away.

use std::collections::VecDeque;

use super::*;
use crds::config::{self, Config, Group, GroupLimits, GroupOptions, StubDomain};

fn upstreams(total: u32, group: u32, client: u32) -> Upstreams {
    let mut config = Config::default();
    config.limits.in_flight = total;
    config.limits.in_flight_per_client = client;
    let limits = GroupLimits { in_flight: group };
    let options = GroupOptions { limits, ..GroupOptions::default() };
    let stub = Group { servers: Vec::new(), options };
    config.stub_domains = vec![StubDomain { domain: "corp.example".into(), group: stub }];
    Upstreams::of(&config, std::path::Path::new("/nonexistent/resolv.conf"))
}

#[test]
fn fw52_each_limit_turns_away_and_gives_back() {
    for (limit, total, group, client) in
        [(Limit::Total, 2, 9, 9), (Limit::Group, 9, 2, 9), (Limit::Client, 9, 9, 2)]
    {
        let (forwarder, upstreams) = (Forwarder::new(), upstreams(total, group, client));
        let take = || forwarder.slot(&upstreams, 1, IpAddr::from([10, 0, 0, 1]));
        let (first, second) = (take(), take());
        assert!(first.is_some() && second.is_some() && take().is_none(), "{limit:?}");
        let refused = Limit::ALL.map(|limit| forwarder.limited(limit));
        assert_eq!(refused, Limit::ALL.map(|other| u64::from(other == limit)));
        let in_group = || upstreams.group(1).unwrap().in_flight().load(Ordering::Relaxed);
        let taken = (forwarder.in_flight(), in_group());
        assert_eq!(taken, (2, 2), "{limit:?}: what is refused takes none");
        drop(first);
        assert_eq!(forwarder.in_flight(), 1);
        assert!(take().is_some(), "{limit:?}");
        drop(second);
        assert_eq!((forwarder.in_flight(), in_group()), (0, 0), "{limit:?}");
        assert!(forwarder.in_flight.clients.lock().unwrap().is_empty());
    }
}

#[test]
fn fw52_clients_that_take_all_they_can_leave_places_for_the_next() {
    for upstreams in [upstreams(640, 9000, 160), upstreams(9000, 640, 160)] {
        let forwarder = Forwarder::new();
        let slot = |client: u8| forwarder.slot(&upstreams, 1, [10, 0, 0, client].into());
        let mut held: VecDeque<Slot> = std::iter::from_fn(|| slot(0)).collect();
        assert_eq!(held.len(), 160, "alone, a client has its own limit");
        for greedy in 1..16 {
            held.extend(std::iter::from_fn(|| slot(greedy)));
        }
        // Each lookup ends in its turn, and all of them try to take its place.
        for _ in 0..640 {
            held.pop_front();
            held.extend((0..16).filter_map(slot));
        }
        let modest: Vec<_> = (100..110).map(slot).collect();
        assert!(modest.iter().all(Option::is_some), "{} are held", held.len());
    }
}

#[test]
fn l16_fw52_a_silent_group_does_not_take_its_clients_away_from_another() {
    let stub = |(domain, in_flight): (&str, u32)| {
        let limits = GroupLimits { in_flight };
        let options = GroupOptions { limits, ..GroupOptions::default() };
        StubDomain { domain: domain.into(), group: Group { servers: Vec::new(), options } }
    };
    let stub_domains = [("silent.example", 2048), ("corp.example", 100)].map(stub).into();
    let config = Config { stub_domains, ..Config::default() };
    let upstreams = Upstreams::of(&config, std::path::Path::new("/nonexistent/resolv.conf"));
    let forwarder = Forwarder::new();
    let slot = |group| forwarder.slot(&upstreams, group, [10, 0, 0, 1].into());
    let silent: Vec<_> = (0..150).map_while(|_| slot(1)).collect();
    assert_eq!(silent.len(), 150);
    let healthy: Vec<_> = std::iter::from_fn(|| slot(2)).collect();
    assert_eq!(healthy.len(), 51, "about as many as are left for others");
    drop((silent, healthy));
    assert!(forwarder.in_flight.clients.lock().unwrap().is_empty());
}

#[test]
fn fw42_fw52_a_place_moves_to_the_group_that_is_asked_next() {
    let (forwarder, upstreams) = (Forwarder::new(), upstreams(9, 2, 9));
    let in_group =
        |group: usize| upstreams.group(group).unwrap().in_flight().load(Ordering::Relaxed);
    let slot = Arc::new(forwarder.slot(&upstreams, 0, [10, 0, 0, 1].into()).unwrap());
    let moved = slot.for_lookup(&upstreams, 1, Purpose::Miss).unwrap();
    assert!(Arc::ptr_eq(&slot, &moved));
    assert_eq!((in_group(0), in_group(1), forwarder.in_flight()), (0, 1, 1));
    // A lookup has it: the next one needs another.
    let taken = Taken::of(moved);
    let other = slot.for_lookup(&upstreams, 0, Purpose::Miss).unwrap();
    assert_eq!((in_group(0), in_group(1), forwarder.in_flight()), (1, 1, 2));
    drop((other, taken));
    let _last = forwarder.slot(&upstreams, 1, [10, 0, 0, 2].into()).unwrap();
    let first = Arc::new(forwarder.slot(&upstreams, 0, [10, 0, 0, 3].into()).unwrap());
    let refused = first.for_lookup(&upstreams, 1, Purpose::Miss);
    assert_eq!(refused.unwrap_err(), Limit::Group);
    assert_eq!((in_group(0), forwarder.limited(Limit::Group)), (1, 1), "it stays where it was");
    drop((slot, first, _last));
    assert!(forwarder.in_flight.clients.lock().unwrap().is_empty());
    assert_eq!((in_group(0), in_group(1), forwarder.in_flight()), (0, 0, 0));
}

/// As one whose queries begin there.
#[test]
fn fw42_fw52_a_client_whose_chains_lead_to_a_group_leaves_places_there_for_the_next() {
    let (forwarder, upstreams) = (Forwarder::new(), upstreams(9000, 10, 9000));
    let in_group =
        |group: usize| upstreams.group(group).unwrap().in_flight().load(Ordering::Relaxed);
    let slot = |group, client: u8| forwarder.slot(&upstreams, group, [10, 0, 0, client].into());
    let greedy: Vec<_> = (0..20).map(|_| Arc::new(slot(0, 1).unwrap())).collect();
    let lead_there = |slot: &Arc<Slot>| slot.for_lookup(&upstreams, 1, Purpose::Miss).err();
    let refused: Vec<Limit> = greedy.iter().filter_map(lead_there).collect();
    assert_eq!(refused, [Limit::Client; 14], "it gets about as many as are left for others");
    assert_eq!((in_group(0), in_group(1)), (14, 6), "what is refused stays where it was");
    let next = slot(1, 2);
    assert!(next.is_some());
    drop((greedy, next));
    assert_eq!((in_group(0), in_group(1), forwarder.in_flight()), (0, 0, 0));
    assert!(forwarder.in_flight.clients.lock().unwrap().is_empty());
}

#[test]
fn fw52_one_client_cannot_take_the_places_of_another() {
    let (forwarder, upstreams) = (Forwarder::new(), upstreams(9, 9, 1));
    let _first = forwarder.slot(&upstreams, 1, "10.0.0.1".parse().unwrap()).unwrap();
    assert!(forwarder.slot(&upstreams, 1, "::ffff:10.0.0.1".parse().unwrap()).is_none());
    assert!(forwarder.slot(&upstreams, 1, "10.0.0.2".parse().unwrap()).is_some());
}

/// Each client has one place: only the groups and all places together are short.
#[test]
fn l16_fw52_two_groups_that_are_full_leave_places_for_a_third() {
    let stub = |domain: &str| StubDomain {
        domain: domain.into(),
        group: Group { servers: Vec::new(), options: GroupOptions::default() },
    };
    let stub_domains = ["slow.example", "silent.example", "corp.example"].map(stub).into();
    let config = Config { stub_domains, ..Config::default() };
    let upstreams = Upstreams::of(&config, std::path::Path::new("/nonexistent/resolv.conf"));
    let (forwarder, clients) = (Forwarder::new(), std::cell::Cell::new(0x0a00_0000_u32));
    let slot = |group| {
        let client = clients.replace(clients.get() + 1);
        forwarder.slot(&upstreams, group, IpAddr::from(client.to_be_bytes()))
    };
    let mut slow: VecDeque<Slot> = std::iter::from_fn(|| slot(1)).collect();
    assert_eq!(slow.len(), 2048, "alone, a group has its own limit");
    // A client of a group that is not slow has as much of it as before, up to an even share of all.
    let one: Vec<Slot> =
        std::iter::from_fn(|| forwarder.slot(&upstreams, 3, [10, 9, 0, 0].into())).collect();
    assert!(one.len() >= 4096 / 5, "{}", one.len());
    drop(one);
    let mut silent: VecDeque<Slot> = std::iter::from_fn(|| slot(2)).collect();
    // Each lookup ends in its turn, and others of both groups try to take its place.
    for _ in 0..4096 {
        slow.pop_front();
        silent.pop_front();
        slow.extend(slot(1));
        silent.extend(slot(2));
        silent.extend(slot(2));
    }
    let healthy: Vec<_> = std::iter::from_fn(|| slot(3)).collect();
    assert!(healthy.len() > 500, "{} beside {} and {}", healthy.len(), slow.len(), silent.len());
    // A place moves to a full group no more than one is taken there.
    let of_corp = Arc::new(healthy.into_iter().next().unwrap());
    silent.extend(std::iter::from_fn(|| slot(2)));
    let refused = of_corp.for_lookup(&upstreams, 1, Purpose::Miss);
    assert_eq!(refused.unwrap_err(), Limit::Group);
}

/// Where there is no other group, no client needs what it leaves.
#[test]
fn fw52_the_only_group_has_all_places() {
    let mut config = Config { upstreams: config::Upstreams::None, ..Config::default() };
    config.limits.in_flight = 64;
    let options = GroupOptions::default();
    let group = Group { servers: Vec::new(), options };
    config.stub_domains = vec![StubDomain { domain: "corp.example".into(), group }];
    let upstreams = Upstreams::of(&config, std::path::Path::new(""));
    let forwarder = Forwarder::new();
    let slot = |client| forwarder.slot(&upstreams, 1, [10, 0, 0, client].into());
    let held: Vec<_> = (0..u8::MAX).map_while(slot).collect();
    assert_eq!(held.len(), 64);
}
