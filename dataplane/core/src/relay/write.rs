//! Writing the client's reply (docs/dns.md §5): whole records in order until the limit, OPT reserved first.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

mod own_aliases;
mod plain;
#[cfg(test)]
pub(super) use plain::write as copy_plain;

use super::errors::ErrorCodes;
use super::head::{MAX_NSID, ReplyHead, Written};
use super::header::{AA, AD, CD, OPT, QR, RA, RD, TC, opt_octets};
use super::relayed::{Freshness, Relayed};
use super::shifted_names::ShiftedNames;
use crate::random::scaled;
use crate::steps::step;
use crate::wire::ede::{self, BLOCKED, FILTERED, STALE_ANSWER, STALE_NXDOMAIN};
use crate::wire::message::{CLASS_IN, HEADER, OPTION_EDE, OPTION_NSID, Rcode};
use crate::wire::reply::{EDE_FIXED, EDE_TEXT};
use crate::wire::text::ShortText;

/// The TTL of every record of a stale reply (CA40, RFC 8767 §4).
const STALE_TTL_S: u32 = 30;
impl Relayed {
    /// Writes the client's reply (§5, RR40, RR41).
    ///
    /// `seed` decides the rotation of RRsets (WR24). `buffer` must hold the largest reply: 65,535 octets for TCP, 4,096
    /// for UDP; what does not fit in a smaller one is cut as if it were the limit.
    pub fn write(
        &self,
        head: &ReplyHead<'_>,
        freshness: Freshness,
        seed: u64,
        buffer: &mut [u8],
    ) -> Written {
        plain::write(self, head, freshness, seed, buffer)
            .unwrap_or_else(|| write_chain(head, &[(self, freshness)], seed, buffer))
    }
}

/// Writes the reply of a chain that went over several lookups (FW42), first to last: each but the last
/// leads to an [unresolved target](Relayed::unresolved_target), which is the name that the next one answers.
pub fn write_chain(
    head: &ReplyHead<'_>,
    hops: &[(&Relayed, Freshness)],
    seed: u64,
    buffer: &mut [u8],
) -> Written {
    let ours = hops.first().filter(|(hop, _)| head.form.is_ours && hop.denies_or_leads_on());
    let ours = ours.map(|(hop, freshness)| (Relayed::withheld(&hop.key()), *freshness));
    let ours = ours.as_ref().map(|(hop, freshness)| [(hop, *freshness)]);
    let hops = ours.as_ref().map_or(hops, |hops| hops);
    // If the end of a chain was removed, the rest of the chain is not written either (N21).
    let hops = match hops {
        [.., end] if end.0.is_blocked() => core::slice::from_ref(end),
        _ => hops,
    };
    let Some(mut reply) = RelayedReply::begin(head, buffer) else {
        return Written::whole(0);
    };
    let mut fits = true;
    // Where the name that the first upstream was asked about is written.
    let mut asked_at = Some(HEADER);
    if !head.cnames.is_empty() {
        asked_at = reply.own_aliases(head);
        fits = asked_at.is_some();
    }
    let mut place = None;
    // Whether the whole chain is written, and of the RRset at its end one record at least.
    let mut has_end = false;
    for (hop, freshness) in hops {
        let Some(at) = asked_at.filter(|_| fits) else {
            fits = false;
            break;
        };
        let moved = ShiftedNames::of(hop, at, reply.at);
        let (start @ (_, before), counts) = ((reply.at, reply.count), hop.counts());
        let seed = Some(seed).filter(|_| hop.rotates());
        fits = reply.answer(hop, *freshness, seed, &moved);
        if !fits && seed.is_some() && hop.is_srv() && !head.is_stream() {
            // As with ours: a client that cannot ask over TCP gets the same records each time (WR24).
            reply.write_again(start);
            fits = reply.answer(hop, *freshness, None, &moved);
        }
        fits &= !hop.is_cut();
        has_end = fits
            || (counts.rrset > 0 && usize::from(reply.count) > usize::from(before) + counts.chain);
        asked_at = hop.target_at().map(|at| moved.to(at));
        place = Some(moved);
    }
    // Over a stream nothing says that records are missing: a client would take CNAMEs alone for an answer without data.
    if head.is_stream() && !fits && !has_end {
        step(reply.at);
        let text = "the chain of CNAMEs is too long for one message";
        return Written::whole(head.fail(ede::OTHER, text, buffer));
    }
    reply.end_answer();
    let is_cut = !fits;
    let last = hops.last();
    // A part of a denial proves nothing: the authority section is written whole or not at all.
    if let (true, Some(moved)) = (fits, &place)
        && !reply.authorities(hops, moved)
    {
        reply.drop_authority();
        fits = false;
    }
    let led_by_us = !head.cnames.is_empty();
    let is_stale = hops.iter().any(|(_, freshness)| *freshness == Freshness::Stale);
    // Records of ours are not authenticated (§3.5: AD=0), and the signatures of stale ones may have expired (WR6).
    let wants_ad = (head.form.do_ || head.form.ad) && !led_by_us && !is_stale;
    let authentic = wants_ad && hops.iter().all(|(hop, _)| hop.is_authentic());
    let flags = Flags { authoritative: led_by_us, truncated: !fits, authentic };
    let rcode = last.map_or(Rcode::ServFail as u8, |(hop, _)| hop.rcode());
    // The NXDOMAIN itself must be old (RFC 8914 §4.20): behind a stale CNAME a fresh one is no such answer.
    let is_old_denial =
        last.is_some_and(|(hop, age)| hop.is_nxdomain() && *age == Freshness::Stale);
    let code = if is_old_denial { STALE_NXDOMAIN } else { STALE_ANSWER };
    let is_blocked = hops.iter().any(|(hop, _)| hop.is_blocked());
    let is_withheld = last.is_some_and(|(hop, _)| hop.is_withheld());
    let code = match (is_blocked, is_withheld) {
        (true, _) => BLOCKED,
        (false, true) => FILTERED,
        (false, false) => code,
    };
    let ede = (is_stale || is_blocked || is_withheld).then_some((code, ""));
    Written { octets: reply.finish(head, flags, rcode, ede, ErrorCodes::default()), is_cut }
}

