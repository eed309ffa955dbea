//! The forward cache of the process (docs/dns.md §6.5): what upstreams said, by route and key, bounded in octets and in
//! entries. `dataplane_core::cache_action` says what may be served; `shard` says what is removed to make room.
//!
//! A hit takes one lock of sixteen for a look-up and a count of references; the reply is copied after the lock is free.

mod counts;
mod ghosts;
mod page;
mod shard;
mod sweep;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use dataplane_core::{
    Age, CacheAction, CacheCounters, CacheRules, Freshness, LookupKey, Relayed, lifetime_s,
};

use super::RouteId;
pub use counts::{CacheResult, OfKind};
pub use page::{Entry, Page};
use shard::{Moment, Shard};
pub(super) use sweep::Sweep;

/// Parts of the cache, each with a lock of its own: more than most nodes give this process cores.
const SHARDS: usize = 16;

/// Turns of one eviction queue before its lock is given back: a hit waits for no more than these.
const TURNS: usize = 64;

/// The settings of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// `cache.memory`: all entries together, in octets as the allocator takes them; 0 is no cache.
    pub octets: usize,
    /// `cache.entries`; 0 is no cache.
    pub entries: usize,
    /// When entries may be served.
    pub rules: CacheRules,
}

impl CacheLimits {
    pub fn of(config: &crds::config::Cache) -> CacheLimits {
        let rules = CacheRules { stale_s: config.stale_seconds, prefetch: config.prefetch };
        CacheLimits {
            octets: usize::try_from(config.memory_bytes).unwrap_or(usize::MAX),
            entries: config.entries as usize,
            rules,
        }
    }

    fn is_off(&self) -> bool {
        self.octets == 0 || self.entries == 0
    }
}

/// The place of a server in its group. A group with other servers, or in another order, is another route: the place
/// names the same server as long as the entry is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member(u8);

impl Member {
    /// The server at this place; a group has fewer than 256.
    pub fn at(place: usize) -> Member {
        Member(u8::try_from(place).unwrap_or(u8::MAX))
    }

    pub fn place(self) -> usize {
        self.0.into()
    }
}

/// What the cache has for a key, for people who ask.
#[derive(Debug)]
pub struct Peeked {
    /// What [`Cache::find`] would find.
    pub found: Found,
    pub age: Age,
    /// Which server of the group gave the reply; none of a failure.
    pub server: Option<Member>,
}

/// The result of a look-up in the cache.
#[derive(Clone, Debug)]
pub enum Found {
    /// No entry: an upstream must be asked.
    Nothing,
    /// The lookup failed a moment ago (N19).
    Failed {
        /// Whether no server replied; otherwise servers replied only with errors.
        was_silent: bool,
    },
    /// A reply that can be written.
    Reply {
        relayed: Relayed,
        freshness: Freshness,
        /// The caller also asks an upstream: before it writes a stale reply (CA40), after it wrote a fresh one (CA30).
        refresh: bool,
    },
}

impl Found {
    fn of(relayed: Relayed, decision: CacheAction) -> Found {
        let (freshness, refresh) = match decision {
            CacheAction::Fresh { age_s } => (Freshness::Fresh { age_s }, false),
            CacheAction::FreshAndPrefetch { age_s } => (Freshness::Fresh { age_s }, true),
            CacheAction::Stale { may_refresh } => (Freshness::Stale, may_refresh),
            CacheAction::Failed { was_silent } => return Found::Failed { was_silent },
            CacheAction::Miss => return Found::Nothing,
        };
        Found::Reply { relayed, freshness, refresh }
    }
}

/// The cache. Times are milliseconds of one clock that only goes forward (CA6).
#[derive(Debug, Default)]
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    taken: Taken,
}

/// What every insertion writes. It shares no line of a processor's cache with the hasher, which every hit reads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Taken {
    octets: AtomicUsize,
    entries: AtomicUsize,
    counters: CacheCounters,
}

const _: () = assert!(align_of::<Taken>() >= 128 && size_of::<Taken>().is_multiple_of(128));

