//! Upstream messages are written, and our replies read, by hickory-proto: an implementation that shares no code with ours.

mod contradictions;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::rdata::{CNAME, NS, NULL};
use hickory_proto::rr::{Name as HickoryName, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

use super::header::OPT;
use super::*;
use crate::wire::message::HEADER;
use crate::wire::name::Name;

const ID: u16 = 0x1234;
const CLIENT_ID: u16 = 0xbeef;

/// A client's query, before it is known what the upstream is asked.
#[derive(Clone, Copy)]
struct Asked {
    cd: bool,
    ad: bool,
    do_: bool,
    edns: bool,
    rd: bool,
    name_as_asked: &'static [u8],
    qtype: u16,
    limit: usize,
    nsid: Option<&'static [u8]>,
}

/// A client that waits, and what the upstream is asked for it.
#[derive(Clone)]
struct Client {
    head: ReplyHead<'static>,
    key: LookupKey,
}

impl Client {
    fn new(asked: Asked, target: Name) -> Client {
        let form = ReplyForm {
            id: CLIENT_ID,
            rd: asked.rd,
            cd: asked.cd,
            ad: asked.ad,
            do_: asked.do_,
            edns: asked.edns,
            qtype: asked.qtype,
            limit: asked.limit,
            udp_payload_size: 1232,
            ra: true,
            snapshot_age_s: None,
        };
        let (question, nsid) = (asked.name_as_asked, asked.nsid);
        let head = ReplyHead { form, question, nsid, cnames: Cnames::NONE };
        Client { head, key: LookupKey::new(target, asked.qtype, asked.do_, asked.cd) }
    }

    fn push_cname(&mut self, ttl_s: u32, target: Name) {
        assert!(self.head.cnames.push(Box::leak(Box::new(target.into())), ttl_s));
    }

    fn upstream_query(&self, id: u16) -> UpstreamQuery {
        self.key.upstream_query(id)
    }

    fn judge(&self, id: u16, reply: &[u8], caps: &TtlCaps) -> Verdict {
        self.key.judge(id, reply, caps)
    }

    fn write(&self, relayed: &Relayed, seed: u64, buffer: &mut [u8]) -> usize {
        let length = relayed.write(&self.head, FRESH, seed, buffer);
        // The copy for a client that waits writes the same.
        let mut again = vec![0; buffer.len()];
        assert_eq!(relayed.write(&self.head.keep().borrow(), FRESH, seed, &mut again), length);
        assert!(again[..length] == buffer[..length]);
        length
    }

    fn fail(&self, ede: u16, text: &str, buffer: &mut [u8]) -> usize {
        self.head.fail(ede, text, buffer)
    }
}

const FRESH: Freshness = Freshness::Fresh { age_s: 0 };

/// A client's query over UDP with OPT 1232.
fn client(name: &str, qtype: RecordType) -> Asked {
    let name = HickoryName::from_ascii(name).unwrap().to_bytes().unwrap();
    Asked {
        cd: false,
        ad: false,
        do_: false,
        edns: true,
        rd: true,
        name_as_asked: name.leak(),
        qtype: qtype.into(),
        limit: 1232,
        nsid: None,
    }
}

/// A client whose question was forwarded without an alias.
fn plain(asked: Asked) -> Client {
    Client::new(asked, Name::from_wire(asked.name_as_asked).unwrap())
}

fn name(text: &str) -> Name {
    Name::from_text(text).unwrap()
}

/// `owner TTL type data` as hickory reads it; DNAME and TYPEnnn data are names or hexadecimal.
fn record(text: &str) -> Record {
    let mut words = text.splitn(4, ' ');
    let owner = HickoryName::from_ascii(words.next().unwrap()).unwrap();
    let ttl_s = words.next().unwrap().parse().unwrap();
    let (kind, data) = (words.next().unwrap(), words.next().unwrap_or(""));
    let opaque =
        |code: u16, octets| RData::Unknown { code: code.into(), rdata: NULL::with(octets) };
    let hex = |data: &str| -> Vec<u8> {
        let digits: Vec<char> = data.chars().collect();
        let octet = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
        digits.chunks(2).map(octet).collect()
    };
    let data = match kind.strip_prefix("TYPE") {
        Some(code) => opaque(code.parse().unwrap(), hex(data)),
        None if kind == "DNAME" => {
            opaque(39, HickoryName::from_ascii(data).unwrap().to_bytes().unwrap())
        }
        // hickory's text reader lower-cases names; these must keep their case.
        None if kind == "CNAME" => RData::CNAME(CNAME(HickoryName::from_ascii(data).unwrap())),
        None if kind == "NS" => RData::NS(NS(HickoryName::from_ascii(data).unwrap())),
        None => RData::try_from_str(kind.parse().unwrap(), data).unwrap(),
    };
    Record::from_rdata(owner, ttl_s, data)
}

/// The upstream's reply to the query we send, with these answer and authority records.
fn upstream(pending: &Client, answer: &[&str], authority: &[&str]) -> Message {
    let query = Message::from_vec(&pending.upstream_query(ID).wire).unwrap();
    let mut reply = Message::new(ID, MessageType::Response, OpCode::Query);
    reply.metadata.recursion_available = true;
    reply.add_queries(query.queries.clone());
    reply.add_answers(answer.iter().map(|text| record(text)));
    reply.add_authorities(authority.iter().map(|text| record(text)));
    reply.set_edns(Edns::new());
    reply
}

fn judge(pending: &Client, reply: &Message) -> Verdict {
    pending.judge(ID, &reply.to_vec().unwrap(), &TtlCaps::default())
}

fn good(pending: &Client, reply: &Message) -> Relayed {
    match judge(pending, reply) {
        Verdict::Good(relayed) => relayed,
        other => panic!("not relayed: {other:?}"),
    }
}

fn failed(pending: &Client, reply: &Message) -> RelayError {
    match judge(pending, reply) {
        Verdict::Failed(error) => error,
        other => panic!("not a failure: {other:?}"),
    }
}

fn discarded(pending: &Client, reply: &Message) -> Discard {
    match judge(pending, reply) {
        Verdict::Discard(discard) => discard,
        other => panic!("not discarded: {other:?}"),
    }
}

fn relay(pending: &Client, reply: &Message) -> Message {
    let mut buffer = [0; 65_535];
    let length = pending.write(&good(pending, reply), 0, &mut buffer);
    assert!(length <= pending.head.form.limit);
    Message::from_vec(&buffer[..length]).unwrap()
}

fn fail(pending: &Client, ede: u16, text: &str) -> Message {
    let mut buffer = [0; 4096];
    let length = pending.fail(ede, text, &mut buffer);
    assert!(length <= pending.head.form.limit);
    Message::from_vec(&buffer[..length]).unwrap()
}

fn texts(records: &[Record]) -> Vec<String> {
    let text = |r: &Record| format!("{} {} {} {}", r.name, r.ttl, r.record_type(), r.data);
    records.iter().map(text).collect()
}

/// The flags of a header, as dig shows them.
fn flags(message: &Message) -> String {
    let of = &message.metadata;
    let all = [
        (of.authoritative, "aa"),
        (of.truncation, "tc"),
        (of.recursion_desired, "rd"),
        (of.recursion_available, "ra"),
        (of.authentic_data, "ad"),
        (of.checking_disabled, "cd"),
    ];
    all.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect::<Vec<_>>().join(" ")
}

fn ede(message: &Message) -> Option<(u16, String)> {
    let option = message.edns.as_ref()?.options().get(EdnsCode::Unknown(15))?.clone();
    let EdnsOption::Unknown(_, octets) = option else { panic!("{option:?}") };
    let code = u16::from_be_bytes([octets[0], octets[1]]);
    Some((code, String::from_utf8(octets[2..].to_vec()).unwrap()))
}

const SOA: &str =
    "example.org. 900 SOA ns.example.org. hostmaster.example.org. 1 7200 1800 86400 20";
const SOA_RELAYED: &str =
    "example.org. 20 SOA ns.example.org. hostmaster.example.org. 1 7200 1800 86400 20";

#[test]
fn fw1_the_query_is_a_new_message() {
    let pending = plain(Asked {
        cd: true,
        do_: true,
        rd: false,
        nsid: Some(b"me"),
        ..client("WWW.Example.ORG.", RecordType::A)
    });
    let query = Message::from_vec(&pending.upstream_query(ID).wire).unwrap();
    assert_eq!((query.metadata.id, query.metadata.message_type), (ID, MessageType::Query));
    assert_eq!(flags(&query), "rd ad cd");
    let mut asked =
        Query::query(HickoryName::from_ascii("www.example.org.").unwrap(), RecordType::A);
    asked.set_query_class(hickory_proto::rr::DNSClass::IN);
    assert_eq!(query.queries, [asked]);
    assert_eq!(query.queries[0].name().to_ascii(), "www.example.org.");
    let edns = query.edns.unwrap();
    assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1232, true));
    assert!(edns.options().as_ref().is_empty());
}

