//! Many queries at once: one lookup per question, and no group at the cost of another.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crds::config;
use dataplane_core::{ReplyForm, Waiting};
use futures::future::join_all;
use hickory_proto::op::{Metadata, ResponseCode};
use hickory_proto::rr::RecordType;
use tests::upstream::UpstreamTransport;

use super::stage::{FIRST, Stage, answers, failure, servers, waiting};

/// What is a client's own in its query for www.example.org, and in its reply.
#[derive(Debug, PartialEq, Eq)]
struct Own {
    id: u16,
    written: String,
    rd: bool,
    ad: bool,
    edns: bool,
}

impl Own {
    fn of(number: u16) -> Own {
        let letters = "www.example.org.".chars().enumerate();
        // Its bits choose the letters that are capital.
        let letter = |(at, letter): (usize, char)| match number >> (at % 10) & 1 {
            0 => letter,
            _ => letter.to_ascii_uppercase(),
        };
        let is = |by: u16| number.is_multiple_of(by);
        let written = letters.map(letter).collect();
        Own { id: 0xbeef ^ number, written, rd: !is(2), ad: is(3), edns: is(5) }
    }

    fn query(&self) -> Waiting {
        let waiting = waiting(0, "www.example.org", RecordType::A);
        let mut head = waiting.head.borrow();
        let labels = self.written.trim_end_matches('.').split('.');
        let octets: Vec<u8> =
            labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
        let question = [&octets[..], &[0]].concat();
        let &Own { id, rd, ad, edns, .. } = self;
        head.form = ReplyForm { id, rd, ad, edns, ..head.form };
        head.question = &question;
        let head = head.keep();
        Waiting { head, ..waiting }
    }
}

#[tokio::test]
async fn f6_g133_a_thousand_queries_for_one_name_are_one_upstream_query() {
    let script = "server 10.0.0.2\nwww.example.org. A\n  delay 300ms\n  flags ad\n  \
                  answer @ 600 A 192.0.2.80";
    let stage = Stage::with(script, |config| config.limits.in_flight_per_client = 2000);
    let clients: Vec<Own> = (0..1000).map(Own::of).collect();
    let replies = join_all(clients.iter().map(|own| stage.resolve(own.query()))).await;
    for (own, reply) in clients.iter().zip(replies) {
        assert_eq!(answers(&reply), ["192.0.2.80"]);
        let Metadata { id, recursion_desired, authentic_data, .. } = reply.metadata;
        let got = Own {
            id,
            written: reply.queries[0].name().to_ascii(),
            rd: recursion_desired,
            ad: authentic_data,
            edns: reply.edns.is_some(),
        };
        assert_eq!(got, *own);
    }
    assert_eq!((stage.forwarder.joined(), stage.forwarder.resolved()), (999, 1));
    assert_eq!(stage.forwarder.lookups(), 0);
    // A busy machine takes the reply for late, and the one lookup asks again (FW23).
    let asked = stage.upstream(FIRST).asked().len();
    assert!((1..=8).contains(&asked), "{asked} upstream queries");
}

#[tokio::test]
async fn fw11_a_client_that_leaves_does_not_end_the_lookup_of_the_next() {
    let script = "server 10.0.0.2\nwww.example.org. A\n  delay 300ms\n  answer @ 600 A 192.0.2.80";
    let stage = Stage::new(script);
    let client = IpAddr::from([127, 0, 0, 1]);
    let leaving = waiting(0, "www.example.org", RecordType::A);
    let slot = stage.forwarder.slot(&stage.published.upstreams, 0, client).unwrap();
    let left = stage.begin(&leaving, None, slot);
    assert!(futures::poll!(Box::pin(left)).is_pending());
    assert_eq!(stage.forwarder.lookups(), 1, "its client is gone");
    assert_eq!(stage.forwarder.in_flight(), 1, "FW52: its place is not");
    assert_eq!(answers(&stage.ask(0, "www.example.org", RecordType::A).await), ["192.0.2.80"]);
    assert_eq!((stage.forwarder.joined(), stage.forwarder.resolved()), (1, 1));
}

