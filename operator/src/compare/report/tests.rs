//! Differences as a table: what both servers reply, and the class that it is.

mod ipv6_labels;
mod pointers;

use std::collections::BTreeSet;
use std::str::FromStr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::*;
use crate::compare::known::KNOWN;
use crate::compare::names::Asked;

const SOA: &str = "ns.dns.c.example. hostmaster.c.example. 1 7200 1800 86400 5";

/// `RCODE [aa] [ra] [edeCODE]; owner TTL type data; ...`, and `soa` for one in the authority section.
fn reply(text: &str) -> Reply {
    let mut parts = text.split("; ");
    let head: Vec<&str> = parts.next().unwrap().split(' ').collect();
    let mut reply = Message::new(1, MessageType::Response, OpCode::Query);
    reply.metadata.response_code = match head[0] {
        "NOERROR" => ResponseCode::NoError,
        "NXDOMAIN" => ResponseCode::NXDomain,
        "SERVFAIL" => ResponseCode::ServFail,
        "REFUSED" => ResponseCode::Refused,
        "silent" => return Err(NoReply::Silent("no reply within 5 s".to_owned())),
        other => panic!("{other}"),
    };
    reply.metadata.authoritative = head.contains(&"aa");
    reply.metadata.recursion_available = head.contains(&"ra");
    let code = head.iter().find_map(|word| word.strip_prefix("ede"));
    if let Some(code) = code {
        let mut edns = Edns::new();
        edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, code.parse().unwrap()]));
        reply.edns = Some(edns);
    }
    let record = |owner: &str, ttl: u32, kind: &str, data: &str| {
        let kind = RecordType::from_str(kind).unwrap();
        let data = RData::try_from_str(kind, data).unwrap();
        Record::from_rdata(Name::from_ascii(owner).unwrap(), ttl, data)
    };
    for part in parts {
        if part == "soa" {
            reply.add_authority(record("c.example.", 5, "SOA", SOA));
            continue;
        }
        let words: Vec<&str> = part.splitn(4, ' ').collect();
        reply.add_answer(record(words[0], words[1].parse().unwrap(), words[2], words[3]));
    }
    Ok(reply)
}

/// The class of what these reply to a question; empty where they are alike.
fn class(question: &str, with: &str, against: &str) -> (bool, String) {
    let (name, kind) = question.split_once(' ').unwrap();
    let asked =
        Asked { name: Name::from_ascii(name).unwrap(), kind: RecordType::from_str(kind).unwrap() };
    let replies = [Replies { asked, with: reply(with), against: reply(against) }];
    let report = Report::of(&replies, &Name::from_ascii("c.example.").unwrap(), Vec::new());
    let classes = || report.known.iter().chain(&report.unknown);
    assert!(classes().count() <= 1);
    let is_known = !report.known.is_empty();
    (is_known, classes().next().map(|class| class.class.clone()).unwrap_or_default())
}

