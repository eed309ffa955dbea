//! Probes of servers on loopback that answer, or do not.

mod edns;
mod looping;
mod restarted;
mod silent_udp;

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
pub(super) async fn old_server() -> (SocketAddr, Arc<[AtomicUsize; 2]>) {
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
                let label = &buffer[13..][..usize::from(buffer[12])];
                let backwards: Vec<u8> = label.iter().rev().copied().collect();
                reply[3] = 0x80;
                looping::add_text(&mut reply, &backwards);
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
    let mut labels = std::collections::HashSet::new();
    for (ede, decides) in [(0, false), (22, true)] {
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
        let server = &upstreams.known()[0];
        server.loop_probed(Found::Loop, now());
        loop_probe(server, 7);
        let mut buffer = [0; 512];
        let (octets, peer) = far.recv_from(&mut buffer).await.unwrap();
        assert_eq!(buffer[3] & 0x10, 0x10, "CD");
        assert!(labels.insert(buffer[13..45].to_vec()), "32 digits that no one can guess");
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
    let upstreams = with_stub_domains(&default, &["corp.example"], &of_stub_domain);
    for server in upstreams.known() {
        (0..3).for_each(|_| server.send(true).unwrap().settle(Heard::Nothing));
    }
    probe_due(&upstreams, 0, now());
    // Name, type, class.
    let questions: [(&UdpSocket, &[u8]); 2] =
        [(&default, b"\0\0\x02\0\x01"), (&of_stub_domain, b"\x04corp\x07example\0\0\x06\0\x01")];
    for (far, question) in questions {
        let asked = timeout(Duration::from_secs(30), probed(far)).await.expect("a probe");
        assert!(asked.starts_with(question), "{asked:?}");
    }
}

/// The default group at one server, and these stub domains at another, or the same.
pub(super) fn with_stub_domains(
    default: &UdpSocket,
    domains: &[&str],
    of_them: &UdpSocket,
) -> Upstreams {
    let group = |far: &UdpSocket| {
        let address = far.local_addr().unwrap();
        let (ip, port) = (address.ip(), address.port());
        let server = config::Server { ip, port, transport: Transport::Udp, tls: None };
        GroupConfig { servers: vec![server], options: GroupOptions::default() }
    };
    let stub =
        |domain: &&str| config::StubDomain { domain: (*domain).to_owned(), group: group(of_them) };
    let config = Config {
        upstreams: config::Upstreams::Servers(group(default)),
        stub_domains: domains.iter().map(stub).collect(),
        ..Config::default()
    };
    Upstreams::of(&config, Path::new(""))
}

/// Answers what is asked about names below this one, and is silent about all others.
async fn answers_only(far: Arc<UdpSocket>, below: &'static [u8]) {
    let mut buffer = [0; 512];
    while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
        if buffer[12..octets].windows(below.len()).any(|part| part == below) {
            (buffer[2], buffer[3]) = (0x81, 0x80);
            let _ = far.send_to(&buffer[..octets], peer).await;
        }
    }
}

/// Lets the server be silent to clients, and probes it. Returns whether it is up when the probe has ended.
async fn is_up_after_a_probe(upstreams: &Upstreams, server: &Arc<Server>) -> bool {
    let silent = || (0..3).for_each(|_| server.send(true).unwrap().settle(Heard::Nothing));
    silent();
    let at = now();
    probe_due(upstreams, 0, at);
    // While a probe is on its way no other is due.
    while server.probe_at(false, at).is_none() {
        tokio::task::yield_now().await;
        silent();
    }
    server.is_up()
}

#[tokio::test]
async fn fw27_a_dead_stub_domain_condemns_no_server_that_answers_for_another_group() {
    let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    tokio::spawn(answers_only(Arc::clone(&far), b"\x06second"));
    let upstreams = with_stub_domains(&other, &["first.example", "second.example"], &far);
    let [default, server] = upstreams.known() else { panic!("two servers") };
    assert!(is_up_after_a_probe(&upstreams, server).await, "it answers for one of them");
    assert_eq!(server.failed_probes(), 0);
    assert!(!is_up_after_a_probe(&upstreams, default).await, "it answers nothing");
    let upstreams = with_stub_domains(&far, &["second.example"], &far);
    let server = &upstreams.known()[0];
    assert!(is_up_after_a_probe(&upstreams, server).await, "silence about the root");
}

#[tokio::test]
async fn fw27_of_many_groups_a_probe_asks_for_four_and_after_silence_for_others() {
    const DOMAINS: [&str; 5] = ["a.example", "b.example", "c.example", "d.example", "e.example"];
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = with_stub_domains(&far, &DOMAINS, &far);
    let server = &upstreams.known()[0];
    let asks = || -> Vec<LookupKey> { questions(&upstreams, server) };
    let of_group = |place: usize| upstreams.group(place).unwrap().probe.clone();
    assert_eq!(asks(), [0, 1, 2, 3].map(of_group));
    server.probe(now());
    server.probed(true, Heard::Nothing, OptHeard::Answered, now());
    assert_eq!(asks(), [4, 5, 0, 1].map(of_group));
    server.probe(now());
    server.probed(true, Heard::Good, OptHeard::Answered, now());
    assert_eq!(asks(), [4, 5, 0, 1].map(of_group), "these were answered");
    server.failing_probed(true, Heard::Nothing, server.transport(), now());
    assert_eq!(asks(), [4, 5, 0, 1].map(of_group), "this one asked for one group only");
}

#[test]
fn fw27_a_probe_of_which_a_part_could_not_be_sent_condemns_no_server() {
    for (one, other, says) in [
        (Probed::Silent, Probed::Unsent, Probed::Unsent),
        (
            Probed::Unsent,
            Probed::Error(5, ErrorCodes::default()),
            Probed::Error(5, ErrorCodes::default()),
        ),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            assert_eq!(one.or_more(other).says(), says.says(), "{one:?} {other:?}");
        }
    }
}

#[tokio::test]
async fn fw25_a_probe_that_an_old_server_refuses_does_not_make_it_understand_edns() {
    let (address, _) = old_server().await;
    let upstreams = of_one(address, Transport::Udp);
    let server = &upstreams.known()[0];
    server.refused_edns(now());
    (0..3).for_each(|_| server.send(false).unwrap().settle(Heard::Nothing));
    assert!(!server.probe(now()), "what it understands");
    server.probed(false, Heard::Nothing, OptHeard::Answered, now());
    assert!(!server.is_up());
    // The next probe has the other form.
    probe(questions(&upstreams, server), server, now());
    while !server.is_up() {
        tokio::task::yield_now().await;
    }
    assert!(!server.seen(now()).edns, "it has answered FORMERR");
    assert!(!server.probe(now()), "nor has the next probe an OPT record");
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
    tokio::spawn(run(Arc::new(state), |_, _| ()));
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
    let mut config = Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
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
pub(super) fn of_one(address: SocketAddr, transport: Transport) -> Upstreams {
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
    assert!(matches!(ask(&key, server, server.transport(), true).await, Probed::Silent));
    let listener = listener.listen(8).unwrap();
    probe_due(&upstreams, 0, now());
    let accepted = timeout(2 * PATIENCE, listener.accept()).await;
    assert!(accepted.is_ok(), "the server is asked");
    assert!(server.is_up());
}
