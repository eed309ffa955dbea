//! What events said of objects while a list was read beside the watch. The list shows a moment before them, and may show an
//! object that was deleted meanwhile: what is older than its event is not used.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use dataplane_core::Key;

use super::watched::KINDS;

/// Objects of a kind whose events are remembered. With more, the list is given up.
const MAX_OBJECTS: usize = 20_000;

/// By [`Watched::number`](super::watched::Watched::number), for each list beside a watch.
#[derive(Debug, Default)]
pub(super) struct Meanwhile {
    events: [Option<Events>; KINDS],
    hasher: RandomState,
}

/// The versions of events.
#[derive(Debug, Default)]
struct Events {
    /// By the hash of the key: names are long. Where two keys have the same one, which clients cannot bring about, the list
    /// corrects one object less.
    versions: HashMap<u64, u64>,
    is_overtaken: bool,
}

impl Meanwhile {
    /// A list begins beside the watch.
    pub(super) fn begin(&mut self, number: usize) {
        self.events[number] = Some(Events::default());
    }

    /// It has ended, or another list begins.
    pub(super) fn end(&mut self, number: usize) {
        self.events[number] = None;
    }

    /// An event said that this object was changed or deleted, at this version.
    pub(super) fn add(&mut self, number: usize, key: &Key, version: u64) {
        let Some(events) = &mut self.events[number] else { return };
        if events.versions.len() >= MAX_OBJECTS {
            events.is_overtaken = true;
            return;
        }
        let newest = events.versions.entry(self.hasher.hash_one(key)).or_default();
        *newest = version.max(*newest);
    }

    /// Whether an event was newer than this version of the object, which a list shows.
    pub(super) fn is_outdated(&self, number: usize, key: &Key, version: u64) -> bool {
        let versions = self.events[number].as_ref().map(|events| &events.versions);
        let newest = versions.and_then(|versions| versions.get(&self.hasher.hash_one(key)));
        newest.is_some_and(|newest| version < *newest)
    }

    /// Whether there were events of more objects than are remembered.
    pub(super) fn is_overtaken(&self, number: usize) -> bool {
        self.events[number].as_ref().is_some_and(|events| events.is_overtaken)
    }

    /// Whether a list is read beside the watch.
    pub(super) fn is_remembering(&self, number: usize) -> bool {
        self.events[number].is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e25_what_an_event_said_is_newer_than_an_older_list_until_its_end() {
        let (mut meanwhile, key) = (Meanwhile::default(), Key::new("shop", "cart"));
        meanwhile.add(0, &key, 9);
        assert!(!meanwhile.is_outdated(0, &key, 5), "no list is read");
        meanwhile.begin(0);
        meanwhile.add(0, &key, 9);
        meanwhile.add(0, &key, 8);
        assert!(meanwhile.is_outdated(0, &key, 8) && !meanwhile.is_outdated(0, &key, 9));
        assert!(!meanwhile.is_outdated(0, &Key::new("shop", "till"), 5));
        assert!(!meanwhile.is_outdated(1, &key, 5), "each kind for itself");
        meanwhile.end(0);
        assert!(!meanwhile.is_outdated(0, &key, 5));
    }

    #[test]
    fn e25_with_more_events_than_are_remembered_a_list_is_overtaken() {
        let mut meanwhile = Meanwhile::default();
        meanwhile.begin(0);
        for number in 0..MAX_OBJECTS {
            meanwhile.add(0, &Key::new("shop", number.to_string()), 9);
        }
        assert!(!meanwhile.is_overtaken(0));
        meanwhile.add(0, &Key::new("shop", "one more"), 9);
        assert!(meanwhile.is_overtaken(0) && !meanwhile.is_overtaken(1));
        meanwhile.begin(0);
        assert!(!meanwhile.is_overtaken(0));
    }
}
