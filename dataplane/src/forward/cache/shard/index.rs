//! Where the entry of a hash is.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::forward::hashed::AsItIs;

/// One part in this many of the index is free when it is made again: it costs little, and the table grows little.
const SPARE_PART: usize = 8;

/// The slot of each hash.
pub(super) type Index = HashMap<u64, u32, BuildHasherDefault<AsItIs>>;

/// With room for this many entries, and some more.
pub(super) fn index_for(entries: usize) -> Index {
    Index::with_capacity_and_hasher(entries + entries / SPARE_PART + 1, Default::default())
}
