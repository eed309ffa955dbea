//! The heaviest keys of a stream in fixed memory (pure): Space-Saving, by Metwally, Agrawal and El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams" (2005).
//!
//! A key that is not held takes the place of the lightest one and begins with its count. So a count is never too low, it is
//! too high by at most its `error`, and a key with more than 1/[`PLACES`] of all weight is held.

use std::collections::HashMap;
use std::hash::Hash;

/// Most keys that are held.
pub(super) const PLACES: usize = 256;

/// The heaviest keys.
#[derive(Debug)]
pub(super) struct Heaviest<K> {
    held: Vec<Weighed<K>>,
    places: HashMap<K, usize>,
}

/// A key and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weighed<K> {
    pub(super) key: K,
    pub(super) count: u64,
    /// The count is too high by this at most.
    pub(super) error: u64,
}

impl<K: Clone + Eq + Hash> Heaviest<K> {
    /// Empty, with all its memory.
    pub(super) fn new() -> Heaviest<K> {
        // Twice: removed keys leave marks behind, and the table must not grow for them.
        Heaviest { held: Vec::with_capacity(PLACES), places: HashMap::with_capacity(2 * PLACES) }
    }

    /// Adds weight to a key.
    pub(super) fn add(&mut self, key: K, weight: u64) {
        if let Some(place) = self.places.get(&key) {
            self.held[*place].count += weight;
            return;
        }
        if self.held.len() < PLACES {
            self.places.insert(key.clone(), self.held.len());
            self.held.push(Weighed { key, count: weight, error: 0 });
            return;
        }
        let lightest = self.held.iter_mut().enumerate().min_by_key(|(_, it)| it.count);
        let Some((place, lightest)) = lightest else { return };
        self.places.remove(&lightest.key);
        self.places.insert(key.clone(), place);
        *lightest = Weighed { key, count: lightest.count + weight, error: lightest.count };
    }

    /// This many of them, the heaviest first.
    pub(super) fn first(&self, most: usize) -> Vec<Weighed<K>> {
        let mut all = self.held.clone();
        all.sort_by_key(|it| std::cmp::Reverse(it.count));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut heaviest = Heaviest::new();
        for (key, times) in [("a", 3), ("b", 7), ("c", 1)] {
            (0..times).for_each(|_| heaviest.add(key, 2));
        }
        let found: Vec<_> =
            heaviest.first(2).into_iter().map(|it| (it.key, it.count, it.error)).collect();
        assert_eq!(found, [("b", 14, 0), ("a", 6, 0)]);
    }

    #[test]
    fn a_scan_of_other_keys_neither_hides_a_heavy_one_nor_takes_memory() {
        let mut heaviest = Heaviest::new();
        let mut all = 0;
        for number in 0..100_000_u32 {
            heaviest.add(1_000_000 + number, 1);
            all += 1;
            if number % 50 == 0 {
                heaviest.add(7, 1);
                all += 1;
            }
        }
        let first = heaviest.first(1).remove(0);
        assert_eq!(first.key, 7, "2,000 of 102,000 is more than 1/256");
        assert!(first.count >= 2_000 && first.count - first.error <= 2_000, "{first:?}");
        assert_eq!((heaviest.held.len(), heaviest.places.len()), (PLACES, PLACES));
        assert_eq!(heaviest.held.capacity(), PLACES);
        let sum: u64 = heaviest.held.iter().map(|it| it.count).sum();
        assert_eq!(sum, all, "each unit of weight is at one key");
    }
}
