//! Gives memory back after the cache's bound became smaller, or its replies larger, so that fewer fit (CA5). Slots, the index and
//! the queues only grow otherwise, and only entries are counted.

use std::collections::VecDeque;
use std::mem;

use super::{CHUNK, ENTRY_OCTETS, Shard, Slot, index_for};

/// A shard is made again when what it holds without an entry takes one part in this many of what its entries take. Evictions of
/// replies of one size leave fewer slots free.
const SPARE_PART: usize = 64;
/// Chunks of slots more than its entries need with which a small shard is left as it is.
const SPARE_CHUNKS: usize = 1;
/// Entries that move in the one step that this takes, at most: hits wait for a millisecond or two. A shard with more keeps its
/// tables.
const MOST: usize = 16_384;

impl Shard {
    /// Moves the entries together, where most slots are free. Returns the old slots, to be freed without the lock.
    pub(in crate::forward::cache) fn shrink(&mut self) -> impl Sized + use<> {
        let entries = self.len();
        let spare = self.slots.len().saturating_sub(entries.div_ceil(CHUNK));
        let is_dense =
            spare <= SPARE_CHUNKS || spare * CHUNK * ENTRY_OCTETS <= self.octets / SPARE_PART;
        if entries > MOST || is_dense {
            return Vec::new();
        }
        let mut old = mem::take(&mut self.slots);
        (self.index, self.free) = (index_for(entries), Vec::new());
        let (short, long) = (mem::take(&mut self.short), mem::take(&mut self.long));
        self.short = self.moved(&mut old, short);
        self.long = self.moved(&mut old, long);
        old
    }

    /// Moves the slots of one queue, and returns their new numbers in its order.
    fn moved(&mut self, old: &mut [Vec<Slot>], mut queue: VecDeque<u32>) -> VecDeque<u32> {
        for number in &mut queue {
            let slot = &mut old[*number as usize / CHUNK][*number as usize % CHUNK];
            let moved = Slot { relayed: slot.relayed.take(), ..*slot };
            let (hash, is_found) = (moved.hash, moved.relayed.is_some());
            *number = self.place(moved);
            if is_found {
                self.index.insert(hash, *number);
            }
        }
        queue.shrink_to_fit();
        queue
    }

    /// Slots, places of the index, and places of the queues that the shard has memory for.
    #[cfg(test)]
    pub(in crate::forward::cache) fn room(&self) -> [usize; 3] {
        let queues = self.short.capacity() + self.long.capacity();
        [self.slots.len() * CHUNK, self.index.capacity(), queues]
    }
}
