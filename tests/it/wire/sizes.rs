//! Rows R9 to R12 in the core, and W12: what happens when not everything fits (WR7: when TC is set). The same over sockets is in
//! `sockets.rs`; the worked sizes of docs/dns.md §5.3 are those of `it/sizes.rs`.

use std::collections::BTreeSet;

use dataplane_core::{Action, Freshness, TtlCaps, Verdict};
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record};
use serde_json::{Value, json};
use tests::client::{Question, Transport};

use super::{headless, reply, shop, shop_with};

/// A headless Service `many` of namespace `data` with this many endpoints, each with a hostname of its own.
pub(super) fn many(endpoints: u32) -> [Value; 2] {
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let endpoints: Vec<Value> = (0..endpoints)
        .map(|n| {
            let address = std::net::Ipv4Addr::from(0x0af6_0000 + n);
            json!({
                "addresses": [address], "hostname": format!("worker-{n}"),
                "conditions": {"ready": true},
            })
        })
        .collect();
    headless("many", &endpoints, &ports)
}

/// 300 addresses, asked by this function: the rows R9 and R10.
pub(super) fn r9_and_r10(ask: impl Fn(&Question, Transport) -> Vec<u8>) {
    let asked = |options: &str, transport| {
        let question =
            Question::parse(&format!("many.data.svc.cluster.local. A {options}")).unwrap();
        let reply = ask(&question, transport);
        let message = Message::from_vec(&reply).unwrap();
        let distinct: BTreeSet<String> =
            message.answers.iter().map(|record| record.data.to_string()).collect();
        assert_eq!(distinct.len(), message.answers.len());
        (reply.len(), message)
    };
    // R9: 512 octets without EDNS. The question takes 33 of them behind the header's 12, each record 16.
    let (octets, message) = asked("+noedns", Transport::Udp);
    assert!(octets <= 512 && message.metadata.truncation && message.metadata.authoritative);
    assert_eq!(message.answers.len(), (512 - 12 - 33) / 16);
    assert!(message.edns.is_none() && message.additionals.is_empty());
    // R10: however much is advertised, `udpPayloadBytes` is the limit; the OPT takes 11 octets.
    for options in ["+bufsize=65535", "+bufsize=4096", ""] {
        let (octets, message) = asked(options, Transport::Udp);
        assert!(octets <= 1232 && message.metadata.truncation, "{options}: {octets}");
        assert_eq!(message.answers.len(), (1232 - 12 - 33 - 11) / 16, "{options}");
    }
    for options in ["+noedns", "", "+bufsize=512"] {
        let (_, message) = asked(options, Transport::Tcp);
        assert!(!message.metadata.truncation);
        assert_eq!(message.answers.len(), 300, "{options}");
    }
}

#[test]
fn r9_r10_wr7_what_does_not_fit_in_a_datagram_is_truncated_and_whole_over_tcp() {
    let core = shop_with(&many(300));
    r9_and_r10(|question, transport| reply(&core, &question.packet, transport));
}

#[test]
fn l5_w12_a_forged_query_gains_a_factor_of_three_for_any_and_no_large_datagram() {
    let core = shop_with(&many(300));
    let names = [
        "many.data.svc.cluster.local.",
        "worker-7.many.data.svc.cluster.local.",
        "kubernetes.default.svc.cluster.local.",
        "_http._tcp.many.data.svc.cluster.local.",
        "data.svc.cluster.local.",
        "none.data.svc.cluster.local.",
        "cluster.local.",
        "ns.dns.cluster.local.",
    ];
    for name in names {
        for options in ["+noedns", "", "+bufsize=65535"] {
            for qtype in ["ANY", "A", "AAAA", "SRV", "TXT", "NS", "SOA", "DNSKEY"] {
                let question = Question::parse(&format!("{name} {qtype} {options}")).unwrap();
                let octets = reply(&core, &question.packet, Transport::Udp).len();
                let most = if options == "+noedns" { 512 } else { 1232 };
                assert!(octets <= most, "{name} {qtype} {options}: {octets} octets");
                let asked = question.packet.len();
                assert!(
                    qtype != "ANY" || octets <= 3 * asked,
                    "{name} {options}: {octets}/{asked}"
                );
            }
        }
    }
}

