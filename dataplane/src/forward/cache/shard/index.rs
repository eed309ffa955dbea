//! Where the entry of a hash is.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One part in this many of the index is free when it is made again: it costs little, and the table grows little.
const SPARE_PART: usize = 8;

/// The slot of each hash.
pub(super) type Index = HashMap<u64, u32, BuildHasherDefault<AsItIs>>;

/// With room for this many entries, and some more.
pub(super) fn index_for(entries: usize) -> Index {
    Index::with_capacity_and_hasher(entries + entries / SPARE_PART + 1, Default::default())
}

/// The hashes are keyed and random already.
#[derive(Debug, Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        // Only whole hashes are written; this is never called.
        octets.iter().for_each(|octet| self.0 = self.0.rotate_left(8) ^ u64::from(*octet));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