#[test]
fn fw1_queries_to_encrypted_servers_are_padded_to_128_octets() {
    let padded = QueryForm { padded: true, ..QueryForm::USUAL };
    for label in 1..=63 {
        for labels in 1..=3 {
            let name = vec!["x".repeat(label); labels].join(".");
            let key = LookupKey::new(Name::from_text(&name).unwrap(), 1, true, false);
            let wire = key.upstream_query_as(ID, padded).wire;
            assert!(wire.len().is_multiple_of(128), "{name}: {}", wire.len());
            let query = Message::from_vec(&wire).unwrap();
            let edns = query.edns.unwrap();
            let codes: Vec<_> = edns.options().as_ref().iter().map(|(code, _)| *code).collect();
            assert_eq!(codes, [hickory_proto::rr::rdata::opt::EdnsCode::Padding]);
            assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1232, true));
        }
    }
    let without = QueryForm { edns: false, ..padded };
    let key = LookupKey::new(Name::from_text("a.example").unwrap(), 1, false, false);
    assert!(Message::from_vec(&key.upstream_query_as(ID, without).wire).unwrap().edns.is_none());
}

#[test]
fn ca2_what_was_in_a_cache_of_http_counts_down_before_it_is_kept() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let records = ["www.example.org. 300 CNAME a.example.", "a.example. 60 A 192.0.2.1"];
    let reply = upstream(&pending, &records, &[]).to_vec().unwrap();
    let rows = [
        (0, 86_400, [300, 60], 60),
        (50, 86_400, [250, 10], 10),
        // The cap applies to the remaining time: 250 s are more than the cap.
        (50, 100, [100, 10], 10),
        (u32::MAX, 86_400, [0, 0], 0),
    ];
    for (age_s, max_s, ttls, lifetime_s) in rows {
        let caps = TtlCaps { max_s, ..TtlCaps::default() };
        let judged = pending.key.judge_as(ID, QueryForm::USUAL, &reply, &caps, age_s);
        let Verdict::Good(relayed) = judged else { panic!("{age_s}: {judged:?}") };
        let mut buffer = [0; 512];
        let fresh = Freshness::Fresh { age_s: 0 };
        let length = relayed.write(&pending.head, fresh, 0, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        let shown: Vec<u32> = reply.answers.iter().map(|record| record.ttl).collect();
        assert_eq!((&shown[..], relayed.lifetime_s()), (&ttls[..], lifetime_s), "{age_s} {max_s}");
    }
}

