//! Replies that are no answer though their code is no error (FW21), and those of which the rest, or all, never comes.

use std::fmt::Write as _;
use std::net::SocketAddr;

use dataplane_core::Unusable;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use tests::upstream::UpstreamTransport;
use tokio::net::UdpSocket;

use super::stage::{FIRST, Stage, answers, asked_once, failure, server, servers};

/// A chain of this many CNAMEs in one reply, from `n0.example` on.
fn chain(links: usize) -> String {
    (1..=links).fold(String::new(), |mut lines, link| {
        let owner = link - 1;
        writeln!(lines, "  answer n{owner}.example. 60 CNAME n{link}.example.").unwrap();
        lines
    })
}

#[tokio::test]
async fn f15_chains_and_other_replies_that_are_no_answer_are_counted_by_reason() {
    let a_loop = format!("{}  answer n1.example. 60 CNAME n0.example.", chain(1));
    for (reply, reason) in [
        (&*a_loop, Unusable::Chain),
        (&chain(100), Unusable::Chain),
        ("  authority example. 60 NS ns.example.", Unusable::Referral),
        ("  rcode NXDOMAIN\n  answer @ 60 A 192.0.2.1", Unusable::Unrelated),
        ("  answer other.example. 60 A 192.0.2.1", Unusable::Unrelated),
    ] {
        let script = format!("server 10.0.0.2\nn0.example. A\n{reply}");
        let (stage, reply) = asked_once(&script, 0, "n0.example", RecordType::A).await;
        assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(23)), "{reason:?}");
        let upstreams = &stage.published.upstreams;
        let counted = Unusable::ALL.map(|reason| upstreams.unusable_replies(reason));
        assert_eq!(counted, Unusable::ALL.map(|other| u64::from(other == reason)), "{script}");
    }
}

#[tokio::test]
async fn f15_a_dname_and_a_chain_of_sixteen_reach_the_client() {
    let dname = "  answer old.example. 60 DNAME new.example.\n  \
                 answer n0.old.example. 60 CNAME n0.new.example.\n  \
                 answer n0.new.example. 60 A 192.0.2.1";
    let chain = format!("{}  answer n16.example. 60 A 192.0.2.1", chain(16));
    for (name, lines, records) in [("n0.old.example", dname, 3), ("n0.example", &chain, 17)] {
        let stage = Stage::new(&format!("server 10.0.0.2\n{name}. A\n{lines}"));
        let reply = stage.ask(0, name, RecordType::A).await;
        assert_eq!(failure(&reply), (ResponseCode::NoError, None));
        assert_eq!(reply.answers.len(), records, "{reply}");
        assert_eq!(answers(&reply)[0], "192.0.2.1");
    }
}

/// A server that says over UDP that each reply is truncated, and refuses connections.
async fn without_tcp() -> SocketAddr {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = far.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
            (buffer[2], buffer[3]) = (0x83, 0x80);
            let _ = far.send_to(&buffer[..octets], peer).await;
        }
    });
    address
}

#[tokio::test]
async fn f9_a_truncated_reply_whose_connection_is_refused_is_servfail_or_that_of_another() {
    let address = without_tcp().await;
    for others in ["", "server 10.0.0.3\nh.example. A\n  answer @ 60 A 192.0.2.2"] {
        let script = format!("server 10.0.0.2\n* *\n  silent\n{others}");
        let stage = Stage::with(&script, |config| servers(config)[0] = server(address));
        let reply = stage.ask(0, "h.example", RecordType::A).await;
        match others {
            "" => assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(23))),
            _ => assert_eq!(answers(&reply), ["192.0.2.2"]),
        }
    }
}

#[tokio::test]
async fn f20_a_reply_that_is_too_large_for_the_path_comes_over_tcp() {
    let script = "server 10.0.0.2\n* *\n  udp at-most 512\n  answer @ 60 A 192.0.2.1\n\
                  large.example. TXT\n  udp at-most 512\n  answer @ 60 TXT *1000";
    let stage = Stage::new(script);
    let upstream = stage.upstream(FIRST);
    let asked = |name: &str| {
        [UpstreamTransport::Udp, UpstreamTransport::Tcp]
            .map(|transport| upstream.times_asked_over(name, transport))
    };
    let large = stage.ask(0, "large.example", RecordType::TXT).await;
    assert_eq!((failure(&large), large.answers.len()), ((ResponseCode::NoError, None), 1));
    assert_eq!(asked("large.example."), [2, 1], "its datagrams first");
    let small = stage.ask(0, "small.example", RecordType::A).await;
    assert_eq!(answers(&small), ["192.0.2.1"]);
    assert_eq!(asked("small.example.")[1], 0, "over UDP");
    assert!(stage.view().groups[0].servers[0].edns, "silence says nothing about EDNS");
}