/// 5,000 addresses over TCP, asked with these seeds.
pub(super) fn r11(ask: impl Fn(&Question) -> Vec<u8>) {
    let question = Question::parse("big.data.svc.cluster.local. A").unwrap();
    let mut firsts = BTreeSet::new();
    for _ in 0..8 {
        let reply = ask(&question);
        // 65,535 less header, question and OPT, in records of 16 octets.
        let message = Message::from_vec(&reply).unwrap();
        assert_eq!(message.answers.len(), (65_535 - 12 - 32 - 11) / 16);
        assert!(!message.metadata.truncation && message.edns.is_some());
        let distinct: BTreeSet<String> =
            message.answers.iter().map(|record| record.data.to_string()).collect();
        assert_eq!(distinct.len(), message.answers.len());
        firsts.insert(message.answers[0].data.to_string());
    }
    assert!(firsts.len() > 1, "every reply begins with {firsts:?}");
}

#[test]
fn r11_an_rrset_beyond_64_kib_is_cut_at_a_record_and_starts_anywhere() {
    let core = shop();
    let seed = std::cell::Cell::new(0_u64);
    r11(|question| {
        seed.set(seed.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        core.ask(&question.packet, Transport::Tcp, seed.get()).unwrap().reply.unwrap()
    });
}

/// A reply of an upstream with 200 addresses, behind aliases of ours for this name: reply limits and counts.
fn behind_aliases(asked: &str, target: &str, aliases: &[&str]) {
    let core = shop();
    let target = Name::from_ascii(target).unwrap();
    for (transport, options, truncated) in
        [(Transport::Udp, "", true), (Transport::Udp, "+noedns", true), (Transport::Tcp, "", false)]
    {
        let question = Question::parse(&format!("{asked} A {options}")).unwrap();
        let mut buffer = vec![0; 65_535];
        let (action, _) = core.decide(&question.packet, transport, 1, &mut buffer);
        let Action::Forward(forward) = action else { panic!("{action:?}") };
        let query = Message::from_vec(&forward.key.upstream_query(9).wire).unwrap();
        let mut answer = Message::new(9, MessageType::Response, query.metadata.op_code);
        answer.add_query(query.queries[0].clone());
        answer.add_answers(
            (0..200)
                .map(|n| Record::from_rdata(target.clone(), 300, RData::A(A::new(192, 0, 2, n)))),
        );
        let judged = forward.key.judge(9, &answer.to_vec().unwrap(), &TtlCaps::default());
        let Verdict::Good(relayed) = judged else { panic!("{judged:?}") };
        let length =
            relayed.write(&forward.head, Freshness::Fresh { age_s: 0 }, 1, &mut buffer).octets;
        let message = Message::from_vec(&buffer[..length]).unwrap();
        let limit = if transport == Transport::Tcp { 65_535 } else { question.udp_limit };
        assert!(length <= limit, "{length} of {limit}");
        assert_eq!(message.metadata.truncation, truncated, "{transport:?} {options}");
        assert!(message.metadata.authoritative, "the first owner is ours (WR4)");
        let kinds: Vec<String> =
            message.answers.iter().map(|record| record.record_type().to_string()).collect();
        assert_eq!(&kinds[..aliases.len()], aliases);
        assert!(kinds[aliases.len()..].iter().all(|kind| kind == "A"));
        let last = &message.answers[aliases.len() - 1].data;
        assert!(matches!(last, RData::CNAME(to) if to.0 == target), "{last:?}");
        assert_eq!(message.answers.len() == 200 + aliases.len(), !truncated);
    }
}

#[test]
fn r12_a_cname_of_ours_with_a_target_beyond_the_limit_is_truncated() {
    behind_aliases("legacy.shop.svc.cluster.local.", "mail.example.com.", &["CNAME"]);
}

#[test]
fn rr85_a_dname_of_ours_with_a_target_beyond_the_limit_is_truncated() {
    behind_aliases("zero.web.corp.example.", "zero.example.org.", &["DNAME", "CNAME"]);
}

#[test]
fn g173_a_dname_to_an_rrset_beyond_the_limit_is_truncated_at_a_record() {
    let core = shop();
    for (options, limit) in [("+noedns", 512), ("", 1232)] {
        let question = Question::parse(&format!("big.rows.corp.example. A {options}")).unwrap();
        let octets = reply(core, &question.packet, Transport::Udp);
        let message = Message::from_vec(&octets).unwrap();
        assert!(octets.len() <= limit && octets.len() + 16 > limit, "{}", octets.len());
        assert!(message.metadata.truncation && message.metadata.authoritative);
        let kinds: Vec<String> =
            message.answers.iter().map(|record| record.record_type().to_string()).collect();
        assert_eq!(&kinds[..3], ["DNAME", "CNAME", "A"], "{options}");
    }
}

/// Compression pointers in a message: where each leads. Owners and SRV targets only, which is all there is here.
fn pointer_targets(reply: &[u8]) -> BTreeSet<u16> {
    let number = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]);
    let mut targets = BTreeSet::new();
    let mut name = |mut at: usize| loop {
        match reply[at] {
            0 => break at + 1,
            length @ 1..=63 => at += usize::from(length) + 1,
            _ => {
                targets.insert(number(at) & 0x3fff);
                break at + 2;
            }
        }
    };
    let mut at = name(12) + 4;
    for _ in 0..number(6) + number(8) + number(10) {
        let end = name(at);
        if number(end) == 33 {
            name(end + 16);
        }
        at = end + 10 + usize::from(number(end + 8));
    }
    assert_eq!(at, reply.len());
    targets
}