#[test]
fn ca3_a_denial_from_a_cache_of_http_has_the_time_that_is_left() {
    let pending = plain(client("nothere.example.org.", RecordType::A));
    let soa = "example.org. 7200 SOA ns.example.org. h.example.org. 1 2 3 4 3600";
    let mut message = upstream(&pending, &[], &[soa]);
    message.metadata.response_code = ResponseCode::NXDomain;
    let reply = message.to_vec().unwrap();
    for (age_s, max_negative_s, left) in [(0, 1800, 1800), (600, 86_400, 3000), (600, 1800, 1800)] {
        let caps = TtlCaps { max_negative_s, ..TtlCaps::default() };
        let judged = pending.key.judge_as(ID, QueryForm::USUAL, &reply, &caps, age_s);
        let Verdict::Good(relayed) = judged else { panic!("{age_s}: {judged:?}") };
        assert_eq!(relayed.lifetime_s(), left, "{age_s} {max_negative_s}");
    }
}

#[test]
fn fw12_only_the_reply_to_our_query_is_believed() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let right = || upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]);
    good(&pending, &right());

    let mut reply = right();
    reply.metadata.id = ID + 1;
    assert_eq!(discarded(&pending, &reply), Discard::Id);
    let mut reply = right();
    reply.metadata.message_type = MessageType::Query;
    assert_eq!(discarded(&pending, &reply), Discard::Malformed);
    let mut reply = right();
    reply.metadata.op_code = OpCode::Notify;
    assert_eq!(discarded(&pending, &reply), Discard::Malformed);
    let mut reply = right();
    reply.queries[0].set_query_type(RecordType::AAAA);
    assert_eq!(discarded(&pending, &reply), Discard::Question);
    let mut reply = right();
    reply.queries[0].set_name(HickoryName::from_ascii("www.example.net.").unwrap());
    assert_eq!(discarded(&pending, &reply), Discard::Question);
    let mut reply = right();
    reply.queries.clear();
    assert_eq!(discarded(&pending, &reply), Discard::Question);
    let mut reply = right();
    reply.add_query(reply.queries[0].clone());
    assert_eq!(discarded(&pending, &reply), Discard::Question);

    // Another case of the same name is the same question.
    let mut reply = right();
    reply.queries[0].set_name(HickoryName::from_ascii("WWW.example.ORG.").unwrap());
    good(&pending, &reply);
}

#[test]
fn fw12_a_message_cut_anywhere_is_discarded() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let whole = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[SOA]).to_vec().unwrap();
    for length in 0..whole.len() {
        let verdict = pending.judge(ID, &whole[..length], &TtlCaps::default());
        assert!(matches!(verdict, Verdict::Discard(_)), "{length}: {verdict:?}");
    }
}

#[test]
fn fw12_names_that_loop_do_not_parse() {
    let pending = plain(client("a.example.", RecordType::A));
    let query = pending.upstream_query(ID).wire;
    let question_end = query.len() - OPT;
    let owner_at = question_end as u8;
    for owner in [
        [0xc0, owner_at],     // itself
        [0xc0, owner_at + 2], // forward
        [0xc0, 0x02],         // the header
        [0xff, 0xff],         // past the end
        [0x80, 0x00],         // label type 10
    ] {
        let mut reply = query[..question_end].to_vec();
        reply[2] = 0x81;
        reply[7] = 1;
        reply[11] = 0;
        reply.extend(owner);
        reply.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        let verdict = pending.judge(ID, &reply, &TtlCaps::default());
        assert!(matches!(verdict, Verdict::Discard(Discard::Malformed)), "{owner:?}: {verdict:?}");
    }
}

#[test]
fn fw21_what_is_no_answer_fails_the_attempt() {
    let pending = plain(client("www.example.org.", RecordType::A));
    for rcode in [
        ResponseCode::ServFail,
        ResponseCode::Refused,
        ResponseCode::NotImp,
        ResponseCode::FormErr,
        ResponseCode::NotAuth,
    ] {
        let mut reply = upstream(&pending, &[], &[]);
        reply.metadata.response_code = rcode;
        assert_eq!(failed(&pending, &reply), RelayError::Rcode(rcode.into()));
        // A server that did not understand the question may leave it out (FW12).
        reply.queries.clear();
        assert_eq!(failed(&pending, &reply), RelayError::Rcode(rcode.into()));
    }
    let mut reply = upstream(&pending, &[], &[]);
    reply.metadata.response_code = ResponseCode::BADVERS;
    assert_eq!(failed(&pending, &reply), RelayError::Rcode(16));

    let referral = ["example.org. 900 NS ns.example.org."];
    assert_eq!(failed(&pending, &upstream(&pending, &[], &referral)), RelayError::Referral);
    let unrelated = ["www.example.net. 60 A 192.0.2.1"];
    assert_eq!(failed(&pending, &upstream(&pending, &unrelated, &[])), RelayError::Unrelated);
    let mut reply = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]);
    reply.metadata.truncation = true;
    assert_eq!(failed(&pending, &reply), RelayError::Truncated);
}

#[test]
fn n17_a_forwarded_answer_has_the_question_as_asked_and_no_aa() {
    let pending = plain(client("WwW.example.org.", RecordType::A));
    let answer = ["www.example.org. 600 A 192.0.2.80", "www.example.org. 600 A 192.0.2.81"];
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    assert_eq!(reply.metadata.id, CLIENT_ID);
    assert_eq!(flags(&reply), "rd ra");
    assert_eq!(reply.queries[0].name().to_ascii(), "WwW.example.org.");
    assert_eq!(
        texts(&reply.answers),
        ["WwW.example.org. 600 A 192.0.2.80", "WwW.example.org. 600 A 192.0.2.81"]
    );
    assert_eq!((reply.authorities.len(), reply.additionals.len()), (0, 0));
    assert_eq!(reply.edns.unwrap().max_payload(), 1232);
}