#[test]
fn differences_that_the_contract_means_are_known_by_their_id() {
    let found = "x.s.svc.c.example. 5 A 10.0.0.1";
    let soa = "c.example. 30 SOA ns.dns.c.example. hostmaster.c.example. 7 7200 1800 86400 30";
    let many = |net: u8| -> String {
        (0..4000).map(|n| format!("; b.example. 5 A 10.{net}.{}.{}", n / 250, n % 250)).collect()
    };
    let rows: [(&str, &str, &str, &str); 31] = [
        (
            "DF4",
            "e.s.svc.c.example. A",
            "NXDOMAIN; e.s.svc.c.example. 5 CNAME no.example.; soa",
            "NOERROR; e.s.svc.c.example. 30 CNAME no.example.",
        ),
        (
            "DF41",
            "h.x.s.svc.c.example. A",
            "NOERROR; h.x.s.svc.c.example. 5 A 10.0.0.1; h.x.s.svc.c.example. 5 A 10.0.0.2",
            "NOERROR; h.x.s.svc.c.example. 30 A 10.0.0.2",
        ),
        (
            "DF45",
            "_http._tcp.x.s.svc.c.example. SRV",
            "NOERROR; _http._tcp.x.s.svc.c.example. 5 SRV 0 100 80 x.s.svc.c.example.",
            "NOERROR; _http._tcp.x.s.svc.c.example. 30 SRV 10 10 80 3233373462353839.x.s.svc.c.example.",
        ),
        ("DF47", "x.s.fed.svc.c.example. A", "SERVFAIL ede14", "NOERROR; soa"),
        ("RR48", "loop.s.svc.c.example. A", "SERVFAIL ra ede0", "NOERROR aa; soa"),
        ("WR23", "b.example. A", &format!("NOERROR{}", many(1)), &format!("NOERROR{}", many(2))),
        ("DF34", "c.example. DS", "NXDOMAIN ra", "NOERROR aa; soa"),
        ("DF1", "no.s.svc.c.example. SOA", "NXDOMAIN aa; soa", "NOERROR aa; soa"),
        (
            "DF40",
            "dns-version.c.example. TXT",
            "NOERROR; dns-version.c.example. 28800 TXT \"1.1.0\"",
            "NXDOMAIN; soa",
        ),
        (
            "DF18",
            "x.s.svc.c.example. ANY",
            "NOERROR; x.s.svc.c.example. 5 HINFO \"RFC8482\" \"\"",
            "NOERROR; soa",
        ),
        (
            "DF11",
            "c.example. NS",
            "NOERROR; c.example. 5 NS ns.dns.c.example.",
            "NOERROR; c.example. 5 NS kube-dns.kube-system.svc.c.example.",
        ),
        (
            "DF31",
            "c.example. SOA",
            &format!("NOERROR aa; c.example. 5 SOA {SOA}"),
            &format!("NOERROR aa; {soa}"),
        ),
        (
            "DF43",
            "*.s.svc.c.example. A",
            "NXDOMAIN; soa",
            "NOERROR; x.s.svc.c.example. 5 A 10.0.0.1",
        ),
        (
            "DF8",
            "http.tcp.x.s.svc.c.example. SRV",
            "NXDOMAIN; soa",
            "NOERROR; http.tcp.x.s.svc.c.example. 5 SRV 0 100 80 x.s.svc.c.example.",
        ),
        (
            "DF6",
            "a.10-0-0-1.s.pod.c.example. A",
            "NXDOMAIN; soa",
            "NOERROR; a.10-0-0-1.s.pod.c.example. 5 A 10.0.0.1",
        ),
        ("DF9", "_tcp.x.s.svc.c.example. A", "NOERROR; soa", "NXDOMAIN; soa"),
        (
            "DF4",
            "e.s.svc.c.example. A",
            "NXDOMAIN; e.s.svc.c.example. 5 CNAME gone.example.; soa",
            "NOERROR",
        ),
        (
            "DF3",
            "e.s.svc.c.example. HTTPS",
            "NOERROR; e.s.svc.c.example. 5 CNAME www.example.; soa",
            "NOERROR; soa",
        ),
        (
            "DF10",
            "x.s.svc.c.example. SRV",
            "NOERROR; x.s.svc.c.example. 5 SRV 0 100 80 y.c.example.",
            "NOERROR; x.s.svc.c.example. 5 SRV 0 50 80 y.c.example.",
        ),
        (
            "DF13",
            "1.0.0.10.in-addr.arpa. PTR",
            "NOERROR; 1.0.0.10.in-addr.arpa. 5 PTR a.x.s.svc.c.example.",
            "NOERROR; 1.0.0.10.in-addr.arpa. 5 PTR a.x.s.svc.c.example.; 1.0.0.10.in-addr.arpa. 5 PTR y.t.svc.c.example.",
        ),
        (
            "DF44",
            "1.0.0.10.in-addr.arpa. PTR",
            "NOERROR; 1.0.0.10.in-addr.arpa. 5 PTR a.x.s.svc.c.example.",
            "NXDOMAIN; soa",
        ),
        ("DF28", "localhost. A", "NOERROR; localhost. 604800 A 127.0.0.1", "NXDOMAIN; soa"),
        (
            "RR77",
            "o.example. A",
            "NOERROR; o.example. 30 CNAME x.s.svc.c.example.; x.s.svc.c.example. 5 A 10.0.0.1",
            "NOERROR; o.example. 5 A 10.0.0.1",
        ),
        (
            "RR77",
            "o.example. AAAA",
            "NOERROR; o.example. 30 CNAME x.s.svc.c.example.; soa",
            "NOERROR; soa",
        ),
        (
            "RR77",
            "o.example. A",
            "NXDOMAIN; o.example. 30 CNAME gone.example.; soa",
            "NXDOMAIN; soa",
        ),
        ("N30", "e.s.svc.c.example. AAAA", "NOERROR; soa", "NOERROR"),
        (
            "RR74",
            "x.s.svc.c.example. A",
            &format!("NOERROR aa ra; {found}"),
            "NOERROR aa; x.s.svc.c.example. 30 A 10.0.0.1",
        ),
        (
            "DF17",
            "x.s.svc.c.example. A",
            &format!("NOERROR aa ra; {found}"),
            &format!("NOERROR aa; {found}"),
        ),
        (
            "",
            "x.s.svc.c.example. A",
            &format!("NOERROR aa; {found}"),
            &format!("NOERROR aa; {found}"),
        ),
        ("", "x.example. A", "silent", "silent"),
        (
            "DF18",
            "x.s.svc.c.example. ANY",
            "NOERROR; x.s.svc.c.example. 5 HINFO \"RFC8482\" \"\"",
            "REFUSED",
        ),
    ];
    let mut seen = BTreeSet::from(["DF14", "DF29", "DF36", "RR85"]);
    for (id, question, with, against) in rows {
        assert_eq!(class(question, with, against), (!id.is_empty(), id.to_owned()), "{question}");
        seen.extend(KNOWN.iter().map(|known| known.id).filter(|known| *known == id));
    }
    let missing: Vec<&str> =
        KNOWN.iter().map(|known| known.id).filter(|id| !seen.contains(id)).collect();
    assert!(missing.is_empty(), "rows without an example: {missing:?}");
}

