//! Scripted upstreams, a forwarder that knows them, and what is read of its replies.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crds::config::{self, Config, Group, GroupOptions, Policy, Server, StubDomain};
use dataplane::forward::{Cached, Forwarder, Held, Resolved, Slot, Upstreams, View};
use dataplane::state::{Published, State};
use dataplane_core::{
    Cnames, Forward, Identity, Index, LookupKey, Name, ReplyForm, ReplyHead, Surroundings, Waiting,
};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use tests::upstream::{Script, ScriptedUpstream};
use tokio::runtime::Handle;

/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a test that counts queries begins again on a busy machine.
const TRIES: usize = 50;

/// The upstreams of docs/dns.md 9.1.
pub(super) const GOLDEN: &str = include_str!("../../scenarios/upstreams.txt");
pub(super) const FIRST: [u8; 4] = [10, 0, 0, 2];
pub(super) const SECOND: [u8; 4] = [10, 0, 0, 3];
pub(super) const THIRD: [u8; 4] = [10, 0, 0, 4];

/// Scripted upstreams, and a forwarder that knows them: group 0 asks 10.0.0.2, 10.0.0.3, then 10.0.0.4
/// (those there are a script for), group 1 is 10.20.0.53, group 2 is 10.30.0.53.
pub(super) struct Stage {
    upstreams: BTreeMap<IpAddr, ScriptedUpstream>,
    pub(super) published: Arc<Published>,
    pub(super) forwarder: Arc<Forwarder>,
}

impl Stage {
    pub(super) fn new(scripts: &str) -> Stage {
        Stage::with(scripts, |_| {})
    }

    pub(super) fn with(scripts: &str, change: impl FnOnce(&mut Config)) -> Stage {
        let scripts = Script::parse(scripts).unwrap();
        let start = |(ip, script)| (ip, ScriptedUpstream::start(script).unwrap());
        let upstreams: BTreeMap<IpAddr, ScriptedUpstream> =
            scripts.into_iter().map(start).collect();
        let group = |servers: &[[u8; 4]]| {
            let addresses = servers.iter().filter_map(|ip| upstreams.get(&IpAddr::from(*ip)));
            let servers = addresses.map(|upstream| server(upstream.address())).collect();
            let options = GroupOptions { policy: Policy::Sequential, ..GroupOptions::default() };
            Group { servers, options }
        };
        let stub = |domain: &str, ip| StubDomain { domain: domain.into(), group: group(&[ip]) };
        let mut config = Config {
            upstreams: config::Upstreams::Servers(group(&[FIRST, SECOND, THIRD])),
            stub_domains: vec![
                stub("corp.example", [10, 20, 0, 53]),
                stub("lab.corp.example", [10, 30, 0, 53]),
            ],
            ..Config::default()
        };
        change(&mut config);
        Stage::of(upstreams, &config)
    }

    /// The same, where time passes only by `clock().advance()`: for tests that compare TTLs and times.
    pub(super) fn stopped(scripts: &str) -> Stage {
        let stage = Stage::new(scripts);
        stage.forwarder.clock().stop();
        stage
    }

    /// A forwarder with this configuration, and the upstreams that it names.
    pub(super) fn of(upstreams: BTreeMap<IpAddr, ScriptedUpstream>, config: &Config) -> Stage {
        let records = Index::new(dataplane::settings::of(config).unwrap()).records();
        let of_config = Arc::new(Upstreams::of(config, Path::new("/nonexistent")));
        let published = Arc::new(Published { records, upstreams: of_config });
        Stage { upstreams, published, forwarder: Forwarder::new() }
    }

    pub(super) fn upstream(&self, ip: [u8; 4]) -> &ScriptedUpstream {
        &self.upstreams[&IpAddr::from(ip)]
    }

    pub(super) async fn ask(&self, group: usize, name: &str, qtype: RecordType) -> Message {
        self.resolve(waiting(group, name, qtype)).await
    }