impl ReplyHead<'_> {
    /// [`ReplyHead::fail_behind`] with no codes of an upstream.
    pub fn fail(&self, ede: u16, text: &str, buffer: &mut [u8]) -> usize {
        self.fail_behind(ede, text, ErrorCodes::default(), buffer)
    }

    /// Writes SERVFAIL with this Extended DNS Error, behind our own CNAMEs (N16, N18-N20, RR42); returns its length.
    /// Without an OPT in the query there is no Extended DNS Error; at most 64 octets of `text` are used (WR15). The
    /// codes that the last upstream `sent` are behind it.
    pub fn fail_behind(&self, ede: u16, text: &str, sent: ErrorCodes, buffer: &mut [u8]) -> usize {
        let Some(mut reply) = RelayedReply::begin(self, buffer) else { return 0 };
        let fits = self.cnames.is_empty() || reply.own_aliases(self).is_some();
        reply.end_answer();
        let flags = Flags { authoritative: false, truncated: !fits, authentic: false };
        reply.finish(self, flags, Rcode::ServFail as u8, Some((ede, text)), sent)
    }
}

/// The TTL that a client sees: counted down to at least 1 (FW44); 30 for a stale reply (CA40).
fn shown_ttl_s(ttl_s: u32, freshness: Freshness) -> u32 {
    match freshness {
        Freshness::Fresh { age_s } => ttl_s.saturating_sub(age_s).max(ttl_s.min(1)),
        Freshness::Stale => STALE_TTL_S,
    }
}

struct Flags {
    authoritative: bool,
    truncated: bool,
    authentic: bool,
}

