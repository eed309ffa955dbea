//! What ends a lookup (FW20): answers, denials and YXDOMAIN, of whichever server gives them first.

use dataplane_core::Discard;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;

use tests::upstream::UpstreamTransport;

use super::stage::{FIRST, SECOND, Stage, answers, asked_once, failure};

/// 10.0.0.2 says this, 10.0.0.3 answers everything with an address: the reply for a name.
async fn first_says(rule: &str, qtype: RecordType) -> (Stage, Message) {
    let scripts =
        format!("server 10.0.0.2\n* *\n{rule}\nserver 10.0.0.3\n* *\n  answer @ 60 A 192.0.2.3");
    asked_once(&scripts, 0, "www.example", qtype).await
}

const SOA: &str = "  authority example. 60 SOA a. b. 1 2 3 4 5";

#[tokio::test]
async fn fw20_an_answer_a_denial_or_yxdomain_of_one_server_ends_the_lookup() {
    for (rule, rcode, records) in [
        ("  answer @ 60 A 192.0.2.2".to_owned(), ResponseCode::NoError, vec!["192.0.2.2"]),
        (SOA.to_owned(), ResponseCode::NoError, vec![]),
        (format!("  rcode NXDOMAIN\n{SOA}"), ResponseCode::NXDomain, vec![]),
        ("  rcode NXDOMAIN".to_owned(), ResponseCode::NXDomain, vec![]),
        ("  rcode YXDOMAIN".to_owned(), ResponseCode::YXDomain, vec![]),
    ] {
        let (stage, reply) = first_says(&rule, RecordType::A).await;
        assert_eq!(failure(&reply), (rcode, None), "{rule}");
        assert_eq!(answers(&reply), records, "{rule}");
        assert_eq!(stage.upstream(FIRST).times_asked("www.example."), 1, "{rule}");
        assert_eq!(stage.upstream(SECOND).asked().len(), 0, "{rule}: it is not asked");
        assert_eq!((stage.forwarder.resolved(), stage.counters()[0]), (1, (1, 0)), "{rule}");
    }
}

#[tokio::test]
async fn fw20_what_is_no_good_reply_leaves_the_lookup_to_the_next_server() {
    for rule in ["  rcode REFUSED", "  rcode SERVFAIL", "  authority example. 60 NS ns.example."] {
        let (stage, reply) = first_says(rule, RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.3"], "{rule}");
        assert_eq!(stage.upstream(SECOND).times_asked("www.example."), 1, "{rule}");
        let discarded = Discard::ALL.map(|reason| stage.published.upstreams.discarded(reason));
        assert_eq!(discarded, [0; 4], "{rule}: a valid reply");
    }
}

#[tokio::test]
async fn f7_fw12_a_server_that_announces_an_opt_record_and_sends_none_is_asked_once() {
    let (stage, reply) =
        first_says("  opt announced\n  answer @ 60 A 192.0.2.2", RecordType::A).await;
    assert_eq!(answers(&reply), ["192.0.2.2"]);
    assert_eq!(stage.upstream(FIRST).times_asked("www.example."), 1);
    assert_eq!(stage.upstream(SECOND).asked().len(), 0, "it is not asked");
}

#[tokio::test]
async fn fw26_a_datagram_longer_than_is_read_is_asked_for_over_tcp_at_once() {
    let (stage, reply) = first_says("  answer @ 60 TXT *5000", RecordType::TXT).await;
    assert_eq!(failure(&reply), (ResponseCode::NoError, None));
    assert!(reply.metadata.truncation, "it is longer than the client takes");
    let over = |transport| stage.upstream(FIRST).times_asked_over("www.example.", transport);
    let times = [UpstreamTransport::Udp, UpstreamTransport::Tcp].map(over);
    assert_eq!((times, stage.upstream(SECOND).asked().len()), ([1, 1], 0));
    assert_eq!(stage.published.upstreams.discarded(Discard::Malformed), 0);
}