#[test]
fn fw40_records_off_the_chain_are_dropped() {
    let pending = plain(client("junk.example.net.", RecordType::A));
    let mut reply = upstream(
        &pending,
        &[
            "www.example.org. 60 A 203.0.113.66",
            "junk.example.net. 60 A 192.0.2.86",
            "junk.example.net. 60 TXT x",
        ],
        &["example.net. 60 NS ns.example.net.", SOA],
    );
    reply.add_additional(record("www.example.org. 60 A 203.0.113.66"));
    let reply = relay(&pending, &reply);
    assert_eq!(texts(&reply.answers), ["junk.example.net. 60 A 192.0.2.86"]);
    assert_eq!((reply.authorities.len(), reply.additionals.len()), (0, 0));
}

#[test]
fn fw41_the_chain_is_put_in_order() {
    let pending = plain(client("a.example.", RecordType::A));
    let reply = upstream(
        &pending,
        &[
            "c.example. 3 A 192.0.2.1",
            "b.example. 2 CNAME C.example.",
            "a.example. 1 CNAME b.example.",
        ],
        &[],
    );
    assert_eq!(
        texts(&relay(&pending, &reply).answers),
        [
            "a.example. 1 CNAME b.example.",
            "b.example. 2 CNAME C.example.",
            "C.example. 3 A 192.0.2.1"
        ]
    );
}

#[test]
fn fw41_seventeen_cnames_or_a_loop_fail_the_attempt() {
    let pending = plain(client("n0.example.", RecordType::A));
    let chain = |length: usize| -> Vec<String> {
        (0..length).map(|i| format!("n{i}.example. 60 CNAME n{}.example.", i + 1)).collect()
    };
    let reply = |records: &[String]| {
        upstream(&pending, &records.iter().map(String::as_str).collect::<Vec<_>>(), &[])
    };
    let mut sixteen = chain(16);
    sixteen.push("n16.example. 60 A 192.0.2.1".into());
    assert_eq!(relay(&pending, &reply(&sixteen)).answers.len(), 17);
    let mut seventeen = chain(17);
    seventeen.push("n17.example. 60 A 192.0.2.1".into());
    assert_eq!(failed(&pending, &reply(&seventeen)), RelayError::Chain);
    let round = ["n0.example. 60 CNAME n1.example.", "n1.example. 60 CNAME n0.example."];
    assert_eq!(failed(&pending, &upstream(&pending, &round, &[])), RelayError::Chain);
}

#[test]
fn fw40_a_dname_stays_with_the_cname_it_explains() {
    let pending = plain(client("www.old.example.", RecordType::A));
    let dname = "old.example. 60 DNAME new.example.";
    let address = "www.new.example. 60 A 192.0.2.1";
    let cname = "www.old.example. 60 CNAME www.new.example.";
    let whole = relay(&pending, &upstream(&pending, &[dname, cname, address], &[]));
    assert_eq!(whole.answers.len(), 3);
    assert_eq!(whole.answers[0].record_type(), RecordType::DNAME);
    assert_eq!(texts(&whole.answers[1..]), [cname, address]);
    // Without the CNAME, clients that do not know DNAME could not follow.
    let made = relay(&pending, &upstream(&pending, &[address, dname], &[]));
    assert_eq!(texts(&made.answers[1..]), [cname, address]);
    // A DNAME that leads elsewhere is not on the chain.
    let other = "old.example. 60 DNAME other.example.";
    let without = relay(&pending, &upstream(&pending, &[other, cname, address], &[]));
    assert_eq!(texts(&without.answers), [cname, address]);
}

#[test]
fn fw40_any_relays_every_rrset_of_the_name() {
    let pending = plain(client("www.example.org.", RecordType::ANY));
    let answer = [
        "www.example.org. 60 A 192.0.2.1",
        "www.example.org. 60 TXT x",
        "www.example.org. 60 MX 10 mail.example.org.",
        "other.example.org. 60 A 192.0.2.2",
    ];
    assert_eq!(texts(&relay(&pending, &upstream(&pending, &answer, &[])).answers), &answer[..3]);
}

#[test]
fn fw40_signatures_and_denials_only_with_do() {
    // RRSIG over A and over SOA, and an NSEC; only the type covered matters here.
    let (over_a, over_soa, over_nsec) = ("0001", "0006", "002f");
    let rrsig =
        |owner: &str, covered: &str| format!("{owner} 60 TYPE46 {covered}{}", "00".repeat(20));
    let signatures = [
        rrsig("www.example.org.", over_a),
        rrsig("example.org.", over_soa),
        rrsig("www.example.org.", over_nsec),
    ];
    let nsec = "www.example.org. 60 TYPE47 00";
    for (do_, answers, authorities) in [(false, 1, 0), (true, 2, 2)] {
        let pending = plain(Asked { do_, ..client("www.example.org.", RecordType::A) });
        let answer = ["www.example.org. 60 A 192.0.2.1", &signatures[0]];
        let authority = [nsec, signatures[2].as_str(), "example.org. 60 NS ns.example.org."];
        let reply = relay(&pending, &upstream(&pending, &answer, &authority));
        assert_eq!((reply.answers.len(), reply.authorities.len()), (answers, authorities), "{do_}");
        assert_eq!(reply.edns.unwrap().flags().dnssec_ok, do_);
    }
    for (do_, authorities) in [(false, 1), (true, 4)] {
        let pending = plain(Asked { do_, ..client("www.example.org.", RecordType::AAAA) });
        let authority = [SOA, &signatures[1], nsec, &signatures[2]];
        let reply = relay(&pending, &upstream(&pending, &[], &authority));
        assert_eq!(reply.authorities.len(), authorities, "{do_}");
        assert_eq!(texts(&reply.authorities[..1]), [SOA_RELAYED]);
    }
}

