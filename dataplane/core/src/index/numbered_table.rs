//! Objects by key, in numbered places: found by a hash, so that finding one of 100,000 costs what
//! finding one of a hundred does, and walked by number, so that a walk can stop and continue.

#![allow(
    clippy::indexing_slicing,
    reason = "places that the index gave itself, in lists that it filled"
)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::object::Key;
use crate::trees::buckets::Buckets;
use crate::trees::slots::FreeSlots;

/// Places of one block. When the table grows, only the list of blocks moves.
const BLOCK: usize = 64;

/// Places in a row, each empty or with an object and its key.
#[derive(Debug)]
struct Block<T> {
    /// How many places have an object.
    used: usize,
    /// None at all when none is used.
    places: Box<[Option<(Key, T)>]>,
}

impl<T> Block<T> {
    fn get(&self, place: u32) -> Option<&(Key, T)> {
        self.places.get(place as usize % BLOCK)?.as_ref()
    }
}

/// The objects of one resource.
#[derive(Debug)]
pub(super) struct NumberedTable<T> {
    blocks: Vec<Block<T>>,
    free: FreeSlots,
    /// Hash of a key → places.
    by_key: Buckets<u32, u32>,
    hasher: RandomState,
    len: usize,
}

impl<T> Default for NumberedTable<T> {
    fn default() -> Self {
        let hasher = RandomState::default();
        NumberedTable {
            blocks: Vec::new(),
            free: FreeSlots::default(),
            by_key: Buckets::new(hasher.clone()),
            hasher,
            len: 0,
        }
    }
}

impl<T> NumberedTable<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &Key) -> Option<&T> {
        let (_, object) = self.at(self.place(key)?)?;
        Some(object)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut T> {
        let place = self.place(key)? as usize;
        let places = &mut self.blocks.get_mut(place / BLOCK)?.places;
        let (_, object) = places.get_mut(place % BLOCK)?.as_mut()?;
        Some(object)
    }

    /// Puts an object instead of the one with this key, or in a new one.
    pub(super) fn insert(&mut self, key: Key, object: T) {
        if let Some(held) = self.get_mut(&key) {
            *held = object;
            return;
        }
        let place = self.free.take();
        self.by_key.insert(self.hash(&key), place);
        let place = place as usize;
        while self.blocks.len() <= place / BLOCK {
            self.blocks.push(Block { used: 0, places: Box::default() });
        }
        let block = &mut self.blocks[place / BLOCK];
        if block.used == 0 {
            block.places = (0..BLOCK).map(|_| None).collect();
        }
        block.places[place % BLOCK] = Some((key, object));
        block.used += 1;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<T> {
        let place = self.place(key)?;
        let block = self.blocks.get_mut(place as usize / BLOCK)?;
        let (_, object) = block.places.get_mut(place as usize % BLOCK)?.take()?;
        block.used -= 1;
        if block.used == 0 {
            block.places = Box::default();
        }
        self.by_key.remove(self.hash(key), place);
        self.free.give_back(place);
        self.len -= 1;
        self.shrink();
        Some(object)
    }

    /// Drops the blocks above all objects.
    fn shrink(&mut self) {
        self.blocks.truncate((self.free.bound() as usize).div_ceil(BLOCK));
        if self.blocks.capacity() > 4 * self.blocks.len() {
            self.blocks.shrink_to(2 * self.blocks.len());
        }
    }

    /// The objects from this place on, with their places.
    pub(super) fn from(&self, place: u32) -> impl Iterator<Item = (u32, &Key, &T)> {
        (place..self.free.bound()).filter_map(|place| {
            let (key, object) = self.at(place)?;
            Some((place, key, object))
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        self.from(0).map(|(_, key, object)| (key, object))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.from(0).map(|(_, _, object)| object)
    }

    fn at(&self, place: u32) -> Option<&(Key, T)> {
        self.blocks.get(place as usize / BLOCK)?.get(place)
    }

    fn place(&self, key: &Key) -> Option<u32> {
        let candidates = self.by_key.get(self.hash(key));
        candidates
            .iter()
            .map(|row| row.1)
            .find(|&place| self.at(place).is_some_and(|(held, _)| held == key))
    }

    fn hash(&self, key: &Key) -> u32 {
        (self.hasher.hash_one(key) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_replaced_removed_and_walked_from_anywhere() {
        let key = |number: u32| Key::new(format!("ns-{}", number % 7), format!("object-{number}"));
        let mut kept = NumberedTable::default();
        (0..1_000).for_each(|number| kept.insert(key(number), number));
        kept.insert(key(10), 5_010);
        (100..900).for_each(|number| assert_eq!(kept.remove(&key(number)), Some(number)));
        assert_eq!(kept.remove(&key(100)), None);
        assert_eq!(
            (kept.len(), kept.get(&key(10)), kept.get(&key(500))),
            (200, Some(&5_010), None)
        );
        *kept.get_mut(&key(11)).unwrap() = 5_011;
        kept.insert(key(2_000), 2_000);
        // The lowest free place is taken first.
        let walked: Vec<u32> = kept.from(98).map(|(_, _, &object)| object).take(4).collect();
        assert_eq!(walked, [98, 99, 2_000, 900]);
        assert_eq!(kept.values().count(), 201);
    }
}
