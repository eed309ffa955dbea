//! The reply that nearly all clients get: one fresh entry that fits, with nothing of ours in front. Its records lie in the entry as
//! they are in the reply, so they are copied in one piece, and the RRset in two where it starts anywhere. [`super::write_chain`]
//! writes the same octets in many more steps.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use super::{
    Flags, Freshness, Relayed, ReplyHead, Written, header, question, question_end, shown_ttl_s,
};
use crate::random::scaled;
use crate::relay::header::{OPT, opt_octets};
use crate::steps::step;

/// Writes the reply; `None` where anything may have to be added, left out or changed.
pub(in crate::relay) fn write(
    relayed: &Relayed,
    head: &ReplyHead<'_>,
    freshness: Freshness,
    seed: u64,
    buffer: &mut [u8],
) -> Option<Written> {
    let (form, counts) = (&head.form, relayed.counts());
    let is_plain = freshness != Freshness::Stale
        && head.cnames.is_empty()
        && head.nsid.is_none()
        && form.snapshot_age_s.is_none()
        && !form.is_ours;
    let image = relayed
        .image(counts)
        .filter(|image| is_plain && image.name_octets() == head.question.len())?;
    let question_end = question_end(head);
    let records_end = question_end + image.records.len();
    let end = records_end + if form.edns { OPT } else { 0 };
    let reply = buffer.get_mut(..end).filter(|_| end <= form.limit)?;
    question(reply, head);

    // The part of the RRset before the record at which it starts is written behind the rest of it (WR24).
    let turn = if relayed.rotates() { scaled(seed, counts.rrset) } else { 0 };
    let starts = |index| image.start_of(index);
    let (first, start, after) = match turn {
        0 => (0, 0, 0),
        turn => {
            (starts(counts.chain), starts(counts.chain + turn), starts(counts.chain + counts.rrset))
        }
    };
    let records = &mut reply[question_end..records_end];
    let mut at = 0;
    for part in [0..first, start..after, first..start, after..image.records.len()] {
        let part = &image.records[part];
        records[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    for ttl_at in image.ttls() {
        let moved_to = match ttl_at {
            at if at < first || at >= after => at,
            at if at < start => at + (after - start),
            at => at - (start - first),
        };
        if let Some(ttl) = records[moved_to..].first_chunk_mut() {
            *ttl = shown_ttl_s(u32::from_be_bytes(*ttl), freshness).to_be_bytes();
        }
    }
    if form.edns {
        reply[records_end..].copy_from_slice(&opt_octets(form.udp_payload_size, form.do_, 0));
    }
    let authentic = (form.do_ || form.ad) && relayed.is_authentic();
    let flags = Flags { authoritative: false, truncated: false, authentic };
    let answers = counts.chain + counts.rrset + counts.signatures;
    let sections = [1, answers as u16, counts.authority as u16, u16::from(form.edns)];
    header(reply, head, flags, relayed.rcode(), sections);
    step(end);
    Some(Written::whole(end))
}