/// A reply that is being written, section by section.
struct RelayedReply<'b, 'n> {
    buffer: &'b mut [u8],
    at: usize,
    /// Where records must end: the limit less what OPT and NSID take.
    records_end: usize,
    limit: usize,
    /// Records written since the last section began.
    count: u16,
    answers: u16,
    answer_end: usize,
    nsid: Option<&'n [u8]>,
    /// Text of the EDE for data from a snapshot; room is kept for it.
    age: Option<ShortText>,
}

impl<'b, 'n> RelayedReply<'b, 'n> {
    /// Writes the question and reserves the OPT; `None` when the buffer cannot hold even those.
    fn begin(head: &ReplyHead<'n>, buffer: &'b mut [u8]) -> Option<RelayedReply<'b, 'n>> {
        let limit = head.form.limit.min(buffer.len());
        let question_end = question_end(head);
        let opt = if head.form.edns { OPT } else { 0 };
        let free = limit.checked_sub(question_end + opt)?;
        // A long pod name and a long question together may pass 512 octets.
        let nsid = head.nsid.filter(|_| head.form.edns).map(|o| &o[..o.len().min(MAX_NSID)]);
        let nsid = nsid.filter(|octets| octets.len() + 4 <= free);
        let free = free - nsid.map_or(0, |octets| octets.len() + 4);
        let age = head.form.snapshot_age_s.filter(|_| head.form.edns);
        let age = age.map(|age_s| ShortText::of_snapshot(age_s.into()));
        let age = age.filter(|text| EDE_FIXED + text.as_bytes().len() <= free);
        let kept = age.as_ref().map_or(0, |text| EDE_FIXED + text.as_bytes().len());
        let records_end = question_end + free - kept;
        question(buffer, head);
        let (count, answers, answer_end) = (0, 0, question_end);
        let at = question_end;
        Some(RelayedReply { buffer, at, records_end, limit, count, answers, answer_end, nsid, age })
    }

    /// Removes the records that were written from this place and number on.
    fn write_again(&mut self, (at, count): (usize, u16)) {
        step(self.at - at);
        (self.at, self.count) = (at, count);
    }

    /// The records of the answer section, the RRset from a random start on (WR24), if there is a seed; whether all fit.
    fn answer(
        &mut self,
        hop: &Relayed,
        freshness: Freshness,
        seed: Option<u64>,
        moved: &ShiftedNames,
    ) -> bool {
        let counts = hop.counts();
        let (first, signatures) = (counts.chain, counts.chain + counts.rrset);
        let start = first + seed.map_or(0, |seed| scaled(seed, counts.rrset));
        let mut order = (0..first)
            .chain(start..signatures)
            .chain(first..start)
            .chain(signatures..signatures + counts.signatures);
        order.all(|index| self.record(hop, index, freshness, moved))
    }

    /// The authority section; whether all fits. A CNAME that a wildcard made is proved by denials that came with it, so those
    /// of every part are needed (RFC 4035 §5.3.4). Names of the last part are compressed for the place behind its answers,
    /// those of the others are written in full.
    fn authorities(&mut self, hops: &[(&Relayed, Freshness)], moved: &ShiftedNames) -> bool {
        let Some(((last, freshness), before)) = hops.split_last() else { return true };
        self.authority(last, *freshness, moved)
            && before
                .iter()
                .all(|(hop, freshness)| self.authority(hop, *freshness, &ShiftedNames::NONE))
    }

    /// The records of the authority section of one part; whether all fit.
    fn authority(&mut self, hop: &Relayed, freshness: Freshness, moved: &ShiftedNames) -> bool {
        let counts = hop.counts();
        let answers = counts.chain + counts.rrset + counts.signatures;
        (answers..answers + counts.authority).all(|index| self.record(hop, index, freshness, moved))
    }

    /// Copies one record whole, or nothing; whether it fit.
    fn record(
        &mut self,
        hop: &Relayed,
        index: usize,
        freshness: Freshness,
        moved: &ShiftedNames,
    ) -> bool {
        let record = hop.record(index);
        let end = self.at + record.octets.len();
        if end > self.records_end {
            return false;
        }
        let place = &mut self.buffer[self.at..end];
        place.copy_from_slice(record.octets);
        if let Some(ttl) = place[record.ttl_at..].first_chunk_mut() {
            *ttl = shown_ttl_s(u32::from_be_bytes(*ttl), freshness).to_be_bytes();
        }
        if moved.mend(place).is_none() {
            return false;
        }
        self.at = end;
        self.count += 1;
        true
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
        self.answers = core::mem::take(&mut self.count);
        self.answer_end = self.at;
    }

