//! The records of an entry as one reply has them, to be copied in one piece.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use super::{BLOCKED, CUT, Counts, FIXED, Relayed, WITHHELD};

/// All records as they are in a reply without anything in front of them.
pub(in crate::relay) struct Image<'a> {
    pub(in crate::relay) records: &'a [u8],
    /// Octets of the name that was asked about.
    pub(in crate::relay) name_octets: usize,
    /// Where the TTLs are in the allocation, in which the records begin at `base`.
    table: &'a [u8],
    base: usize,
}

impl Image<'_> {
    /// Where in the records each TTL is.
    pub(in crate::relay) fn ttls(&self) -> impl Iterator<Item = usize> {
        self.table.chunks_exact(4).map(|at| self.ttl_at(at))
    }

    /// Where in the records this one begins: behind the RDATA of the one before, whose length is behind its TTL.
    pub(in crate::relay) fn start_of(&self, index: usize) -> usize {
        let Some(before) = index.checked_sub(1) else { return 0 };
        let rdata_at = self.ttl_at(&self.table[4 * before..]) + 6;
        rdata_at
            + usize::from(u16::from_be_bytes([
                self.records[rdata_at - 2],
                self.records[rdata_at - 1],
            ]))
    }

    fn ttl_at(&self, entry: &[u8]) -> usize {
        entry.first_chunk().map_or(0, |at| u32::from_be_bytes(*at) as usize) - self.base
    }
}

impl Relayed {
    /// All records, if a reply has them as they are: the whole answer, with nothing to be resolved or said besides.
    pub(in crate::relay) fn image(&self, counts: Counts) -> Option<Image<'_>> {
        if self.octets[1] & (BLOCKED | CUT | WITHHELD) != 0 || self.is_partial() {
            return None;
        }
        let end = FIXED + 4 * (counts.chain + counts.rrset + counts.signatures + counts.authority);
        let name_octets = usize::from(self.octets[2]);
        let base = end + name_octets + 4;
        let (records, table) = (&self.octets[base..], &self.octets[FIXED..end]);
        Some(Image { records, name_octets, table, base })
    }
}
