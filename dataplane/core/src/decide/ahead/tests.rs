//! Replies of a batch that was read ahead are those of single queries, from the same octets and the same records.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::index::Index;
use crate::object::{
    Change, Endpoint, Key, Namespace, Object, Protocol, Resource, Service, ServiceKind,
    ServicePort, Slice, SlicePort,
};
use crate::testing::settings;
use crate::{CacheCounters, DataSource, Identity, Transport, WorkerCounters};

/// A Service of the namespace `shop`, with one endpoint of the same last octet.
fn add(index: &mut Index, name: &str, last: u8) {
    let (key, uid) = (Key::new("shop", name), u128::from(last) + 1);
    let kind = ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, last])]);
    let http = ServicePort { name: "http".into(), port: 80, protocol: Protocol::Tcp };
    let labels = Vec::new();
    let service = Service { key, uid, version: u64::from(last), labels, kind, ports: vec![http] };
    index.apply(Change::Apply(Object::Service(service)));
    let address = IpAddr::from([10, 244, 0, last]);
    let endpoint = Endpoint { addresses: vec![address], ready: true, hostname: None, target: None };
    let slice = Slice {
        key: Key::new("shop", format!("{name}-x")),
        uid,
        version: u64::from(last),
        service: name.into(),
        ipv6: false,
        ports: vec![SlicePort { name: "http".into(), port: 8080, protocol: Protocol::Tcp }],
        endpoints: vec![endpoint],
    };
    index.apply(Change::Apply(Object::Slice(slice)));
}

/// The Services `cart` and `web`; cluster IPs and endpoints end with this and the next number.
fn cluster(last: u8) -> Index {
    let mut settings = settings();
    settings.reverse_cidrs = vec!["10.96.0.0/16".parse().unwrap()];
    let mut index = Index::new(settings);
    let shop = Namespace { name: "shop".into(), uid: 1, version: 1, labels: Vec::new() };
    index.apply(Change::Apply(Object::Namespace(shop)));
    add(&mut index, "cart", last);
    add(&mut index, "web", last + 1);
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1_760_000_000);
    index
}

