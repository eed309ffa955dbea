//! What one walk has already shown, by a hash of 64 bits with the seed of the records.

#![allow(clippy::indexing_slicing, reason = "places that the index gave, in lists that it filled")]

use core::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use crate::steps::step;

/// A table on the stack. If two different things have the same hash, the second one is missing from that reply; this
/// happens once in 10^13 full replies.
pub(super) struct Seen<const N: usize> {
    hashes: [u64; N],
    count: usize,
}

impl<const N: usize> Seen<N> {
    pub(super) fn new() -> Self {
        step(N / 32);
        Seen { hashes: [0; N], count: 0 }
    }

    /// Whether the table is full.
    pub(super) fn is_full(&self) -> bool {
        self.count >= N / 4 * 3
    }

    /// Remembers these octets; false if they were known.
    pub(super) fn insert(&mut self, hasher: &RandomState, octets: &[u8], number: u16) -> bool {
        step(2 + octets.len() / 8);
        let mut state = hasher.build_hasher();
        state.write(octets);
        state.write_u16(number);
        // 0 is an empty place.
        let hash = state.finish() | 1 << 63;
        let mut place = hash as usize % N;
        while self.hashes[place] != 0 {
            if self.hashes[place] == hash {
                return false;
            }
            place = (place + 1) % N;
            step(1);
        }
        self.hashes[place] = hash;
        self.count += 1;
        true
    }
}
