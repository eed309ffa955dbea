//! Servers that lead back to us (FW50, FW51) are not asked, are reported and still probed. Until a probe finds them they
//! do no harm.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crds::config::{self, Config, Group, GroupOptions};
use dataplane::forward::{Forwarder, Upstreams};
use dataplane::identity;
use dataplane::serve::{self, Limits, Listen, Serving};
use dataplane::state::{Published, State};
use dataplane_core::Index;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use tests::upstream::{Script, ScriptedUpstream};
use tokio::net::UdpSocket;
use tokio::runtime::Handle;

use super::stage::{Stage, answers, failure, server, servers};

/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn g137_a_server_that_leads_back_is_left_out_and_reported() {
    let replica = Instance::start(0);
    let script =
        "server 10.0.0.3\n* *\n  rcode NXDOMAIN\nwww.example.org. A\n  answer @ 60 A 192.0.2.80";
    let stage = Stage::with(script, |config| {
        servers(config).insert(0, server(replica.address()));
    });
    stage.probe();
    stage.until(0, "looping").await;
    assert_eq!(answers(&stage.ask(0, "www.example.org", RecordType::A).await), ["192.0.2.80"]);
    assert_eq!(stage.counters()[0], (0, 0), "no query of a client");
    let notes = stage.published.upstreams.notes(std::time::Instant::now());
    assert!(notes[0].contains("forwards to ClusterDNS itself") && notes[0].contains("write other"));
    assert!(stage.view().text().contains("looping"));
}

#[tokio::test(flavor = "multi_thread")]
async fn n16_when_every_server_leads_back_it_is_servfail_at_once() {
    let replica = Instance::start(0);
    let stage = Stage::with("", |config| servers(config).push(server(replica.address())));
    stage.probe();
    stage.until(0, "looping").await;
    let reply = stage.ask(0, "www.example.org", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(0)));
}

/// A data plane on loopback, whose upstreams are set once all have addresses.
struct Instance {
    serving: Serving,
    state: Arc<State>,
    forwarder: Arc<Forwarder>,
}

impl Instance {
    /// One of the replicas that share this number.
    fn start(replicas: u64) -> Instance {
        let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let config = Config { upstreams: config::Upstreams::None, ..Config::default() };
        let state = State {
            published: Arc::new(published(&config, replicas, None)).into(),
            counters: serve::worker_counters(1, 1),
            identity: identity::of_this_process(None),
            taps: Arc::default(),
            inspections: Arc::default(),
        };
        let (state, forwarder) = (Arc::new(state), Forwarder::new());
        let limits = Limits::default();
        let handle = Handle::current();
        let serving = Serving::start(
            &Listen::at([listen]),
            1,
            state.clone(),
            forwarder.clone(),
            limits,
            handle,
        )
        .unwrap();
        Instance { serving, state, forwarder }
    }

    fn address(&self) -> SocketAddr {
        self.serving.local_addrs()[0]
    }

    fn forwards_to(&self, upstream: SocketAddr) {
        let servers = vec![server(upstream)];
        let group = Group { servers, options: GroupOptions::default() };
        let upstreams = config::Upstreams::Servers(group);
        let config = Config { upstreams, ..Config::default() };
        let before = self.state.published.load_full();
        let next = published(&config, before.records.replicas(), Some(&before.upstreams));
        self.state.published.store(Arc::new(next));
    }

    /// Forwards one stub domain, and keeps expired answers for a minute.
    fn forwards_stub_domain_to(&self, upstream: SocketAddr) {
        let group = Group { servers: vec![server(upstream)], options: GroupOptions::default() };
        let stub = config::StubDomain { domain: "corp.example".into(), group };
        let mut config = Config { upstreams: config::Upstreams::None, ..Config::default() };
        (config.stub_domains, config.cache.stale_seconds) = (vec![stub], 60);
        let before = self.state.published.load_full();
        let next = published(&config, before.records.replicas(), Some(&before.upstreams));
        self.state.published.store(Arc::new(next));
    }

    fn server_state(&self) -> &'static str {
        let upstreams = self.state.published.load_full().upstreams.clone();
        upstreams.view(std::time::Instant::now()).groups[0].servers[0].state
    }

    /// Queries that it sent to its upstream.
    fn sent(&self) -> u64 {
        let upstreams = self.state.published.load_full().upstreams.clone();
        upstreams.view(std::time::Instant::now()).groups[0].servers[0].sent
    }
}

fn published(config: &Config, replicas: u64, before: Option<&Upstreams>) -> Published {
    let mut index = Index::new(dataplane::settings::of(config).unwrap());
    index.set_replicas(replicas);
    index.publish(1);
    let records = index.records();
    let nowhere = Path::new("/nonexistent");
    let upstreams = match before {
        Some(before) => before.next(config, nowhere),
        None => Upstreams::of(config, nowhere),
    };
    Published { records, upstreams: Arc::new(upstreams) }
}

