//! What a forwarded query becomes: the set-up that the tests of each rule share. Upstream messages are written, and our replies
//! read, by hickory-proto: an implementation that shares no code with ours.

mod queries;
mod selection;
mod contradictions;
mod private_addresses;
mod replies;
mod sizes;
mod kept;
mod letter_case;
mod plain;

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
            is_ours: false,
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
        let written = relayed.write(&self.head, FRESH, seed, buffer);
        // A waiting client has a copy of the key, which writes the same reply.
        let mut again = vec![0; buffer.len()];
        assert_eq!(relayed.write(&self.head.keep().borrow(), FRESH, seed, &mut again), written);
        assert!(again[..written.octets] == buffer[..written.octets]);
        // So does the writer of chains.
        let hop = [(relayed, FRESH)];
        assert_eq!(write_chain(&self.head, &hop, seed, &mut again), written);
        assert!(again[..written.octets] == buffer[..written.octets]);
        written.octets
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

fn legacy(query: Asked) -> Client {
    let mut pending = Client::new(query, name("mail.example.com"));
    pending.push_cname(5, name("alias.shop.svc.cluster.local"));
    pending.push_cname(30, name("mail.example.com"));
    pending
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

fn written(head: &ReplyHead<'_>, hops: &[(&Relayed, Freshness)]) -> Message {
    let mut buffer = [0; 4096];
    let length = write_chain(head, hops, 0, &mut buffer).octets;
    Message::from_vec(&buffer[..length]).unwrap()
}