fn packet(name: &str, qtype: u16) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(qtype.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

/// What is answered to this message: from what was read ahead, or without it.
fn reply(records: &Records, ahead: Option<&Ahead<'_, '_>>, packet: &[u8]) -> (Vec<u8>, Reason) {
    // What was read ahead is of these octets only if they lie at the same place.
    let query = Query {
        packet,
        client: SocketAddr::from(([10, 244, 0, 9], 40_000)),
        transport: Transport::Udp,
        now_s: 1_760_000_000,
        seed: 7,
    };
    let (own, cache, identity) =
        (WorkerCounters::default(), CacheCounters::default(), Identity::default());
    let counters =
        Counters { own: &own, all: &[], servers: &[], cache: &cache, identity: &identity };
    let mut buffer = vec![0; 4096];
    let (action, reason) = match ahead {
        Some(ahead) => ahead.respond(&query, &counters, &mut buffer),
        None => respond(records, &query, &counters, &mut buffer),
    };
    let octets = match action {
        Action::Reply(octets) => octets,
        Action::Drop => 0,
        Action::Forward(forward) => return (forward.key.name().wire().to_vec(), reason),
    };
    buffer.truncate(octets);
    (buffer, reason)
}

/// Questions of every kind that is read ahead, and some that are not.
fn questions() -> Vec<Vec<u8>> {
    let mut questions: Vec<Vec<u8>> = [
        ("cart.shop.svc.cluster.local", 1),
        ("CART.Shop.svc.cluster.local", 1),
        ("web.shop.svc.cluster.local", 28),
        ("_http._tcp.cart.shop.svc.cluster.local", 33),
        ("10-244-0-5.web.shop.svc.cluster.local", 1),
        ("none.shop.svc.cluster.local", 1),
        ("a.b.c.d.shop.svc.cluster.local", 1),
        ("shop.svc.cluster.local", 1),
        ("cluster.local", 6),
        ("5.0.96.10.in-addr.arpa", 12),
        ("6.0.244.10.in-addr.arpa", 12),
        ("5.0.96.10.in-addr.arpa", 1),
        ("99.0.96.10.in-addr.arpa", 12),
        ("96.10.in-addr.arpa", 12),
        ("1.0.0.127.in-addr.arpa", 12),
        ("www.example.org", 1),
        ("localhost", 1),
        ("5.0.244.10.in-addr.arpa", 12),
    ]
    .map(|(name, qtype)| packet(name, qtype))
    .into();
    let is_cut = questions[0][..20].to_vec();
    let mut is_response = questions[0].clone();
    is_response[2] |= 0x80;
    questions.extend([is_cut, is_response, Vec::new(), questions[0].clone()]);
    questions
}

#[test]
fn replies_of_a_batch_are_those_of_single_queries() {
    let records = cluster(5).records();
    let (all, mut room) = (questions(), AheadRoom::new());
    for count in 0..3 * AHEAD {
        // Each batch begins with another question, and its room has the names of the one before.
        let batch: Vec<&[u8]> = (0..count).map(|n| &all[(n + count) % all.len()][..]).collect();
        let ahead = Ahead::read(&records, &mut room, batch.iter().copied());
        assert_eq!(ahead.is_some(), count >= FEWEST);
        for packet in &batch {
            let single = reply(&records, None, packet);
            assert_eq!(reply(&records, ahead.as_ref(), packet), single, "{packet:?} of {count}");
        }
    }
}

#[test]
fn queries_that_were_not_read_or_come_in_another_order_get_their_own_replies() {
    let records = cluster(5).records();
    let (all, others, mut room) = (questions(), questions(), AheadRoom::new());
    let ahead = Ahead::read(&records, &mut room, all.iter().map(Vec::as_slice)).unwrap();
    assert!(ahead.find(&others[0]).is_none(), "equal octets at another place");
    // Neighbours that begin at the same place, or have the same length.
    assert!(ahead.find(&all[0][..30]).is_none());
    for packet in others.iter().chain(all.iter().rev()).chain(&all) {
        assert_eq!(reply(&records, Some(&ahead), packet), reply(&records, None, packet));
    }
    let first = Ahead::read(&records, &mut room, all.iter().map(Vec::as_slice)).unwrap();
    assert!(all.iter().take(AHEAD).filter(|packet| first.find(packet).is_some()).count() > 15);
}

#[test]
fn a_batch_is_answered_from_the_records_it_was_read_with() {
    let (mut index, mut room) = (cluster(5), AheadRoom::new());
    let before = index.records();
    let all = questions();
    let expected: Vec<_> = all.iter().map(|packet| reply(&before, None, packet)).collect();
    let ahead = Ahead::read(&before, &mut room, all.iter().map(Vec::as_slice)).unwrap();
    // The names stay, everything else changes before the replies are made.
    add(&mut index, "cart", 77);
    add(&mut index, "web", 78);
    index.publish(1_760_000_001);
    let after = index.records();
    assert_ne!(reply(&after, None, &all[0]), expected[0]);
    for (packet, expected) in all.iter().zip(&expected) {
        assert_eq!(reply(&after, Some(&ahead), packet), *expected);
    }
    // The same room, read again with the new records.
    let ahead = Ahead::read(&after, &mut room, all.iter().map(Vec::as_slice)).unwrap();
    for packet in &all {
        assert_eq!(reply(&before, Some(&ahead), packet), reply(&after, None, packet));
    }
}

#[test]
fn names_of_one_hash_have_their_own_replies() {
    let mut index = cluster(5);
    let hasher = index.records().hasher.clone();
    let wire = |name: &str| [&[name.len() as u8], name.as_bytes(), b"\x04shop"].concat();
    let mut seen = HashMap::new();
    let (one, other) = (0_u32..)
        .map(|number| format!("n{number}"))
        .find_map(|name| {
            let before = seen.insert(hash(&hasher, &wire(&name)), name.clone())?;
            Some((before, name))
        })
        .unwrap();
    let asked = |name: &str| {
        let names = [name.to_owned(), format!("_http._tcp.{name}")];
        names.map(|name| packet(&format!("{name}.shop.svc.cluster.local"), 33))
    };
    let all = [asked(&one), asked(&other)].concat();
    let mut room = AheadRoom::new();
    for (name, last) in [(&one, 20), (&other, 30)] {
        add(&mut index, name, last);
        index.publish(1_760_000_001);
        let records = index.records();
        let ahead = Ahead::read(&records, &mut room, all.iter().map(Vec::as_slice)).unwrap();
        let replies = all.iter().map(|packet| {
            let single = reply(&records, None, packet);
            assert_eq!(reply(&records, Some(&ahead), packet), single);
            single.1
        });
        let replies: Vec<Reason> = replies.collect();
        let is_other = if last == 20 { Reason::NxDomain } else { Reason::Found };
        assert_eq!(replies, [Reason::Found, Reason::Found, is_other, is_other]);
    }
}

proptest! {
    #[test]
    fn a_batch_of_any_octets_is_read_without_a_panic(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..70)
    ) {
        let index = Index::new(settings());
        let records = index.records();
        let mut room = AheadRoom::new();
        let ahead = Ahead::read(&records, &mut room, packets.iter().map(Vec::as_slice));
        for packet in &packets {
            prop_assert_eq!(reply(&records, ahead.as_ref(), packet), reply(&records, None, packet));
        }
    }
}
