//! One query as it came from the wire, and what can be read of it (docs/dns.md §4.1, N1-N6).

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::net::SocketAddr;

use crate::counters::Reason;
use crate::steps::step;
use crate::wire::labels::Labels;
use crate::wire::name::{MAX_LABEL, MAX_NAME};

/// Length of a DNS header (RFC 1035 §4.1.1).
pub(crate) const HEADER: usize = 12;

/// The transport of a query; it decides size limits, and the reply to an unreadable query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram: replies are limited and truncated with TC.
    Udp,
    /// A stream: replies up to 65,535 octets, never TC.
    Tcp,
}

/// One query, and everything besides the records that its answer may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Query<'p> {
    /// The message, without the length prefix of TCP.
    pub packet: &'p [u8],
    /// Who asked; an IPv4-mapped address counts as IPv4.
    pub client: SocketAddr,
    /// The transport of the query.
    pub transport: Transport,
    /// Unix time in seconds; only the age of a snapshot is computed from it.
    pub now_s: u64,
    /// A random number of this query alone; decides the rotation of RRsets (WR24).
    pub seed: u64,
}

/// Types and classes this crate knows by name (IANA DNS parameters).
pub(crate) mod rtype {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const HINFO: u16 = 13;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const DNAME: u16 = 39;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const DS: u16 = 43;
    pub(crate) const DNSKEY: u16 = 48;
    pub(crate) const SVCB: u16 = 64;
    pub(crate) const HTTPS: u16 = 65;
    pub(crate) const TSIG: u16 = 250;
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
    pub(crate) const ANY: u16 = 255;
}

pub(crate) const CLASS_IN: u16 = 1;
pub(crate) const CLASS_CH: u16 = 3;

/// Response codes that we give (RFC 1035 §4.1.1, RFC 6891 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Rcode {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    /// What a DNAME makes of the name is too long (RFC 6672 §2.2).
    YxDomain = 6,
    /// 16: its upper bits are in the OPT record.
    BadVers = 16,
}

/// The content of an OPT record of version 0 (RFC 6891 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edns {
    /// Largest UDP payload the client takes, as sent.
    pub(crate) payload: u16,
    /// DO of the query's OPT record (RFC 3225).
    pub(crate) dnssec_ok: bool,
    /// An empty NSID option was sent (WR13).
    pub(crate) nsid: bool,
}

/// A readable question with what decides the form of its reply.
pub(crate) struct Question<'p> {
    /// The message it came in.
    pub(crate) packet: &'p [u8],
    /// The name as asked, uncompressed.
    pub(crate) as_asked: &'p [u8],
    /// The name in lower case.
    pub(crate) name: &'p Labels,
    pub(crate) qtype: u16,
    pub(crate) qclass: u16,
    /// Present when the query had a well-formed OPT.
    pub(crate) edns: Option<Edns>,
}

impl Question<'_> {
    pub(crate) fn id(&self) -> u16 {
        u16::from_be_bytes([self.packet[0], self.packet[1]])
    }

    /// RD.
    pub(crate) fn recursion_desired(&self) -> bool {
        self.packet[2] & 0x01 != 0
    }

    /// CD.
    pub(crate) fn checking_disabled(&self) -> bool {
        self.packet[3] & 0x10 != 0
    }

    /// AD: the client understands AD in the reply (RFC 6840 §5.7).
    pub(crate) fn authentic_data(&self) -> bool {
        self.packet[3] & 0x20 != 0
    }
}