#[test]
fn everything_else_is_unknown_and_named_by_what_differs() {
    let a = |ip: &str| format!("NOERROR aa; x.s.svc.c.example. 5 A {ip}");
    let srv = |rest: &str| format!("NOERROR; x.s.svc.c.example. 5 SRV {rest}");
    let rows = [
        // The target has an address there.
        (
            "e.s.svc.c.example. A",
            "NXDOMAIN; e.s.svc.c.example. 5 CNAME t.example.; soa".to_owned(),
            "NOERROR; e.s.svc.c.example. 5 CNAME t.example.; t.example. 5 A 192.0.2.1".to_owned(),
            "NXDOMAIN in place of NOERROR",
        ),
        // A failure that says nothing of a loop, and one elsewhere.
        (
            "x.s.svc.c.example. A",
            "SERVFAIL ra".to_owned(),
            "NOERROR aa; soa".to_owned(),
            "SERVFAIL in place of NOERROR",
        ),
        (
            "x.example. A",
            "SERVFAIL ra ede0".to_owned(),
            "NOERROR aa; soa".to_owned(),
            "SERVFAIL in place of NOERROR",
        ),
        (
            "x.s.svc.c.example. A",
            "NXDOMAIN aa; soa".to_owned(),
            a("10.0.0.1"),
            "NXDOMAIN in place of NOERROR",
        ),
        (
            "x.s.svc.c.example. A",
            a("10.0.0.1"),
            "NXDOMAIN; soa".to_owned(),
            "NOERROR in place of NXDOMAIN",
        ),
        ("x.s.svc.c.example. A", a("10.0.0.1"), a("10.0.0.2"), "other A records"),
        (
            "x.s.svc.c.example. A",
            "NOERROR aa; soa".to_owned(),
            a("10.0.0.2"),
            "no records in place of some",
        ),
        (
            "x.s.svc.c.example. A",
            a("10.0.0.2"),
            "NOERROR; soa".to_owned(),
            "records in place of none",
        ),
        ("x.s.svc.c.example. A", "silent".to_owned(), a("10.0.0.2"), "no reply of --with"),
        ("x.s.svc.c.example. A", a("10.0.0.2"), "silent".to_owned(), "no reply of --against"),
        (
            "x.s.svc.c.example. SRV",
            srv("0 100 80 y.c.example."),
            srv("0 100 81 y.c.example."),
            "other SRV records",
        ),
        (
            "_http._tcp.x.s.svc.c.example. SRV",
            srv("0 100 80 x.s.svc.c.example."),
            srv("10 10 80 y.s.svc.c.example."),
            "other SRV records",
        ),
        ("h.x.s.svc.c.example. A", a("10.0.0.1"), a("10.0.0.2"), "other A records"),
        (
            "x.s.fed.svc.c.example. A",
            "SERVFAIL ede23".to_owned(),
            "NOERROR; soa".to_owned(),
            "SERVFAIL in place of NOERROR",
        ),
        (
            "_tcp.x.s.svc.c.example. A",
            "NXDOMAIN; soa".to_owned(),
            "NOERROR; soa".to_owned(),
            "NXDOMAIN in place of NOERROR",
        ),
    ];
    for (question, with, against, expected) in rows {
        assert_eq!(class(question, &with, &against), (false, expected.to_owned()), "{question}");
    }
}