impl Cache {
    /// Looks a key up, and notes that it was asked for. `recoveries` is how often servers of its group came back: when that
    /// changes, failures and stale hold-offs are forgotten (FW29).
    pub fn find(
        &self,
        route: RouteId,
        key: &LookupKey,
        now_ms: u64,
        recoveries: u64,
        limits: &CacheLimits,
    ) -> Found {
        if limits.is_off() {
            return Found::Nothing;
        }
        let hash = self.hash(route, key);
        let at = Moment { now_ms, recoveries, rules: limits.rules };
        let (relayed, decision) = self.shard(hash).find(hash, route, key, at);
        relayed.map_or(Found::Nothing, |relayed| Found::of(relayed, decision))
    }

    /// What [`Cache::find`] would find now, with its age and server. Nothing is counted or noted: for people who ask.
    pub fn peek(
        &self,
        route: RouteId,
        key: &LookupKey,
        (now_ms, recoveries): (u64, u64),
        limits: &CacheLimits,
    ) -> Option<Peeked> {
        let hash = self.hash(route, key);
        let at = Moment { now_ms, recoveries, rules: limits.rules };
        self.shard(hash).peek(hash, route, key, at).filter(|_| !limits.is_off())
    }

    /// Keeps a good reply of this server for as long as allowed, and for `most_s` seconds at most. It replaces the entry with its key, and ends a remembered failure
    /// (CA2-CA4, CA20, CA41). Returns whether it may be kept at all.
    pub fn keep(
        &self,
        route: RouteId,
        (relayed, server): (&Relayed, Member),
        most_s: u32,
        now_ms: u64,
        limits: &CacheLimits,
    ) -> bool {
        let hash = self.hash(route, &relayed.key());
        let mut shard = self.shard(hash);
        let (octets, entries) = shard.taken();
        let lifetime_s = lifetime_s(relayed).filter(|_| !limits.is_off());
        let lifetime_s = lifetime_s.map(|seconds| seconds.min(most_s));
        match lifetime_s {
            Some(lifetime_s) => {
                shard.keep(hash, route, (relayed.clone(), server), lifetime_s, now_ms);
                self.taken.counters.insertions.fetch_add(1, Ordering::Relaxed);
            }
            None => shard.forget(hash),
        }
        self.settle((hash, shard), octets, entries, now_ms, limits);
        lifetime_s.is_some()
    }

    /// Notes that a lookup has begun that asks again for an entry (CA30, CA40).
    pub fn note_refresh(&self, route: RouteId, key: &LookupKey, now_ms: u64) {
        let hash = self.hash(route, key);
        if let Some(age) = self.shard(hash).age(hash, route, key) {
            age.note_refresh(now_ms);
        }
    }

    /// Notes that a lookup ended before any upstream was asked.
    pub fn note_no_refresh(&self, route: RouteId, key: &LookupKey) {
        let hash = self.hash(route, key);
        if let Some(age) = self.shard(hash).age(hash, route, key) {
            age.note_no_refresh();
        }
    }

    /// Remembers that a lookup failed, and whether no server replied (CA20); an older answer stays (CA41). Returns whether there
    /// is a cache.
    pub fn note_failure(
        &self,
        route: RouteId,
        key: &LookupKey,
        was_silent: bool,
        (now_ms, recoveries): (u64, u64),
        limits: &CacheLimits,
    ) -> bool {
        if limits.is_off() {
            return false;
        }
        let hash = self.hash(route, key);
        let mut shard = self.shard(hash);
        let (octets, entries) = shard.taken();
        let at = Moment { now_ms, recoveries, rules: limits.rules };
        shard.note_failure(hash, (route, key), was_silent, at);
        self.settle((hash, shard), octets, entries, now_ms, limits);
        true
    }

    /// Notes that a lookup brought a part of the answer only (FW26). An older answer stays, as after a failure (CA41). A remembered
    /// failure is over.
    pub fn note_cut(&self, route: RouteId, key: &LookupKey, recoveries: u64) {
        let hash = self.hash(route, key);
        if let Some(age) = self.shard(hash).age(hash, route, key) {
            age.note_recoveries(recoveries);
            age.note_part();
        }
    }

    /// Gives memory back that no entry of one part of the cache uses. Meanwhile hits in this part wait. The parts come in turn,
    /// one with each number.
    pub fn tidy(&self, turn: usize) {
        let old = lock(&self.shards[turn % SHARDS]).shrink();
        // Without the lock.
        drop(old);
    }

