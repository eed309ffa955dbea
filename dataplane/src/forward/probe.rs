//! Asks servers whether they are up (FW27, FW28) and whether they lead back to us (FW50), away from every lookup.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane_core::{ErrorCodes, LookupKey, Name, RelayError, TtlCaps};
use futures::FutureExt;
use tokio::time::{sleep, sleep_until, timeout};

use super::attempt::{self, AttemptResult, Question};
use super::connections::HOLD_OFF;
use super::lookup::REFUSES_EDNS;
use super::plan::Transport;
use super::server::{Heard, Server};
use super::upstreams::{Group, Upstreams};
use super::{now, random};
use crate::state::State;

/// A probe without a reply has failed (FW27).
const PATIENCE: Duration = Duration::from_secs(1);
/// Between looks: a new configuration is seen within this.
const LOOK: Duration = Duration::from_secs(1);
const TXT: u16 = 16;
const SERVFAIL: u16 = 2;
/// The Extended DNS Error of a ClusterDNS that has no server to ask, or no room (N16, N20).
const EDE_OTHER: u16 = 0;
/// Names below it are answered only by the replicas whose number they have (A43).
const LOOP_ZONE: &str = "clusterdns-loop";

/// Probes the servers of the published configuration, until it is dropped.
pub(super) async fn run(state: Arc<State>) {
    loop {
        let (upstreams, replicas) = {
            let published = state.published.load();
            (Arc::clone(&published.upstreams), published.records.replicas())
        };
        let next = probe_due(&upstreams, replicas, now());
        let woken = upstreams.registry.common.woken.notified();
        tokio::select! {
            () = woken => {}
            () = sleep_until(next.into()) => {}
        }
    }
}

/// Begins every probe that is due; returns when to look again. `replicas` is the number that our replicas share.
pub(super) fn probe_due(upstreams: &Upstreams, replicas: u64, now: Instant) -> Instant {
    let mut next = now + LOOK;
    for group in upstreams.groups() {
        let is_alone = group.is_down();
        for server in &group.servers {
            match server.probe_at(is_alone, now) {
                Some(at) if at <= now => probe(group, server, now),
                Some(at) => next = next.min(at),
                None => {}
            }
        }
    }
    for server in upstreams.known() {
        match server.loop_probe_at(replicas, now) {
            Some(at) if at <= now => loop_probe(server, replicas),
            Some(at) => next = next.min(at),
            None => {}
        }
        server.pool.sweep(now);
    }
    upstreams.registry.sweep_former(now);
    next
}

fn probe(group: &Arc<Group>, server: &Arc<Server>, now_at: Instant) {
    let edns = server.probe(now_at);
    let (group, server) = (Arc::clone(group), Arc::clone(server));
    tokio::spawn(async move {
        // After a panic too the server must be probed again, which waits for what came of this one.
        let asked = AssertUnwindSafe(ask(&group.probe, &server, edns)).catch_unwind();
        match asked.await.unwrap_or(Probed::Unsent) {
            Probed::Unsent => server.probe_unsent(now()),
            Probed::Silent => server.probed(edns, Heard::Nothing, now()),
            Probed::Error(..) => server.probed(edns, Heard::Error, now()),
            Probed::Reply { .. } => server.probed(edns, Heard::Good, now()),
        }
    });
}

fn loop_probe(server: &Arc<Server>, replicas: u64) {
    let edns = server.loop_probe(replicas, now());
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let label = format!("{:016x}{:016x}", random(), random());
        let leads_back = match Name::from_text(&format!("{label}.{replicas:016x}.{LOOP_ZONE}")) {
            Ok(name) => {
                let key = LookupKey::new(name, TXT, false, true);
                let asked = AssertUnwindSafe(leads_back(&key, &server, edns)).catch_unwind();
                asked.await.unwrap_or_default()
            }
            Err(_) => None,
        };
        server.loop_probed(leads_back, now());
    });
}

