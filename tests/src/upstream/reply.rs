//! From a query and its rule to the messages that a scripted upstream sends.

use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RData};

use super::script::{Decoy, Http, OnOpt, Rule, Script, Stream};
use super::{Asked, UpstreamTransport};

/// What an attacker would have clients believe.
const FORGED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);

/// The option of an Extended DNS Error (RFC 8914 §2).
const EDE: u16 = 15;

/// What to send for one query, in order.
pub(super) struct Reaction {
    pub(super) delay: std::time::Duration,
    pub(super) decoys: Vec<(Decoy, Vec<u8>)>,
    pub(super) reply: Option<Vec<u8>>,
    pub(super) stream: Stream,
    pub(super) http: Http,
}

/// The reaction to a query; `None` if it is not a query with one question.
pub(super) fn react(script: &Script, packet: &[u8], asked: &Asked) -> Option<Reaction> {
    let query = Message::from_vec(packet).ok()?;
    let [question] = query.queries.as_slice() else { return None };
    let fallback = Rule { rcode: ResponseCode::Refused, ..Rule::default() };
    let rule = script.rule(question.name(), question.query_type()).unwrap_or(&fallback);
    let mut reply = full_reply(&query, question, rule, asked.transport);
    let is_announced = rule.opt == Some(OnOpt::Announce) && reply.edns.take().is_some();
    let mut wire = reply.to_vec().expect("a scripted reply can be written");
    // The lower octet of the count of additional records.
    wire[11] += u8::from(is_announced);
    let over_udp = asked.transport == UpstreamTransport::Udp;
    let ignores_opt =
        rule.opt == Some(OnOpt::Silence) || (over_udp && rule.opt == Some(OnOpt::SilenceOverUdp));
    let is_ignored = query.edns.is_some() && ignores_opt;
    let is_lost = over_udp && wire.len() > rule.udp_at_most;
    let decoys = rule.first.iter().filter(|_| over_udp).enumerate();
    let decoys = decoys.map(|(number, kind)| (*kind, decoy(*kind, number, &reply, &wire)));
    Some(Reaction {
        delay: rule.delay,
        decoys: decoys.collect(),
        reply: (!rule.silent && !is_ignored && !is_lost).then_some(wire),
        http: rule.http.clone(),
        stream: if over_udp { Stream::Answer } else { rule.tcp },
    })
}

fn full_reply(
    query: &Message,
    question: &Query,
    rule: &Rule,
    transport: UpstreamTransport,
) -> Message {
    let mut reply = Message::new(query.metadata.id, MessageType::Response, query.metadata.op_code);
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.checking_disabled = query.metadata.checking_disabled;
    reply.metadata.recursion_available = true;
    reply.metadata.authoritative = rule.authoritative;
    reply.metadata.authentic_data = rule.authentic;
    reply.metadata.truncation = rule.cut;
    reply.metadata.response_code = rule.rcode;
    if !rule.no_question {
        reply.add_query(question.clone());
    }
    if let Some(asked) = &query.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(1232).set_dnssec_ok(asked.flags().dnssec_ok);
        for code in &rule.ede {
            let octets = code.to_be_bytes().to_vec();
            edns.options_mut().insert(EdnsOption::Unknown(EDE, octets));
        }
        reply.set_edns(edns);
    }
    if let (Some(OnOpt::Refuse(rcode)), true) = (rule.opt, query.edns.is_some()) {
        reply.metadata.response_code = rcode;
        if rcode != ResponseCode::BADVERS {
            reply.edns = None;
        }
        return reply;
    }
    if rule.udp_truncated && transport == UpstreamTransport::Udp {
        reply.metadata.truncation = true;
        return reply;
    }
    reply.add_answers(rule.answer.iter().map(|record| record.at(question.name())));
    reply.add_authorities(rule.authority.iter().map(|record| record.at(question.name())));
    reply.add_additionals(rule.additional.iter().map(|record| record.at(question.name())));
    reply
}

fn decoy(kind: Decoy, number: usize, reply: &Message, wire: &[u8]) -> Vec<u8> {
    let mut other = reply.clone();
    if matches!(kind, Decoy::Guess | Decoy::OtherPort | Decoy::OtherAddress) {
        let forged = RData::A(FORGED.into());
        other.answers.iter_mut().for_each(|answer| answer.data = forged.clone());
    }
    match kind {
        Decoy::OtherPort | Decoy::OtherAddress => {}
        // Each once, and never the right one.
        Decoy::Guess => other.metadata.id ^= 1 + (number % 0xffff) as u16,
        Decoy::WrongId => other.metadata.id = !other.metadata.id,
        Decoy::WrongQuestion => {
            other.queries[0].set_name(Name::from_ascii("decoy.example.").expect("a name"));
        }
        Decoy::WrongCase => {
            let name = other.queries[0].name().to_ascii().to_uppercase();
            other.queries[0].set_name(Name::from_ascii(name).expect("a name"));
        }
        Decoy::Query => other.metadata.message_type = MessageType::Query,
        // The header and question of the right reply, 65,535 answers announced, then nothing sensible.
        Decoy::Garbage => {
            other.answers.clear();
            other.authorities.clear();
            other.additionals.clear();
            other.edns = None;
            let mut wire = other.to_vec().expect("a decoy can be written");
            wire[6..8].fill(0xff);
            wire.extend([0xff; 40]);
            return wire;
        }
        Decoy::Half => return wire[..wire.len() / 2].to_vec(),
    }
    other.to_vec().expect("a decoy can be written")
}