    pub(super) async fn resolve(&self, waiting: Waiting) -> Message {
        let slot = self.slot(waiting.group).unwrap();
        let mut buffer = [0; 4096];
        let resolved = self.begin(&waiting, None, slot).await;
        let length = resolved.write(&waiting.head, &mut buffer).octets;
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(reply.metadata.id, waiting.head.borrow().form.id);
        reply
    }

    /// Asks the group, with what the cache held.
    pub(super) async fn begin(
        &self,
        waiting: &Waiting,
        held: Option<Held>,
        slot: Slot,
    ) -> Resolved {
        let published = ArcSwap::from(Arc::clone(&self.published));
        let upstreams = Arc::clone(&self.published.upstreams);
        self.forwarder.resolve(&published, upstreams, waiting, held, slot).await
    }

    pub(super) fn slot(&self, group: usize) -> Option<Slot> {
        let client = IpAddr::from(Ipv4Addr::LOCALHOST);
        self.forwarder.slot(&self.published.upstreams, group, client)
    }

    /// Waits until no lookup is in progress.
    pub(super) async fn until_no_lookup(&self) {
        let is_over = async {
            while self.forwarder.lookups() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_over).await.expect("lookups end");
    }

    /// Asks as a serving thread does: the cache, then the group. Octets of the reply, and whether an upstream must be
    /// asked besides.
    pub(super) async fn ask_cached(&self, waiting: &Waiting) -> Message {
        let upstreams = &self.published.upstreams;
        let mut buffer = [0; 4096];
        let head = waiting.head.borrow();
        let forward = Forward { group: waiting.group, key: waiting.key.clone(), head };
        let (records, limit) = (&self.published.records, waiting.head.limit());
        let around = Surroundings { records, now_s: 0, seed: 0, limit };
        let length = match self.forwarder.from_cache(upstreams, &forward, &around, &mut buffer) {
            Cached::Reply { written, refresh, .. } => {
                if refresh && let Some(slot) = self.slot(waiting.group) {
                    self.forwarder.prefetch(upstreams, waiting.group, &waiting.key, &slot.into());
                    self.until_no_lookup().await;
                }
                written.octets
            }
            Cached::Ask(held) => {
                let Some(slot) = self.slot(waiting.group) else {
                    let held = held.expect("at a limit something is kept");
                    let reply = self.forwarder.without_asking(
                        upstreams,
                        &forward,
                        held,
                        &around,
                        &mut buffer,
                    );
                    let (written, _) = reply.expect("all of it is kept");
                    return Message::from_vec(&buffer[..written.octets]).unwrap();
                };
                let resolved = self.begin(waiting, held, slot).await;
                resolved.write(&waiting.head, &mut buffer).octets
            }
        };
        Message::from_vec(&buffer[..length]).unwrap()
    }

    /// Probes servers from now on, as a serving process does.
    pub(super) fn probe(&self) {
        let state = State {
            published: Arc::clone(&self.published).into(),
            counters: Vec::new(),
            identity: Identity::default(),
            taps: Arc::default(),
            inspections: Arc::default(),
        };
        self.forwarder.probe(Arc::new(state), &Handle::current());
    }

    /// What `/upstreams` shows.
    pub(super) fn view(&self) -> View {
        self.published.upstreams.view(std::time::Instant::now())
    }

    /// Waits until a server of the default group is in this state.
    pub(super) async fn until(&self, server: usize, state: &str) {
        let is_there = async {
            while self.view().groups[0].servers[server].state != state {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, is_there).await.is_err() {
            panic!("not {state}: {}", self.view().text());
        }
    }

    /// Queries sent and failed, server by server.
    pub(super) fn counters(&self) -> Vec<(u64, u64)> {
        let load = |s: &Arc<dataplane_core::ServerCounters>| {
            (s.sent.load(Ordering::Relaxed), s.failed.load(Ordering::Relaxed))
        };
        self.published.upstreams.servers().iter().map(load).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A lookup in progress keeps the place of the client that began it.
            let (in_flight, lookups) = (self.forwarder.in_flight(), self.forwarder.lookups());
            assert!(in_flight <= lookups, "every slot was given back: {in_flight}, {lookups}");
        }
    }
}

