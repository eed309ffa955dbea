//! Writing the client's reply (docs/dns.md §5): whole records in order until the limit, OPT reserved first.

use super::compress::{Case, Known};
use super::rdata::{CNAME, Layout};
use super::select::{Kept, Relayed};
use super::{AD, CD, OPT, Pending, QR, RD, TC};
use crate::message::{CLASS_IN, HEADER, OPTION_EDE, OPTION_NSID, Rcode, rtype};
use crate::reply::{EDE_FIXED, EDE_TEXT};
use crate::respond::ede::STALE_ANSWER;
use crate::text::ShortText;

/// AA, in the third octet of the header.
const AA: u8 = 0x04;
/// RA, in the fourth octet.
const RA: u8 = 0x80;

/// Writes what an upstream said, behind our own CNAMEs.
pub(super) fn relayed(pending: &Pending, relayed: &Relayed, seed: u64, buffer: &mut [u8]) -> usize {
    let Some(mut reply) = Reply::begin(pending, buffer) else { return 0 };
    let answer =
        relayed.chain.iter().chain(rotated(&relayed.rrset, seed)).chain(&relayed.signatures);
    let mut fits = reply.own_cnames(pending);
    for record in answer {
        fits = fits && reply.record(relayed, record);
    }
    reply.end_answer();
    // Half a denial would be none: the authority section is written whole or not at all.
    if fits && !relayed.authority.iter().all(|record| reply.record(relayed, record)) {
        reply.drop_authority();
        fits = false;
    }
    let led_by_us = pending.cname_count > 0;
    // Our own part is not authenticated by anyone (§3.5: AD=0).
    let authentic = relayed.authentic && (pending.do_ || pending.ad) && !led_by_us;
    let flags = Flags { authoritative: led_by_us, truncated: !fits, authentic };
    reply.finish(pending, flags, relayed.rcode, None)
}

/// Writes SERVFAIL; our own CNAMEs stay (RR42).
pub(super) fn failure(pending: &Pending, ede: u16, text: &str, buffer: &mut [u8]) -> usize {
    let Some(mut reply) = Reply::begin(pending, buffer) else { return 0 };
    let fits = reply.own_cnames(pending);
    reply.end_answer();
    let flags = Flags { authoritative: false, truncated: !fits, authentic: false };
    reply.finish(pending, flags, Rcode::ServFail as u8, Some((ede, text)))
}

/// An OPT record without options (WR10).
pub(super) fn opt(wire: &mut Vec<u8>, payload: u16, dnssec: bool) {
    wire.extend(opt_octets(payload, dnssec, 0));
}

fn opt_octets(payload: u16, dnssec: bool, options: u16) -> [u8; OPT] {
    let [kind, payload, options] = [rtype::OPT, payload, options].map(u16::to_be_bytes);
    let flags = if dnssec { 0x80 } else { 0 };
    // Root owner, type, class, then extended Rcode 0, version 0 and flags in place of a TTL.
    #[rustfmt::skip]
    let octets = [0, kind[0], kind[1], payload[0], payload[1], 0, 0, flags, 0, options[0], options[1]];
    octets
}

/// A, AAAA and SRV records from a random start on (WR24); others as they are.
fn rotated(rrset: &[Kept], seed: u64) -> impl Iterator<Item = &Kept> {
    let rotates = |record: &Kept| matches!(record.rtype, rtype::A | rtype::AAAA | rtype::SRV);
    let uniform = rrset.windows(2).all(|pair| pair[0].rtype == pair[1].rtype);
    let start = if uniform && rrset.first().is_some_and(rotates) {
        // The upper half of seed * length is uniform in 0..length.
        ((u128::from(seed) * rrset.len() as u128) >> 64) as usize
    } else {
        0
    };
    rrset[start..].iter().chain(&rrset[..start])
}

struct Flags {
    authoritative: bool,
    truncated: bool,
    authentic: bool,
}

