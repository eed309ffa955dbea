//! The random letter case of a question stays between us and the upstream (FW14).

use super::*;

const LOUD: QueryForm = QueryForm { edns: false, case: Some(u64::MAX), ..QueryForm::USUAL };
/// Pointers to the name of the question, and to what is behind its first label of three octets.
const QUESTION: [u8; 2] = [0xc0, 12];
const BEHIND_WWW: [u8; 2] = [0xc0, 16];

/// A record of class IN with this owner and a TTL of 60 s.
fn wire(owner: &[u8], rtype: u16, rdata: &[&[u8]]) -> Vec<u8> {
    let rdata = rdata.concat();
    let fixed = [0, 1, 0, 0, 0, 60];
    let length = (rdata.len() as u16).to_be_bytes();
    [owner, &rtype.to_be_bytes(), &fixed, &length, &rdata].concat()
}

/// What a client gets where the question was in upper case, and the answer section has these records.
fn relayed(qname: &str, qtype: RecordType, answer: &[Vec<u8>]) -> Vec<String> {
    let pending = plain(client(qname, qtype));
    let mut reply = pending.key.upstream_query_as(ID, LOUD).wire;
    assert!(reply[HEADER..].starts_with(b"\x03WWW"), "the question is in upper case");
    reply[2] |= 0x80;
    reply[7] = answer.len() as u8;
    reply.extend(answer.concat());
    let judged = pending.key.judge_as(ID, LOUD, &reply, &TtlCaps::default(), 0);
    let Verdict::Good(relayed) = judged else { panic!("{qname}: {judged:?}") };
    texts(&written(&pending.head, &[(&relayed, FRESH)]).answers)
}

#[test]
fn fw14_data_that_points_to_the_question_is_not_in_its_random_case() {
    let www = "www.example.org.";
    for (qtype, rtype, rdata, text) in [
        (RecordType::MX, 15, [&b"\0\x0a\x04Mail"[..], &QUESTION], "10 Mail.www.example.org."),
        (RecordType::SRV, 33, [b"\0\0\0\0\0\x35\x02ns", &BEHIND_WWW], "0 0 53 ns.example.org."),
        (RecordType::NS, 2, [b"\x02ns", &BEHIND_WWW], "ns.example.org."),
        (RecordType::CNAME, 5, [b"\x05other", &BEHIND_WWW], "other.example.org."),
    ] {
        let answer = relayed(www, qtype, &[wire(&QUESTION, rtype, &rdata)]);
        assert_eq!(answer, [format!("{www} 60 {qtype} {text}")]);
    }
    // The target of an alias is the owner of the next record.
    let alias = wire(&QUESTION, 5, &[b"\x01a", &BEHIND_WWW]);
    let end = wire(b"\x01a\xc0\x10", 1, &[&[192, 0, 2, 1]]);
    let answer = relayed(www, RecordType::A, &[alias, end]);
    assert_eq!(
        answer,
        ["www.example.org. 60 CNAME a.example.org.", "a.example.org. 60 A 192.0.2.1"]
    );
}

/// The server writes the labels of the question in front of what the DNAME has.
#[test]
fn fw14_an_alias_that_a_server_made_of_a_dname_is_not_in_our_random_case() {
    let dname = wire(&BEHIND_WWW, 39, &[b"\x03New\x07example\0"]);
    let made = wire(&QUESTION, 5, &[b"\x03WWW\x03New\x07example\0"]);
    let end = wire(b"\x03WWW\x03New\x07example\0", 1, &[&[192, 0, 2, 1]]);
    let alias = "www.old.example. 60 CNAME www.New.example.";
    for (qtype, expected) in [
        (RecordType::A, &[alias, "www.New.example. 60 A 192.0.2.1"][..]),
        (RecordType::CNAME, &[alias]),
    ] {
        let records = [dname.clone(), made.clone(), end.clone()];
        let answer = relayed("www.old.example.", qtype, &records);
        let aliases: Vec<&String> = answer.iter().filter(|text| !text.contains("DNAME")).collect();
        assert_eq!(aliases, expected, "{qtype}");
    }
}
