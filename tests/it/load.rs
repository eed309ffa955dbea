//! The load generator against our own program on loopback: every answer of every trace is right. No time
//! is measured here.

use std::io::ErrorKind;
use std::time::Duration;

use tests::load::fixture::{Fixture, Shape};
use tests::load::generator::{Carrier, Generator};
use tests::load::schedule::Pace;
use tests::load::servers::{Peer, Server};
use tests::load::stream::Streams;
use tests::load::trace::Trace;
use tests::load::udp::Udp;
use tests::load::upstream::Upstream;
use tests::scale::Cluster;

const SEED: u64 = 1;
const QUESTIONS: usize = 300;
/// Few at once: none may be lost, however busy the machine is.
const PACE: Pace = Pace::Window(4);
const LASTING: Duration = Duration::from_millis(300);

fn start(cluster: &Cluster, upstream: &Upstream) -> (Server, Fixture) {
    let address = upstream.address().expect("an address");
    let fixture = Fixture::write(cluster, address).expect("files");
    let hit = Trace::hit(cluster, 1, SEED);
    let program = Peer::Ours.program("none".as_ref()).expect("our own program");
    let server = Peer::Ours.start(&program, &fixture, address, hit.get(0)).expect("it starts");
    (server, fixture)
}

/// Asks until something was answered, however long that takes on a busy machine; nothing may be answered wrongly.
fn is_right<C: Carrier>(generator: &mut Generator<C>, trace: &Trace) {
    loop {
        let outcome = generator.run(trace, PACE, LASTING).expect("sockets");
        // SERVFAIL is right if this process, which also runs the upstream, got no processor time.
        let servfail = outcome.rcodes[2];
        assert_eq!(outcome.wrong, servfail, "{}: {:?}", trace.name, outcome.example);
        if outcome.answered > servfail {
            return;
        }
    }
}

#[test]
fn answers_over_tls_and_of_two_workers_are_right() {
    let (cluster, upstream) = (Cluster::of_manifests(100, "ns"), Upstream::open().expect("a port"));
    let address = upstream.address().expect("an address");
    let shape = Shape { workers: 2, has_tls: true, ..Shape::default() };
    let fixture = Fixture::write_for(&cluster, address, shape).expect("files");
    let hit = Trace::hit(&cluster, QUESTIONS, SEED);
    let program = Peer::Ours.program("none".as_ref()).expect("our own program");
    let server = Peer::Ours.start(&program, &fixture, address, hit.get(0)).expect("it starts");
    is_right(&mut Generator::new(Udp::open(server.dns, 8).expect("sockets")), &hit);
    let (to, trust) = (server.tls.expect("an address"), fixture.trust().expect("a certificate"));
    let tls = loop {
        // The listener opens beside the first answers over UDP.
        match Streams::open(to, 2, Some(trust.clone())) {
            Ok(tls) => break tls,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::thread::sleep(LASTING);
            }
            Err(error) => panic!("{error}"),
        }
    };
    is_right(&mut Generator::new(tls), &hit);
}

#[test]
fn every_stamped_reply_has_a_time_of_its_own() {
    let (cluster, upstream) = (Cluster::of_manifests(100, "ns"), Upstream::open().expect("a port"));
    let (server, _files) = start(&cluster, &upstream);
    let hit = Trace::hit(&cluster, QUESTIONS, SEED);
    for is_stamped in [true, false] {
        let udp = Udp::open(server.dns, 8).expect("sockets");
        let udp = if is_stamped { udp.stamped().expect("the option") } else { udp };
        let outcome = Generator::new(udp).run(&hit, PACE, LASTING).expect("sockets");
        assert!(outcome.answered > 0);
        let stamped = if is_stamped { outcome.answered } else { 0 };
        assert_eq!(outcome.between.len(), stamped);
        // The kernel has a reply before it is read, and the question was sent after it was due.
        let (between, read) = (outcome.between_us(1.0), outcome.latency_us(1.0));
        assert!(between.is_none_or(|us| 0.0 < us && us <= 1.02 * read), "{between:?}, {read}");
    }
}

#[test]
fn every_answer_to_every_trace_is_right_over_udp_and_tcp() {
    let (cluster, upstream) = (Cluster::of_manifests(200, "ns"), Upstream::open().expect("a port"));
    let (server, _files) = start(&cluster, &upstream);
    let udp = Udp::open(server.dns, 8).expect("sockets").with_upstream(upstream).expect("epoll");
    let mut udp = Generator::new(udp);
    let tcp = Streams::open(server.dns, 2, None).expect("connections");
    let mut tcp = Generator::new(tcp);
    for trace in [
        Trace::hit(&cluster, QUESTIONS, SEED),
        Trace::headless(&cluster, QUESTIONS, SEED),
        Trace::mix(&cluster, QUESTIONS, SEED),
        Trace::flood(&cluster, QUESTIONS, SEED),
    ] {
        is_right(&mut udp, &trace);
        is_right(&mut tcp, &trace);
    }
    for trace in [Trace::external(20, QUESTIONS, SEED), Trace::misses(50_000, SEED)] {
        is_right(&mut udp, &trace);
        assert!(udp.carrier().upstream_asked() > 0, "{}: nothing was forwarded", trace.name);
    }
}