/// A reply being written.
struct Reply<'b, 'n> {
    buffer: &'b mut [u8],
    at: usize,
    /// Where records must end: the limit less what OPT and NSID take.
    records_end: usize,
    limit: usize,
    known: Known<'n>,
    /// Records written since the last section began.
    count: u16,
    answers: u16,
    answer_end: usize,
    nsid: Option<&'n [u8]>,
    /// Text of the EDE for data from a snapshot, for which there is room.
    age: Option<ShortText>,
}

impl<'b, 'n> Reply<'b, 'n> {
    /// Writes the question and reserves the OPT; `None` when the buffer cannot hold even those.
    fn begin(pending: &'n Pending, buffer: &'b mut [u8]) -> Option<Reply<'b, 'n>> {
        let limit = pending.limit.min(buffer.len());
        let question = pending.question.get();
        let question_end = HEADER + question.len() + 4;
        let opt = if pending.edns { OPT } else { 0 };
        let free = limit.checked_sub(question_end + opt)?;
        // A long pod name and a long question together may pass 512 octets.
        let nsid =
            pending.nsid.as_ref().map(|o| o.get()).filter(|o| pending.edns && o.len() + 4 <= free);
        let free = free - nsid.map_or(0, |octets| octets.len() + 4);
        let age = pending.snapshot_age_s.filter(|_| pending.edns);
        let age = age.map(|age_s| ShortText::of_snapshot(age_s.into()));
        let age = age.filter(|text| EDE_FIXED + text.as_bytes().len() <= free);
        let kept = age.as_ref().map_or(0, |text| EDE_FIXED + text.as_bytes().len());
        let records_end = question_end + free - kept;
        let mut known = Known::new();
        known.place(question, HEADER, Case::Kept);
        buffer[HEADER..][..question.len()].copy_from_slice(question);
        buffer[question_end - 4..question_end - 2].copy_from_slice(&pending.qtype.to_be_bytes());
        buffer[question_end - 2..question_end].copy_from_slice(&CLASS_IN.to_be_bytes());
        let (count, answers, answer_end) = (0, 0, question_end);
        let at = question_end;
        Some(Reply { buffer, at, records_end, limit, known, count, answers, answer_end, nsid, age })
    }

    /// Our CNAMEs, first to last; whether all fit.
    fn own_cnames(&mut self, pending: &'n Pending) -> bool {
        let mut owner = pending.question.get();
        for (ttl_s, target) in pending.own_cnames() {
            let parts = Parts { owner, rtype: CNAME, ttl_s, rdata: target };
            if !self.whole(&parts) {
                return false;
            }
            owner = target;
        }
        true
    }

    fn record(&mut self, relayed: &'n Relayed, record: &Kept) -> bool {
        let (owner, rdata) = (relayed.owner(record), relayed.rdata(record));
        self.whole(&Parts { owner, rtype: record.rtype, ttl_s: record.ttl_s, rdata })
    }

    /// Writes the whole record, or nothing; whether it fit.
    fn whole(&mut self, parts: &Parts<'n>) -> bool {
        let (at, known) = (self.at, self.known.count());
        let written = self.parts(parts);
        if written.is_some() {
            self.count += 1;
        } else {
            self.at = at;
            self.known.forget(known);
        }
        written.is_some()
    }