#[tokio::test]
async fn l16_a_silent_stub_domain_takes_no_ports_of_the_default_group() {
    const PORTS: u32 = 256;
    const BELOW: usize = 600;
    const BESIDE: usize = 200;
    let script = "server 10.0.0.2\n* *\n  answer @ 60 A 192.0.2.9\n\
                  server 10.20.0.53\n* *\n  silent";
    let stage = Stage::with(script, |config| config.limits.upstream_ports = PORTS);
    let ask = async |group, name: String| stage.ask(group, &name, RecordType::A).await;
    let below = (0..BELOW).map(|n| ask(1, format!("n{n}.corp.example")));
    let mut silent = Box::pin(join_all(below));
    assert!(futures::poll!(silent.as_mut()).is_pending());
    let beside = (0..BESIDE).map(|n| ask(0, format!("n{n}.example.org")));
    let replies = join_all(beside).await;
    assert!(replies.iter().all(|reply| answers(reply) == ["192.0.2.9"]));
    assert!(stage.view().ports <= PORTS as usize, "{}", stage.view().text());
    let ended = silent.await;
    assert!(ended.iter().all(|reply| failure(reply).0 == ResponseCode::ServFail));
}

#[tokio::test]
async fn l16_a_server_that_stays_silent_is_given_ever_fewer_queries() {
    let stage = Stage::with("server 10.0.0.2\n* *\n  silent", |_| {});
    let names: Vec<String> = (0..40).map(|n| format!("n{n}.example.org")).collect();
    join_all(names.iter().map(|name| stage.ask(0, name, RecordType::A))).await;
    let server = &stage.view().groups[0].servers[0];
    assert!(server.window <= 128 && server.in_flight == 0, "{}", stage.view().text());
}

#[tokio::test]
async fn fw54_queries_share_a_connection_and_it_is_used_again() {
    let script = "server 10.0.0.2\n* *\n  delay 2ms\n  answer @ 60 A 192.0.2.9";
    let stage = Stage::with(script, |config| {
        servers(config)[0].transport = config::Transport::Tcp;
    });
    let ask = |n: usize| {
        let stage = &stage;
        async move { stage.ask(0, &format!("n{n}.example.org"), RecordType::A).await }
    };
    ask(0).await;
    let replies = join_all((1..20).map(ask)).await;
    assert!(replies.iter().all(|reply| answers(reply) == ["192.0.2.9"]));
    let asked = stage.upstream(FIRST).asked();
    let connections: BTreeSet<_> = asked.iter().map(|asked| asked.from).collect();
    // On a busy machine a query may be sent again.
    assert!(asked.len() >= 20 && connections.len() == 1, "{} on {connections:?}", asked.len());
    assert!(asked.iter().all(|asked| asked.transport == UpstreamTransport::Tcp));
}

/// As aardvark-dns did, the DNS server of Podman's networks, until July 2025.
#[tokio::test]
async fn fw54_a_server_that_answers_one_query_on_each_connection_answers_all_lookups() {
    let script =
        "server 10.0.0.2\n* *\n  udp truncated\n  delay 5ms\n  tcp once\n  answer @ 60 A 192.0.2.9";
    let stage = Stage::new(script);
    let names: Vec<String> = (0..8).map(|n| format!("n{n}.example.org")).collect();
    for _ in 0..2 {
        let asks = names.iter().map(|name| stage.ask(0, name, RecordType::A));
        let replies = join_all(asks).await;
        let good = replies.iter().filter(|reply| answers(reply) == ["192.0.2.9"]).count();
        // The second time from the cache, which has no failure.
        assert_eq!(good, names.len(), "{}", stage.view().text());
    }
}

#[tokio::test]
async fn f8_a_reply_that_comes_too_late_reaches_no_client() {
    let script = "server 10.0.0.2\nslow.example. A\n  delay 2000ms\n  answer @ 60 A 192.0.2.1\n\
                  server 10.0.0.3\nslow.example. A\n  answer @ 60 A 192.0.2.2";
    let stage = Stage::new(script);
    assert_eq!(answers(&stage.ask(0, "slow.example", RecordType::A).await), ["192.0.2.2"]);
    // The other server was asked after 0.5 s; by now the late reply has come.
    tokio::time::sleep(std::time::Duration::from_millis(1_900)).await;
    let discarded =
        dataplane_core::Discard::ALL.map(|reason| stage.published.upstreams.discarded(reason));
    assert_eq!(discarded, [0; 4]);
    assert_eq!(answers(&stage.ask(0, "slow.example", RecordType::A).await), ["192.0.2.2"]);
}
