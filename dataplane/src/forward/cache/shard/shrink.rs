//! Gives memory back after the cache's bound became much smaller (CA5). Slots, the index and the queues only grow otherwise, and
//! only entries are counted.

use std::collections::VecDeque;
use std::mem;

use super::{CHUNK, Shard, Slot, index_for};

/// A shard is made again when it has this many times as many slots as entries: after a smaller bound, or when the entries of
/// former routes have left. The evictions of a full cache leave few slots free.
const SPARSE: usize = 4;
/// Entries that move in the one step that this takes, at most: hits wait for a millisecond or two. A shard with more keeps its
/// tables.
const MOST: usize = 16_384;

impl Shard {
    /// Moves the entries together, where most slots are free. Returns the old slots, to be freed without the lock.
    pub(in crate::forward::cache) fn shrink(&mut self) -> impl Sized + use<> {
        let entries = self.len();
        if entries > MOST || self.slots.len() <= SPARSE * entries.div_ceil(CHUNK) + SPARSE {
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
