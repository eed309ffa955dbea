//! Lookups without tasks against a server on loopback: over a socket of their own, and over one that is shared.

mod between;
mod connection;
mod costs;

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crds::config::{self, Config, Group as GroupConfig, GroupOptions, Policy, Transport};
use dataplane_core::{Discard, Freshness, Name, Relayed};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::*;
use crate::forward::cache::Member;
use crate::forward::upstreams::Upstreams;
use crate::forward::{Client, LateEnd, Limit, Reading, Resolved, now};
use crate::origin::Origin;

/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// The bound of ports (each query has its own port, or all share one), and whether the thread that asks reads replies.
const WAYS: [(u32, bool); 4] = [(4096, false), (1, false), (4096, true), (1, true)];
const NAME: &str = "www.example.org";
/// The octets of a header and of the question.
const QUESTION_END: usize = 12 + NAME.len() + 2 + 4;

struct Stage {
    far: UdpSocket,
    upstreams: Upstreams,
    forwarder: Arc<Forwarder>,
    reading: RefCell<Option<Reading>>,
    /// The socket of clients; no client asks in these tests.
    clients: std::net::UdpSocket,
}

impl Stage {
    async fn new(way: (u32, bool)) -> Stage {
        Stage::behind(&[], way).await
    }

    /// The server is asked after these.
    async fn behind(others: &[SocketAddr], (ports, reads): (u32, bool)) -> Stage {
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = |address: &SocketAddr| {
            let (ip, port) = (address.ip(), address.port());
            config::Server { ip, port, transport: Transport::Udp, tls: None }
        };
        let servers = others.iter().chain([&far.local_addr().unwrap()]).map(server).collect();
        let options = GroupOptions { policy: Policy::Sequential, ..GroupOptions::default() };
        let upstreams = config::Upstreams::Servers(GroupConfig { servers, options });
        let mut config = Config { upstreams, ..Config::default() };
        config.limits.upstream_ports = ports;
        let upstreams = Upstreams::of(&config, Path::new(""));
        let reading = RefCell::new(reads.then(|| Reading::begin().expect("this system can")));
        let clients = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        Stage { far, upstreams, forwarder: Forwarder::new(), reading, clients }
    }

    /// Asks; the channel gets how the lookup ends.
    fn ask(&self) -> mpsc::UnboundedReceiver<Resolved> {
        self.ask_for(NAME)
    }

    fn ask_for(&self, name: &str) -> mpsc::UnboundedReceiver<Resolved> {
        ask(&self.forwarder, &self.upstreams, name)
    }

    /// The next query, and where it came from.
    async fn query(&self) -> (Vec<u8>, SocketAddr) {
        let mut octets = [0; 512];
        let came = tokio::time::timeout(PATIENCE, self.far.recv_from(&mut octets)).await;
        let (length, from) = came.expect("a query").unwrap();
        (octets[..length].to_vec(), from)
    }

    async fn reply(&self, message: &[u8], to: SocketAddr) {
        self.far.send_to(message, to).await.unwrap();
    }

