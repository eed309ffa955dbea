//! Writes one reply into a buffer: sections in order, names compressed, whole records only
//! (docs/dns.md §5). A record that does not fit leaves no trace.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

mod names;
mod pieces;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::counters::ServerCounters;
use crate::steps::step;
use crate::wire::message::{
    CLASS_CH, CLASS_IN, Edns, HEADER, OPTION_EDE, OPTION_NSID, Question, Rcode, Transport, rtype,
};
use crate::wire::text::ShortText;

/// An OPT record without options: root owner, type, class, TTL, length.
const OPT_OCTETS: usize = 11;
/// Longest EDE text (WR15).
pub(crate) const EDE_TEXT: usize = 64;
/// Octets of an EDE option without text: option code, length, info code.
pub(crate) const EDE_FIXED: usize = 6;
/// Room that an NSID must leave behind the question, so that a negative reply always fits (WR22): an SOA
/// with a pointer as owner (12 octets), `ns.dns.Z` with a `Z` of 121 octets (128), a pointer behind
/// `hostmaster` (13), and five numbers (20).
const ROOM_BESIDE_NSID: usize = 12 + 128 + 13 + 20;
/// Names remembered for compression beside the question's; a bound on the work per name.
const ANCHORS: usize = 24;

/// The sections that records are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// The owner of a record.
#[derive(Clone, Copy)]
pub(crate) enum Owner<'a> {
    /// The question's name as asked (WR3).
    Question,
    /// Another name, wire form, lower case.
    Name(&'a [u8]),
}

