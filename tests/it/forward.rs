//! The forwarder against scripted upstreams on loopback: rows F, and the golden examples that need no cache.
//! Lookups without an answer take their whole budget of 4 s.

mod stage;
mod many;
mod first_good_reply;
mod unusable_replies;
mod order;
mod health;
mod silent_udp;
mod chains;
mod cached;
mod loops;
mod encrypted;
mod program;
mod resolvers;
mod drawn;
mod guesses;
mod network;
mod service_address;

use std::sync::Arc;

use crds::config;
use dataplane::forward::Limit;
use dataplane_core::{Cnames, Discard, Name};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use stage::{
    FIRST, GOLDEN, SECOND, Stage, answers, asked_once, codes, failure, server, servers,
    undisturbed, waiting, waiting_behind,
};
use tests::upstream::UpstreamTransport;

#[tokio::test]
async fn g94_stub_domains_are_asked_at_their_own_servers() {
    let (stage, wiki, host, www) = undisturbed(async || {
        let stage = Stage::new(GOLDEN);
        let wiki = stage.ask(1, "wiki.corp.example", RecordType::A).await;
        let host = stage.ask(2, "host.lab.corp.example", RecordType::A).await;
        let www = stage.ask(0, "www.example.org", RecordType::A).await;
        (stage, wiki, host, www)
    })
    .await;
    assert_eq!(
        (answers(&wiki), answers(&host)),
        (vec!["10.20.0.90".into()], vec!["10.30.0.7".into()])
    );
    assert_eq!(answers(&www), ["192.0.2.80", "192.0.2.81"]);
    assert_eq!(www.answers[0].ttl, 600);
    assert_eq!(stage.upstream(FIRST).asked().len(), 1);
    assert_eq!(stage.upstream(SECOND).asked().len(), 0);
    assert_eq!(stage.upstream([10, 20, 0, 53]).asked().len(), 1);
    assert_eq!(stage.upstream([10, 30, 0, 53]).asked().len(), 1);
}

#[tokio::test]
async fn g95_an_nxdomain_of_a_stub_domain_is_final() {
    let stage = Stage::new(GOLDEN);
    let reply = stage.ask(1, "nothere.corp.example", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::NXDomain, None));
    assert_eq!((reply.authorities.len(), reply.authorities[0].ttl), (1, 30));
    assert_eq!(stage.upstream(FIRST).asked().len(), 0);
}

#[tokio::test]
async fn g96_a_silent_stub_domain_is_servfail_and_its_names_go_nowhere_else() {
    let stage = Stage::new(GOLDEN);
    let reply = stage.ask(1, "slow.corp.example", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(22)));
    assert_eq!(stage.upstream(FIRST).asked().len(), 0);
    // Three datagrams, then one query over TCP (FW23).
    let upstream = stage.upstream([10, 20, 0, 53]);
    assert_eq!(upstream.times_asked_over("slow.corp.example.", UpstreamTransport::Udp), 3);
    assert_eq!(upstream.times_asked_over("slow.corp.example.", UpstreamTransport::Tcp), 1);
}

#[tokio::test]
async fn g64_a_silent_target_keeps_our_cname() {
    let stage = Stage::new(GOLDEN);
    let target = Arc::new(Name::from_text("dead.example.net").unwrap());
    let mut cnames = Cnames::NONE;
    assert!(cnames.push(&target, 5));
    let reply = stage.resolve(waiting_behind(0, "dead.example.net", RecordType::A, cnames)).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(22)));
    assert_eq!(answers(&reply), ["dead.example.net."]);
    assert!(!reply.metadata.authoritative && reply.authorities.is_empty());
    // G129: both servers in turn over UDP, then each once over TCP.
    for server in [FIRST, SECOND] {
        let upstream = stage.upstream(server);
        assert_eq!(upstream.times_asked_over("dead.example.net.", UpstreamTransport::Udp), 3);
        assert_eq!(upstream.times_asked_over("dead.example.net.", UpstreamTransport::Tcp), 1);
    }
    // The client does not wait for a lookup that a busy machine ends late.
    stage.until_no_lookup().await;
    assert_eq!(stage.counters()[..2], [(4, 4), (4, 4)]);
}

#[tokio::test]
async fn g126_a_truncated_reply_is_asked_again_over_tcp_and_never_relayed() {
    let (stage, reply) = asked_once(GOLDEN, 0, "huge.example.org", RecordType::TXT).await;
    // 3,000 octets do not fit in the client's 1,232: TC, and no half of a record.
    assert!(reply.metadata.truncation && reply.answers.is_empty());
    let upstream = stage.upstream(FIRST);
    assert_eq!(upstream.times_asked_over("huge.example.org.", UpstreamTransport::Udp), 1);
    assert_eq!(upstream.times_asked_over("huge.example.org.", UpstreamTransport::Tcp), 1);
    assert_eq!(stage.forwarder.resolved(), 1);
}