/// Each is like a difference on purpose, except for a name that is not the cluster's, or for another Service.
#[test]
fn a_lost_name_outside_the_cluster_domain_is_never_on_purpose() {
    let found = |owner: &str| format!("NOERROR; {owner} 5 A 10.0.0.1");
    let ptr = |target: &str| format!("NOERROR; 1.0.0.10.in-addr.arpa. 5 PTR {target}");
    let lost = ["any.corp.example.", "a.b.cart.shop.svc.other.example.", "a.b.c.pod.corp.example."];
    for name in lost {
        let expected = (false, "NXDOMAIN in place of NOERROR".to_owned());
        assert_eq!(class(&format!("{name} A"), "NXDOMAIN; soa", &found(name)), expected, "{name}");
    }
    let rows = [
        ("dns.corp.example. A", "NOERROR; soa", "NXDOMAIN; soa", "NOERROR in place of NXDOMAIN"),
        ("gone.corp.example. SOA", "NXDOMAIN; soa", "NOERROR; soa", "NXDOMAIN in place of NOERROR"),
        (
            "1.0.0.10.in-addr.arpa. PTR",
            &ptr("cart.shop.svc.c.example."),
            &ptr("api.shop.svc.c.example."),
            "other PTR records",
        ),
        (
            "1.0.0.10.in-addr.arpa. PTR",
            &ptr("host.corp.example."),
            "NXDOMAIN; soa",
            "NOERROR in place of NXDOMAIN",
        ),
    ];
    for (question, with, against, expected) in rows {
        assert_eq!(class(question, with, against), (false, expected.to_owned()), "{question}");
    }
}

#[test]
fn servers_are_alike_only_where_each_question_was_answered() {
    let asked = Asked { name: Name::from_ascii("x.c.example.").unwrap(), kind: RecordType::A };
    let domain = Name::from_ascii("c.example.").unwrap();
    let severity = |replies: &[(&str, &str)]| {
        let replies: Vec<Replies> = replies
            .iter()
            .map(|(with, against)| Replies {
                asked: asked.clone(),
                with: reply(with),
                against: reply(against),
            })
            .collect();
        let report = Report::of(&replies, &domain, Vec::new());
        (report.severity(), report.alike)
    };
    let (found, silent) = ("NOERROR; x.c.example. 5 A 10.0.0.1", "silent");
    assert_eq!(severity(&[(found, found)]), (Severity::Fine, 1));
    assert_eq!(severity(&[(found, found), ("NXDOMAIN", found)]), (Severity::Wrong, 1));
    assert_eq!(severity(&[(found, found), (silent, silent)]), (Severity::Unreadable, 1));
    assert_eq!(severity(&[]), (Severity::Unreadable, 0));
    let alike = Replies { asked: asked.clone(), with: reply(found), against: reply(found) };
    let cut = Report { is_cut: true, ..Report::of(&[alike], &domain, Vec::new()) };
    assert_eq!(cut.severity(), Severity::Unreadable, "others may differ");
}

#[test]
fn a_report_names_classes_with_counts_and_some_examples() {
    let asked = |n: usize| Asked {
        name: Name::from_ascii(format!("n{n}.c.example.")).unwrap(),
        kind: RecordType::A,
    };
    let replies: Vec<Replies> = (0..5)
        .map(|n| Replies {
            asked: asked(n),
            with: reply("NXDOMAIN; soa"),
            against: reply("NOERROR; n.c.example. 5 A 10.0.0.1"),
        })
        .collect();
    let report =
        Report::of(&replies, &Name::root(), vec!["capture.pcap: it ends too early".to_owned()]);
    assert_eq!(
        report.text().lines().take(8).collect::<Vec<_>>(),
        [
            "5 questions: 0 answered alike, 0 differ on purpose, 5 differ and nothing explains it",
            "note: capture.pcap: it ends too early",
            "",
            "Unknown:",
            "  NXDOMAIN in place of NOERROR (5)",
            "    n0.c.example. A",
            "      with:    NXDOMAIN",
            "      against: NOERROR, n.c.example. 5 A 10.0.0.1",
        ]
    );
    assert_eq!(report.unknown[0].examples.len(), MAX_EXAMPLES);
    assert_eq!(report.unknown_count(), 5);
}
