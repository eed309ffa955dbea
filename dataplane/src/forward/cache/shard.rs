//! One part of the cache, and which entry goes when there is no room (CA5): entries come into a short queue, and only what
//! is asked for again moves on to the long one, so a scan of unique names passes through the short queue alone. The hashes
//! of entries evicted from the short queue are remembered for a while: an entry that returns soon was evicted too
//! early.
//! The scheme is S3-FIFO (Yang et al., SOSP 2023).

mod index;
mod shrink;

use std::collections::VecDeque;

use dataplane_core::{Age, CacheAction, CacheRules, LookupKey, Relayed, cache_action};

use super::ghosts::Ghosts;
use super::{CacheResult, Found, Member, OfKind, Peeked, RouteId};
use index::{Index, index_for};

/// Octets that an entry takes besides its reply: its slot, and its places in a queue and in the index. Counted for
/// the worst case, in which tables have just doubled.
const ENTRY_OCTETS: usize = size_of::<Slot>() + 2 * size_of::<u32>() + 2 * 22;
/// Slots that are allocated at once, so that growing copies nothing.
const CHUNK: usize = 64;
/// The short queue has at most one part in this many of the octets.
const SHORT_PART: usize = 10;
/// Largest count of how often an entry was asked for; it survives as many rounds in the long queue.
const MAX_USED: u8 = 3;
/// One entry, or the place of a removed one that is still in its queue.
#[derive(Debug)]
struct Slot {
    hash: u64,
    relayed: Option<Relayed>,
    age: Age,
    route: RouteId,
    /// Which server of the route gave the reply; none of a failure. It lies where there was only padding.
    server: Option<Member>,
    used: u8,
    is_long: bool,
}

// An octet more here is an octet more for each entry.
const _: () = assert!(size_of::<Slot>() == 72);

/// The time and the rules of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now_ms: u64,
    /// How often servers of the group came back (FW29).
    pub(super) recoveries: u64,
    pub(super) rules: CacheRules,
}

/// One part of the cache with its own lock; the hash of the key chooses it.
#[derive(Debug, Default)]
pub(super) struct Shard {
    index: Index,
    slots: Vec<Vec<Slot>>,
    free: Vec<u32>,
    short: VecDeque<u32>,
    long: VecDeque<u32>,
    ghosts: Ghosts,
    octets: usize,
    short_octets: usize,
    outcomes: [u64; CacheResult::ALL.len()],
    /// Of denials and failures.
    denials: OfKind,
    /// Entries that were removed before they had expired, of all kinds.
    evictions: u64,
}

impl Shard {
    /// What is kept for a key and what to do with it; counted.
    pub(super) fn find(
        &mut self,
        hash: u64,
        route: RouteId,
        key: &LookupKey,
        at: Moment,
    ) -> (Option<Relayed>, CacheAction) {
        let found = self.of_key(hash, route, key).map(|slot| {
            slot.age.note_recoveries(at.recoveries);
            let decision = cache_action(&slot.age, at.now_ms, at.rules);
            slot.age.note_hit();
            slot.used = (slot.used + 1).min(MAX_USED);
            (slot.relayed.clone(), decision)
        });
        let (relayed, decision) = found.unwrap_or((None, CacheAction::Miss));
        let outcome = CacheResult::of(decision);
        self.outcomes[outcome as usize] += 1;
        if outcome.is_hit() && is_denial(relayed.as_ref()) {
            self.denials.hits += 1;
        }
        (relayed, decision)
    }

    /// The same without counting or noting anything, for people who ask.
    pub(super) fn peek(
        &self,
        hash: u64,
        route: RouteId,
        key: &LookupKey,
        at: Moment,
    ) -> Option<Peeked> {
        let number = *self.index.get(&hash)? as usize;
        let slot = self.slots.get(number / CHUNK)?.get(number % CHUNK)?;
        let relayed =
            slot.relayed.as_ref().filter(|kept| slot.route == route && kept.is_for(key))?;
        let mut age = slot.age;
        age.note_recoveries(at.recoveries);
        let found = Found::of(relayed.clone(), cache_action(&age, at.now_ms, at.rules));
        Some(Peeked { found, age, server: slot.server })
    }

    /// Keeps a reply, in place of the entry with its key if there is one.
    pub(super) fn keep(
        &mut self,
        hash: u64,
        route: RouteId,
        (relayed, server): (Relayed, Member),
        lifetime_s: u32,
        now_ms: u64,
    ) {
        self.put(hash, route, (relayed, Some(server)), Age::of_reply(lifetime_s, now_ms));
    }