async fn ask(server: SocketAddr, name: &str) -> hickory_proto::op::Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut query = hickory_proto::op::Message::query();
    let name = hickory_proto::rr::Name::from_ascii(name).unwrap();
    query.add_query(hickory_proto::op::Query::query(name, RecordType::A));
    query.metadata.recursion_desired = true;
    socket.send_to(&query.to_vec().unwrap(), server).await.unwrap();
    let mut reply = [0; 4096];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut reply)).await.unwrap().unwrap();
    hickory_proto::op::Message::from_vec(&reply[..length]).unwrap()
}

/// What `server_state` is once the first loop probe has shown it.
async fn found(instance: &Instance, state: &str) {
    let shown = async {
        while instance.server_state() != state {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.expect(state);
}

#[tokio::test(flavor = "multi_thread")]
async fn f13_fw51_two_clusters_that_forward_to_each_other_end_it_and_report_it() {
    let (one, other) = (Instance::start(1), Instance::start(2));
    // The probe of `one` is refused: `other` does not forward yet.
    one.forwards_to(other.address());
    other.forwards_to(one.address());
    // FW51: lookups that began before the probe ended with their budget.
    let reply = ask(one.address(), "www.example.org.").await;
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    // Where one of them breaks the loop, there is none for the other one.
    let end = async {
        while ![one.server_state(), other.server_state()].contains(&"looping")
            || one.forwarder.lookups() + other.forwarder.lookups() > 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, end).await.expect("it is known, and nothing runs");
    assert!(one.sent() + other.sent() <= 16, "{} and {}", one.sent(), other.sent());
    let before = one.sent() + other.sent();
    let reply = ask(one.address(), "again.example.org.").await;
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert!(one.sent() + other.sent() <= before + 1, "nothing comes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw51_a_loop_through_stub_domains_keeps_an_expired_answer_in_use() {
    let (one, other) = (Instance::start(1), Instance::start(2));
    let script = Script::one("* *\n  answer @ 60 A 192.0.2.1").unwrap();
    let real = ScriptedUpstream::start(script).unwrap();
    other.forwards_stub_domain_to(real.address());
    one.forwards_stub_domain_to(other.address());
    let name = "wiki.corp.example.";
    assert_eq!(answers(&ask(one.address(), name).await), ["192.0.2.1"]);
    other.forwards_stub_domain_to(one.address());
    // The TTL of the server, then twice that of a stale reply: longer than both the TTL and the minute.
    for seconds in [61, 31, 31] {
        for instance in [&one, &other] {
            instance.forwarder.clock().advance(Duration::from_secs(seconds));
        }
        assert_eq!(answers(&ask(one.address(), name).await), ["192.0.2.1"], "{seconds}");
        // What comes back is kept as any other reply.
        while one.forwarder.lookups() + other.forwarder.lookups() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert_eq!(real.asked().len(), 1, "it is asked no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw50_another_replica_of_ours_is_a_loop() {
    let (one, replica) = (Instance::start(1), Instance::start(1));
    one.forwards_to(replica.address());
    found(&one, "looping").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fw50_the_clusterdns_of_an_outer_cluster_is_no_loop() {
    let beyond = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (inner, outer) = (Instance::start(1), Instance::start(2));
    outer.forwards_to(beyond.local_addr().unwrap());
    inner.forwards_to(outer.address());
    let (seen, mut probes) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((octets, from)) = beyond.recv_from(&mut buffer).await {
            let query = hickory_proto::op::Message::from_vec(&buffer[..octets]).unwrap();
            let name = query.queries[0].name().to_string();
            if name.ends_with(".0000000000000001.clusterdns-loop.") {
                let _ = seen.send(name);
            }
            let mut reply = query.into_response();
            reply.metadata.response_code = ResponseCode::NXDomain;
            let _ = beyond.send_to(&reply.to_vec().unwrap(), from).await;
        }
    });
    let probe = tokio::time::timeout(PATIENCE, probes.recv()).await;
    assert!(probe.is_ok(), "the outer cluster forwards a probe that is not its own");
    let reply = ask(inner.address(), "www.example.org.").await;
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain, "it is asked on");
    assert_eq!(inner.server_state(), "healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn f12_an_instance_that_forwards_to_itself_asks_no_server_and_stays_alive() {
    let one = Instance::start(1);
    one.forwards_to(one.address());
    let reply = ask(one.address(), "www.example.org.").await;
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!((one.sent(), one.forwarder.lookups()), (0, 0));
    assert_eq!(one.server_state(), "looping");
    let localhost = ask(one.address(), "localhost.").await;
    assert_eq!(localhost.metadata.response_code, ResponseCode::NoError);
}

/// Loop probes leave out the servers of stub domains, which need not know other names.
#[tokio::test(flavor = "multi_thread")]
async fn a34_a_stub_domain_with_our_own_address_is_reported_before_it_is_asked() {
    let one = Instance::start(1);
    one.forwards_stub_domain_to(one.address());
    found(&one, "looping").await;
    let upstreams = one.state.published.load_full().upstreams.clone();
    let now = std::time::Instant::now();
    let looping = upstreams.looping(now, 9);
    assert_eq!((looping.len(), looping[0].group.as_str()), (1, "corp.example"));
    assert!(upstreams.notes(now)[0].contains("forwards to ClusterDNS itself"));
    one.forwards_stub_domain_to("127.0.0.1:9".parse().unwrap());
    assert_eq!(one.server_state(), "healthy");
}
