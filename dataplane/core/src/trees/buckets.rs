//! A persistent hash multimap of small plain rows: sorted leaves without a heap object per row.
//! A change copies one leaf and a node of each level above it, for any number of rows.

#![allow(
    clippy::indexing_slicing,
    reason = "digits below the width of a node, places that a search found"
)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::steps::step;
use crate::wire::address::Address;

/// Children of a node: narrow for the reason given in [`slots`](crate::trees::slots).
const WIDTH: usize = 8;
/// Rows of a full leaf. Few, because a reader looks at them one by one, and each cache line that must be loaded costs
/// more than all instructions of the search.
const FULL: usize = 8;
/// Bits of a hash that one level reads, and the levels that all of them lead through.
const DIGIT: u32 = WIDTH.ilog2();
const LEVELS: u32 = u32::BITS.div_ceil(DIGIT);

/// The key of rows.
pub(crate) trait BucketKey: Copy + Ord {
    /// Its hash: equal for equal keys, otherwise random.
    fn spread(self, hasher: &RandomState) -> u32;
}

/// A hash, as [`hash`](crate::records::hash) makes it of names.
impl BucketKey for u32 {
    fn spread(self, _: &RandomState) -> u32 {
        self
    }
}

impl BucketKey for Address {
    fn spread(self, hasher: &RandomState) -> u32 {
        (hasher.hash_one(self) >> 32) as u32
    }
}

#[derive(Clone, Debug)]
enum Node<K, V> {
    /// Sorted by key, then value.
    Leaf(Arc<[(K, V)]>),
    Branch(Arc<[Node<K, V>; WIDTH]>),
}

/// The multimap. Clones share everything and hash alike.
#[derive(Clone, Debug)]
pub(crate) struct Buckets<K, V> {
    root: Node<K, V>,
    hasher: RandomState,
}

impl<K: BucketKey, V: Copy + Ord> Buckets<K, V> {
    /// An empty map that hashes with this state.
    pub(crate) fn new(hasher: RandomState) -> Self {
        Buckets { root: Node::Leaf(Arc::default()), hasher }
    }

    /// A map of these rows, which are sorted and each there once: their tree is built from the root down, which takes
    /// a fraction of the time that they would take one by one.
    pub(crate) fn of(rows: Vec<(K, V)>, hasher: RandomState) -> Self {
        step(rows.len());
        Buckets { root: Node::of(rows, 0, &hasher), hasher }
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.root, Node::Leaf(rows) if rows.is_empty())
    }

    /// What keys are hashed with.
    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// All rows of this key, sorted by value.
    pub(crate) fn get(&self, key: K) -> &[(K, V)] {
        let mut path = key.spread(&self.hasher);
        let mut node = &self.root;
        loop {
            match node {
                Node::Branch(children) => node = &children[path as usize % WIDTH],
                Node::Leaf(rows) => return of_key(rows, key),
            }
            step(1);
            path >>= DIGIT;
        }
    }

    /// The leaves that several hashes lead to, at most `N`. All paths go down a level together: the processor then waits for
    /// the memory of all of them at once.
    pub(crate) fn leaves<const N: usize>(&self, paths: &[u32]) -> [&[(K, V)]; N] {
        let mut nodes = [&self.root; N];
        for level in 0..LEVELS {
            let mut is_below = false;
            for (node, path) in nodes.iter_mut().zip(paths) {
                if let Node::Branch(children) = *node {
                    *node = &children[(path >> (level * DIGIT)) as usize % WIDTH];
                    is_below = true;
                }
            }
            if !is_below {
                break;
            }
        }
        let mut leaves: [&[(K, V)]; N] = [&[]; N];
        for ((leaf, node), _) in leaves.iter_mut().zip(nodes).zip(paths) {
            if let Node::Leaf(rows) = node {
                *leaf = &rows[..];
            }
        }
        leaves
    }

    /// Adds a row; false if it was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        let path = key.spread(&self.hasher);
        let hasher = &self.hasher;
        self.root.change(path, 0, |rows, level| {
            let at = rows.binary_search(&(key, value)).err()?;
            let rows = [&rows[..at], &[(key, value)], &rows[at..]].concat();
            Some(Node::of(rows, level, hasher))
        })
    }

    /// Removes a row; false if it was not there.
    pub(crate) fn remove(&mut self, key: K, value: V) -> bool {
        self.root.remove(key.spread(&self.hasher), (key, value))
    }
}

impl<K: BucketKey, V: Copy + Ord> Node<K, V> {
    /// Sorted rows as a leaf of this level, or as many leaves below it as they need.
    fn of(rows: Vec<(K, V)>, level: u32, hasher: &RandomState) -> Node<K, V> {
        // Rows of one key have the same hash.
        let is_one_key = rows.first().map(|row| row.0) == rows.last().map(|row| row.0);
        if rows.len() <= FULL || is_one_key || level == LEVELS {
            return Node::Leaf(rows.into());
        }
        let mut parts = [const { Vec::new() }; WIDTH];
        for row in rows {
            parts[(row.0.spread(hasher) >> (level * DIGIT)) as usize % WIDTH].push(row);
        }
        Node::Branch(Arc::new(parts.map(|rows| Node::of(rows, level + 1, hasher))))
    }