    fn parts(&mut self, parts: &Parts<'n>) -> Option<()> {
        self.name(parts.owner, Case::Ignored)?;
        self.put(&parts.rtype.to_be_bytes())?;
        self.put(&CLASS_IN.to_be_bytes())?;
        self.put(&parts.ttl_s.to_be_bytes())?;
        let length_at = self.at;
        self.put(&[0, 0])?;
        match Layout::of(parts.rtype).filter(|layout| layout.compressible) {
            None => self.put(parts.rdata)?,
            Some(layout) => {
                let (before, mut rest) = parts.rdata.split_at(layout.names_at(parts.rdata)?);
                self.put(before)?;
                for _ in 0..layout.names() {
                    let (name, tail) = rest.split_at(super::read::uncompressed_length(rest)?);
                    self.name(name, Case::Kept)?;
                    rest = tail;
                }
                self.put(rest)?;
            }
        }
        let length = (self.at - length_at - 2) as u16;
        self.buffer[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        Some(())
    }

    fn name(&mut self, name: &'n [u8], case: Case) -> Option<()> {
        let (octets, pointer) = self.known.place(name, self.at, case);
        self.put(&name[..octets])?;
        pointer.map_or(Some(()), |offset| self.put(&(0xc000 | offset).to_be_bytes()))
    }

    fn put(&mut self, octets: &[u8]) -> Option<()> {
        let end = self.at + octets.len();
        if end > self.records_end {
            return None;
        }
        self.buffer[self.at..end].copy_from_slice(octets);
        self.at = end;
        Some(())
    }

    fn end_answer(&mut self) {
        self.answers = std::mem::take(&mut self.count);
        self.answer_end = self.at;
    }

    fn drop_authority(&mut self) {
        self.count = 0;
        self.at = self.answer_end;
    }

    /// Writes OPT and header; returns the length of the reply.
    fn finish(
        mut self,
        pending: &Pending,
        flags: Flags,
        rcode: u8,
        ede: Option<(u16, &str)>,
    ) -> usize {
        if pending.edns {
            self.records_end = self.limit;
            self.opt(pending, ede);
        }
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let third = QR
            | bit(flags.authoritative, AA)
            | bit(flags.truncated && !pending.is_stream(), TC)
            | bit(pending.rd, RD);
        let fourth = bit(pending.ra, RA) | bit(flags.authentic, AD) | bit(pending.cd, CD) | rcode;
        let header = &mut self.buffer[..HEADER];
        header[..2].copy_from_slice(&pending.id.to_be_bytes());
        header[2..4].copy_from_slice(&[third, fourth]);
        let counts = [1, self.answers, self.count, u16::from(pending.edns)];
        for (field, count) in header[4..].chunks_exact_mut(2).zip(counts) {
            field.copy_from_slice(&count.to_be_bytes());
        }
        self.at
    }

    /// The OPT record, for which there is room, as for the age of a snapshot; text of another EDE, then that EDE, goes
    /// first (WR15).
    fn opt(&mut self, pending: &Pending, ede: Option<(u16, &str)>) {
        let nsid = self.nsid.map_or(0, |octets| octets.len() + 4);
        let age = self.age.take();
        let age = age.as_ref().map(|text| (STALE_ANSWER, text.as_str()));
        let octets = |ede: &(u16, &str)| EDE_FIXED + ede.1.len();
        let taken = OPT + nsid + age.as_ref().map_or(0, octets);
        let free = self.limit - self.at - taken;
        let ede = ede.filter(|_| free >= EDE_FIXED).map(|(code, text)| {
            let text = text_within(text, EDE_TEXT);
            (code, if text.len() + EDE_FIXED <= free { text } else { "" })
        });
        let options = taken - OPT + ede.as_ref().map_or(0, octets);
        let written = (|| {
            self.put(&opt_octets(pending.udp_payload_size, pending.do_, options as u16))?;
            if let Some(octets) = self.nsid {
                self.put(&OPTION_NSID.to_be_bytes())?;
                self.put(&(octets.len() as u16).to_be_bytes())?;
                self.put(octets)?;
            }
            for (code, text) in ede.into_iter().chain(age) {
                self.put(&OPTION_EDE.to_be_bytes())?;
                self.put(&(text.len() as u16 + 2).to_be_bytes())?;
                self.put(&code.to_be_bytes())?;
                self.put(text.as_bytes())?;
            }
            Some(())
        })();
        debug_assert!(written.is_some(), "the OPT was reserved");
    }
}

/// A record to write.
struct Parts<'n> {
    owner: &'n [u8],
    rtype: u16,
    ttl_s: u32,
    rdata: &'n [u8],
}

/// The longest start of a text that has at most `max` octets.
fn text_within(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
