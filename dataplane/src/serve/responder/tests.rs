//! What a serving thread does with a query that is not ours: the cache, the places, an upstream on loopback. The clock of
//! the cache is moved ahead in place of waiting.

mod golden;
mod counted;
mod budget;
mod in_turn;
mod outage;
pub(in crate::serve) mod names;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use crds::Config;
use crds::config::{self, Group, GroupOptions, Logging, QueryLog, Server};
use dataplane_core::{Identity, Index, Records, Transport};
use tokio::net::UdpSocket;

use super::*;
use crate::forward::Limit;
use crate::taps::Taps;
use crate::{serve, settings};

/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);

fn responder(config: &Config) -> Responder {
    let records = Index::new(settings::of(config).expect("settings")).records();
    with_records(config, records, "/nonexistent")
}

pub(in crate::serve) fn with_records(
    config: &Config,
    records: Arc<Records>,
    resolv_conf: &str,
) -> Responder {
    let upstreams = Arc::new(Upstreams::of(config, std::path::Path::new(resolv_conf)));
    let state = State {
        published: ArcSwap::from_pointee(Published { records, upstreams }),
        counters: serve::worker_counters(1, 1),
        identity: Identity { instance_id: "0123456789abcdef".into(), ..Identity::default() },
        taps: Arc::default(),
        inspections: Arc::default(),
    };
    Responder::new(Arc::new(state), Forwarder::new(), Handle::current(), Arc::default())
}

/// An upstream that answers every query with one address for 600 s, as soon as it is asked.
pub(in crate::serve) struct Upstream {
    asked: Arc<AtomicU64>,
    is_silent: Arc<AtomicBool>,
    is_private: Arc<AtomicBool>,
    /// It answers SERVFAIL.
    pub(in crate::serve) fails: Arc<AtomicBool>,
    pub(in crate::serve) ttl_s: Arc<AtomicU32>,
    server: Server,
}

impl Upstream {
    pub(in crate::serve) async fn start() -> Upstream {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        let asked = Arc::new(AtomicU64::new(0));
        let is_silent = Arc::new(AtomicBool::new(false));
        let is_private = Arc::new(AtomicBool::new(false));
        let (count, silent) = (Arc::clone(&asked), Arc::clone(&is_silent));
        let private = Arc::clone(&is_private);
        let (fails, ttl_s) = (Arc::<AtomicBool>::default(), Arc::new(AtomicU32::new(600)));
        let (fail, ttl) = (Arc::clone(&fails), Arc::clone(&ttl_s));
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((octets, peer)) = socket.recv_from(&mut buffer).await {
                count.fetch_add(1, Ordering::Relaxed);
                if silent.load(Ordering::Relaxed) {
                    continue;
                }
                // Without the OPT, which has 11 octets; a probe may have none (FW25).
                let mut reply = buffer[..octets - 11 * usize::from(buffer[11])].to_vec();
                (reply[2], reply[3], reply[7], reply[11]) = (0x81, 0x80, 1, 0);
                let is_private = private.load(Ordering::Relaxed);
                let address = if is_private { [10, 9, 9, 9] } else { [192, 0, 2, 1] };
                let ttl = ttl.load(Ordering::Relaxed).to_be_bytes();
                let record = [&[0xc0, 12, 0, 1, 0, 1][..], &ttl, &[0, 4], &address].concat();
                if fail.load(Ordering::Relaxed) {
                    (reply[3], reply[7]) = (0x82, 0);
                } else {
                    reply.extend(record);
                }
                let _ = socket.send_to(&reply, peer).await;
            }
        });
        let (ip, port) = (address.ip(), address.port());
        let server = Server { ip, port, transport: config::Transport::Udp, tls: None };
        Upstream { asked, is_silent, is_private, fails, ttl_s, server }
    }

    pub(in crate::serve) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// A configuration that asks this server for all names, one query at a time.
    pub(in crate::serve) fn config(&self) -> Config {
        let group = Group { servers: vec![self.server.clone()], options: GroupOptions::default() };
        let upstreams = config::Upstreams::Servers(group);
        let mut config = Config { upstreams, ..Config::default() };
        config.limits.in_flight = 1;
        config
    }
}

/// A query with an OPT record.
pub(in crate::serve) fn question(name: &str, qtype: u8, rd: bool) -> Vec<u8> {
    let mut packet = vec![0, 7, u8::from(rd), 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, qtype, 0, 1]);
    packet.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    packet
}

/// The offset behind the name that begins at `at`.
fn behind_name(reply: &[u8], mut at: usize) -> usize {
    loop {
        match reply[at] {
            0 => return at + 1,
            192.. => return at + 2,
            label => at += 1 + usize::from(label),
        }
    }
}

/// The TTL of each record of the answer.
pub(super) fn ttls(reply: &[u8]) -> Vec<u32> {
    let mut at = behind_name(reply, 12) + 4;
    let mut ttls = Vec::new();
    for _ in 0..reply[7] {
        at = behind_name(reply, at) + 4;
        ttls.push(u32::from_be_bytes(reply[at..at + 4].try_into().expect("four octets")));
        at += 6 + usize::from(u16::from_be_bytes([reply[at + 4], reply[at + 5]]));
    }
    ttls
}

