//! What the replies to a batch of queries will read, read side by side, and kept for them.
//!
//! Between two batches the kernel empties the processor's caches. A look-up then waits for memory at each node of a tree, and
//! each wait begins when the one before has ended. Queries of one batch do not depend on each other: their nodes are read
//! level by level here, so that the waits overlap (group prefetching). A reply begins with what was found here: it reads no
//! name and searches no tree twice.

#![allow(
    clippy::indexing_slicing,
    reason = "counts that stay below the length of their arrays; a name has its root octet"
)]

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::hint::black_box;

use crate::counters::{Counters, Reason};
use crate::decide::found::Found;
use crate::decide::respond::{Action, respond, respond_to};
use crate::records::{Records, hash};
use crate::trees::buckets::{BucketKey, of_key};
use crate::wire::labels::Labels;
use crate::wire::message::{HEADER, Query};
use crate::wire::reverse::ReverseName;

/// Queries of a batch that are read ahead; more are not.
const AHEAD: usize = 32;
/// Fewer queries have too little to overlap.
const FEWEST: usize = 4;

/// Room for the names of a batch, used again for each: a name has nearly 400 octets, which should not be cleared.
#[derive(Default)]
pub struct AheadRoom(Vec<Labels>);

impl AheadRoom {
    /// Allocates it.
    pub fn new() -> AheadRoom {
        AheadRoom(alloc::vec![Labels::ROOT; AHEAD])
    }
}

impl fmt::Debug for AheadRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AheadRoom").finish_non_exhaustive()
    }
}

/// One query that was read ahead.
#[derive(Clone, Copy)]
struct Read<'r> {
    /// Its octets, which cannot change while they are borrowed.
    packet: &'r [u8],
    has_name: bool,
    found: Found<'r>,
}

/// The queries of a batch, read ahead of their replies. What was found belongs to these octets and to these records: both
/// are borrowed, and replies are made of no others.
pub struct Ahead<'a, 'r> {
    records: &'r Records,
    names: &'a [Labels],
    queries: [Read<'r>; AHEAD],
    count: usize,
    /// The query after the one that was answered last: they are answered in their order.
    next: Cell<usize>,
}

impl fmt::Debug for Ahead<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("count", &self.count).finish_non_exhaustive()
    }
}

impl<'a, 'r> Ahead<'a, 'r> {
    /// Reads what the replies to these queries will read, 32 of them at most. It changes nothing and never fails. `None`
    /// where so few have nothing to gain.
    pub fn read(
        records: &'r Records,
        room: &'a mut AheadRoom,
        packets: impl ExactSizeIterator<Item = &'r [u8]>,
    ) -> Option<Ahead<'a, 'r>> {
        if packets.len() < FEWEST {
            return None;
        }
        // Only a default one is smaller.
        room.0.resize(AHEAD, Labels::ROOT);
        let none = Read { packet: &[], has_name: false, found: Found::Unknown };
        let mut queries = [none; AHEAD];
        let mut count = 0;
        for ((query, name), packet) in queries.iter_mut().zip(&mut room.0).zip(packets) {
            query.packet = packet;
            query.has_name = name.read(packet, HEADER).is_some();
            count += 1;
        }
        find_services(records, &mut queries[..count], &room.0);
        find_publishers(records, &mut queries[..count], &room.0);
        Some(Ahead { records, names: &room.0, queries, count, next: Cell::new(0) })
    }

    /// The same as [`respond`] with the records that were read ahead, for any query.
    pub fn respond(
        &self,
        query: &Query<'r>,
        counters: &Counters<'r>,
        buffer: &mut [u8],
    ) -> (Action<'r>, Reason) {
        match self.find(query.packet) {
            Some((name, found)) => {
                respond_to(self.records, query, (Some(name), found), counters, buffer)
            }
            None => respond(self.records, query, counters, buffer),
        }
    }

    /// What was read of the query with these very octets, not of an equal one.
    fn find(&self, packet: &[u8]) -> Option<(&Labels, &Found<'r>)> {
        let rest = &self.queries[self.next.get()..self.count];
        let after = rest.iter().position(|query| core::ptr::eq(query.packet, packet))?;
        let at = self.next.get() + after;
        self.next.set(at + 1);
        self.queries[at].has_name.then(|| (&self.names[at], &self.queries[at].found))
    }
}