#[test]
fn n17_negative_replies_keep_rcode_and_soa() {
    let pending = plain(client("nx.example.org.", RecordType::A));
    let mut nx = upstream(&pending, &[], &[SOA]);
    nx.metadata.response_code = ResponseCode::NXDomain;
    let reply = relay(&pending, &nx);
    assert_eq!((reply.metadata.response_code, reply.answers.len()), (ResponseCode::NXDomain, 0));
    assert_eq!(texts(&reply.authorities), [SOA_RELAYED]);
    // Without an SOA, and with one of another zone.
    nx.authorities.clear();
    assert_eq!(relay(&pending, &nx).authorities.len(), 0);
    nx.add_authority(record("example.com. 900 SOA a. b. 1 2 3 4 5"));
    assert_eq!(relay(&pending, &nx).authorities.len(), 0);
}

#[test]
fn fw44_ttls_are_capped_and_absurd_ones_count_as_zero() {
    let pending = plain(client("www.example.org.", RecordType::A));
    for (ttl, relayed) in [("0", 0), ("3600", 3600), ("864000", 3600), ("2147483648", 0)] {
        let text = format!("www.example.org. {ttl} A 192.0.2.1");
        assert_eq!(relay(&pending, &upstream(&pending, &[&text], &[])).answers[0].ttl, relayed);
    }
}

#[test]
fn wr6_ad_only_for_clients_that_ask_for_it() {
    for (ad, do_, expected) in
        [(false, false, "rd ra"), (true, false, "rd ra ad"), (false, true, "rd ra ad")]
    {
        let pending = plain(Asked { ad, do_, ..client("www.example.org.", RecordType::A) });
        let mut reply = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]);
        reply.metadata.authentic_data = true;
        assert_eq!(flags(&relay(&pending, &reply)), expected);
        reply.metadata.authentic_data = false;
        assert_eq!(flags(&relay(&pending, &reply)), "rd ra");
    }
}

#[test]
fn wr10_no_opt_without_opt_and_nsid_where_asked() {
    let query = client("www.example.org.", RecordType::A);
    let pending = plain(Asked { edns: false, limit: 512, cd: true, ..query });
    let answer = ["www.example.org. 60 A 192.0.2.1"];
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    assert!(reply.edns.is_none());
    assert_eq!(flags(&reply), "rd ra cd");
    assert!(fail(&pending, 22, "no server").edns.is_none());

    let pending = plain(Asked { nsid: Some(b"pod-1"), ..query });
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    let edns = reply.edns.unwrap();
    let nsid = edns.options().get(EdnsCode::NSID).unwrap();
    assert_eq!(<Vec<u8>>::try_from(nsid).unwrap(), b"pod-1");
}

fn legacy(query: Asked) -> Client {
    let mut pending = Client::new(query, name("mail.example.com"));
    pending.push_cname(5, name("alias.shop.svc.cluster.local"));
    pending.push_cname(30, name("mail.example.com"));
    pending
}

#[test]
fn rr40_our_cnames_come_first_and_set_aa() {
    let pending =
        legacy(Asked { ad: true, ..client("Legacy.shop.svc.cluster.local.", RecordType::A) });
    let mut reply = upstream(&pending, &["mail.example.com. 300 A 192.0.2.25"], &[]);
    reply.metadata.authentic_data = true;
    let reply = relay(&pending, &reply);
    assert_eq!(flags(&reply), "aa rd ra");
    assert_eq!(
        texts(&reply.answers),
        [
            "Legacy.shop.svc.cluster.local. 5 CNAME alias.shop.svc.cluster.local.",
            "alias.shop.svc.cluster.local. 30 CNAME mail.example.com.",
            "mail.example.com. 300 A 192.0.2.25",
        ]
    );
}

#[test]
fn rr41_a_negative_target_gives_its_rcode_and_soa() {
    let pending = legacy(client("legacy.shop.svc.cluster.local.", RecordType::AAAA));
    let soa = "example.com. 900 SOA ns.example.com. hostmaster.example.com. 1 7200 1800 86400 600";
    let mut upstream_reply = upstream(&pending, &[], &[soa]);
    let reply = relay(&pending, &upstream_reply);
    assert_eq!((flags(&reply).as_str(), reply.answers.len()), ("aa rd ra", 2));
    assert!(texts(&reply.authorities)[0].starts_with("example.com. 30 SOA "));
    upstream_reply.metadata.response_code = ResponseCode::NXDomain;
    let reply = relay(&pending, &upstream_reply);
    assert_eq!((reply.metadata.response_code, reply.answers.len()), (ResponseCode::NXDomain, 2));
}

#[test]
fn rr42_a_failure_keeps_our_cnames_without_aa_and_soa() {
    let pending = legacy(client("legacy.shop.svc.cluster.local.", RecordType::A));
    let reply = fail(&pending, 22, "no upstream answered");
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!((flags(&reply).as_str(), reply.answers.len()), ("rd ra", 2));
    assert_eq!((reply.authorities.len(), reply.additionals.len()), (0, 0));
    assert_eq!(ede(&reply), Some((22, "no upstream answered".into())));
}