#[tokio::test]
async fn fw24_the_first_datagram_of_a_lookup_waits_for_nothing() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let stage = Stage::with("server 10.0.0.2\n* *\n  silent", |config| {
        servers(config)[0] = self::server(address);
    });
    let mut asking = std::pin::pin!(stage.ask(0, "www.example.org", RecordType::A));
    // One poll of the client's part and one of the lookup: no time passes in between.
    assert!(futures::poll!(asking.as_mut()).is_pending());
    tokio::task::yield_now().await;
    server.set_nonblocking(true).unwrap();
    assert!(server.recv(&mut [0; 512]).unwrap() > 12);
}

#[tokio::test]
async fn g127_after_an_error_the_next_server_is_asked() {
    let (stage, reply) = asked_once(GOLDEN, 0, "mixed.example.net", RecordType::A).await;
    assert_eq!(answers(&reply), ["192.0.2.84"]);
    assert_eq!(stage.upstream(FIRST).times_asked("mixed.example.net."), 1);
    assert_eq!(stage.upstream(SECOND).times_asked("mixed.example.net."), 1);
    assert_eq!(stage.counters()[..2], [(1, 1), (1, 0)]);
}

#[tokio::test]
async fn n18_the_codes_of_the_last_upstream_follow_ours() {
    let stage = Stage::new(
        "server 10.0.0.2\n* *\n  rcode SERVFAIL\n  ede 9 6\n\
         server 10.0.0.3\n* *\n  rcode SERVFAIL\n  ede 22 23 6 7 8\n",
    );
    let reply = stage.ask(0, "bogus.example", RecordType::A).await;
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    // Our own code is not repeated; texts of upstreams are not relayed.
    assert_eq!(codes(&reply), [23, 22, 6]);
}

#[tokio::test]
async fn g128_only_errors_are_servfail_and_each_server_is_asked_once() {
    let (stage, reply) = asked_once(GOLDEN, 0, "bad.example.net", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(23)));
    assert_eq!(stage.upstream(FIRST).times_asked("bad.example.net."), 1);
    assert_eq!(stage.upstream(SECOND).times_asked("bad.example.net."), 1);
    assert_eq!(stage.forwarder.unresolved().find(|(why, _)| *why == "errors").unwrap().1, 1);
}

#[tokio::test]
async fn g130_f1_f2_wrong_replies_are_counted_and_waited_past() {
    let (stage, reply) = asked_once(GOLDEN, 0, "wrong.example.net", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::NoError, None));
    assert_eq!(answers(&reply), ["192.0.2.85"]);
    let discarded = Discard::ALL.map(|reason| stage.published.upstreams.discarded(reason));
    assert_eq!(discarded, [0, 1, 1, 0], "malformed, id, question, case");
    assert_eq!(stage.upstream(FIRST).asked().len(), 1);
}

#[tokio::test]
async fn f1_after_three_wrong_replies_the_server_is_asked_over_tcp() {
    let script = "server 10.0.0.2\nspoofed.example. A\n  first wrong-id\n  first wrong-id\n  \
                  first wrong-id\n  answer @ 60 A 192.0.2.1";
    let (stage, reply) = asked_once(script, 0, "spoofed.example", RecordType::A).await;
    assert_eq!(answers(&reply), ["192.0.2.1"]);
    assert_eq!(
        stage.upstream(FIRST).times_asked_over("spoofed.example.", UpstreamTransport::Tcp),
        1
    );
    assert_eq!(stage.published.upstreams.discarded(Discard::Id), 3);
}

#[tokio::test]
async fn f3_a_reply_with_the_right_id_from_another_source_is_not_read() {
    for decoy in ["other-port", "other-address"] {
        let script = format!(
            "server 10.0.0.2\n* *\n  first {decoy}\n  first {decoy}\n  answer @ 60 A 192.0.2.1"
        );
        let stage = Stage::new(&script);
        for n in 0..20 {
            let reply = stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
            assert_eq!(answers(&reply), ["192.0.2.1"], "{decoy}");
        }
        // They are not even counted, because the system gives them to no socket.
        let discarded = Discard::ALL.map(|reason| stage.published.upstreams.discarded(reason));
        assert_eq!(discarded, [0; 4], "{decoy}");
    }
}

