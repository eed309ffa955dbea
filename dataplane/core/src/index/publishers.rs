//! The publishers of each address. Readers see a bounded number of them, because anyone may write thousands of names
//! of one address, and a PTR reply must not pay for them.

#![allow(
    clippy::indexing_slicing,
    reason = "places that the index gave itself, in lists that it filled"
)]

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Ordering;

use hashbrown::HashMap;

use crate::records::{MAX_PUBLISHERS, PodHolder, Publisher};
use crate::trees::buckets::Buckets;
use crate::wire::address::Address;

/// Room of the table that is kept although it is empty.
const KEPT_ROOM: usize = 64;

/// A row that shares a number of places with others.
pub(super) trait Sharing: Copy + Ord {
    /// The rows of an address that share its places with this one, as a number that sorts like them.
    fn share(&self) -> u64;
}

/// Those of the same kind and namespace.
impl Sharing for Publisher {
    fn share(&self) -> u64 {
        Publisher::share(self)
    }
}

/// Those of the same namespace, which share their node's address or do not.
impl Sharing for PodHolder {
    fn share(&self) -> u64 {
        u64::from(self.host_network) << 32 | u64::from(self.namespace)
    }
}

/// Rows that wait for a place; readers do not see them. Which ones does not depend on the order in which they came: the first
/// 64 (`MAX_PUBLISHERS`) are visible. They are sorted by the places of their Service and slice, so it does depend on the
/// order in which those came: a name that sorts like a text would take more memory than a row has.
#[derive(Debug)]
pub(super) struct HiddenRows<V> {
    rows: HashMap<(Address, u64), BTreeSet<V>, foldhash::fast::RandomState>,
    /// All rows, in the order in which they came, while a snapshot is read: see [`HiddenRows::gather`].
    gathered: Option<Vec<(Address, V)>>,
    /// See [`HiddenRows::take_is_crowded`].
    is_crowded: bool,
}

impl<V> Default for HiddenRows<V> {
    fn default() -> Self {
        HiddenRows { rows: HashMap::default(), gathered: None, is_crowded: false }
    }
}

impl<V: Sharing> HiddenRows<V> {
    /// From here on rows are put aside, until [`HiddenRows::settle`] makes the map of all of them at once. For 100,000
    /// rows of a snapshot that takes a quarter of the time. Nothing happens where the map has rows already.
    pub(super) fn gather(&mut self, seen: &Buckets<Address, V>) {
        if seen.is_empty() && self.gathered.is_none() {
            self.gathered = Some(Vec::new());
        }
    }

    /// Makes the map of the rows that were put aside, before anything reads it. From here on rows are added one by
    /// one.
    pub(super) fn settle(&mut self, seen: &mut Buckets<Address, V>) {
        let Some(mut rows) = self.gathered.take() else {
            return;
        };
        rows.sort_unstable();
        rows.dedup();
        // Rows that share their places are neighbours now: all after the first 64 wait.
        let (mut neighbour, mut count) = (None, 0);
        rows.retain(|&(address, row)| {
            let key = (address, row.share());
            count = if neighbour == Some(key) { count + 1 } else { 1 };
            neighbour = Some(key);
            let is_seen = count <= MAX_PUBLISHERS;
            if !is_seen {
                self.rows.entry(key).or_default().insert(row);
            }
            is_seen
        });
        *seen = Buckets::of(rows, seen.hasher().clone());
    }

    /// Adds a row: readers see it, or it waits.
    pub(super) fn insert(
        &mut self,
        seen: &mut Buckets<Address, V>,
        address: Address,
        publisher: V,
    ) {
        if let Some(gathered) = &mut self.gathered {
            gathered.push((address, publisher));
            return;
        }
        let rows = seen.get(address);
        self.is_crowded |= rows.len() >= MAX_PUBLISHERS;
        let share = publisher.share();
        let end = rows.partition_point(|(_, row)| row.share() <= share);
        let Some(first) = end.checked_sub(MAX_PUBLISHERS) else {
            seen.insert(address, publisher);
            return;
        };
        let last = rows[end - 1].1;
        if rows[first].1.share() != share {
            seen.insert(address, publisher);
            return;
        }
        let waits = match publisher.cmp(&last) {
            Ordering::Greater => publisher,
            Ordering::Less if seen.insert(address, publisher) => {
                seen.remove(address, last);
                last
            }
            // Readers see it already.
            Ordering::Less | Ordering::Equal => return,
        };
        self.rows.entry((address, share)).or_default().insert(waits);
    }