/// Whether the reply to a loop probe has data; `None` if it does not say: the server was not asked, or is silent, or is a
/// ClusterDNS that could not ask its own servers. Those may be left out because they lead back to it: if each of two thought
/// then that the loop is gone, both would begin it again at once. A server that refuses the OPT record is asked without it
/// (FW25): its refusal says nothing about loops.
async fn leads_back(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Option<bool> {
    let mut probed = ask(key, server, edns).await;
    if edns && matches!(probed, Probed::Error(rcode, _) if REFUSES_EDNS.contains(&rcode)) {
        probed = ask(key, server, false).await;
    }
    match probed {
        Probed::Unsent | Probed::Silent => None,
        Probed::Error(SERVFAIL, codes) if codes.as_slice().contains(&EDE_OTHER) => None,
        Probed::Error(..) => Some(false),
        Probed::Reply { has_data } => Some(has_data),
    }
}

/// What came of a probe.
#[derive(Clone, Copy, Debug)]
enum Probed {
    /// There was no port to ask from, or no place on a connection.
    Unsent,
    Silent,
    /// A response code that is an error, and the Extended DNS Errors beside it.
    Error(u16, ErrorCodes),
    Reply {
        has_data: bool,
    },
}

/// Asks the server. In the pause after a connection that failed (FW54) nothing is sent, which would say no more than that
/// failure did: the probe waits for the end of the pause.
async fn ask(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Probed {
    if let Some(probed) = ask_now(key, server, edns).await {
        return probed;
    }
    sleep(HOLD_OFF).await;
    // Another pause: another connection has failed meanwhile.
    ask_now(key, server, edns).await.unwrap_or(Probed::Silent)
}

/// `None` in that pause.
async fn ask_now(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Option<Probed> {
    let question = Question { key, caps: &TtlCaps::default(), randomise_case: false };
    let transport = server.transport();
    let asked = async {
        match attempt::ask(question, server, transport, edns).await {
            AttemptResult::Distrusted if transport == Transport::Udp => {
                attempt::ask(question, server, Transport::Connection, edns).await
            }
            outcome => outcome,
        }
    };
    Some(match timeout(PATIENCE, asked).await {
        Ok(AttemptResult::HeldOff) => return None,
        Ok(AttemptResult::NoPort | AttemptResult::NoPlace) => Probed::Unsent,
        Ok(AttemptResult::Good(relayed)) => Probed::Reply { has_data: !relayed.is_negative() },
        Ok(AttemptResult::Error(RelayError::Rcode(rcode), codes)) => Probed::Error(rcode, codes),
        // The Rcode is no error, which is what is asked (FW28).
        Ok(AttemptResult::Error(..)) => Probed::Reply { has_data: false },
        Ok(AttemptResult::Distrusted | AttemptResult::Unreachable) | Err(_) => Probed::Silent,
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crds::config::{self, Config, Group as GroupConfig, GroupOptions, Transport};
    use dataplane_core::{Identity, Index};
    use tokio::net::UdpSocket;

    use super::*;
    use crate::forward::connections::tests::fill;
    use crate::settings;
    use crate::state::Published;

    /// A server that leads back to us and answers FORMERR to an OPT record. Returns how many queries came with one, and
    /// how many without.
    async fn old_server() -> (SocketAddr, Arc<[AtomicUsize; 2]>) {
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, counts) = (far.local_addr().unwrap(), Arc::<[AtomicUsize; 2]>::default());
        let counted = Arc::clone(&counts);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
                let has_opt = buffer[11] == 1;
                counted[usize::from(!has_opt)].fetch_add(1, Ordering::Relaxed);
                // The OPT record has 11 octets.
                let mut reply = buffer[..octets - if has_opt { 11 } else { 0 }].to_vec();
                (reply[2], reply[11]) = (0x81, 0);
                if has_opt {
                    reply[3] = 0x81;
                } else {
                    (reply[3], reply[7]) = (0x80, 1);
                    reply.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0, 0, 2, 1, b'x']);
                }
                let _ = far.send_to(&reply, peer).await;
            }
        });
        (address, counts)
    }

    #[tokio::test]
    async fn fw50_a_server_that_refuses_edns_is_found_and_probed_without_from_then_on() {
        let (address, counts) = old_server().await;
        let upstreams = of_one(address, Transport::Udp);
        let server = &upstreams.known()[0];
        let probed = async || {
            loop_probe(server, 0);
            while server.loop_probe_at(0, now()).is_none() {
                tokio::task::yield_now().await;
            }
            counts.each_ref().map(|count| count.load(Ordering::Relaxed))
        };
        assert_eq!(probed().await, [1, 1], "with an OPT record, and once more without");
        assert!(server.seen(now()).looping_for.is_some());
        server.refused_edns(now());
        assert_eq!(probed().await, [1, 2], "it is known");
        assert!(server.seen(now()).looping_for.is_some());
    }

    #[tokio::test]
    async fn fw50_a_clusterdns_that_has_no_server_to_ask_ends_no_loop_and_begins_none() {
        for (ede, decides) in [(0, false), (22, true)] {
            let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
            let server = &upstreams.known()[0];
            server.loop_probed(Some(true), now());
            loop_probe(server, 7);
            let mut buffer = [0; 512];
            let (octets, peer) = far.recv_from(&mut buffer).await.unwrap();
            let named = b"\x100000000000000007\x0fclusterdns-loop\0";
            assert!(buffer.windows(named.len()).any(|part| part == named), "its replicas know it");
            // The length of the OPT record, which is the last one, and one Extended DNS Error.
            let mut reply = [&buffer[..octets - 2], &[0, 6, 0, 15, 0, 2, 0, ede]].concat();
            (reply[2], reply[3]) = (0x81, 0x82);
            far.send_to(&reply, peer).await.unwrap();
            while server.loop_probe_at(0, now()).is_none() {
                tokio::task::yield_now().await;
            }
            assert_eq!(server.seen(now()).looping_for.is_none(), decides, "EDE {ede}");
        }
    }

    /// The question of the next query that is no loop probe.
    async fn probed(far: &UdpSocket) -> Vec<u8> {
        let mut buffer = [0; 512];
        loop {
            let (octets, _) = far.recv_from(&mut buffer).await.unwrap();
            let question = &buffer[12..octets];
            if !question.windows(LOOP_ZONE.len()).any(|part| part == LOOP_ZONE.as_bytes()) {
                return question.to_vec();
            }
        }
    }

    #[tokio::test]
    async fn fw27_a_server_is_probed_for_the_root_and_one_of_a_stub_domain_for_its_soa() {
        let bind = async || UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (default, of_stub_domain) = (bind().await, bind().await);
        let group = |far: &UdpSocket| {
            let address = far.local_addr().unwrap();
            let (ip, port) = (address.ip(), address.port());
            let server = config::Server { ip, port, transport: Transport::Udp, tls: None };
            GroupConfig { servers: vec![server], options: GroupOptions::default() }
        };
        let stub =
            config::StubDomain { domain: "corp.example".into(), group: group(&of_stub_domain) };
        let config = Config {
            upstreams: config::Upstreams::Servers(group(&default)),
            stub_domains: vec![stub],
            ..Config::default()
        };
        let upstreams = Upstreams::of(&config, Path::new(""));
        for server in upstreams.known() {
            (0..3).for_each(|_| server.send(true).unwrap().settle(Heard::Nothing));
        }
        probe_due(&upstreams, 0, now());
        // Name, type, class.
        let questions: [(&UdpSocket, &[u8]); 2] = [
            (&default, b"\0\0\x02\0\x01"),
            (&of_stub_domain, b"\x04corp\x07example\0\0\x06\0\x01"),
        ];
        for (far, question) in questions {
            let asked = timeout(Duration::from_secs(30), probed(far)).await.expect("a probe");
            assert!(asked.starts_with(question), "{asked:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fw27_while_no_server_of_its_group_is_up_one_is_probed_every_second() {
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let upstreams = Arc::new(of_one(far.local_addr().unwrap(), Transport::Udp));
        for _ in 0..3 {
            upstreams.known()[0].send(true).unwrap().settle(Heard::Nothing);
        }
        let records = Index::new(settings::of(&Config::default()).unwrap()).records();
        let state = State {
            published: Arc::new(Published { records, upstreams }).into(),
            counters: Vec::new(),
            identity: Identity::default(),
            taps: Arc::default(),
            inspections: Arc::default(),
        };
        tokio::spawn(run(Arc::new(state)));
        probed(&far).await;
        let began = now();
        for seconds in 1..=5 {
            probed(&far).await;
            let after = now() - began;
            // A timer may be some milliseconds late.
            assert_eq!(after.as_millis() / 100, seconds * 10, "{after:?}");
        }
    }

    #[tokio::test]
    async fn fw27_without_a_port_to_probe_from_no_server_is_declared_down() {
        let server = config::Server {
            ip: [127, 0, 0, 1].into(),
            port: 53,
            transport: Transport::Udp,
            tls: None,
        };
        let group = GroupConfig { servers: vec![server], options: GroupOptions::default() };
        let mut config =
            Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
        config.limits.upstream_ports = 0;
        let upstreams = Upstreams::of(&config, Path::new(""));
        let server = &upstreams.known()[0];
        let now = now();
        for _ in 0..3 {
            server.send(true).unwrap().settle(Heard::Nothing);
        }
        probe_due(&upstreams, 0, now);
        while server.probe_at(false, now).is_none() && server.is_up() {
            tokio::task::yield_now().await;
        }
        assert!(server.is_up());
        assert!(server.probe_at(false, now).is_some_and(|at| at > now), "it is tried again");
    }

    /// A group of one server.
    fn of_one(address: SocketAddr, transport: Transport) -> Upstreams {
        let (ip, port) = (address.ip(), address.port());
        let server = config::Server { ip, port, transport, tls: None };
        let group = GroupConfig { servers: vec![server], options: GroupOptions::default() };
        let config = Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
        Upstreams::of(&config, Path::new(""))
    }

    /// A group of one server over TCP whose next probe is due.
    fn suspected(address: SocketAddr) -> Upstreams {
        let upstreams = of_one(address, Transport::Tcp);
        for _ in 0..3 {
            upstreams.known()[0].send(true).unwrap().settle(Heard::Nothing);
        }
        upstreams
    }

    #[tokio::test]
    async fn fw27_a_probe_for_which_every_connection_is_full_condemns_no_server() {
        let upstreams = suspected(([127, 0, 0, 1], 9).into());
        let server = &upstreams.known()[0];
        let _kept = fill(&server.connections);
        let now = now();
        probe_due(&upstreams, 0, now);
        while server.probe_at(false, now).is_none() && server.is_up() {
            tokio::task::yield_now().await;
        }
        assert!(server.is_up());
        assert!(server.probe_at(false, now).is_some_and(|at| at > now), "it is tried again");
    }

    #[tokio::test]
    async fn fw27_a_probe_in_the_pause_after_a_failed_connection_waits_for_its_end() {
        // Nothing listens there yet.
        let listener = tokio::net::TcpSocket::new_v4().unwrap();
        listener.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let upstreams = suspected(listener.local_addr().unwrap());
        let server = &upstreams.known()[0];
        let key = LookupKey::new(Name::ROOT, 2, false, false);
        assert!(matches!(ask(&key, server, true).await, Probed::Silent));
        let listener = listener.listen(8).unwrap();
        probe_due(&upstreams, 0, now());
        let accepted = timeout(2 * PATIENCE, listener.accept()).await;
        assert!(accepted.is_ok(), "the server is asked");
        assert!(server.is_up());
    }
}