#[tokio::test]
async fn f4_of_a_flood_of_guessed_ids_few_are_read_and_none_is_believed() {
    const LOOKUPS: u64 = 30;
    let flood = "  first guess\n".repeat(1000);
    let mut datagrams = 0;
    let stage = Stage::new(&format!("server 10.0.0.2\n* *\n{flood}  answer @ 60 A 192.0.2.1"));
    for n in 0..LOOKUPS {
        let name = format!("n{n}.example");
        let reply = stage.ask(0, &name, RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.1"]);
        // Each guess is one of 65,536: after three the query goes over TCP, where a guess does not help.
        let over = |transport| {
            stage.upstream(FIRST).times_asked_over(&format!("{name}."), transport) as u64
        };
        assert!(over(UpstreamTransport::Tcp) >= 1, "{name}");
        datagrams += over(UpstreamTransport::Udp);
    }
    // So a flood of any length has three chances in 65,536 at each datagram. A lookup has one of these, and more where this
    // machine stands still for half a second.
    let read = stage.published.upstreams.discarded(Discard::Id);
    assert!(datagrams >= LOOKUPS && read <= 3 * datagrams, "{read} for {datagrams}");
}

#[tokio::test]
async fn f7_malformed_and_cut_replies_are_waited_past() {
    for decoy in ["garbage", "half", "query"] {
        let script = format!(
            "server 10.0.0.2\nbroken.example. A\n  first {decoy}\n  answer @ 60 A 192.0.2.1"
        );
        let (stage, reply) = asked_once(&script, 0, "broken.example", RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.1"], "{decoy}");
        assert_eq!(stage.published.upstreams.discarded(Discard::Malformed), 1, "{decoy}");
        assert_eq!(stage.upstream(FIRST).asked().len(), 1, "{decoy}");
    }
}

#[tokio::test]
async fn f9_a_truncated_reply_whose_stream_fails_moves_on() {
    for stream in ["close", "half", "hang"] {
        let script = format!(
            "server 10.0.0.2\nh.example. A\n  udp truncated\n  tcp {stream}\n  \
             answer @ 60 A 192.0.2.1\n\
             server 10.0.0.3\nh.example. A\n  answer @ 60 A 192.0.2.2"
        );
        let stage = Stage::new(&script);
        let reply = stage.ask(0, "h.example", RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.2"], "{stream}");
        assert_eq!(stage.upstream(FIRST).times_asked_over("h.example.", UpstreamTransport::Tcp), 1);
    }
}

#[tokio::test]
async fn f9_without_another_server_a_stream_that_fails_or_hangs_is_servfail() {
    let rows = ["close", "half", "hang"].map(|stream| async move {
        let script = format!(
            "server 10.0.0.2\nh.example. A\n  udp truncated\n  tcp {stream}\n  answer @ 60 A 192.0.2.1"
        );
        let stage = Stage::new(&script);
        // It ends with the budget: a stream that hangs does not extend it.
        let reply = stage.ask(0, "h.example", RecordType::A).await;
        // It answered, over UDP (N18).
        assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(23)), "{stream}");
        let upstream = stage.upstream(FIRST);
        // More than once on a machine that takes half a second for a reply.
        let over_udp = upstream.times_asked_over("h.example.", UpstreamTransport::Udp);
        assert!((1..=3).contains(&over_udp), "{stream}: {over_udp}");
        // One query more where the connection ended (FW54); it belongs to the same send.
        let over_tcp = upstream.times_asked_over("h.example.", UpstreamTransport::Tcp);
        assert!((1..=2).contains(&over_tcp), "{stream}: {over_tcp}");
        // One send more where the pause after a connection that failed (FW54) ended meanwhile (FW26).
        let sends = stage.counters()[0].0;
        assert!((2..=8).contains(&sends), "{stream}: {sends} sends");
    });
    futures::future::join_all(rows).await;
}

#[tokio::test]
async fn fw26_a_reply_that_is_cut_over_a_stream_too_is_relayed_as_a_part() {
    let part = "server 10.0.0.2\nh.example. A\n  flags tc ad\n  answer @ 60 A 192.0.2.1\n";
    let stage = Stage::new(part);
    for asked in 1..=2 {
        let reply = stage.ask_cached(&waiting(0, "h.example", RecordType::A)).await;
        assert_eq!(
            (answers(&reply), failure(&reply)),
            (vec!["192.0.2.1".to_owned()], (ResponseCode::NoError, None))
        );
        assert!(reply.metadata.truncation && !reply.metadata.authentic_data, "{reply}");
        let over_tcp = stage.upstream(FIRST).times_asked_over("h.example.", UpstreamTransport::Tcp);
        assert!(over_tcp >= asked, "it is not kept: {over_tcp}");
    }
    // Another server of the group may have all of it.
    let whole = format!("{part}server 10.0.0.3\nh.example. A\n  answer @ 60 A 192.0.2.2");
    let stage = Stage::new(&whole);
    let reply = stage.ask(0, "h.example", RecordType::A).await;
    assert_eq!((answers(&reply), reply.metadata.truncation), (vec!["192.0.2.2".to_owned()], false));
    // Without a record that answers, it is a failure.
    let stage = Stage::new("server 10.0.0.2\nh.example. A\n  flags tc\n");
    let reply = stage.ask(0, "h.example", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(23)));
}