    /// Replaces the leaf that a path leads to by what `new` makes of its rows and level, if anything;
    /// whether it did.
    fn change(
        &mut self,
        path: u32,
        level: u32,
        new: impl FnOnce(&[(K, V)], u32) -> Option<Node<K, V>>,
    ) -> bool {
        match self {
            Node::Branch(children) => {
                step(WIDTH);
                let child = &mut Arc::make_mut(children)[path as usize % WIDTH];
                child.change(path >> DIGIT, level + 1, new)
            }
            Node::Leaf(rows) => {
                step(rows.len());
                match new(rows, level) {
                    Some(changed) => {
                        *self = changed;
                        true
                    }
                    None => false,
                }
            }
        }
    }
}

impl<K: BucketKey, V: Copy + Ord> Node<K, V> {
    /// Removes a row below this node; false if it was not there.
    fn remove(&mut self, path: u32, row: (K, V)) -> bool {
        match self {
            Node::Branch(children) => {
                step(2 * WIDTH);
                let child = &mut Arc::make_mut(children)[path as usize % WIDTH];
                let is_removed = child.remove(path >> DIGIT, row);
                if let Some(rows) = few_rows(children) {
                    *self = Node::Leaf(rows.into());
                }
                is_removed
            }
            Node::Leaf(rows) => {
                step(rows.len());
                let Ok(at) = rows.binary_search(&row) else {
                    return false;
                };
                *rows = [&rows[..at], &rows[at + 1..]].concat().into();
                true
            }
        }
    }
}

/// The rows of all children, sorted, when they fit in half a leaf, so that a leaf that was just split is not merged
/// by the next removal.
fn few_rows<K: BucketKey, V: Copy + Ord>(children: &[Node<K, V>; WIDTH]) -> Option<Vec<(K, V)>> {
    let mut count = 0;
    for child in children {
        match child {
            Node::Branch(_) => return None,
            Node::Leaf(rows) => count += rows.len(),
        }
        if count > FULL / 2 {
            return None;
        }
    }
    let mut all = Vec::with_capacity(count);
    for child in children {
        if let Node::Leaf(rows) = child {
            all.extend_from_slice(rows);
        }
    }
    all.sort_unstable();
    Some(all)
}

/// The rows of a key among those of its leaf.
pub(crate) fn of_key<K: BucketKey, V>(rows: &[(K, V)], key: K) -> &[(K, V)] {
    step(rows.len().min(FULL));
    let start = match rows.len() <= FULL {
        // One after the other: the processor reads ahead, which it cannot in a binary search.
        true => rows.iter().position(|row| row.0 == key).unwrap_or(rows.len()),
        false => rows.partition_point(|row| row.0 < key),
    };
    let rest = &rows[start..];
    let end = match rest.len() <= FULL {
        true => rest.iter().position(|row| row.0 != key).unwrap_or(rest.len()),
        false => rest.partition_point(|row| row.0 == key),
    };
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_and_go_in_order_and_clones_keep_theirs() {
        let hasher = RandomState::default();
        let mut map = Buckets::new(hasher.clone());
        let keys = (0..300_000_u32)
            .map(|number| Address::from(core::net::IpAddr::from(number.to_be_bytes())));
        for key in keys.clone() {
            assert!(map.insert(key, 2));
            assert!(map.insert(key, 1));
            assert!(!map.insert(key, 1));
        }
        let before = map.clone();
        for key in keys.clone() {
            assert!(map.remove(key, 2));
            assert!(!map.remove(key, 2));
        }
        for key in keys {
            assert_eq!(before.get(key), [(key, 1), (key, 2)]);
            assert_eq!(map.get(key), [(key, 1)]);
        }
        assert_eq!(map.get(Address::from(core::net::IpAddr::from([255, 0, 0, 1]))), []);
    }

    #[test]
    fn the_leaves_of_several_hashes_have_the_rows_of_each() {
        let mut map = Buckets::new(RandomState::default());
        assert_eq!(map.leaves::<2>(&[1, 2]), [&[], &[]]);
        let key = |number: u32| number.wrapping_mul(0x9e37_79b9);
        (0..10_000).for_each(|number| assert!(map.insert(key(number), number)));
        for number in (0..10_000).step_by(4) {
            let keys = [0, 1, 2, 3].map(|more| key(number + more));
            for (rows, key) in map.leaves::<4>(&keys).iter().zip(keys) {
                assert_eq!(of_key(rows, key), map.get(key));
                assert!(!map.get(key).is_empty());
            }
        }
    }

    #[test]
    fn l13_a_map_that_is_empty_again_has_no_branches() {
        let mut map = Buckets::new(RandomState::default());
        let keys = (0..10_000_u32).map(|number| number.wrapping_mul(0x9e37_79b9));
        keys.clone().for_each(|key| assert!(map.insert(key, key)));
        keys.for_each(|key| assert!(map.remove(key, key)));
        assert!(matches!(&map.root, Node::Leaf(rows) if rows.is_empty()));
    }

    #[test]
    fn keys_of_one_hash_and_many_rows_of_one_key_have_their_leaf() {
        let mut map = Buckets::new(RandomState::default());
        for value in 0..1_000_u32 {
            assert!(map.insert(7, value));
            assert!(map.insert(7 + (1 << 31), value));
        }
        assert!(map.get(7).iter().copied().eq((0..1_000).map(|value| (7, value))));
        assert!(map.remove(7, 500));
        assert_eq!((map.get(7).len(), map.get(7 + (1 << 31)).len()), (999, 1_000));
        assert_eq!(map.get(8), []);
    }
}
