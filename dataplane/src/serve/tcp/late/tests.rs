//! A long reply of an upstream on loopback, for many queries at once.

use std::net::SocketAddr;

use crds::config::{self, Config, Group, GroupOptions};
use dataplane_core::{
    Change, DataSource, Endpoint, Index, Key, Object, Resource, Service, ServiceKind, Slice,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::super::responder::tests::{question, with_records};
use super::super::super::responder::{Asker, Room};
use super::super::{TcpAction, answer};
use super::*;
use crate::origin::Origin;
use crate::settings;

const A: u8 = 1;
const TXT: u8 = 16;
/// The first flags of a reply, and the one that says that records are missing.
const QR_RD: u8 = 0x81;
const TC: u8 = 2;
/// Queries of ten connections (WR41).
const QUERIES: usize = 10 * 64;
/// Octets of the one record: whole strings.
const RDATA: usize = 234 * 256;

/// An upstream over TCP that answers with one long record, and gives a query time to be joined; `flags` are those of its replies.
async fn upstream(flags: u8) -> config::Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        while let Ok(octets) = stream.read_u16().await {
            let mut reply = vec![0; octets.into()];
            stream.read_exact(&mut reply).await.expect("a query");
            // Without the OPT record, which has 11 octets.
            reply.truncate(reply.len() - 11 * usize::from(reply[11]));
            (reply[2], reply[3], reply[7], reply[11]) = (flags, 0x80, 1, 0);
            reply.extend([0xc0, 12, 0, TXT, 0, 1, 0, 0, 0, 0]);
            reply.extend((RDATA as u16).to_be_bytes());
            reply.extend([255; RDATA]);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            stream.write_u16(reply.len() as u16).await.expect("it is sent");
            stream.write_all(&reply).await.expect("it is sent");
        }
    });
    let (ip, port) = (address.ip(), address.port());
    config::Server { ip, port, transport: config::Transport::Tcp, tls: None }
}

/// One that asks this server for all names that are not ours.
fn responder(server: config::Server) -> Arc<Responder> {
    let group = Group { servers: vec![server], options: GroupOptions::default() };
    let config = Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
    let records = Index::new(settings::of(&config).expect("settings")).records();
    Arc::new(with_records(&config, records, "/nonexistent"))
}

fn asker() -> Asker {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    Asker { client: address, server: address, over: ServedOver::Tcp }
}

/// An upstream over a stream that sets TC has no larger form of its reply (FW26): nothing but the count says that records are
/// missing.
#[tokio::test]
async fn wr23_a_part_of_an_rrset_that_an_upstream_gives_is_counted() {
    for (flags, count) in [(QR_RD, 0), (QR_RD | TC, 1)] {
        let responder = responder(upstream(flags).await);
        let answer = answer(Arc::clone(&responder));
        let mut buffer = vec![0; MESSAGE_OCTETS];
        let asks = question("long.example.org", TXT, true);
        let TcpAction::Late(late) = answer(&asks, asker(), Room::Now, &mut buffer) else {
            panic!("it is not ours")
        };
        let written = write(late.await, &mut buffer, &ServeCounters::default()).expect("a reply");
        assert!(written.octets > RDATA && (buffer[2] & TC, buffer[7]) == (0, 1), "{written:?}");
        assert_eq!(written.is_cut, count == 1);
        assert_eq!(responder.counters.traffic.read(ServedOver::Tcp).capped, count);
    }
}

/// A headless Service with this many slices of 1,000 endpoints.
fn headless(name: &str, slices: u8) -> impl Iterator<Item = Object> {
    let (key, service) = (Key::new("shop", name), Box::from(name));
    let (kind, labels, ports) = (ServiceKind::Headless, Vec::new(), Vec::new());
    let endpoint = |number, row: u16| {
        let [high, low] = row.to_be_bytes();
        let addresses = vec![IpAddr::from([10, number, high, low])];
        Endpoint { addresses, ready: true, hostname: None, target: None }
    };
    let slice = move |number| {
        let (key, service) =
            (Key::new("shop", format!("{service}-{number}")), Box::clone(&service));
        let endpoints = (0..1000).map(|row| endpoint(number, row)).collect();
        let ports = Vec::new();
        Object::Slice(Slice { key, uid: 1, version: 1, service, ipv6: false, ports, endpoints })
    };
    let service = Service { key, uid: 1, version: 1, labels, kind, ports };
    std::iter::once(Object::Service(service)).chain((0..slices).map(slice))
}

#[tokio::test]
async fn wr23_a_part_of_an_rrset_of_ours_is_known_as_one() {
    let config = Config { upstreams: config::Upstreams::None, ..Config::default() };
    let mut index = Index::new(settings::of(&config).expect("settings"));
    for resource in Resource::ALL {
        index.begin_list(resource);
    }
    for object in headless("small", 1).chain(headless("wide", 5)) {
        index.apply(Change::Apply(object));
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    let records = index.publish(1).expect("there are some");
    let answer = answer(Arc::new(with_records(&config, records, "/nonexistent")));
    let mut buffer = vec![0; MESSAGE_OCTETS];
    for (name, expected) in [("wide", true), ("small", false)] {
        let asks = question(&format!("{name}.shop.svc.cluster.local"), A, true);
        let TcpAction::Reply(written) = answer(&asks, asker(), Room::Now, &mut buffer) else {
            panic!("it is ours")
        };
        assert!(written.octets > 16_000, "{name}: {written:?}");
        assert_eq!(written.is_cut, expected, "{name}");
    }
}

#[tokio::test]
async fn wr44_a_lookup_that_many_connections_wait_for_ends_with_one_copy_of_its_reply() {
    let responder = responder(upstream(QR_RD).await);
    let answer = answer(responder);
    let mut buffer = vec![0; MESSAGE_OCTETS];
    // The thread of TCP takes none of them before all have ended.
    let mut lookups = JoinSet::new();
    for _ in 0..QUERIES {
        let asks = question("long.example.org", TXT, true);
        match answer(&asks, asker(), Room::Now, &mut buffer) {
            TcpAction::Late(late) => lookups.spawn(late),
            _ => panic!("it is not ours"),
        };
    }
    let replies: Vec<LateReply> = lookups.join_all().await;
    let held: usize = replies.iter().map(|reply| reply.octets()).sum();
    assert!((RDATA / 2..2 * RDATA).contains(&held), "{held} octets for {QUERIES} replies");
    for reply in replies {
        let written = write(reply, &mut buffer, &ServeCounters::default()).expect("a reply");
        let octets = written.octets;
        assert!(octets > RDATA && (buffer[3] & 15, buffer[7]) == (0, 1), "{octets} octets");
    }
}

#[tokio::test]
async fn wr41_a_query_whose_client_goes_before_its_turn_counts_as_no_failure() {
    let responder = responder(upstream(QR_RD).await);
    let answer = answer(Arc::clone(&responder));
    let mut buffer = vec![0; MESSAGE_OCTETS];
    let asks = question("long.example.org", TXT, true);
    let TcpAction::Later(later) = answer(&asks, asker(), Room::Later, &mut buffer) else {
        panic!("it is not ours")
    };
    let replies = || {
        let counted = responder.counters.traffic.read(ServedOver::Tcp);
        counted.by_rcode[Origin::Failed as usize].iter().sum::<u64>()
    };
    assert_eq!(replies(), 0);
    drop(later);
    assert_eq!((replies(), responder.forwarder.lookups()), (0, 0));
}