    /// The state of a key besides its reply.
    pub(super) fn age(&mut self, hash: u64, route: RouteId, key: &LookupKey) -> Option<&mut Age> {
        self.of_key(hash, route, key).map(|slot| &mut slot.age)
    }

    pub(super) fn note_failure(
        &mut self,
        hash: u64,
        (route, key): (RouteId, &LookupKey),
        was_silent: bool,
        at: Moment,
    ) {
        if let Some(slot) = self.of_key(hash, route, key) {
            slot.age.note_recoveries(at.recoveries);
            slot.age.note_failure(at.now_ms, was_silent);
            return;
        }
        let mut age = Age::default();
        age.note_recoveries(at.recoveries);
        age.note_failure(at.now_ms, was_silent);
        self.put(hash, route, (Relayed::failure(key), None), age);
    }

    /// Removes the entry with this hash, if there is one. Its slot stays in its queue, and counts until it leaves the
    /// queue.
    pub(super) fn forget(&mut self, hash: u64) {
        if let Some(number) = self.index.remove(&hash) {
            self.fill(number, None);
        }
    }

    /// Removes one entry, in at most `turns` turns; whether it was a reply that had not expired. The last turn removes what it
    /// meets, so that a cache in which everything is asked for again keeps its bound.
    pub(super) fn evict(&mut self, now_ms: u64, turns: &mut usize) -> bool {
        // Each turn removes an entry, lowers its count of uses, or moves it to the long queue, so the loop ends.
        while self.len() > 0 && *turns > 0 {
            *turns -= 1;
            let is_short_over = self.short_octets > self.octets / SHORT_PART;
            let from_short = self.long.is_empty() || (is_short_over && !self.short.is_empty());
            let queue = if from_short { &mut self.short } else { &mut self.long };
            let Some(number) = queue.pop_front() else { return false };
            let slot = self.slot(number);
            let is_wanted =
                *turns > 0 && slot.relayed.is_some() && slot.used > u8::from(from_short);
            if is_wanted && from_short {
                (slot.used, slot.is_long) = (0, true);
                self.short_octets -= self.octets_of(number);
                self.long.push_back(number);
            } else if is_wanted {
                slot.used -= 1;
                self.long.push_back(number);
            } else {
                let was_denial = is_denial(self.slot(number).relayed.as_ref());
                let was_fresh = self.remove(number, now_ms);
                self.denials.evictions += u64::from(was_denial && was_fresh);
                self.evictions += u64::from(was_fresh);
                return was_fresh;
            }
        }
        false
    }

    /// Looks at this many entries from the front of one queue, and removes those on former routes. The others go to
    /// its end, so that after a whole round they are in the same order. Returns how many of the removed had not
    /// expired.
    pub(super) fn sweep(
        &mut self,
        is_long: bool,
        entries: usize,
        now_ms: u64,
        is_route: impl Fn(RouteId) -> bool,
    ) {
        for _ in 0..entries {
            let queue = if is_long { &mut self.long } else { &mut self.short };
            let Some(number) = queue.pop_front() else { break };
            if !is_route(self.slot(number).route) {
                self.remove(number, now_ms);
            } else if is_long {
                self.long.push_back(number);
            } else {
                self.short.push_back(number);
            }
        }
    }

    /// Entries of the short and of the long queue.
    pub(super) fn lengths(&self) -> [usize; 2] {
        [self.short.len(), self.long.len()]
    }

    pub(super) fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    /// Octets and entries that the shard holds.
    pub(super) fn taken(&self) -> (usize, usize) {
        (self.octets, self.len())
    }

    pub(super) fn outcomes(&self) -> [u64; CacheResult::ALL.len()] {
        self.outcomes
    }

    /// Good replies; denials and failures.
    pub(super) fn by_kind(&self) -> [OfKind; 2] {
        let OfKind { entries, hits, evictions } = self.denials;
        let all = CacheResult::ALL.into_iter().zip(self.outcomes);
        let all_hits: u64 = all.filter(|(it, _)| it.is_hit()).map(|(_, count)| count).sum();
        let good = OfKind {
            entries: self.len() as u64 - entries,
            hits: all_hits - hits,
            evictions: self.evictions - evictions,
        };
        [good, self.denials]
    }

    /// At most `most` entries of the `looks` slots from slot `from` on, and the slot at which the next look begins.
    pub(super) fn some(
        &self,
        from: usize,
        most: usize,
        looks: usize,
    ) -> (Vec<(Relayed, Age, RouteId)>, Option<usize>) {
        let mut found = Vec::new();
        // All chunks before are full: none of their slots is passed one by one.
        let chunks = self.slots.get(from / CHUNK..).unwrap_or_default();
        let slots = chunks.iter().flatten().skip(from % CHUNK);
        for (number, slot) in (from..).zip(slots) {
            if found.len() == most || number - from == looks {
                return (found, Some(number));
            }
            found.extend(slot.relayed.clone().map(|relayed| (relayed, slot.age, slot.route)));
        }
        (found, None)
    }

