//! Which datagrams get no reply because of where they come from (W2), and which SRV record comes first (WR24).

use core::net::Ipv6Addr;
use std::collections::BTreeSet;

use super::*;
use crate::random::scrambled;
use crate::testing::settings;
use crate::{
    CacheCounters, Change, DataSource, Endpoint, Identity, Index, Key, Object, Protocol, Resource,
    Service, ServiceKind, Slice, SlicePort, WorkerCounters,
};

/// Octets of the reply to this message; none where there is none.
fn replied(packet: &[u8], port: u16, transport: Transport) -> (Option<usize>, Reason) {
    let records = Index::new(settings()).records();
    let client = SocketAddr::from(([10, 244, 0, 9], port));
    let query = Query { packet, client, transport, now_s: 0, seed: 7 };
    let mut buffer = vec![0; 65_535];
    answered(&records, &query, &mut buffer)
}

/// The same in a buffer, from these records.
fn answered(records: &Records, query: &Query<'_>, buffer: &mut [u8]) -> (Option<usize>, Reason) {
    let (own, cache, identity) =
        (WorkerCounters::default(), CacheCounters::default(), Identity::default());
    let counters =
        Counters { own: &own, all: &[], servers: &[], cache: &cache, identity: &identity };
    let (action, reason) = respond(records, query, &counters, buffer);
    assert_eq!(own.count(reason), 1);
    match action {
        Action::Reply(octets) => (Some(octets), reason),
        Action::Drop => (None, reason),
        Action::Forward(_) => panic!("it is answered here"),
    }
}

#[test]
fn w2_services_that_answer_everything_get_no_reply_over_udp() {
    // A question that is read, one with another opcode, one without a question, and octets of a character generator.
    let question = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x09localhost\0\0\x01\0\x01";
    let mut opcode = question.to_vec();
    opcode[2] = 0x29;
    let packets = [&question[..], &opcode, &question[..12], b" !\"#$%&'()*+,-./0123456789"];
    for packet in packets {
        for port in [0, 7, 11, 13, 17, 19, 37, 69] {
            assert_eq!(replied(packet, port, Transport::Udp), (None, Reason::SourcePortZero));
            assert!(replied(packet, port, Transport::Tcp).0.is_some(), "a connection is no echo");
        }
        // Those of resolvers, of clients behind source NAT, and the neighbours of the others.
        for port in [1, 8, 20, 53, 68, 70, 123, 853, 1023, 40_000] {
            assert!(replied(packet, port, Transport::Udp).0.is_some(), "{port}: {packet:02x?}");
        }
    }
}

/// A headless Service with this many hostnames, of which each has ten endpoints of either family (RR25).
fn with_names(names: u8) -> Index {
    let mut index = Index::new(settings());
    index.apply(Change::Apply(Object::Service(Service {
        key: Key::new("shop", "db"),
        uid: 1,
        version: 1,
        labels: Vec::new(),
        kind: ServiceKind::Headless,
        ports: Vec::new(),
    })));
    for name in 0..names {
        for ipv6 in [false, true] {
            let endpoint = |row: u8| Endpoint {
                addresses: vec![match ipv6 {
                    false => IpAddr::from([10, 1, name, row]),
                    true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, name.into(), row.into()).into(),
                }],
                ready: true,
                hostname: Some(format!("db-{name:02}").into()),
                target: None,
            };
            index.apply(Change::Apply(Object::Slice(Slice {
                key: Key::new("shop", format!("db-{name}-{ipv6}")),
                uid: u128::from(name) << 1 | u128::from(ipv6),
                version: 1,
                service: "db".into(),
                ipv6,
                ports: vec![SlicePort { name: "".into(), port: 5432, protocol: Protocol::Tcp }],
                endpoints: (0..10).map(endpoint).collect(),
            })));
        }
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1);
    index
}

/// The number of endpoints says nothing of the number of records: any number of endpoints may share a name.
#[test]
fn wr24_srv_records_that_fit_rotate_however_many_endpoints_they_are_of() {
    let packet =
        b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x02db\x04shop\x03svc\x07cluster\x05local\0\0\x21\0\x01";
    // Behind the question: owner, type, class, TTL, length, priority, weight, port, and the length of the first label.
    let label = packet.len() + 2 + 8 + 2 + 6 + 1;
    let client = SocketAddr::from(([10, 244, 0, 9], 40_000));
    for (names, firsts) in [(6, 6), (60, 1)] {
        let records = with_names(names).records();
        let mut first = BTreeSet::new();
        for seed in 0..200 {
            let (now_s, seed, transport) = (0, scrambled(9, seed), Transport::Udp);
            let query = Query { packet, client, transport, now_s, seed };
            let mut buffer = [0; 512];
            let (octets, reason) = answered(&records, &query, &mut buffer);
            assert_eq!((octets.is_some(), reason), (true, Reason::Found));
            assert_eq!(buffer[2] & 2 != 0, firsts == 1, "TC");
            first.insert(buffer[label..label + 5].to_vec());
        }
        assert_eq!(first.len(), firsts, "{names} names: {first:02x?}");
    }
}