/// Finds the Services of the names at or below one.
#[inline(never)]
fn find_services<'r>(records: &'r Records, queries: &mut [Read<'r>], names: &[Labels]) {
    let (mut places, mut wires) = ([0_u8; AHEAD], [&[][..]; AHEAD]);
    let (mut hashes, mut count) = ([0; AHEAD], 0);
    for (index, (query, name)) in queries.iter_mut().zip(names).enumerate() {
        if let Some((left, wire)) = query.has_name.then(|| service(records, name)).flatten() {
            // Until an entry is found.
            query.found = Found::NoService(left);
            (places[count], wires[count]) = (index as u8, wire);
            hashes[count] = hash(&records.hasher, wire);
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    let (places, hashes) = (&places[..count], &hashes[..count]);
    let leaves = records.service_names.leaves::<AHEAD>(hashes);
    // No place has the number where there is no row, or one of several.
    let mut slots = [u32::MAX; AHEAD];
    for (((slot, rows), &hash), &place) in slots.iter_mut().zip(&leaves).zip(hashes).zip(places) {
        match of_key(rows, hash) {
            [] => {}
            &[(_, service)] => *slot = service,
            // Names of one hash: the reply compares them.
            [_, _, ..] => queries[usize::from(place)].found = Found::Unknown,
        }
    }
    let entries = records.services.get_each::<AHEAD>(&slots[..count]);
    let mut read = 0;
    for ((entry, &place), wire) in entries.iter().zip(places).zip(wires) {
        let Some(entry) = *entry else {
            continue;
        };
        let query = &mut queries[usize::from(place)];
        if let Found::NoService(left) = query.found
            && *entry.wire == *wire
        {
            query.found = Found::Service(left, entry);
        }
        read ^= entry.namespace ^ entry.v4_rows;
    }
    for entry in entries[..count].iter().flatten() {
        read ^= entry.by_address.first().map_or(0, |row| row.slice);
    }
    black_box(read);
}

/// The labels left of the cluster domain of a name at or below a Service, and the labels of that Service and its namespace.
fn service<'n>(records: &Records, name: &'n Labels) -> Option<(usize, &'n [u8])> {
    let left = name.below(records.zone.apex(), records.zone.apex_labels)?;
    let is_at = (3..=5).contains(&left) && name.label(left - 1) == b"svc";
    is_at.then(|| (left, name.range(left - 3, left - 1)))
}

/// Finds the rows that publish the addresses of reverse names, and reads what their PTRs are made of.
#[inline(never)]
fn find_publishers<'r>(records: &'r Records, queries: &mut [Read<'r>], names: &[Labels]) {
    let (mut places, mut paths, mut count) = ([0_u8; AHEAD], [0; AHEAD], 0);
    for (index, (query, name)) in queries.iter_mut().zip(names).enumerate() {
        if query.has_name
            && matches!(query.found, Found::Unknown)
            && let Some(reverse) = ReverseName::of(name)
            && let Some(address) = reverse.publishable()
        {
            query.found = Found::Publishers(reverse, &[]);
            (places[count], paths[count]) = (index as u8, address.spread(&records.hasher));
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    let leaves = records.addresses.leaves::<AHEAD>(&paths[..count]);
    // A cluster IP has no slice, and no place has its number.
    let (mut services, mut slices) = ([u32::MAX; AHEAD], [u32::MAX; AHEAD]);
    for (index, (rows, &place)) in leaves.iter().zip(&places[..count]).enumerate() {
        let query = &mut queries[usize::from(place)];
        let Found::Publishers(reverse, _) = query.found else {
            continue;
        };
        let rows = reverse.publishable().map_or(&[][..], |address| of_key(rows, address));
        query.found = Found::Publishers(reverse, rows);
        if let Some((_, publisher)) = rows.first() {
            (services[index], slices[index]) = (publisher.service, publisher.slice);
        }
    }
    let services = records.services.get_each::<AHEAD>(&services[..count]);
    let mut read = 0;
    for entry in services[..count].iter().flatten() {
        read ^= u32::from(entry.wire[0]) ^ entry.namespace;
    }
    let slices = records.slices.get_each::<AHEAD>(&slices[..count]);
    for slice in slices[..count].iter().flatten() {
        read ^= slice.text.first().map_or(0, |&octet| octet.into());
    }
    black_box(read);
}

#[cfg(test)]
mod tests;