    fn of_key(&mut self, hash: u64, route: RouteId, key: &LookupKey) -> Option<&mut Slot> {
        let number = *self.index.get(&hash)?;
        let slot = self.slot(number);
        let is_same = slot.route == route && slot.relayed.as_ref().is_some_and(|r| r.is_for(key));
        is_same.then_some(slot)
    }

    fn put(
        &mut self,
        hash: u64,
        route: RouteId,
        (relayed, server): (Relayed, Option<Member>),
        age: Age,
    ) {
        if let Some(&number) = self.index.get(&hash) {
            self.fill(number, Some(relayed));
            let slot = self.slot(number);
            (slot.route, slot.server, slot.age) = (route, server, age);
            return;
        }
        let is_long = self.ghosts.have(hash);
        self.denials.entries += u64::from(is_denial(Some(&relayed)));
        let taken = allocated(relayed.octets()) + ENTRY_OCTETS;
        let relayed = Some(relayed);
        let number = self.place(Slot { hash, relayed, age, route, server, used: 0, is_long });
        self.make_room_in_index();
        self.index.insert(hash, number);
        self.octets += taken;
        if is_long {
            self.long.push_back(number);
        } else {
            self.short_octets += taken;
            self.short.push_back(number);
        }
    }

    /// Removed entries leave marks in the table of the index. It would double for them, so it is made again.
    fn make_room_in_index(&mut self) {
        let entries = self.index.len();
        if entries == self.index.capacity() {
            let mut index = index_for(entries);
            index.extend(self.index.drain());
            self.index = index;
        }
    }

    /// Empties the index; how many entries its table has room for.
    #[cfg(test)]
    pub(super) fn places_of_index(&mut self) -> usize {
        self.index.clear();
        self.index.capacity()
    }

    /// Puts another reply, or none, into a slot.
    fn fill(&mut self, number: u32, relayed: Option<Relayed>) {
        let before = self.octets_of(number);
        let slot = self.slot(number);
        let is_long = slot.is_long;
        let [was, is] = [slot.relayed.as_ref(), relayed.as_ref()].map(is_denial);
        slot.relayed = relayed;
        self.denials.entries += u64::from(is);
        self.denials.entries -= u64::from(was);
        let after = self.octets_of(number);
        self.octets = self.octets - before + after;
        if !is_long {
            self.short_octets = self.short_octets - before + after;
        }
    }

    /// Frees a slot that has left its queue; whether its reply was fresh.
    fn remove(&mut self, number: u32, now_ms: u64) -> bool {
        let taken = self.octets_of(number);
        let slot = self.slot(number);
        let (hash, is_long) = (slot.hash, slot.is_long);
        let relayed = slot.relayed.take();
        let had_reply = relayed.is_some();
        let was_fresh = had_reply && slot.age.is_fresh(now_ms);
        let was_denial = is_denial(relayed.as_ref());
        self.denials.entries -= u64::from(was_denial);
        self.octets -= taken;
        if !is_long {
            self.short_octets -= taken;
        }
        if had_reply {
            self.index.remove(&hash);
            if !is_long {
                self.ghosts.remember(hash);
            }
        }
        self.free.push(number);
        was_fresh
    }

    fn place(&mut self, slot: Slot) -> u32 {
        if let Some(number) = self.free.pop() {
            *self.slot(number) = slot;
            return number;
        }
        if self.slots.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.slots.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.slots.len() - 1) * CHUNK;
        let chunk = self.slots.last_mut().expect("one was pushed");
        chunk.push(slot);
        (before + chunk.len() - 1) as u32
    }

    fn slot(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize / CHUNK][number as usize % CHUNK]
    }

    fn octets_of(&mut self, number: u32) -> usize {
        let reply = self.slot(number).relayed.as_ref();
        ENTRY_OCTETS + reply.map_or(0, |relayed| allocated(relayed.octets()))
    }
}

/// What the allocator takes for a shared slice of this many octets: two counts in front, a header, rounded up as glibc does.
fn allocated(octets: usize) -> usize {
    (octets + 2 * size_of::<usize>() + size_of::<usize>()).next_multiple_of(16).max(32)
}

/// Whether this is a denial or a failure.
fn is_denial(relayed: Option<&Relayed>) -> bool {
    relayed.is_some_and(|relayed| {
        (relayed.is_negative() && !relayed.is_partial()) || relayed.is_failure()
    })
}