#[test]
fn wr15_text_then_the_code_make_way_for_records() {
    let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
    let whole = fail(&legacy(query), 22, &"ü".repeat(40));
    assert_eq!(ede(&whole), Some((22, "ü".repeat(32))), "at most 64 octets, whole characters");
    let size = whole.to_vec().unwrap().len();
    let cases = [(size, Some(64)), (size - 1, Some(0)), (size - 64, Some(0)), (size - 65, None)];
    for (limit, text) in cases {
        let pending = legacy(Asked { limit, ..query });
        let mut buffer = [0; 4096];
        let length = pending.fail(22, &"ü".repeat(32), &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert!(length <= limit && reply.answers.len() == 2 && !reply.metadata.truncation);
        assert_eq!(ede(&reply).map(|(_, text)| text.len()), text, "{limit}");
    }
}

#[test]
fn n18_codes_of_an_upstream_make_way_first() {
    let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
    let sent = ErrorCodes::of(&{
        let mut reply = upstream(&plain(query), &[], &[]);
        let mut edns = Edns::new();
        for code in [6u8, 23, 9] {
            edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, code]));
        }
        reply.set_edns(edns);
        reply.to_vec().unwrap()
    });
    assert_eq!(sent.as_slice(), [6, 23, 9]);
    let at = |limit: usize| {
        let pending = legacy(Asked { limit, ..query });
        let mut buffer = [0; 4096];
        let length = pending.head.fail_behind(23, "text", sent, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert!(length <= limit && reply.answers.len() == 2);
        (length, edes(&reply))
    };
    let (size, whole) = at(1232);
    assert_eq!(whole, [(23, 4), (6, 0), (9, 0)], "ours once, and first");
    assert_eq!(at(size - 1).1, [(23, 4), (6, 0)]);
    assert_eq!(at(size - 7).1, [(23, 4)]);
    assert_eq!(at(size - 13).1, [(23, 0)]);
}

/// Codes and lengths of text of all Extended DNS Errors.
fn edes(message: &Message) -> Vec<(u16, usize)> {
    let options = message.edns.iter().flat_map(|edns| edns.options().as_ref());
    let ede = |(_, option): &(EdnsCode, EdnsOption)| match option {
        EdnsOption::Unknown(15, octets) => {
            Some((u16::from_be_bytes([octets[0], octets[1]]), octets.len() - 2))
        }
        _ => None,
    };
    options.filter_map(ede).collect()
}

#[test]
fn e42_a_reply_behind_a_cname_from_a_snapshot_tells_its_age() {
    let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
    let aged = |query| {
        let mut pending = legacy(query);
        pending.head.form.snapshot_age_s = Some(90);
        pending
    };
    let pending = aged(query);
    let reply = upstream(&pending, &["mail.example.com. 60 A 192.0.2.1"], &[]);
    assert_eq!(ede(&relay(&pending, &reply)), Some((3, "snapshot 90s".into())));
    // They come after the reason of the failure, and are left out first where room is short.
    let whole = fail(&pending, 22, "silence");
    assert_eq!(edes(&whole), [(22, 7), (3, 12)]);
    let size = whole.to_vec().unwrap().len();
    for (limit, expected) in [
        (size, vec![(22, 7), (3, 12)]),
        (size - 1, vec![(22, 0), (3, 12)]),
        (size - 8, vec![(3, 12)]),
    ] {
        let reply = fail(&aged(Asked { limit, ..query }), 22, "silence");
        assert_eq!((reply.answers.len(), edes(&reply)), (2, expected), "{limit}");
    }
    let small = fail(&aged(Asked { limit: size - 14, ..query }), 22, "");
    assert!(small.metadata.truncation && edes(&small).contains(&(3, 12)), "as of our own answers");
    let without = fail(&aged(Asked { edns: false, ..query }), 22, "");
    assert!(without.edns.is_none() && without.answers.len() == 2);
}

fn many_addresses(count: usize) -> Vec<String> {
    (0..count)
        .map(|i| format!("mail.example.com. 60 A 192.0.{}.{}", i / 250, i % 250 + 1))
        .collect()
}

#[test]
fn r12_a_target_over_the_limit_sets_tc_and_keeps_whole_records() {
    for (limit, edns) in [(512, false), (512, true), (1232, true)] {
        let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
        let pending = legacy(Asked { limit, edns, ..query });
        let answer = many_addresses(100);
        let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
        let mut buffer = [0; 4096];
        let relayed = good(&pending, &upstream(&pending, &answer, &[]));
        let length = pending.write(&relayed, 7, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(flags(&reply), "aa tc rd ra");
        assert!(length <= limit && length > limit - 16, "{length} of {limit}");
        assert_eq!(reply.answers[0].record_type(), RecordType::CNAME);
        assert_eq!(reply.answers[1].record_type(), RecordType::CNAME);
        assert!(reply.answers.len() > 20 && reply.edns.is_some() == edns);

        let pending = legacy(Asked { limit: 65_535, edns, ..query });
        let reply = relay(&pending, &upstream(&pending, &answer, &[]));
        assert_eq!((flags(&reply).as_str(), reply.answers.len()), ("aa rd ra", 102));
    }
}

#[test]
fn wr23_over_tcp_what_exceeds_a_message_is_cut_without_tc() {
    // Compressed by the upstream, these fit in a message; a SRV target is never compressed by us.
    let target = format!("{}.{}.example.", "x".repeat(60), "y".repeat(60));
    let answer: Vec<String> =
        (0..600).map(|i| format!("s.example. 60 SRV 0 0 {i} {target}")).collect();
    let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
    let query = client("s.example.", RecordType::SRV);
    let pending = plain(Asked { limit: 65_535, ..query });
    let mut message = upstream(&pending, &[], &[]).to_vec().unwrap();
    message[7] = answer.len() as u8;
    message[6] = (answer.len() >> 8) as u8;
    // Written by hand: hickory follows RFC 2782 and does not compress the target either.
    let records_at = message.len() - OPT;
    let opt = message.split_off(records_at);
    let target_wire = HickoryName::from_ascii(&target).unwrap().to_bytes().unwrap();
    let first_target_at = records_at + 12 + 6;
    for i in 0..answer.len() {
        message.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60]);
        let pointer = (0xc000 | first_target_at as u16).to_be_bytes();
        let target = if i == 0 { &target_wire[..] } else { &pointer };
        message.extend((6 + target.len() as u16).to_be_bytes());
        message.extend([0, 0, 0, 0]);
        message.extend((i as u16).to_be_bytes());
        message.extend(target);
    }
    message.extend(opt);
    let Verdict::Good(relayed) = pending.judge(ID, &message, &TtlCaps::default()) else {
        panic!("not relayed");
    };
    let mut buffer = vec![0; 65_535];
    let length = pending.write(&relayed, 0, &mut buffer);
    let reply = Message::from_vec(&buffer[..length]).unwrap();
    assert!(length > 65_000 && reply.answers.len() < 600 && !reply.metadata.truncation);
    assert_eq!(texts(&reply.answers)[1], answer[1]);
}