    /// Removes a row; the first that waits takes its place.
    pub(super) fn remove(
        &mut self,
        seen: &mut Buckets<Address, V>,
        address: Address,
        publisher: V,
    ) {
        self.settle(seen);
        self.is_crowded |= seen.get(address).len() >= MAX_PUBLISHERS;
        let is_seen = seen.remove(address, publisher);
        let key = (address, publisher.share());
        let Some(waiting) = self.rows.get_mut(&key) else {
            return;
        };
        if is_seen {
            if let Some(next) = waiting.pop_first() {
                seen.insert(address, next);
            }
        } else {
            waiting.remove(&publisher);
        }
        if waiting.is_empty() {
            self.rows.remove(&key);
            if self.rows.capacity() > KEPT_ROOM && self.rows.len() < self.rows.capacity() / 8 {
                self.rows.shrink_to(KEPT_ROOM.max(2 * self.rows.len()));
            }
        }
    }

    /// Whether a row came to, or left, an address with as many rows as one namespace may have. Another row may be seen instead,
    /// or readers may look at fewer of them, so that answers depend on rows of hidden Services too. Begins again with each call.
    pub(super) fn take_is_crowded(&mut self) -> bool {
        core::mem::take(&mut self.is_crowded)
    }

    /// True if this publisher waits for the address.
    pub(super) fn contains(&self, address: Address, publisher: V) -> bool {
        let waiting = self.rows.get(&(address, publisher.share()));
        waiting.is_some_and(|waiting| waiting.contains(&publisher))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use foldhash::fast::RandomState;

    use super::*;
    use crate::records::RowLabel;

    #[test]
    fn l12_the_same_rows_are_seen_in_any_order_of_arrival() {
        let address = Address::from(IpAddr::from([10, 0, 0, 1]));
        let row = |namespace, slice| Publisher {
            service: 1,
            namespace,
            slice,
            label: RowLabel::at(slice as usize, true, false),
        };
        let seen_after = |order: &[u32]| {
            let (mut seen, mut waiting) =
                (Buckets::new(RandomState::default()), HiddenRows::default());
            waiting.insert(&mut seen, address, row(2, 5));
            for &slice in order {
                waiting.insert(&mut seen, address, row(7, slice));
                waiting.insert(&mut seen, address, row(7, slice));
            }
            for slice in 0..10 {
                waiting.remove(&mut seen, address, row(7, slice));
            }
            let slices: Vec<u32> = seen.get(address).iter().map(|(_, row)| row.slice).collect();
            for &slice in order {
                waiting.remove(&mut seen, address, row(7, slice));
            }
            assert!(waiting.is_empty());
            assert_eq!(seen.get(address), [(address, row(2, 5))]);
            slices
        };
        let upwards: Vec<u32> = (0..200).collect();
        let downwards: Vec<u32> = (0..200).rev().collect();
        let expected: Vec<u32> = core::iter::once(5).chain(10..74).collect();
        assert_eq!(seen_after(&upwards), expected);
        assert_eq!(seen_after(&downwards), expected);
    }

    #[test]
    fn rows_that_were_gathered_are_seen_and_wait_as_if_they_had_come_one_by_one() {
        let address = |number: u32| Address::from(IpAddr::from((number % 50).to_be_bytes()));
        let row = |number: u32| Publisher {
            service: number % 3,
            namespace: number % 2,
            slice: number.wrapping_mul(7_919) % 4_000,
            label: RowLabel::derived(number.is_multiple_of(5)),
        };
        let new = || (Buckets::new(RandomState::default()), HiddenRows::default());
        let ((mut seen, mut waiting), (mut at_once, mut gathering)) = (new(), new());
        gathering.gather(&at_once);
        for number in (0..20_000).chain(0..100) {
            waiting.insert(&mut seen, address(number), row(number));
            gathering.insert(&mut at_once, address(number), row(number));
        }
        assert!(at_once.is_empty() && !waiting.rows.is_empty());
        // A removal makes the map first.
        waiting.remove(&mut seen, address(7), row(7));
        gathering.remove(&mut at_once, address(7), row(7));
        for number in 0..50 {
            assert_eq!(seen.get(address(number)), at_once.get(address(number)));
        }
        assert_eq!(waiting.rows, gathering.rows);
        // It has rows, so rows come one by one from here on.
        gathering.gather(&at_once);
        assert!(gathering.gathered.is_none());
    }
}