/// A query that cannot be answered, and what is sent for it.
pub(crate) enum Malformed<'p> {
    /// No reply (N1: a reply must not be answered).
    Silence(Reason),
    /// A reply of the header alone (N2-N4: the question cannot be read).
    HeaderOnly(Rcode, Reason),
    /// N5: FORMERR with the question and no OPT.
    WithQuestion(Question<'p>, Reason),
    /// N6: BADVERS with the question and an OPT of version 0.
    BadVersion(Question<'p>),
}

/// Whether the name of a message is read at all: not that of a response, nor of another opcode than QUERY.
pub(crate) fn has_name(packet: &[u8]) -> bool {
    packet.get(2).is_some_and(|octet| octet & 0xf8 == 0)
}

/// Reads a query. `name` is what [`Labels::read`] made of its name.
///
/// # Errors
/// What an unreadable one gets, by the first of N1-N6 that matches.
pub(crate) fn parse<'p>(
    packet: &'p [u8],
    name: Option<&'p Labels>,
) -> Result<Question<'p>, Malformed<'p>> {
    if packet.len() < HEADER {
        return Err(Malformed::Silence(Reason::Short));
    }
    if packet[2] & 0x80 != 0 {
        return Err(Malformed::Silence(Reason::IsResponse));
    }
    if packet[2] & 0x78 != 0 {
        return Err(Malformed::HeaderOnly(Rcode::NotImp, Reason::Opcode));
    }
    step(packet.len());
    let count = |at| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (questions, answers, authority, additional) = (count(4), count(6), count(8), count(10));
    if questions != 1 || answers != 0 || authority > 1 {
        return Err(Malformed::HeaderOnly(Rcode::FormErr, Reason::Counts));
    }
    let Some((mut question, end)) = name.and_then(|name| read_question(packet, name)) else {
        return Err(Malformed::HeaderOnly(Rcode::FormErr, Reason::Question));
    };
    if authority == 1 && question.qtype != rtype::IXFR {
        return Err(Malformed::HeaderOnly(Rcode::FormErr, Reason::Counts));
    }
    if matches!(question.qtype, 0 | rtype::OPT | rtype::TSIG) {
        return Err(Malformed::WithQuestion(question, Reason::QueryType));
    }
    match read_opt(packet, end, authority, additional) {
        None => Err(Malformed::WithQuestion(question, Reason::Additional)),
        Some(Opt::Absent) => Ok(question),
        Some(Opt::Version0(edns)) => {
            question.edns = Some(edns);
            Ok(question)
        }
        Some(Opt::OtherVersion(edns)) => {
            question.edns = Some(edns);
            Err(Malformed::BadVersion(question))
        }
    }
}

fn read_question<'p>(packet: &'p [u8], name: &'p Labels) -> Option<(Question<'p>, usize)> {
    let end = HEADER + name.wire().len();
    let fixed = packet.get(end..end + 4)?;
    let question = Question {
        packet,
        as_asked: &packet[HEADER..end],
        name,
        qtype: u16::from_be_bytes([fixed[0], fixed[1]]),
        qclass: u16::from_be_bytes([fixed[2], fixed[3]]),
        edns: None,
    };
    Some((question, end + 4))
}

/// What the additional section says about EDNS.
enum Opt {
    Absent,
    Version0(Edns),
    OtherVersion(Edns),
}

/// Walks the records behind the question; `None` when they are unreadable (N5). Octets behind the
/// counted records are ignored.
fn read_opt(packet: &[u8], mut at: usize, authority: u16, additional: u16) -> Option<Opt> {
    // Nearly every client sends this: one OPT of version 0 without options, or no record at all.
    if let (0, 1, Some(&[0, 0, 41, size0, size1, _, 0, flags, _, 0, 0])) =
        (authority, additional, packet.get(at..).and_then(|rest| rest.first_chunk()))
    {
        let payload = u16::from_be_bytes([size0, size1]);
        return Some(Opt::Version0(Edns { payload, dnssec_ok: flags & 0x80 != 0, nsid: false }));
    }
    let mut opt = Opt::Absent;
    for index in 0..u32::from(authority) + u32::from(additional) {
        let owner_is_root = packet.get(at) == Some(&0);
        at = skip_name(packet, at)?;
        let fixed = packet.get(at..at + 10)?;
        let rtype = u16::from_be_bytes([fixed[0], fixed[1]]);
        let length = u16::from_be_bytes([fixed[8], fixed[9]]) as usize;
        let rdata = packet.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        if rtype != rtype::OPT {
            continue;
        }
        let second = !matches!(opt, Opt::Absent);
        if index < u32::from(authority) || second || !owner_is_root {
            return None;
        }
        opt = read_opt_fields(fixed, rdata)?;
    }
    Some(opt)
}

fn read_opt_fields(fixed: &[u8], rdata: &[u8]) -> Option<Opt> {
    let mut edns = Edns {
        payload: u16::from_be_bytes([fixed[2], fixed[3]]),
        dnssec_ok: fixed[6] & 0x80 != 0,
        nsid: false,
    };
    if fixed[5] != 0 {
        return Some(Opt::OtherVersion(edns));
    }
    let mut rest = rdata;
    while !rest.is_empty() {
        let code = u16::from_be_bytes([*rest.first()?, *rest.get(1)?]);
        let length = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]) as usize;
        rest = rest.get(4 + length..)?;
        edns.nsid |= code == OPTION_NSID && length == 0;
    }
    Some(Opt::Version0(edns))
}