/// What a client gets: rcode, the TTLs of the answer, and where it comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Got(pub(super) u8, pub(super) Vec<u32>, pub(super) Origin);

impl Responder {
    /// Asks for www.example.org A, as the thread of UDP does.
    async fn ask(&self) -> Got {
        let (reply, origin) = self.ask_for(&question("www.example.org", 1, true)).await;
        Got(reply[3] & 15, ttls(&reply), origin)
    }

    /// Asks this, as the thread of UDP does for a client on loopback.
    pub(super) async fn ask_for(&self, packet: &[u8]) -> (Vec<u8>, Origin) {
        let query = Query {
            packet,
            client: SocketAddr::from(([127, 0, 0, 1], 5353)),
            transport: Transport::Udp,
            now_s: 0,
            seed: 1,
        };
        let published = self.state.published.load_full();
        let mut buffer = [0; 1232];
        let (octets, origin) =
            match self.decide((&published, None), 0, &query, Room::Now, &mut buffer) {
                ServeAction::Reply(octets, answered, refresh) => {
                    if let Some(refresh) = refresh {
                        self.refresh(&published.upstreams, &refresh);
                    }
                    (octets, answered.origin)
                }
                ServeAction::Drop | ServeAction::Later(..) => panic!("neither dropped nor put off"),
                ServeAction::Forward(waiting, held, slot) => {
                    let upstreams = Arc::clone(&published.upstreams);
                    let lookup = self.forwarder.resolve(
                        &self.state.published,
                        upstreams,
                        &waiting,
                        held,
                        slot,
                    );
                    let resolved = lookup.await;
                    (resolved.write(&waiting.head, &mut buffer).octets, resolved.origin())
                }
            };
        (buffer[..octets].to_vec(), origin)
    }

    fn later(&self, ms: u64) {
        self.forwarder.clock().advance(Duration::from_millis(ms));
    }

    /// The only place.
    fn place(&self) -> Option<Slot> {
        let published = self.state.published.load();
        self.forwarder.slot(&published.upstreams, 0, [10, 0, 0, 1].into())
    }

    fn cached(&self) -> u64 {
        self.state.counters[0].cached()
    }

    async fn until_no_lookup(&self) {
        let is_over = async {
            while self.forwarder.lookups() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_over).await.expect("lookups end");
    }
}

#[tokio::test]
async fn ca30_a_prefetch_takes_a_place_and_no_client_waits_for_it() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    assert_eq!(responder.ask().await, Got(0, vec![600], Origin::Upstream));
    for _ in 0..2 {
        assert_eq!(responder.ask().await, Got(0, vec![600], Origin::Cache));
    }
    responder.later(545_000);
    // Every place is taken: the prefetch is left for the next hit.
    let place = responder.place();
    assert!(place.is_some());
    assert_eq!(responder.ask().await, Got(0, vec![55], Origin::Cache));
    assert_eq!((responder.forwarder.lookups(), upstream.asked()), (0, 1));
    let counted = |total: &dyn Fn(Limit) -> u64| Limit::ALL.map(total).iter().sum::<u64>();
    assert_eq!(counted(&|limit| responder.forwarder.limited(limit)), 0, "no client was refused");
    assert_eq!(responder.forwarder.limited_prefetches(Limit::Total), 1);
    drop(place);
    assert_eq!(responder.ask().await, Got(0, vec![55], Origin::Cache));
    assert_eq!(responder.forwarder.lookups(), 1, "its lookup has begun with the reply");
    assert!(responder.place().is_none(), "and has the place");
    responder.until_no_lookup().await;
    assert_eq!(responder.ask().await, Got(0, vec![600], Origin::Cache));
    assert_eq!((responder.cached(), upstream.asked()), (5, 2));
}

#[tokio::test]
async fn c8_ca30_a_hundred_hits_before_expiry_ask_an_upstream_once() {
    let upstream = Upstream::start().await;
    let mut config = upstream.config();
    config.limits.in_flight = 1_000;
    let responder = responder(&config);
    for _ in 0..3 {
        responder.ask().await;
    }
    responder.later(545_000);
    // No task of the runtime runs between these two.
    for _ in 0..100 {
        assert_eq!(responder.ask().await, Got(0, vec![55], Origin::Cache));
    }
    assert_eq!(responder.forwarder.in_flight(), 1);
    responder.until_no_lookup().await;
    assert_eq!(upstream.asked(), 2);
}

#[tokio::test]
async fn g134_ca40_a_client_waits_1800_ms_for_an_answer_that_has_expired() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    responder.ask().await;
    upstream.is_silent.store(true, Ordering::Relaxed);
    responder.later(600_000);
    // Time moves on as soon as nothing else can happen.
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    assert_eq!(responder.ask().await, Got(0, vec![30], Origin::Stale));
    let waited_ms = started.elapsed().as_millis();
    assert!((1_800..1_850).contains(&waited_ms), "{waited_ms} ms");
    assert_eq!(responder.forwarder.lookups(), 1, "the lookup continues (CA41)");
}

