//! Names that were compressed for a reply without anything in front, in a reply that begins with CNAMEs of ours.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use super::rdata::Layout;
use super::relayed::Relayed;
use crate::wire::message::HEADER;
use crate::wire::name::MAX_LABEL;

/// Compression pointers reach no further (RFC 1035 §4.1.4).
const MAX_POINTER: usize = 0x3fff;

/// Translates offsets of a reply without records of ours in front into offsets of this reply.
pub(super) struct ShiftedNames {
    /// Where the records begin when only the question is in front of them.
    records_at: usize,
    /// Where the name that was asked about is written in full.
    asked_at: usize,
    /// Where the records begin in this reply.
    now_at: usize,
}

impl ShiftedNames {
    /// For records without pointers.
    pub(super) const NONE: ShiftedNames =
        ShiftedNames { records_at: HEADER, asked_at: HEADER, now_at: HEADER };

    pub(super) fn of(hop: &Relayed, asked_at: usize, now_at: usize) -> ShiftedNames {
        ShiftedNames { records_at: HEADER + hop.name().len() + 4, asked_at, now_at }
    }

    pub(super) fn to(&self, offset: usize) -> usize {
        match offset.checked_sub(self.records_at) {
            Some(behind) => self.now_at + behind,
            None => self.asked_at + offset - HEADER,
        }
    }

    /// Corrects the pointers of one record; `None` where one would lead too far.
    pub(super) fn mend(&self, record: &mut [u8]) -> Option<()> {
        if self.asked_at == HEADER {
            return Some(());
        }
        let fixed_at = self.mend_name(record, 0)?;
        let rtype = u16::from_be_bytes([record[fixed_at], record[fixed_at + 1]]);
        if let Some(layout) = Layout::of(rtype).filter(|layout| layout.compressible) {
            let rdata_at = fixed_at + 10;
            let mut at = rdata_at + layout.names_at(&record[rdata_at..])?;
            for _ in 0..layout.names() {
                at = self.mend_name(record, at)?;
            }
        }
        Some(())
    }

    /// Corrects the pointer of the name at `at`, if it has one; returns where the name ends.
    fn mend_name(&self, record: &mut [u8], mut at: usize) -> Option<usize> {
        loop {
            let length = usize::from(*record.get(at)?);
            if length > MAX_LABEL {
                let pointer = record[at..].first_chunk_mut::<2>()?;
                let to = self.to(usize::from(u16::from_be_bytes(*pointer) & 0x3fff));
                *pointer = (0xc000 | u16::try_from(to).ok()?).to_be_bytes();
                return (to <= MAX_POINTER).then_some(at + 2);
            }
            at += length + 1;
            if length == 0 {
                return Some(at);
            }
        }
    }
}