#[test]
fn wr21_a_negative_reply_that_does_not_fit_is_truncated() {
    let long = ["l".repeat(60), "m".repeat(60), "n".repeat(60)].join(".");
    let soa = format!("example.org. 60 SOA {long}.a. {long}.b. 1 2 3 4 5");
    let question = format!("{long}.example.org.");
    let query = client(&question, RecordType::A);
    let pending = plain(Asked { limit: 512, edns: false, ..query });
    let reply = relay(&pending, &upstream(&pending, &[], &[&soa]));
    assert_eq!((flags(&reply).as_str(), reply.authorities.len()), ("tc rd ra", 0));
}

#[test]
fn wr24_address_sets_start_anywhere_and_lose_nothing() {
    let pending = plain(client("mail.example.com.", RecordType::A));
    let answer = many_addresses(4);
    let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    let mut firsts = alloc::collections::BTreeMap::new();
    for quarter in 0..4_u64 {
        let mut buffer = [0; 1232];
        let length = pending.write(&relayed, (quarter << 62) + 1, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        let mut all = texts(&reply.answers);
        *firsts.entry(all[0].clone()).or_insert(0) += 1;
        all.sort();
        assert_eq!(all, answer);
    }
    assert_eq!(firsts.len(), 4, "each address leads once: {firsts:?}");
}

#[test]
fn fw41_names_in_rdata_are_decompressed_and_keep_their_case() {
    // hickory compresses MX and NS names towards the question; TYPE1000 stays as it is.
    for (qtype, data) in [
        (RecordType::MX, "MX 10 mail.example.org."),
        (RecordType::NS, "NS Ns.Example.org."),
        (RecordType::SRV, "SRV 1 2 3 srv.example.org."),
        (RecordType::Unknown(1000), "TYPE1000 c00c"),
    ] {
        let pending = plain(client("WWW.EXAMPLE.org.", qtype));
        let text = format!("www.example.org. 60 {data}");
        let reply = relay(&pending, &upstream(&pending, &[&text], &[]));
        let expected = record(&text);
        assert_eq!(reply.answers[0].data.to_string(), expected.data.to_string(), "{data}");
    }
}

#[test]
fn fw41_addresses_of_another_size_do_not_parse() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let mut reply = upstream(&pending, &[], &[]);
    let data = RData::Unknown { code: RecordType::A, rdata: NULL::with(vec![1, 2, 3]) };
    reply.add_answer(Record::from_rdata(
        HickoryName::from_ascii("www.example.org.").unwrap(),
        1,
        data,
    ));
    assert_eq!(discarded(&pending, &reply), Discard::Malformed);
}

#[test]
fn w12_thousands_of_owners_and_targets_are_read_and_written() {
    let pending = plain(Asked { limit: 65_535, ..client("ns.example.", RecordType::NS) });
    let answer: Vec<String> =
        (0..1000).map(|i| format!("ns.example. 60 NS a.b.c.d.e.f{i}.example.")).collect();
    let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    assert_eq!(texts(&reply.answers), answer);
}

#[test]
fn rr48_ten_cnames_of_the_longest_names_fit() {
    let mut pending = plain(Asked { limit: 65_535, ..client("a.example.", RecordType::A) });
    let long = ["l".repeat(63), "m".repeat(63), "n".repeat(63), "o".repeat(60)].join(".");
    for i in 0..10 {
        pending.push_cname(i, name(&format!("{}{i}", &long[..long.len() - 1])));
    }
    pending.head.form.limit = 4096;
    let reply = fail(&pending, 0, "");
    assert_eq!(reply.answers.len(), 10);
    assert_eq!(reply.answers[9].ttl, 9);
}

/// For any reply of an upstream: no panic, and what we write can be read.
#[test]
fn mutated_replies_never_panic_and_never_make_us_write_nonsense() {
    let query = client("www.old.example.", RecordType::A);
    let mut client_queries = vec![
        plain(Asked { do_: true, limit: 512, ..query }),
        plain(Asked { limit: 65_535, nsid: Some(&[b'n'; 255]), ..query }),
        plain(Asked { qtype: 255, edns: false, ..query }),
    ];
    let mut behind = Client::new(query, name("www.old.example"));
    behind.push_cname(5, name("www.old.example"));
    client_queries.push(behind);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut buffer = vec![0; 65_535];
    let mut relayed = 0;
    for pending in &client_queries {
        let answer = [
            "old.example. 60 DNAME new.example.",
            "www.old.example. 60 CNAME www.new.example.",
            "www.new.example. 60 A 192.0.2.1",
            "www.new.example. 60 MX 1 a.new.example.",
            "www.new.example. 60 SRV 1 1 1 a.new.example.",
        ];
        let soa = "new.example. 60 SOA a.new.example. b.new.example. 1 2 3 4 5";
        let whole = upstream(pending, &answer, &[soa]).to_vec().unwrap();
        for _ in 0..20_000 {
            let mut message = whole.clone();
            for _ in 0..=random() % 4 {
                // The header and question mostly survive, or nothing behind them would be reached.
                let at = 4 + random() as usize % (message.len() - 4);
                message[at] = random() as u8;
            }
            if random() % 4 == 0 {
                message.truncate(random() as usize % (message.len() + 1));
            }
            if let Verdict::Good(good) = pending.judge(ID, &message, &TtlCaps::default()) {
                relayed += 1;
                let length = pending.write(&good, random(), &mut buffer);
                assert!(length <= pending.head.form.limit);
                let end = HEADER + pending.head.question.len() + 4;
                assert!(read::Message::read(&buffer[..length], end).is_some());
            }
        }
    }
    assert!(relayed > 1000, "the mutations leave enough intact: {relayed}");
}