/// The data of a record.
#[derive(Clone, Copy)]
pub(crate) enum Rdata<'a> {
    Octets(&'a [u8]),
    /// One name that may be compressed: CNAME, PTR, NS (WR25).
    Name(&'a [u8]),
    /// One that may not: DNAME (RFC 6672 §2.5).
    WholeName(&'a [u8]),
    /// SRV, whose target is never compressed (RFC 2782).
    Srv {
        priority: u16,
        weight: u16,
        port: u16,
        target: &'a [u8],
    },
    /// SOA with the timers of RR70.
    Soa {
        mname: &'a [u8],
        rname: &'a [u8],
        serial: u32,
        minimum: u32,
    },
    /// TXT data that is known at compile time; each at most 255 octets.
    Strings(&'a [&'a [u8]]),
    /// Character-strings in allocated form, as extra records hold them.
    Texts(&'a [Box<[u8]>]),
    /// One character-string per upstream server (A55).
    Servers(&'a [Arc<ServerCounters>]),
}

/// The apex of the cluster zone, as its SOA needs it.
#[derive(Clone, Copy)]
pub(crate) struct Apex<'a> {
    pub(crate) wire: &'a [u8],
    pub(crate) labels: usize,
    pub(crate) negative_ttl_s: u32,
}

/// The labels of the name server before the apex (RR71).
pub(crate) const NAME_SERVER_LABELS: &[u8; 7] = b"\x02ns\x03dns";
/// The label of the mailbox before the apex (RR70).
pub(crate) const MAILBOX_LABEL: &[u8; 11] = b"\x0ahostmaster";
/// A record with a pointer as owner and an IPv4 address.
const SMALLEST_RECORD: usize = 16;
/// Timers of every SOA of ours: refresh, retry, expire (RR70).
const SOA_TIMERS: [u32; 3] = [7200, 1800, 86400];

/// The offset of the question's name, as the second octet of a pointer.
const QUESTION: u8 = HEADER as u8;

/// The five numbers at the end of an SOA.
fn soa_numbers(serial: u32, minimum: u32) -> [u8; 20] {
    let [refresh, retry, expire] = SOA_TIMERS;
    let mut octets = [0; 20];
    let numbers = [serial, refresh, retry, expire, minimum];
    for (place, number) in octets.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    octets
}

/// The record does not fit; the reply is as it was before.
pub(crate) struct Full;

/// A place in the reply to come back to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    at: usize,
    counts: [u16; 3],
    anchors: usize,
}

/// One reply while it is written.
pub(crate) struct Reply<'b, 'q> {
    buffer: &'b mut [u8],
    question: &'q Question<'q>,
    at: usize,
    /// Records end here at the latest; OPT and NSID have room behind it.
    limit: usize,
    /// Octets before the limit that additional records leave to an EDE.
    kept: usize,
    counts: [u16; 3],
    /// Message offset of label starts written so far, and the length of the name from there: two
    /// lists, because pairs have holes, which are slow to clear.
    anchors: [u16; ANCHORS],
    anchor_lengths: [u8; ANCHORS],
    anchor_count: usize,
    nsid: &'q [u8],
    payload_size: u16,
    transport: Transport,
    truncated: bool,
    /// Octets that were written and removed again.
    wasted: usize,
}

/// The largest reply for this question: 65,535 octets over TCP, WR11 over UDP.
pub(crate) fn size_limit(edns: Option<Edns>, transport: Transport, payload_size: u16) -> usize {
    match (transport, edns) {
        (Transport::Tcp, _) => usize::from(u16::MAX),
        (Transport::Udp, None) => 512,
        (Transport::Udp, Some(edns)) => usize::from(edns.payload.max(512).min(payload_size)),
    }
}

/// Writes the 12 octets of a reply without question (N2-N4); returns their number.
pub(crate) fn header_only(
    packet: &[u8],
    rcode: Rcode,
    recursion: bool,
    buffer: &mut [u8],
) -> usize {
    buffer[..HEADER].fill(0);
    buffer[..2].copy_from_slice(&packet[..2]);
    // Opcode and RD are copied, QR is set (WR1).
    buffer[2] = packet[2] & 0x79 | 0x80;
    buffer[3] = packet[3] & 0x10 | rcode as u8 | u8::from(recursion) << 7;
    HEADER
}

impl<'b, 'q> Reply<'b, 'q> {
    /// Starts with header and question; `nsid` is what an NSID option is answered with, empty for none.
    pub(crate) fn new(
        question: &'q Question<'q>,
        transport: Transport,
        payload_size: u16,
        nsid: &'q [u8],
        buffer: &'b mut [u8],
    ) -> Reply<'b, 'q> {
        let at = HEADER + question.as_asked.len() + 4;
        buffer[..at].copy_from_slice(&question.packet[..at]);
        let mut limit = size_limit(question.edns, transport, payload_size).min(buffer.len());
        let mut nsid = &nsid[..nsid.len().min(255)];
        match question.edns {
            Some(edns) => {
                limit -= OPT_OCTETS;
                if !edns.nsid || at + nsid.len() + 4 + ROOM_BESIDE_NSID > limit {
                    nsid = &[];
                }
                if !nsid.is_empty() {
                    limit -= nsid.len() + 4;
                }
            }
            None => nsid = &[],
        }
        Reply {
            buffer,
            question,
            at,
            limit,
            kept: 0,
            counts: [0; 3],
            anchors: [0; ANCHORS],
            anchor_lengths: [0; ANCHORS],
            anchor_count: 0,
            nsid,
            payload_size,
            transport,
            truncated: false,
            wasted: 0,
        }
    }

    /// Keeps room for an EDE that is written at the end: additional records give way to it (WR20).
    pub(crate) fn keep_for_ede(&mut self, text_octets: usize) {
        if self.question.edns.is_some() {
            self.kept = EDE_FIXED + text_octets;
        }
    }

    /// Sets TC (over UDP): something that belongs here did not fit.
    pub(crate) fn truncate(&mut self) {
        self.truncated = true;
    }

    /// Whether another record could still fit.
    pub(crate) fn has_room(&self) -> bool {
        self.at + SMALLEST_RECORD <= self.limit
    }

    /// Octets that records may still take.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.at)
    }

    /// Octets that were written and removed again.
    pub(crate) fn wasted(&self) -> usize {
        self.wasted
    }

    /// Whether an answer record did not fit.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// A record of the answer section; one that does not fit sets TC over UDP and ends the section (WR21).
    pub(crate) fn answer(
        &mut self,
        owner: Owner<'_>,
        rtype: u16,
        ttl_s: u32,
        rdata: Rdata<'_>,
    ) -> Result<(), Full> {
        if self.truncated {
            return Err(Full);
        }
        let written = match (owner, rdata) {
            // An A record of the question's name in one piece: the most frequent record.
            (Owner::Question, Rdata::Octets(&[a, b, c, d])) => {
                let [type0, type1] = rtype.to_be_bytes();
                let [ttl0, ttl1, ttl2, ttl3] = ttl_s.to_be_bytes();
                let written = self.array([
                    0xc0, QUESTION, type0, type1, 0, 1, ttl0, ttl1, ttl2, ttl3, 0, 4, a, b, c, d,
                ]);
                self.counts[Section::Answer as usize] += u16::from(written.is_ok());
                written
            }
            (_, _) => self.record(Section::Answer, owner, rtype, CLASS_IN, ttl_s, rdata),
        };
        self.truncated = written.is_err();
        written
    }

    /// Adds a TXT record of class CH, owned by the question's name.
    pub(crate) fn chaos_answer(&mut self, rdata: Rdata<'_>) -> Result<(), Full> {
        let written = self.record(Section::Answer, Owner::Question, rtype::TXT, CLASS_CH, 0, rdata);
        self.truncated = written.is_err();
        written
    }

    /// Where we are, for [`Reply::back_to`].
    pub(crate) fn mark(&self) -> Mark {
        Mark { at: self.at, counts: self.counts, anchors: self.anchor_count }
    }

    /// Removes everything that was written since.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        step(self.at - mark.at);
        self.wasted += self.at - mark.at;
        self.at = mark.at;
        self.counts = mark.counts;
        self.anchor_count = mark.anchors;
    }

    /// Whether it is a datagram, in which not all may fit.
    pub(crate) fn is_datagram(&self) -> bool {
        self.transport == Transport::Udp
    }

    /// Removes everything that was written since, because not all of it fitted: it is written again in another order.
    pub(crate) fn write_again(&mut self, mark: Mark) {
        self.back_to(mark);
        self.truncated = false;
    }

    /// Back to a reply with the question only.
    pub(crate) fn clear(&mut self) {
        self.at = HEADER + self.question.as_asked.len() + 4;
        self.counts = [0; 3];
        self.anchor_count = 0;
        self.truncated = false;
    }

    /// A record of any section, whole or not at all.
    pub(crate) fn record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        rtype: u16,
        class: u16,
        ttl_s: u32,
        rdata: Rdata<'_>,
    ) -> Result<(), Full> {
        let mark = self.mark();
        let kept = if section == Section::Additional { self.kept.min(self.limit) } else { 0 };
        self.limit -= kept;
        let written = self.try_record(owner, rtype, class, ttl_s, rdata);
        self.limit += kept;
        match written {
            Ok(()) => self.counts[section as usize] += 1,
            Err(Full) => self.back_to(mark),
        }
        written
    }

    fn try_record(
        &mut self,
        owner: Owner<'_>,
        rtype: u16,
        class: u16,
        ttl_s: u32,
        rdata: Rdata<'_>,
    ) -> Result<(), Full> {
        let [type0, type1] = rtype.to_be_bytes();
        let [class0, class1] = class.to_be_bytes();
        let [ttl0, ttl1, ttl2, ttl3] = ttl_s.to_be_bytes();
        match owner {
            Owner::Question => self.array([0xc0, QUESTION])?,
            Owner::Name(name) => self.name(name)?,
        }
        self.array([type0, type1, class0, class1, ttl0, ttl1, ttl2, ttl3, 0, 0])?;
        let start = self.at;
        self.rdata(rdata)?;
        let length = (self.at - start) as u16;
        self.buffer[start - 2..start].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn rdata(&mut self, rdata: Rdata<'_>) -> Result<(), Full> {
        match rdata {
            Rdata::Octets(octets) => self.octets(octets),
            Rdata::Name(name) => self.name(name),
            Rdata::WholeName(name) => self.whole_name(name),
            Rdata::Srv { priority, weight, port, target } => {
                let [[a, b], [c, d], [e, f]] = [priority, weight, port].map(u16::to_be_bytes);
                self.array([a, b, c, d, e, f])?;
                self.whole_name(target)
            }
            Rdata::Soa { mname, rname, serial, minimum } => {
                self.name(mname)?;
                self.name(rname)?;
                self.array(soa_numbers(serial, minimum))
            }
            Rdata::Strings(strings) => strings.iter().try_for_each(|text| self.string(text)),
            Rdata::Texts(strings) => strings.iter().try_for_each(|text| self.string(text)),
            // A TXT record has one string at least (RFC 1035 §3.3.14).
            Rdata::Servers([]) => self.string(b""),
            Rdata::Servers(servers) => servers.iter().try_for_each(|server| self.server(server)),
        }
    }

    fn server(&mut self, server: &ServerCounters) -> Result<(), Full> {
        let mut text = ShortText::EMPTY;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (ip, port) = (server.address.ip(), server.address.port());
        // An IPv6 address and two numbers of a long-lived process have 62 octets or less.
        let _ = write!(text, "{ip}#{port} {} {}", count(&server.sent), count(&server.failed));
        self.string(text.as_bytes())
    }

    fn string(&mut self, text: &[u8]) -> Result<(), Full> {
        let text = &text[..text.len().min(255)];
        self.octets(&[text.len() as u8])?;
        self.octets(text)
    }

    /// As many octets as the compiler knows: one comparison and one move.
    #[inline(always)]
    fn array<const N: usize>(&mut self, octets: [u8; N]) -> Result<(), Full> {
        let end = self.at + N;
        if end > self.limit {
            return Err(Full);
        }
        self.buffer[self.at..end].copy_from_slice(&octets);
        self.at = end;
        Ok(())
    }

    fn octets(&mut self, octets: &[u8]) -> Result<(), Full> {
        let end = self.at + octets.len();
        if end > self.limit {
            return Err(Full);
        }
        self.buffer[self.at..end].copy_from_slice(octets);
        self.at = end;
        Ok(())
    }

    /// Ends the reply: truncation, OPT with NSID and EDE, header. Returns its length.
    pub(crate) fn finish(
        &mut self,
        rcode: Rcode,
        authoritative: bool,
        recursion: bool,
        ede: Option<(u16, &str)>,
    ) -> usize {
        step(self.at);
        let truncated = self.truncated && self.transport == Transport::Udp;
        if self.question.edns.is_some() {
            self.opt(rcode, ede);
        }
        let query = self.question.packet;
        // Opcode 0, RD copied, QR, AA and TC set (WR1, WR4, WR7).
        let third =
            0x80 | query[2] & 0x01 | u8::from(authoritative) << 2 | u8::from(truncated) << 1;
        // RA, CD copied; Z and AD are 0 (WR5, WR6).
        let fourth = u8::from(recursion) << 7 | query[3] & 0x10 | rcode as u8 & 0x0f;
        let [[a, b], [c, d], [e, f]] = self.counts.map(u16::to_be_bytes);
        self.buffer[2..HEADER].copy_from_slice(&[third, fourth, 0, 1, a, b, c, d, e, f]);
        self.at
    }

    /// The OPT record; room was kept for it. When room is short, EDE text is left out first, then the EDE (WR15).
    fn opt(&mut self, rcode: Rcode, ede: Option<(u16, &str)>) {
        let dnssec_ok = self.question.edns.is_some_and(|edns| edns.dnssec_ok);
        let [size0, size1] = self.payload_size.to_be_bytes();
        let high_rcode = rcode as u8 >> 4;
        let flags = u8::from(dnssec_ok) << 7;
        let start = self.at;
        self.limit += OPT_OCTETS;
        // Room was kept for all of these: none can fail.
        let _ = self.array([0, 0, rtype::OPT as u8, size0, size1, high_rcode, 0, flags, 0, 0, 0]);
        self.counts[Section::Additional as usize] += 1;
        if !self.nsid.is_empty() || ede.is_some() {
            self.options(ede);
            let length = (self.at - start - OPT_OCTETS) as u16;
            self.buffer[start + OPT_OCTETS - 2..start + OPT_OCTETS]
                .copy_from_slice(&length.to_be_bytes());
        }
    }

    fn options(&mut self, ede: Option<(u16, &str)>) {
        if !self.nsid.is_empty() {
            self.limit += self.nsid.len() + 4;
            let _ = self.option(OPTION_NSID, &[self.nsid]);
        }
        let room = self.limit - self.at;
        if let Some((code, text)) = ede
            && room >= EDE_FIXED
        {
            let text = &text.as_bytes()[..text.len().min(EDE_TEXT).min(room - EDE_FIXED)];
            let _ = self.option(OPTION_EDE, &[&code.to_be_bytes(), text]);
        }
    }

    fn option(&mut self, code: u16, parts: &[&[u8]]) -> Result<(), Full> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.octets(&code.to_be_bytes())?;
        self.octets(&(length as u16).to_be_bytes())?;
        parts.iter().try_for_each(|part| self.octets(part))
    }
}
