//! What a store holds: the octets of its objects, and their sums. Pure.

use std::collections::HashMap;

/// Whole objects and stubs have bounds of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Octets {
    pub(super) whole: usize,
    pub(super) stubs: usize,
    /// The part of `whole` that is of objects which are never refused.
    pub(super) needed: usize,
}

impl std::ops::Add for Octets {
    type Output = Octets;

    fn add(self, other: Octets) -> Octets {
        Octets {
            whole: self.whole + other.whole,
            stubs: self.stubs + other.stubs,
            needed: self.needed + other.needed,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Whole(usize),
    /// The same of an object that is never refused.
    Needed(usize),
    Stub(usize),
}

impl Entry {
    pub(super) fn octets(self) -> Octets {
        match self {
            Entry::Whole(whole) => Octets { whole, ..Octets::default() },
            Entry::Needed(whole) => Octets { whole, stubs: 0, needed: whole },
            Entry::Stub(stubs) => Octets { stubs, ..Octets::default() },
        }
    }
}

/// Octets by object, and their sum.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) by_key: HashMap<(String, String), Entry>,
    pub(super) total: Octets,
}

impl Held {
    pub(super) fn insert(&mut self, key: (String, String), entry: Entry) {
        self.remove(&key);
        self.total = self.total + entry.octets();
        self.by_key.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &(String, String)) -> Option<Entry> {
        let entry = self.by_key.remove(key)?;
        let Octets { whole, stubs, needed } = entry.octets();
        self.total.whole -= whole;
        self.total.stubs -= stubs;
        self.total.needed -= needed;
        Some(entry)
    }
}