/// Each new name is compared with those that the encoder remembers. As long as it remembers a fixed number, the time
/// is linear in the reply (WR25); were it to remember each of 5,000, their addresses' owners would point to them.
#[test]
fn w12_wr25_owner_names_remembered_for_compression_are_bounded() {
    let core = shop_with(&many(5_000));
    let distinct = |question: &str| {
        let question = Question::parse(question).unwrap();
        let reply = reply(&core, &question.packet, Transport::Tcp);
        let message = Message::from_vec(&reply).unwrap();
        let names: BTreeSet<String> = message
            .answers
            .iter()
            .chain(&message.additionals)
            .map(|record| format!("{} {}", record.name, record.data))
            .collect();
        assert!(names.len() > 500, "{} names", names.len());
        assert!(reply.len() > 30_000);
        pointer_targets(&reply).len()
    };
    for question in
        ["_http._tcp.many.data.svc.cluster.local. SRV", "many.data.svc.cluster.local. SRV"]
    {
        assert!(distinct(question) <= 40, "{question}");
    }
}

#[test]
fn w12_relayed_names_remembered_for_compression_are_bounded() {
    let core = shop();
    let question = Question::parse("www.example.org. NS").unwrap();
    let mut buffer = vec![0; 65_535];
    let (action, _) = core.decide(&question.packet, Transport::Tcp, 1, &mut buffer);
    let Action::Forward(forward) = action else { panic!("{action:?}") };
    let query = Message::from_vec(&forward.key.upstream_query(9).wire).unwrap();
    let mut answer = Message::new(9, MessageType::Response, query.metadata.op_code);
    answer.add_query(query.queries[0].clone());
    // Pairs of a name and one below it: the second could point to the first, if that were remembered.
    answer.add_answers((0..1_000).map(|n| {
        let below = if n % 2 == 0 { "" } else { "ns." };
        let server = Name::from_ascii(format!("{below}s{}.example.net.", n / 2)).unwrap();
        let data = RData::NS(hickory_proto::rr::rdata::NS(server));
        Record::from_rdata(query.queries[0].name().clone(), 300, data)
    }));
    let judged = forward.key.judge(9, &answer.to_vec().unwrap(), &TtlCaps::default());
    let Verdict::Good(relayed) = judged else { panic!("{judged:?}") };
    let length = relayed.write(&forward.head, Freshness::Fresh { age_s: 0 }, 1, &mut buffer).octets;
    let written = Message::from_vec(&buffer[..length]).unwrap();
    assert_eq!(written.answers.len(), 1_000);
    // In full a name has 14 octets or more and a pointer saves up to 13 of them: those remembered are soon used up.
    let pointers =
        buffer[..length].windows(2).filter(|pair| pair[0] == 0xc0).collect::<BTreeSet<_>>();
    assert!(pointers.len() <= 80, "{} targets", pointers.len());
}