    pub fn entries(&self) -> usize {
        self.taken.entries.load(Ordering::Relaxed)
    }

    /// What they take, in octets.
    pub fn octets(&self) -> usize {
        self.taken.octets.load(Ordering::Relaxed)
    }

    /// Queries by what they found.
    pub fn outcomes(&self) -> [u64; CacheResult::ALL.len()] {
        let mut sum = [0; CacheResult::ALL.len()];
        for shard in &self.shards {
            for (total, count) in sum.iter_mut().zip(lock(shard).outcomes()) {
                *total += count;
            }
        }
        sum
    }

    /// Good replies; denials (NXDOMAIN, no data) and failures. Each shard says both under one lock: a difference of numbers that
    /// were read at two times may fall, which no counter may.
    pub fn by_kind(&self) -> [OfKind; 2] {
        let mut sums = [OfKind::default(); 2];
        for shard in &self.shards {
            let kinds = lock(shard).by_kind();
            for (sum, OfKind { entries, hits, evictions }) in sums.iter_mut().zip(kinds) {
                sum.entries += entries;
                sum.hits += hits;
                sum.evictions += evictions;
            }
        }
        sums
    }

    /// Insertions and evictions (A54).
    pub fn counters(&self) -> &CacheCounters {
        &self.taken.counters
    }

    /// Adds the difference of the shard of this hash to the totals, then evicts: first from this shard, then from
    /// each that has more than its part, so that after a smaller bound all shards have the same. While the total is
    /// too large, at least one shard has more than its part. The thread that inserts also reads replies for others,
    /// so it does two rounds at most; later insertions and the [`Sweep`] do the rest.
    fn settle(
        &self,
        (hash, mut shard): (u64, MutexGuard<'_, Shard>),
        octets: usize,
        entries: usize,
        now_ms: u64,
        limits: &CacheLimits,
    ) {
        self.note_taken(&shard, octets, entries);
        // The new entry stays, unless it is larger than the whole cache.
        let mut evicted = self.make_room(&mut shard, 1, now_ms, limits);
        drop(shard);
        for place in 1..=2 * SHARDS {
            if !self.is_over(limits) {
                break;
            }
            let mut other = lock(&self.shards[(place_of(hash) + place) % SHARDS]);
            let least = usize::from(place <= SHARDS);
            evicted += self.make_room(&mut other, least, now_ms, limits);
        }
        if evicted > 0 {
            self.taken.counters.evictions.fetch_add(evicted, Ordering::Relaxed);
        }
    }

    /// Removes entries of a shard that has more than its part and than this many entries, while there is too much; how
    /// many of them had not expired.
    fn make_room(&self, shard: &mut Shard, least: usize, now_ms: u64, limits: &CacheLimits) -> u64 {
        let (mut turns, mut evicted) = (TURNS, 0);
        while turns > 0 && self.is_over(limits) {
            let (octets, entries) = shard.taken();
            let has_more = octets > limits.octets / SHARDS || entries > limits.entries / SHARDS;
            if !has_more || entries <= least {
                break;
            }
            evicted += u64::from(shard.evict(now_ms, &mut turns));
            self.note_taken(shard, octets, entries);
        }
        evicted
    }

    fn note_taken(&self, shard: &Shard, octets: usize, entries: usize) {
        let (octets_now, entries_now) = shard.taken();
        // Wrapping: a decrease is added as its complement.
        self.taken.octets.fetch_add(octets_now.wrapping_sub(octets), Ordering::Relaxed);
        self.taken.entries.fetch_add(entries_now.wrapping_sub(entries), Ordering::Relaxed);
    }

    pub(super) fn is_over(&self, limits: &CacheLimits) -> bool {
        self.octets() > limits.octets || self.entries() > limits.entries
    }

    fn hash(&self, route: RouteId, key: &LookupKey) -> u64 {
        self.hasher.hash_one((route, key))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[place_of(hash)])
    }
}

/// Which shard is that of a hash. Within the shard lower bits choose a place in its tables, and the highest seven compare hashes
/// before a row is read (`index`): if those chose the shard too, they would say little.
fn place_of(hash: u64) -> usize {
    (hash >> 20) as usize % SHARDS
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().expect("nothing panics while it holds this")
}

#[cfg(test)]
mod tests;