    /// Reads as a UDP thread does, while other tasks of the test run.
    async fn reads(&self) -> Infallible {
        loop {
            self.read_once();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// One look of the thread at its sockets.
    fn read_once(&self) {
        if let Some(reading) = &mut *self.reading.borrow_mut() {
            assert!(!reading.wait(&self.clients, Duration::ZERO).unwrap());
            reading.read();
        }
    }

    /// How a lookup ends.
    async fn end(&self, ended: &mut mpsc::UnboundedReceiver<Resolved>) -> Origin {
        let end = async {
            tokio::select! {
                end = ended.recv() => end.expect("it is called").origin(),
                never = self.reads() => match never {},
            }
        };
        tokio::time::timeout(PATIENCE, end).await.expect("it ends")
    }

    /// Which server gave the reply that the cache has.
    fn kept_from(&self) -> Option<Member> {
        let key = LookupKey::new(Name::from_text(NAME).unwrap(), 1, false, false);
        let route = self.upstreams.route(0).unwrap();
        let at = (self.forwarder.clock().now_ms(), self.upstreams.recoveries(0));
        self.forwarder.cache().peek(route, &key, at, self.upstreams.cache())?.server
    }

    fn open_ports(&self) -> usize {
        self.reading.borrow().as_ref().map_or(0, Reading::ports)
    }
}

/// Asks; the channel gets how the lookup ends.
fn ask(
    forwarder: &Arc<Forwarder>,
    upstreams: &Upstreams,
    name: &str,
) -> mpsc::UnboundedReceiver<Resolved> {
    let (sender, ended) = mpsc::unbounded_channel();
    let slot = forwarder.slot(upstreams, 0, IpAddr::from([10, 0, 0, 1])).unwrap();
    let key = LookupKey::new(Name::from_text(name).unwrap(), 1, false, false);
    forwarder.resolve_late(upstreams, 0, key, Client::new(now(), slot), move |end| match end {
        LateEnd::Resolved(resolved) => sender.send(resolved).unwrap(),
        LateEnd::Chain(..) => panic!("it is whole"),
    });
    ended
}

/// A reply to this query with one address.
fn address(query: &[u8]) -> Vec<u8> {
    let mut reply = error(query, 0);
    reply[7] = 1;
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, 1]);
    reply
}

/// A reply with this response code and nothing else.
fn error(query: &[u8], rcode: u8) -> Vec<u8> {
    let mut reply = query[..QUESTION_END].to_vec();
    (reply[2], reply[3], reply[11]) = (0x81, 0x80 | rcode, 0);
    reply
}

#[tokio::test]
async fn fw11_a_good_reply_ends_the_lookup_once_for_all_who_wait() {
    for way in WAYS {
        let stage = Stage::new(way).await;
        let (mut first, mut second) = (stage.ask(), stage.ask());
        let (query, from) = stage.query().await;
        assert_eq!((stage.forwarder.lookups(), stage.forwarder.joined()), (1, 1));
        stage.reply(&address(&query), from).await;
        assert_eq!(stage.end(&mut first).await, Origin::Upstream);
        assert_eq!(stage.end(&mut second).await, Origin::Upstream);
        assert!(first.recv().await.is_none() && second.recv().await.is_none(), "once");
        let forwarder = &stage.forwarder;
        assert_eq!((forwarder.lookups(), forwarder.in_flight(), forwarder.resolved()), (0, 0, 1));
        assert_eq!(forwarder.cache().entries(), 1, "it is kept");
        assert_eq!(
            stage.open_ports(),
            usize::from(way == (1, true)),
            "{way:?}: one's own is closed"
        );
    }
}

#[tokio::test]
async fn fw13_what_is_not_the_reply_is_counted_and_waited_past() {
    for way in WAYS {
        let stage = Stage::new(way).await;
        let mut ended = stage.ask();
        let (query, from) = stage.query().await;
        let (mut other_id, mut other_question) = (address(&query), address(&query));
        other_id[0] ^= 0xff;
        other_question[13] ^= 0x01;
        stage.reply(&other_id, from).await;
        stage.reply(&other_question, from).await;
        stage.reply(&address(&query), from).await;
        assert_eq!(stage.end(&mut ended).await, Origin::Upstream, "{way:?}");
        let discarded = [Discard::Id, Discard::Question].map(|why| stage.upstreams.discarded(why));
        assert_eq!(discarded, [1, 1], "{way:?}");
    }
}

#[tokio::test]
async fn fw23_a_silent_server_is_asked_again_and_its_late_reply_is_taken() {
    for (way, late) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let stage = Stage::new(way).await;
        let begun = now();
        let mut ended = stage.ask();
        let first = stage.query().await;
        let second = stage.query().await;
        assert!(begun.elapsed() >= Duration::from_millis(500), "{way:?}");
        let (query, from) = if late { first } else { second };
        stage.reply(&address(&query), from).await;
        assert_eq!(stage.end(&mut ended).await, Origin::Upstream, "{way:?}");
    }
}

