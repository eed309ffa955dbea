//! What a store holds: the octets of its objects, and their sums. Pure.

use std::collections::HashMap;

/// Whole objects and stubs have bounds of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Octets {
    pub(super) whole: usize,
    pub(super) stubs: usize,
}

impl std::ops::Add for Octets {
    type Output = Octets;

    fn add(self, other: Octets) -> Octets {
        Octets { whole: self.whole + other.whole, stubs: self.stubs + other.stubs }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Whole(usize),
    Stub(usize),
}

impl Entry {
    pub(super) fn octets(self) -> Octets {
        match self {
            Entry::Whole(whole) => Octets { whole, stubs: 0 },
            Entry::Stub(stubs) => Octets { whole: 0, stubs },
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
        self.total.whole -= entry.octets().whole;
        self.total.stubs -= entry.octets().stubs;
        Some(entry)
    }
}
