//! The records of an entry as one reply has them, to be copied in one piece.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use super::{BLOCKED, CUT, Counts, FIXED, Relayed, WITHHELD};

/// All records as they are in a reply without anything in front of them.
pub(in crate::relay) struct Image<'a> {
    pub(in crate::relay) records: &'a [u8],
    relayed: &'a Relayed,
    /// How many there are, and where in the allocation they begin.
    count: usize,
    base: usize,
}

impl Image<'_> {
    /// Octets of the name that was asked about.
    pub(in crate::relay) fn name_octets(&self) -> usize {
        usize::from(self.relayed.octets[2])
    }

    /// Where in the records each TTL is.
    pub(in crate::relay) fn ttls(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|index| self.relayed.ttl_at(index) - self.base)
    }

    /// Where in the records this one begins.
    pub(in crate::relay) fn start_of(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.relayed.end(before) - self.base)
    }
}

impl Relayed {
    /// All records, if a reply has them as they are: the whole answer, with nothing to be resolved or said besides.
    pub(in crate::relay) fn image(&self, counts: Counts) -> Option<Image<'_>> {
        if self.octets[1] & (BLOCKED | CUT | WITHHELD) != 0 || self.is_partial() {
            return None;
        }
        let count = counts.all();
        let base = FIXED + 4 * count + usize::from(self.octets[2]) + 4;
        Some(Image { records: &self.octets[base..], relayed: self, count, base })
    }
}
