//! What the replies to a batch of queries will read, read side by side.
//!
//! Between two batches the kernel empties the processor's caches. A look-up then waits for memory at each node of a tree, and
//! each wait begins when the one before has ended. Queries of one batch do not depend on each other: their nodes are read
//! level by level here, so that the waits overlap (group prefetching). No reply depends on what is read.

#![allow(
    clippy::indexing_slicing,
    reason = "counts that stay below the length of their arrays; a name has its root octet"
)]

use core::hint::black_box;
use core::net::IpAddr;

use crate::records::{Records, hash};
use crate::trees::buckets::BucketKey;
use crate::wire::address::Address;
use crate::wire::labels::Labels;
use crate::wire::message::HEADER;
use crate::wire::reverse::ReverseName;

/// Queries of a batch that are read ahead; more are not.
const AHEAD: usize = 32;
/// Fewer queries have too little to overlap: each would only be parsed twice.
const FEWEST: usize = 4;

/// Reads what [`respond`](crate::respond) will read for these queries, 32 of them at most. It changes nothing and never
/// fails: what is no query is passed over.
pub fn read_ahead<'p>(records: &Records, packets: impl ExactSizeIterator<Item = &'p [u8]>) {
    if packets.len() < FEWEST {
        return;
    }
    let mut names = Wanted::new(0);
    let mut addresses = Wanted::new(Address::from(IpAddr::from([0, 0, 0, 0])));
    let mut name = Labels::ROOT;
    for packet in packets.take(AHEAD) {
        if name.read(packet, HEADER).is_none() {
            continue;
        }
        if let Some(wire) = service(records, &name) {
            names.push(hash(&records.hasher, wire));
        } else if let Some(address) =
            ReverseName::of(&name).and_then(|reverse| reverse.publishable())
        {
            addresses.push(address);
        }
    }
    let (mut services, mut slices) = (Wanted::new(0), Wanted::new(0));
    if !names.items().is_empty() {
        let rows = records.service_names.leaves::<AHEAD>(names.items());
        black_box(first(&rows, |row| row.1));
        for (rows, hash) in rows.iter().zip(names.items()) {
            if let Some(row) = rows.iter().find(|row| row.0 == *hash) {
                services.push(row.1);
            }
        }
    }
    if !addresses.items().is_empty() {
        let mut paths = [0; AHEAD];
        for (path, address) in paths.iter_mut().zip(addresses.items()) {
            *path = address.spread(&records.hasher);
        }
        let rows = records.addresses.leaves::<AHEAD>(&paths[..addresses.items().len()]);
        black_box(first(&rows, |row| row.1.service));
        for (rows, address) in rows.iter().zip(addresses.items()) {
            if let Some((_, publisher)) = rows.iter().find(|row| row.0 == *address) {
                services.push(publisher.service);
                // A cluster IP has no slice, and no place has its number.
                slices.push(publisher.slice);
            }
        }
    }
    black_box(entries(records, services.items(), slices.items()));
}

/// Reads the parts of these Services and slices that replies begin with.
fn entries(records: &Records, services: &[u32], slices: &[u32]) -> u32 {
    let services = records.services.get_each::<AHEAD>(services);
    let mut read = 0;
    for entry in services.iter().flatten() {
        read ^= u32::from(entry.wire[0]) ^ entry.namespace ^ entry.v4_rows;
    }
    for entry in services.iter().flatten() {
        read ^= entry.by_address.first().map_or(0, |row| row.slice);
    }
    if !slices.is_empty() {
        let slices = records.slices.get_each::<AHEAD>(slices);
        read ^= slices.iter().flatten().filter_map(|slice| slice.text.first()).count() as u32;
    }
    read
}

/// The labels of the Service that a name is at or below, and its namespace's.
fn service<'n>(records: &Records, name: &'n Labels) -> Option<&'n [u8]> {
    let left = name.below(records.zone.apex(), records.zone.apex_labels)?;
    (left >= 3 && name.label(left - 1) == b"svc").then(|| name.range(left - 3, left - 1))
}

/// One number from the first row of each leaf: enough to have its memory at hand.
fn first<R>(leaves: &[&[R]], read: impl Fn(&R) -> u32) -> u32 {
    leaves.iter().filter_map(|rows| rows.first()).map(read).fold(0, |all, one| all ^ one)
}

/// Places of nodes to read ahead, at most [`AHEAD`]; more are ignored.
struct Wanted<T> {
    items: [T; AHEAD],
    count: usize,
}

impl<T: Copy> Wanted<T> {
    /// Nothing yet; `blank` fills the places that are not read.
    fn new(blank: T) -> Self {
        Wanted { items: [blank; AHEAD], count: 0 }
    }

    fn push(&mut self, item: T) {
        if let Some(place) = self.items.get_mut(self.count) {
            *place = item;
            self.count += 1;
        }
    }

    fn items(&self) -> &[T] {
        &self.items[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::Index;
    use crate::testing::settings;

    proptest! {
        #[test]
        fn a_batch_of_any_octets_is_read_without_a_panic(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..70)
        ) {
            let index = Index::new(settings());
            read_ahead(&index.records(), packets.iter().map(Vec::as_slice));
        }
    }
}
