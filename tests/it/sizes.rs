//! G104-G106: how much of 5,000 addresses a reply holds (WR20-WR23, and the worked sizes of §5.3).

use std::collections::BTreeSet;

use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use tests::client::{Question, Transport};
use tests::scenario::{Core, Plane, objects_of};

const BIG: &str = "big.data.svc.cluster.local.";

/// What came back to a question for the 5,000 addresses.
struct Reply {
    message: Message,
    addresses: usize,
    octets: usize,
}

/// Asks, and checks what holds for every size: distinct addresses of the Service, nothing else but an OPT when asked.
fn asked(options: &str, ask: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Reply {
    let question = Question::parse(&format!("{BIG} A {options}")).unwrap();
    let reply = ask(&question.packet).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    let addresses: BTreeSet<u32> = message
        .answers
        .iter()
        .map(|record| match &record.data {
            RData::A(address) if record.name.to_ascii() == BIG => address.0.into(),
            other => panic!("not an A of {BIG}: {} {other}", record.name),
        })
        .collect();
    let (first, last) =
        (u32::from_be_bytes([10, 245, 0, 1]), u32::from_be_bytes([10, 245, 19, 136]));
    assert!(addresses.iter().all(|address| (first..=last).contains(address)));
    assert_eq!(addresses.len(), message.answers.len(), "every address is given once");
    assert!(message.authorities.is_empty() && message.additionals.is_empty());
    assert_eq!(message.edns.is_some(), !options.contains("+noedns"));
    assert!(message.metadata.authoritative);
    Reply { addresses: addresses.len(), octets: reply.len(), message }
}

/// Number of addresses and TC over UDP.
fn g104_and_g105(ask: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let cases = [
        ("+noedns", 29, 512),
        ("+bufsize=512", 28, 512),
        ("+bufsize=1232", 73, 1232),
        ("+bufsize=65535", 73, 1232),
        ("+bufsize=100", 28, 512),
    ];
    for (options, addresses, limit) in cases {
        let reply = asked(options, &ask);
        assert_eq!(reply.addresses, addresses, "{options}");
        assert!(reply.message.metadata.truncation, "{options}");
        assert!(reply.octets <= limit, "{options}: {} octets", reply.octets);
    }
}

/// The same over TCP, where a message ends at 65,535 octets and TC means nothing.
fn g106(ask: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    for (options, addresses) in [("+noedns", 4093), ("", 4092)] {
        let reply = asked(options, &ask);
        assert_eq!(reply.addresses, addresses, "{options:?}");
        assert!(!reply.message.metadata.truncation, "{options:?}");
    }
}

fn core() -> Core {
    Core::new(&objects_of("wire").unwrap()).unwrap()
}

#[test]
fn g104_g105_a_reply_over_udp_holds_what_fits_and_says_so() {
    let core = core();
    g104_and_g105(|packet| core.ask(packet, Transport::Udp, 7).unwrap().reply);
}

#[test]
fn g106_a_reply_over_tcp_holds_what_fits_and_is_not_truncated() {
    let core = core();
    g106(|packet| core.ask(packet, Transport::Tcp, 7).unwrap().reply);
}

#[test]
fn g104_g105_g106_over_sockets() {
    let plane = Plane::start(&objects_of("wire").unwrap()).unwrap();
    g104_and_g105(|packet| plane.ask(packet, Transport::Udp, false).unwrap().reply);
    g106(|packet| plane.ask(packet, Transport::Tcp, false).unwrap().reply);
}

#[test]
fn wr23_every_address_is_handed_out_over_time() {
    let core = core();
    let question = Question::parse(&format!("{BIG} A +noedns")).unwrap();
    let mut seen = BTreeSet::new();
    // 29 of 5,000 at a time: in 4,000 replies an address is missing with a chance of e^-23, and the seeds are fixed.
    for seed in 0..4000_u64 {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let reply = core.ask(&question.packet, Transport::Udp, seed).unwrap().reply.unwrap();
        let message = Message::from_vec(&reply).unwrap();
        seen.extend(message.answers.iter().map(|record| record.data.to_string()));
    }
    assert_eq!(seen.len(), 5000);
}
