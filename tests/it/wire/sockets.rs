//! Rows about the network, against a data plane on loopback: W1, W2 and R9 to R12.

use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use tests::client::{Question, Transport};
use tests::scenario::{Plane, objects_of};

use super::sizes::{many, r9_and_r10, r11};

fn plane() -> Plane {
    Plane::start(&objects_of("wire").unwrap()).unwrap()
}

#[test]
fn w1_short_datagrams_stay_unanswered_and_the_next_query_is_answered() {
    let plane = plane();
    let query = Question::parse("cart.shop.svc.cluster.local. A").unwrap().packet;
    for length in 0..12 {
        // A sentinel follows from the same socket: its reply must be the first.
        let outcome = plane.ask(&query[..length], Transport::Udp, true).unwrap();
        assert_eq!(outcome.reply, None, "{length} octets");
    }
    // WR43: a stream is closed.
    let outcome = plane.ask(&query[..11], Transport::Tcp, true).unwrap();
    assert_eq!(outcome.reply, None);
}

/// Replies of one instance are sent to another as if it had asked: the loop of RUSTSEC-2023-0041 never begins.
#[test]
fn w2_two_instances_pointed_at_each_other_fall_silent() {
    let (one, other) = (plane(), plane());
    for question in [
        "cart.shop.svc.cluster.local. A",
        "nothere.shop.svc.cluster.local. A",
        "cart.shop.svc.cluster.local. OPT",
        "cart.shop.svc.cluster.local. A +opcode=15",
        "cluster.local. AXFR",
        "hex 1234 0100 0002 0000 0000 0000",
    ] {
        let query = Question::parse(question).unwrap().packet;
        let reply = one.ask(&query, Transport::Udp, false).unwrap().reply.unwrap();
        for instance in [&other, &one] {
            let outcome = instance.ask(&reply, Transport::Udp, true).unwrap();
            assert_eq!(outcome.reply, None, "the reply to {question} is answered");
            let outcome = instance.ask(&reply, Transport::Tcp, true).unwrap();
            assert_eq!(outcome.reply, None, "the reply to {question} is answered over TCP");
        }
    }
}

#[test]
fn r9_r10_what_does_not_fit_in_a_datagram_is_whole_over_tcp() {
    let mut objects = objects_of("wire").unwrap();
    objects.extend(many(300));
    let plane = Plane::start(&objects).unwrap();
    r9_and_r10(|question, transport| {
        plane.ask(&question.packet, transport, false).unwrap().reply.unwrap()
    });
}

#[test]
fn r11_an_rrset_beyond_64_kib_leaves_the_framing_whole() {
    let plane = plane();
    r11(|question| plane.ask(&question.packet, Transport::Tcp, false).unwrap().reply.unwrap());
}

#[test]
fn r12_a_cname_of_ours_with_a_long_target_is_truncated_and_whole_over_tcp() {
    let mut objects = objects_of("wire").unwrap();
    objects.push(serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "long", "namespace": "shop"},
        "spec": {"type": "ExternalName", "externalName": "huge.example.org"},
    }));
    let plane = Plane::start(&objects).unwrap();
    // 3,000 octets of TXT.
    let question = Question::parse("long.shop.svc.cluster.local. TXT").unwrap();
    for (transport, records) in [(Transport::Udp, 1), (Transport::Tcp, 2)] {
        let reply = plane.ask(&question.packet, transport, false).unwrap().reply.unwrap();
        let message = Message::from_vec(&reply).unwrap();
        assert_eq!(message.metadata.truncation, transport == Transport::Udp);
        assert!(matches!(message.answers[0].data, RData::CNAME(_)));
        assert_eq!(message.answers.len(), records, "{transport:?}: {message}");
    }
}