#[tokio::test]
async fn g131_f14_records_off_the_chain_are_not_in_the_cache() {
    let stage = Stage::new(GOLDEN);
    let junk = stage.ask_cached(&waiting(0, "junk.example.net", RecordType::A)).await;
    assert_eq!(answers(&junk), ["192.0.2.86"]);
    let before = stage.upstream(FIRST).times_asked("www.example.org.");
    let reply = stage.ask_cached(&waiting(0, "www.example.org", RecordType::A)).await;
    assert_eq!(answers(&reply), ["192.0.2.80", "192.0.2.81"], "and not 203.0.113.66");
    assert_eq!((before, stage.upstream(FIRST).times_asked("www.example.org.")), (0, 1));
}

#[tokio::test]
async fn f10_one_bad_server_of_three_leaves_the_answer_to_the_next() {
    let others = "server 10.0.0.3 10.0.0.4\na.example. A\n  answer @ 60 A 192.0.2.1";
    let failed = |stage: &Stage| [stage.counters()[0].1, stage.counters()[1].0].map(|n| n > 0);
    for bad in ["silent", "rcode SERVFAIL", "rcode REFUSED"] {
        let stage = Stage::new(&format!("server 10.0.0.2\n* *\n  {bad}\n{others}"));
        let reply = stage.ask(0, "a.example", RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.1"], "{bad}");
        assert_eq!(failed(&stage), [true, true], "{bad}: {:?}", stage.counters());
    }
    let script = format!("server 10.0.0.2\n* *\n  silent\n{others}");
    // A port without a listener: the system says so at once.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = Stage::with(&script, |config| servers(config)[0] = server(free));
    assert_eq!(answers(&closed.ask(0, "a.example", RecordType::A).await), ["192.0.2.1"]);
    assert_eq!(failed(&closed), [true, true], "{:?}", closed.counters());
}

#[tokio::test]
async fn f14_records_off_the_chain_do_not_reach_the_client() {
    let stage = Stage::new(GOLDEN);
    let reply = stage.ask(0, "junk.example.net", RecordType::A).await;
    assert_eq!(answers(&reply), ["192.0.2.86"]);
    assert!(reply.authorities.is_empty() && reply.additionals.is_empty());
}

#[tokio::test]
async fn n16_without_a_usable_server_it_is_servfail_at_once() {
    let stage = Stage::with(GOLDEN, |config| servers(config).clear());
    let reply = stage.ask(0, "www.example.org", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(0)));
}

#[tokio::test]
async fn n20_without_a_port_to_ask_from_it_is_servfail_at_once_and_no_servers_failure() {
    let stage = Stage::with(GOLDEN, |config| config.limits.upstream_ports = 0);
    let reply = stage.ask(0, "www.example.org", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(0)));
    assert_eq!(stage.forwarder.limited(Limit::UpstreamPorts), 1);
    assert_eq!(stage.counters()[..2], [(0, 0), (0, 0)]);
}

#[tokio::test]
async fn fw2_a_server_to_be_asked_over_tls_is_never_asked_in_clear_text() {
    let stage = Stage::with(GOLDEN, |config| {
        for server in servers(config) {
            server.transport = config::Transport::Tls;
        }
    });
    let reply = stage.ask(0, "www.example.org", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(0)));
    assert_eq!(stage.upstream(FIRST).asked().len() + stage.upstream(SECOND).asked().len(), 0);
    assert_eq!(stage.published.upstreams.problems().len(), 2);
}

#[tokio::test]
async fn fw2_a_tcp_server_is_asked_over_tcp_only() {
    let stage = Stage::with(GOLDEN, |config| {
        servers(config)[0].transport = config::Transport::Tcp;
    });
    let reply = stage.ask(0, "www.example.org", RecordType::A).await;
    assert_eq!(answers(&reply), ["192.0.2.80", "192.0.2.81"]);
    let upstream = stage.upstream(FIRST);
    assert_eq!(upstream.times_asked_over("www.example.org.", UpstreamTransport::Tcp), 1);
    assert_eq!(upstream.times_asked_over("www.example.org.", UpstreamTransport::Udp), 0);
}