/// EDNS option NSID (RFC 5001).
pub(crate) const OPTION_NSID: u16 = 3;
/// EDNS option Extended DNS Error (RFC 8914).
pub(crate) const OPTION_EDE: u16 = 15;

/// The octet behind a name that may end in a pointer; pointers must lead backwards, and are not
/// followed: these owners are not read.
fn skip_name(packet: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let length = *packet.get(at)? as usize;
        if length & 0xc0 == 0xc0 {
            let target = (length & 0x3f) << 8 | *packet.get(at + 1)? as usize;
            return (target < start).then_some(at + 2);
        }
        if length > MAX_LABEL || at + length + 1 - start > MAX_NAME {
            return None;
        }
        at += length + 1;
        if length == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::name::Name;

    /// A query for `x.` type A with these counts and these octets after the question.
    fn packet(counts: [u16; 4], tail: &[u8]) -> Vec<u8> {
        let mut packet = vec![0, 7, 1, 0];
        counts.iter().for_each(|count| packet.extend(count.to_be_bytes()));
        packet.extend(b"\x01X\x00\x00\x01\x00\x01");
        packet.extend(tail);
        packet
    }

    fn verdict(packet: &[u8]) -> &'static str {
        let mut name = Labels::ROOT;
        let read = name.read(packet, HEADER).map(|()| &name);
        match parse(packet, read) {
            Ok(question) if question.edns.is_some() => "ok with OPT",
            Ok(_) => "ok",
            Err(Malformed::Silence(_)) => "silence",
            Err(Malformed::HeaderOnly(_, reason) | Malformed::WithQuestion(_, reason)) => {
                reason.label()
            }
            Err(Malformed::BadVersion(_)) => "edns_version",
        }
    }

    const OPT: &[u8] = b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00";

    #[test]
    fn the_first_rule_that_matches_decides() {
        let with = |counts, tail: &[u8]| verdict(&packet(counts, tail));
        assert_eq!(verdict(&[0; 11]), "silence");
        assert_eq!(with([1, 0, 0, 0], b""), "ok");
        assert_eq!(with([1, 0, 0, 0], b"trailing"), "ok");
        assert_eq!(with([0, 0, 0, 0], b""), "counts");
        assert_eq!(with([2, 0, 0, 0], b""), "counts");
        assert_eq!(with([1, 1, 0, 0], b""), "counts");
        assert_eq!(with([1, 0, 1, 0], b""), "counts");
        assert_eq!(with([1, 0, 0, 1], OPT), "ok with OPT");
        assert_eq!(with([1, 0, 0, 1], b""), "additional");
        assert_eq!(with([1, 0, 0, 2], &[OPT, OPT].concat()), "additional");
        assert_eq!(
            with([1, 0, 0, 1], b"\x01y\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"),
            "additional"
        );
        assert_eq!(
            with([1, 0, 0, 1], b"\x00\x00\x29\x04\xd0\x00\x01\x00\x00\x00\x00"),
            "edns_version"
        );
        assert_eq!(
            with([1, 0, 0, 1], b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x04\x00\x03\x00\x01"),
            "additional"
        );
        assert_eq!(with([1, 0, 0, 1], b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00"), "ok");
        assert_eq!(
            with([1, 0, 0, 1], b"\xc0\x13\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00"),
            "additional"
        );
    }

    #[test]
    fn names_are_lower_cased_and_split() {
        let packet = packet([1, 0, 0, 0], b"");
        let mut name = Labels::ROOT;
        name.read(&packet, HEADER).unwrap();
        let question = parse(&packet, Some(&name)).ok().unwrap();
        assert_eq!(question.as_asked, b"\x01X\x00");
        assert_eq!(question.name.wire(), b"\x01x\x00");
        let name = Labels::of(&Name::from_text("a.bc.def").unwrap());
        assert_eq!(
            (name.count(), name.label(1), name.suffix(1)),
            (3, &b"bc"[..], &b"\x02bc\x03def\x00"[..])
        );
        assert_eq!(name.below(b"\x03def\x00", 1), Some(2));
        assert_eq!(name.below(b"\x02ef\x00", 1), None);
        assert_eq!(name.range(0, 2), b"\x01a\x02bc");
    }
}
