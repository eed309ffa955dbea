//! Removes entries that insertions do not push out: those on routes that no configuration has any more, and those
//! above a smaller bound while little is inserted. A pass takes many short steps, so that no hit waits for long.

use std::sync::atomic::Ordering;

use super::{Cache, CacheLimits, RouteId, SHARDS, TURNS, lock};

/// One pass over the cache.
#[derive(Debug, Default)]
pub(in crate::forward) struct Sweep {
    shard: usize,
    /// Entries of the shard that were not looked at yet, in the short and in the long queue.
    left: Option<[usize; 2]>,
}

impl Sweep {
    /// Looks at a few entries under one lock. Those on a route for which `is_route` says no are removed (CA1), and others
    /// as long as there is too much (CA5). Returns whether the pass continues.
    pub(in crate::forward) fn step(
        &mut self,
        cache: &Cache,
        now_ms: u64,
        limits: &CacheLimits,
        is_route: impl Fn(RouteId) -> bool,
    ) -> bool {
        let Some(shard) = cache.shards.get(self.shard) else { return false };
        let mut shard = lock(shard);
        let (octets, entries) = shard.taken();
        let mut left = self.left.unwrap_or_else(|| shard.lengths());
        for (queue, left) in left.iter_mut().enumerate() {
            let some = (*left).min(TURNS);
            *left -= some;
            // Not to make room: these count as no evictions.
            shard.sweep(queue == 1, some, now_ms, &is_route);
        }
        cache.note_taken(&shard, octets, entries);
        let evicted = cache.make_room(&mut shard, 0, now_ms, limits);
        cache.counters().evictions.fetch_add(evicted, Ordering::Relaxed);
        // A bound that became smaller: this part of the cache keeps no more than its own share.
        let (octets, entries) = shard.taken();
        let has_more = octets > limits.octets / SHARDS || entries > limits.entries / SHARDS;
        let is_done = left == [0, 0] && !(cache.is_over(limits) && has_more);
        let old = is_done.then(|| shard.shrink());
        drop(shard);
        drop(old);
        (self.shard, self.left) =
            if is_done { (self.shard + 1, None) } else { (self.shard, Some(left)) };
        self.shard < SHARDS
    }
}