    fn drop_authority(&mut self) {
        step(self.at - self.answer_end);
        self.count = 0;
        self.at = self.answer_end;
    }

    /// Writes OPT and header; returns the length of the reply.
    fn finish(
        mut self,
        head: &ReplyHead<'_>,
        flags: Flags,
        rcode: u8,
        ede: Option<(u16, &str)>,
        sent: ErrorCodes,
    ) -> usize {
        step(self.at);
        if head.form.edns {
            self.records_end = self.limit;
            self.opt(head, ede, sent);
        }
        let counts = [1, self.answers, self.count, u16::from(head.form.edns)];
        header(self.buffer, head, flags, rcode, counts);
        self.at
    }

    /// The OPT record, for which there is room, as for the age of a snapshot; when room is short, codes of an
    /// upstream are left out first, then the text of another EDE, then that EDE (WR15).
    fn opt(&mut self, head: &ReplyHead<'_>, ede: Option<(u16, &str)>, sent: ErrorCodes) {
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
        let free = free - ede.as_ref().map_or(0, octets);
        let ours = ede.as_ref().map(|(code, _)| *code);
        let fit = if ours.is_some() { free / EDE_FIXED } else { 0 };
        let others = || sent.as_slice().iter().filter(|code| Some(**code) != ours).take(fit);
        let behind = others().count() * EDE_FIXED;
        let options = taken - OPT + ede.as_ref().map_or(0, octets) + behind;
        let written = (|| {
            self.put(&opt_octets(head.form.udp_payload_size, head.form.do_, options as u16))?;
            if let Some(octets) = self.nsid {
                self.put(&OPTION_NSID.to_be_bytes())?;
                self.put(&(octets.len() as u16).to_be_bytes())?;
                self.put(octets)?;
            }
            let others = others().map(|code| (*code, ""));
            for (code, text) in ede.into_iter().chain(others).chain(age) {
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

fn question_end(head: &ReplyHead<'_>) -> usize {
    HEADER + head.question.len() + 4
}

/// Writes the question, for which there is room.
fn question(reply: &mut [u8], head: &ReplyHead<'_>) {
    let end = question_end(head);
    reply[HEADER..end - 4].copy_from_slice(head.question);
    reply[end - 4..end - 2].copy_from_slice(&head.form.qtype.to_be_bytes());
    reply[end - 2..end].copy_from_slice(&CLASS_IN.to_be_bytes());
}

/// Writes the header in front of the sections.
fn header(reply: &mut [u8], head: &ReplyHead<'_>, flags: Flags, rcode: u8, sections: [u16; 4]) {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    let third = QR
        | bit(flags.authoritative, AA)
        | bit(flags.truncated && !head.is_stream(), TC)
        | bit(head.form.rd, RD);
    let fourth = bit(head.form.ra, RA) | bit(flags.authentic, AD) | bit(head.form.cd, CD) | rcode;
    let header = &mut reply[..HEADER];
    header[..2].copy_from_slice(&head.form.id.to_be_bytes());
    header[2..4].copy_from_slice(&[third, fourth]);
    for (field, count) in header[4..].chunks_exact_mut(2).zip(sections) {
        field.copy_from_slice(&count.to_be_bytes());
    }
}

/// The longest start of a text that has at most `max` octets.
fn text_within(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l12_a_reply_begins_without_room_for_the_names_of_aliases() {
        let known = size_of::<crate::relay::compress::Known<'_>>();
        let reply = size_of::<RelayedReply<'_, '_>>();
        assert!(reply < known / 4, "most replies have no alias of ours: {reply} of {known} octets");
    }
}
