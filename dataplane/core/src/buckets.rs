//! A persistent hash multimap of small plain rows: sorted buckets without a heap object per row.
//! A change copies one bucket and two or three nodes, whatever the number of rows.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Children of the two upper levels: 4,096 buckets.
const WIDTH: usize = 64;
/// Rows of a bucket before it is split; with its parts the map holds four million rows in
/// buckets of this size.
const FULL: usize = 64;
/// Parts of a split bucket.
const PARTS: usize = 16;

/// Rows sorted by key, then value.
type Rows<K, V> = Option<Arc<[(K, V)]>>;

#[derive(Clone, Debug)]
enum Bucket<K, V> {
    Whole(Rows<K, V>),
    /// By further bits of the hash.
    Split(Arc<[Rows<K, V>; PARTS]>),
}

#[derive(Clone, Debug)]
struct Branch<K, V>([Bucket<K, V>; WIDTH]);

#[derive(Clone, Debug)]
struct Root<K, V>([Option<Arc<Branch<K, V>>>; WIDTH]);

/// The multimap. Clones share everything and hash alike.
#[derive(Clone, Debug)]
pub(crate) struct Buckets<K, V> {
    root: Arc<Root<K, V>>,
    hasher: RandomState,
}

/// Where a key belongs on each level.
#[derive(Clone, Copy)]
struct Path {
    branch: usize,
    bucket: usize,
    part: usize,
}

impl Path {
    fn of(hash: u64) -> Path {
        Path {
            branch: (hash >> 58) as usize,
            bucket: (hash >> 52) as usize % WIDTH,
            part: (hash >> 48) as usize % PARTS,
        }
    }
}

impl<K: Copy + Ord + Hash, V: Copy + Ord> Buckets<K, V> {
    /// An empty map that hashes with this state.
    pub(crate) fn new(hasher: RandomState) -> Self {
        Buckets { root: Arc::new(Root([const { None }; WIDTH])), hasher }
    }

    /// All rows of this key, sorted by value.
    pub(crate) fn get(&self, key: K) -> &[(K, V)] {
        let path = Path::of(self.hasher.hash_one(key));
        let Some(branch) = &self.root.0[path.branch] else {
            return &[];
        };
        let rows = match &branch.0[path.bucket] {
            Bucket::Whole(rows) => rows,
            Bucket::Split(parts) => &parts[path.part],
        };
        let rows = rows.as_deref().unwrap_or(&[]);
        let rest = &rows[rows.partition_point(|row| row.0 < key)..];
        let end = rest.iter().position(|row| row.0 != key).unwrap_or(rest.len());
        &rest[..end]
    }

    /// Adds a row; false if it was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        let place = self.place(key);
        let old = place.as_deref().unwrap_or(&[]);
        let Err(at) = old.binary_search(&(key, value)) else {
            return false;
        };
        let mut rows = Vec::with_capacity(old.len() + 1);
        rows.extend_from_slice(&old[..at]);
        rows.push((key, value));
        rows.extend_from_slice(&old[at..]);
        let is_full = rows.len() > FULL;
        *place = Some(rows.into());
        if is_full {
            self.split(key);
        }
        true
    }

    /// Removes a row; false if it was not there.
    pub(crate) fn remove(&mut self, key: K, value: V) -> bool {
        let place = self.place(key);
        let old = place.as_deref().unwrap_or(&[]);
        let Ok(at) = old.binary_search(&(key, value)) else {
            return false;
        };
        let rows = [&old[..at], &old[at + 1..]].concat();
        *place = (!rows.is_empty()).then(|| rows.into());
        true
    }

    fn bucket(&mut self, path: Path) -> &mut Bucket<K, V> {
        let branch = Arc::make_mut(&mut self.root).0[path.branch]
            .get_or_insert_with(|| Arc::new(Branch([const { Bucket::Whole(None) }; WIDTH])));
        &mut Arc::make_mut(branch).0[path.bucket]
    }

    /// Where the rows of a key are.
    fn place(&mut self, key: K) -> &mut Rows<K, V> {
        let path = Path::of(self.hasher.hash_one(key));
        match self.bucket(path) {
            Bucket::Whole(rows) => rows,
            Bucket::Split(parts) => &mut Arc::make_mut(parts)[path.part],
        }
    }

    /// Splits the bucket of a key, unless that has been done.
    fn split(&mut self, key: K) {
        let hasher = self.hasher.clone();
        let bucket = self.bucket(Path::of(hasher.hash_one(key)));
        let Bucket::Whole(Some(rows)) = bucket else {
            return;
        };
        let mut parts = [const { Vec::new() }; PARTS];
        for row in rows.iter() {
            parts[Path::of(hasher.hash_one(row.0)).part].push(*row);
        }
        let parts = parts.map(|rows| (!rows.is_empty()).then(|| Arc::from(rows)));
        *bucket = Bucket::Split(Arc::new(parts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_and_go_in_order_and_clones_keep_theirs() {
        let mut map = Buckets::new(RandomState::default());
        for key in 0..300_000_u32 {
            assert!(map.insert(key, 2));
            assert!(map.insert(key, 1));
            assert!(!map.insert(key, 1));
        }
        let before = map.clone();
        for key in 0..300_000 {
            assert!(map.remove(key, 2));
            assert!(!map.remove(key, 2));
        }
        assert_eq!(before.get(77), [(77, 1), (77, 2)]);
        assert_eq!(map.get(77), [(77, 1)]);
        assert_eq!(map.get(300_000), []);
    }
}