#[tokio::test]
async fn fw21_an_error_ends_the_lookup_when_no_other_server_is_left() {
    for way in WAYS {
        let stage = Stage::new(way).await;
        let mut ended = stage.ask();
        let (query, from) = stage.query().await;
        stage.reply(&error(&query, 2), from).await;
        assert_eq!(stage.end(&mut ended).await, Origin::Failed);
        let errors = stage.forwarder.unresolved().find(|(why, _)| *why == "errors");
        assert_eq!(errors, Some(("errors", 1)));
        assert_eq!((stage.forwarder.lookups(), stage.forwarder.in_flight()), (0, 0));
    }
}

#[tokio::test]
async fn fw10_without_a_port_to_ask_from_the_lookup_ends_at_once() {
    let stage = Stage::new((0, false)).await;
    assert_eq!(stage.end(&mut stage.ask()).await, Origin::Failed);
    let limited = stage.forwarder.unresolved().find(|(why, _)| *why == "limited");
    assert_eq!(limited, Some(("limited", 1)));
}

#[tokio::test]
async fn n20_each_query_of_a_lookup_that_ends_at_a_limit_is_counted() {
    const QUERIES: u64 = 20;
    let stage = Stage::new((4096, false)).await;
    let server = &stage.upstreams.group(0).unwrap().servers[0];
    let _others: Vec<Sent> = std::iter::from_fn(|| server.send(true)).collect();
    tokio::time::pause();
    let clients: Vec<_> = (0..QUERIES).map(|_| stage.ask()).collect();
    assert_eq!(stage.forwarder.lookups(), 1);
    for mut ended in clients {
        assert_eq!(ended.recv().await.unwrap().origin(), Origin::Failed);
    }
    assert_eq!(stage.forwarder.limited(Limit::Server), QUERIES);
    let lookups = stage.forwarder.unresolved().find(|(why, _)| *why == "limited");
    assert_eq!(lookups, Some(("limited", 1)));
}

#[tokio::test]
async fn n20_a_lookup_for_a_stale_answer_that_ends_at_a_limit_is_counted_once() {
    let stage = Stage::new((4096, false)).await;
    let server = &stage.upstreams.group(0).unwrap().servers[0];
    let _others: Vec<Sent> = std::iter::from_fn(|| server.send(true)).collect();
    tokio::time::pause();
    let key = LookupKey::new(Name::from_text("www.example.org").unwrap(), 1, false, false);
    let stale = Relayed::failure(&key);
    let client = || {
        let slot = stage.forwarder.slot(&stage.upstreams, 0, IpAddr::from([10, 0, 0, 1])).unwrap();
        Client::new(now(), slot)
    };
    let clients = [client(), client()];
    for refreshed in futures::future::join_all(
        clients
            .iter()
            .map(|it| stage.forwarder.refreshed(&stage.upstreams, 0, &key, stale.clone(), it)),
    )
    .await
    {
        assert!(matches!(refreshed, Ok((_, Freshness::Stale))));
    }
    assert_eq!(stage.forwarder.limited(Limit::Server), 0, "it waits for a place");
    while stage.forwarder.lookups() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(stage.forwarder.limited(Limit::Server), 1);
}

#[tokio::test]
async fn fw11_a_reply_that_brings_out_a_defect_leaves_the_shared_socket_read() {
    let stage = Stage::new((1, false)).await;
    let slot = stage.forwarder.slot(&stage.upstreams, 0, IpAddr::from([10, 0, 0, 1])).unwrap();
    let key = LookupKey::new(Name::from_text("bad.example.org").unwrap(), 1, false, false);
    let panics = |_: LateEnd| panic!("a defect");
    stage.forwarder.resolve_late(&stage.upstreams, 0, key, Client::new(now(), slot), panics);
    let (query, from) = stage.query().await;
    stage.reply(&address(&query), from).await;
    let mut ended = stage.ask();
    let (query, from) = stage.query().await;
    stage.reply(&address(&query), from).await;
    assert_eq!(stage.end(&mut ended).await, Origin::Upstream);
}
