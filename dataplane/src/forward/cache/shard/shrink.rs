//! Gives memory back after the cache's bound became much smaller (CA5). Slots, the index and the queues only grow otherwise, and
//! only entries are counted.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::{CHUNK, SPARE_PART, Shard, Slot};

/// A shard is made again when it has this many times as many slots as entries. The evictions of a full cache leave few slots
/// free, so that this comes after a smaller bound only.
const SPARSE: usize = 4;

impl Shard {
    /// Moves the entries together, where most slots are free. This is one step, which takes as long as some thousand hits; it
    /// comes once after such a change.
    pub(in crate::forward::cache) fn shrink(&mut self) {
        let entries = self.len();
        if self.slots.len() <= SPARSE * entries.div_ceil(CHUNK) + SPARSE {
            return;
        }
        let mut old = std::mem::take(&mut self.slots);
        let places = entries + entries / SPARE_PART + 1;
        self.index = HashMap::with_capacity_and_hasher(places, BuildHasherDefault::default());
        self.free = Vec::new();
        let [mut short, mut long] =
            [&mut self.short, &mut self.long].map(|queue| std::mem::take(queue).into());
        for queue in [&mut short, &mut long] {
            self.move_to_new_slots(&mut old, queue);
        }
        (self.short, self.long) = (VecDeque::from(short), VecDeque::from(long));
    }

    /// Moves the slots of one queue, in its order.
    fn move_to_new_slots(&mut self, old: &mut [Vec<Slot>], queue: &mut Vec<u32>) {
        for number in queue.iter_mut() {
            let slot = &mut old[*number as usize / CHUNK][*number as usize % CHUNK];
            let moved = Slot { relayed: slot.relayed.take(), ..*slot };
            let (hash, is_found) = (moved.hash, moved.relayed.is_some());
            *number = self.place(moved);
            if is_found {
                self.index.insert(hash, *number);
            }
        }
        queue.shrink_to_fit();
    }

    /// Slots, places of the index, and places of the queues that the shard has memory for.
    #[cfg(test)]
    pub(in crate::forward::cache) fn room(&self) -> [usize; 3] {
        let queues = self.short.capacity() + self.long.capacity();
        [self.slots.len() * CHUNK, self.index.capacity(), queues]
    }
}