#[tokio::test]
async fn n20_ca40_at_a_limit_an_expired_answer_is_served_and_asked_for_later() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    responder.ask().await;
    responder.later(600_000);
    let place = responder.place();
    assert!(place.is_some());
    for refused in 1..3 {
        assert_eq!(responder.ask().await, Got(0, vec![30], Origin::Stale));
        assert_eq!(responder.forwarder.limited(Limit::Total), refused);
    }
    assert_eq!((responder.cached(), upstream.asked()), (2, 1));
    drop(place);
    assert_eq!(responder.ask().await, Got(0, vec![600], Origin::Upstream));
}

#[tokio::test]
async fn n20_at_a_limit_what_was_never_answered_is_servfail() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    let place = responder.place();
    assert!(place.is_some());
    assert_eq!(responder.ask().await, Got(2, vec![], Origin::Failed));
    assert_eq!((responder.cached(), upstream.asked()), (0, 0));
}

#[tokio::test]
async fn c7_ca1_denied_clients_do_not_learn_what_the_cache_has() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    responder.ask().await;
    let denied = Config {
        access: config::Access {
            clients: vec!["10.0.0.0/8".parse().expect("a network")],
            ..Default::default()
        },
        ..upstream.config()
    };
    let records = Index::new(settings::of(&denied).expect("settings")).records();
    let upstreams = Arc::clone(&responder.state.published.load().upstreams);
    responder.state.published.store(Arc::new(Published { records, upstreams }));
    assert_eq!(responder.ask().await, Got(5, vec![], Origin::Own));
    assert_eq!((responder.cached(), upstream.asked()), (0, 1));
}

#[tokio::test]
async fn a_late_reply_that_panics_is_counted() {
    let responder = responder(&Config::default());
    responder.spawn_late(async {});
    responder.spawn_late(async { panic!("a defect") });
    responder.finish_late().await;
    assert_eq!(responder.counters.panics.load(Ordering::Relaxed), 1);
}

#[test]
fn ca30_a_refresh_that_panics_is_counted_and_costs_no_reply() {
    // To open a socket panics where a runtime has none.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let _within = runtime.enter();
    let server =
        Server { ip: [127, 0, 0, 1].into(), port: 9, transport: config::Transport::Udp, tls: None };
    let group = Group { servers: vec![server], options: GroupOptions::default() };
    let upstreams = config::Upstreams::Servers(group);
    let responder = responder(&Config { upstreams, ..Config::default() });
    let upstreams = &responder.state.published.load_full().upstreams;
    let slot = responder.forwarder.slot(upstreams, 0, [10, 0, 0, 1].into()).expect("a place");
    let name = dataplane_core::Name::from_text("www.example.org").expect("a name");
    let key = LookupKey::new(name, 1, false, false);
    responder.refresh(upstreams, &Refresh { group: 0, key, slot: Arc::new(slot) });
    assert_eq!(responder.counters.panics.load(Ordering::Relaxed), 1);
    assert_eq!((responder.forwarder.lookups(), responder.forwarder.in_flight()), (0, 0));
}

#[test]
fn clients_over_ipv4_mapped_addresses_count_as_ipv4() {
    let mapped: SocketAddr = "[::ffff:10.1.2.3]:5353".parse().expect("address");
    assert_eq!(client(mapped), "10.1.2.3:5353".parse().expect("address"));
    let six: SocketAddr = "[fd00::2]:5353".parse().expect("address");
    assert_eq!(client(six), six);
}

#[test]
fn seeds_differ_within_and_between_threads() {
    let (mut one, mut other) = (Seeds::new(), Seeds::new());
    let mut seen: Vec<u64> = (0..1000).flat_map(|_| [one.next(), other.next()]).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 2000);
    // All residues of a small modulus come up: rotation of small RRsets uses these.
    assert_eq!((0..200).map(|_| one.next() % 3).filter(|&r| r == 2).count().min(1), 1);
}

#[test]
fn of_a_query_that_waits_the_taps_get_512_octets() {
    let taps = Taps::default();
    taps.apply(&Logging { queries: QueryLog::All, ..Logging::default() });
    let began = taps.wanted().begin(Duration::ZERO).unwrap();
    let address = SocketAddr::from(([192, 0, 2, 1], 1));
    let asker = Asker { client: address, server: address, over: ServedOver::Tcp };
    for (octets, kept, is_cut) in [(60, 60, false), (512, 512, false), (60_000, 512, true)] {
        let query = vec![0; octets];
        let later = Asked { began: &began, asker, query: &query, is_cut: false }.keep();
        assert_eq!((later.borrow().query.len(), later.borrow().is_cut), (kept, is_cut));
    }
}