fn written(head: &ReplyHead<'_>, hops: &[(&Relayed, Freshness)]) -> Message {
    let mut buffer = [0; 4096];
    let length = write_chain(head, hops, 0, &mut buffer);
    Message::from_vec(&buffer[..length]).unwrap()
}

#[test]
fn fw44_ttls_count_down_to_one_and_a_ttl_of_zero_stays() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let answer = ["www.example.org. 600 CNAME a.example.", "a.example. 90 A 192.0.2.1"];
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    assert_eq!(relayed.lifetime_s(), 90);
    for (age_s, ttls) in [(0, [600, 90]), (10, [590, 80]), (90, [510, 1]), (u32::MAX, [1, 1])] {
        let reply = written(&pending.head, &[(&relayed, Freshness::Fresh { age_s })]);
        assert_eq!([reply.answers[0].ttl, reply.answers[1].ttl], ttls, "{age_s}");
        assert_eq!(ede(&reply), None);
    }
    let zero = good(&pending, &upstream(&pending, &["www.example.org. 0 A 192.0.2.1"], &[]));
    assert_eq!(written(&pending.head, &[(&zero, FRESH)]).answers[0].ttl, 0);
    assert_eq!(zero.lifetime_s(), 0);
}

#[test]
fn ca40_a_stale_reply_has_ttls_of_30_and_says_so() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let answer = ["www.example.org. 600 A 192.0.2.1"];
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    let reply = written(&pending.head, &[(&relayed, Freshness::Stale)]);
    assert_eq!((reply.answers[0].ttl, ede(&reply)), (30, Some((3, String::new()))));
    let mut denial = upstream(&pending, &[], &[SOA]);
    denial.metadata.response_code = ResponseCode::NXDomain;
    let relayed = good(&pending, &denial);
    let reply = written(&pending.head, &[(&relayed, Freshness::Stale)]);
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!((reply.authorities[0].ttl, ede(&reply)), (30, Some((19, String::new()))));
}

#[test]
fn ca3_a_denial_is_kept_for_the_ttl_of_its_soa_and_not_without_one() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let lifetime_s = |answer: &[&str], authority: &[&str], rcode| {
        let mut reply = upstream(&pending, answer, authority);
        reply.metadata.response_code = rcode;
        good(&pending, &reply).lifetime_s()
    };
    let (found, missing) = (ResponseCode::NoError, ResponseCode::NXDomain);
    assert_eq!(lifetime_s(&[], &[SOA], found), 20);
    assert_eq!(lifetime_s(&[], &[SOA], missing), 20);
    assert_eq!((lifetime_s(&[], &[], found), lifetime_s(&[], &[], missing)), (0, 0));
    let alias = ["www.example.org. 7 CNAME a.example.org."];
    assert_eq!(lifetime_s(&alias, &[SOA], missing), 7, "the CNAME in front counts too");
    assert_eq!(lifetime_s(&alias, &[], missing), 0);
}

#[test]
fn ca1_what_is_kept_knows_the_key_that_it_answers() {
    let pending = plain(Asked { do_: true, ..client("www.example.org.", RecordType::A) });
    let relayed = good(&pending, &upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]));
    assert!(relayed.is_for(&pending.key) && relayed.key() == pending.key);
    let of = |text, qtype, dnssec, cd| LookupKey::new(name(text), qtype, dnssec, cd);
    for other in [
        of("ww.example.org", 1, true, false),
        of("www.example.org", 28, true, false),
        of("www.example.org", 1, false, false),
        of("www.example.org", 1, true, true),
    ] {
        assert!(!relayed.is_for(&other), "{other:?}");
    }
    let failure = Relayed::failure(&pending.key);
    assert!(failure.is_for(&pending.key) && failure.is_failure() && failure.lifetime_s() == 0);
}

#[test]
fn fw42_hops_of_several_lookups_make_one_reply() {
    let first = legacy(client("Legacy.shop.svc.cluster.local.", RecordType::MX));
    let half = ["mail.example.com. 60 CNAME Big.example.org."];
    let one = good(&first, &upstream(&first, &half, &[]));
    assert_eq!((one.unresolved_target(), one.lifetime_s()), (Some(name("big.example.org")), 60));
    let second = plain(client("big.example.org.", RecordType::MX));
    let whole = [
        "big.example.org. 50 CNAME c.example.org.",
        "c.example.org. 40 MX 1 d.c.example.org.",
        "c.example.org. 40 MX 2 big.example.org.",
    ];
    let two = good(&second, &upstream(&second, &whole, &[]));
    assert_eq!(two.unresolved_target(), None);
    let hops = [(&one, Freshness::Fresh { age_s: 9 }), (&two, FRESH)];
    let reply = written(&first.head, &hops);
    assert_eq!(
        texts(&reply.answers),
        [
            "Legacy.shop.svc.cluster.local. 5 CNAME alias.shop.svc.cluster.local.",
            "alias.shop.svc.cluster.local. 30 CNAME mail.example.com.",
            "mail.example.com. 51 CNAME Big.example.org.",
            "Big.example.org. 50 CNAME c.example.org.",
            "c.example.org. 40 MX 1 d.c.example.org.",
            "c.example.org. 40 MX 2 big.example.org.",
        ]
    );
}