/// What this gives where the machine did not stand still meanwhile. A query that waits for half a second is sent again, and to
/// others (FW23), and tests that count queries would count these too.
pub(super) async fn undisturbed<T>(ask: impl AsyncFn() -> T) -> T {
    const SOON: Duration = Duration::from_millis(400);
    for _ in 0..TRIES {
        let began = Instant::now();
        let result = ask().await;
        if began.elapsed() < SOON {
            return result;
        }
    }
    panic!("{TRIES} times in a row this took longer than {SOON:?}");
}

/// One question, whose queries a test counts.
pub(super) async fn asked_once(
    scripts: &str,
    group: usize,
    name: &str,
    qtype: RecordType,
) -> (Stage, Message) {
    undisturbed(async || {
        let stage = Stage::new(scripts);
        let reply = stage.ask(group, name, qtype).await;
        (stage, reply)
    })
    .await
}

pub(super) fn server(address: SocketAddr) -> Server {
    let (ip, port) = (address.ip(), address.port());
    Server { ip, port, transport: config::Transport::Udp, tls: None }
}

pub(super) fn servers(config: &mut Config) -> &mut Vec<Server> {
    &mut default_group(config).servers
}

/// The options of the default group.
pub(super) fn options(config: &mut Config) -> &mut GroupOptions {
    &mut default_group(config).options
}

fn default_group(config: &mut Config) -> &mut Group {
    match &mut config.upstreams {
        config::Upstreams::Servers(group) => group,
        other => panic!("{other:?}"),
    }
}

pub(super) fn waiting(group: usize, name: &str, qtype: RecordType) -> Waiting {
    waiting_behind(group, name, qtype, Cnames::NONE)
}

/// The same for a name that has records of the resource (RR81).
pub(super) fn waiting_for_ours(group: usize, name: &str, qtype: RecordType) -> Waiting {
    waiting_with(group, name, qtype, Cnames::NONE, true)
}

pub(super) fn waiting_behind(
    group: usize,
    name: &str,
    qtype: RecordType,
    cnames: Cnames<'_>,
) -> Waiting {
    waiting_with(group, name, qtype, cnames, false)
}

fn waiting_with(
    group: usize,
    name: &str,
    qtype: RecordType,
    cnames: Cnames<'_>,
    is_ours: bool,
) -> Waiting {
    let name = Name::from_text(name).unwrap();
    let form = ReplyForm {
        id: 0xbeef,
        rd: true,
        cd: false,
        ad: false,
        do_: false,
        edns: true,
        qtype: qtype.into(),
        limit: 1232,
        udp_payload_size: 1232,
        ra: true,
        snapshot_age_s: None,
        is_ours,
    };
    let head = ReplyHead { form, question: name.wire(), nsid: None, cnames }.keep();
    Waiting { group, key: LookupKey::new(name, qtype.into(), false, false), head }
}

/// The data of the answer section, sorted: RRsets are rotated.
pub(super) fn answers(reply: &Message) -> Vec<String> {
    let mut data: Vec<String> = reply.answers.iter().map(|r| r.data.to_string()).collect();
    data.sort();
    data
}

/// All Extended DNS Errors, in order.
pub(super) fn codes(reply: &Message) -> Vec<u16> {
    let options = reply.edns.iter().flat_map(|edns| edns.options().as_ref());
    let code = |(_, option): &(EdnsCode, EdnsOption)| match option {
        EdnsOption::Unknown(15, octets) => Some(u16::from_be_bytes([octets[0], octets[1]])),
        _ => None,
    };
    options.filter_map(code).collect()
}

/// Rcode and Extended DNS Error.
pub(super) fn failure(reply: &Message) -> (ResponseCode, Option<u16>) {
    let options = reply.edns.as_ref().map(|edns| edns.options());
    let code = options.and_then(|options| match options.get(EdnsCode::Unknown(15)) {
        Some(EdnsOption::Unknown(_, octets)) => Some(u16::from_be_bytes([octets[0], octets[1]])),
        _ => None,
    });
    (reply.metadata.response_code, code)
}
