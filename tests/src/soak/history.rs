//! What was true, and when: every version of every object and of the configuration since a data plane was known to have
//! seen everything.

use std::collections::{BTreeMap, BTreeSet};

use dataplane_core::{Key, Object, Resource, Settings};

/// A resource and a key.
pub type Place = (Resource, Key);
/// Versions with the number of the change that made them, the oldest first.
type Versions<T> = Vec<(u64, T)>;

/// All versions that some data plane may still show.
#[derive(Clone, Debug)]
pub struct History {
    /// Number of the last change.
    number: u64,
    objects: BTreeMap<Place, Versions<Option<Object>>>,
    settings: Versions<Settings>,
    /// Nothing is known of the time before this change.
    oldest: u64,
}

/// The versions of one object, or of the configuration, that a data plane may show.
pub type Choice<'a, T> = &'a [(u64, T)];

impl History {
    /// With nothing but a configuration.
    pub fn new(settings: Settings) -> History {
        History { number: 0, objects: BTreeMap::new(), settings: vec![(0, settings)], oldest: 0 }
    }

    /// Number of the last change.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The change before which nothing is known any more.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    pub fn put(&mut self, object: Object) {
        let place = (object.resource(), object.key());
        self.change(place, Some(object));
    }

    pub fn delete(&mut self, place: Place) {
        self.change(place, None);
    }

    fn change(&mut self, place: Place, to: Option<Object>) {
        self.number += 1;
        let versions = self.objects.entry(place).or_insert_with(|| vec![(0, None)]);
        versions.push((self.number, to));
    }

    pub fn configure(&mut self, settings: Settings) {
        self.number += 1;
        self.settings.push((self.number, settings));
    }

    /// What there is now.
    pub fn now(&self) -> BTreeMap<Place, Object> {
        let last = |(place, versions): (&Place, &Versions<Option<Object>>)| {
            let (_, object) = versions.last()?;
            Some((place.clone(), object.clone()?))
        };
        self.objects.iter().filter_map(last).collect()
    }

    pub fn holds(&self, place: &Place) -> bool {
        let last = self.objects.get(place).and_then(|versions| versions.last());
        last.is_some_and(|(_, object)| object.is_some())
    }

    /// Everything becomes as it was: what an API server shows whose etcd was restored.
    pub fn restore(&mut self, then: &BTreeMap<Place, Object>, settings: Settings) {
        let now = self.now();
        let places: BTreeSet<&Place> = now.keys().chain(then.keys()).collect();
        for place in places {
            let was = then.get(place);
            if now.get(place) != was {
                self.change(place.clone(), was.cloned());
            }
        }
        self.configure(settings);
    }

    /// For each object the versions that a data plane may show that has seen everything up to this change.
    pub fn objects_since(&self, seen: u64) -> impl Iterator<Item = Choice<'_, Option<Object>>> {
        self.objects.values().map(move |versions| since(versions, seen))
    }

    /// The same of the configuration.
    pub fn settings_since(&self, seen: u64) -> Choice<'_, Settings> {
        since(&self.settings, seen)
    }

    /// Number of changes that such a data plane may lack.
    pub fn unseen(&self, seen: u64) -> u64 {
        self.number - seen
    }

    /// Forgets what no data plane shows that has seen everything up to this change.
    pub fn forget(&mut self, seen: u64) {
        if seen <= self.oldest {
            return;
        }
        self.oldest = seen;
        self.objects.retain(|_, versions| {
            let kept = since(versions, seen).len();
            versions.drain(..versions.len() - kept);
            versions.len() > 1 || versions.iter().any(|(_, object)| object.is_some())
        });
        let kept = since(&self.settings, seen).len();
        self.settings.drain(..self.settings.len() - kept);
    }
}

fn since<T>(versions: &[(u64, T)], seen: u64) -> &[(u64, T)] {
    let later = versions.partition_point(|(number, _)| *number <= seen);
    &versions[later.saturating_sub(1)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::objects::{Configuration, marks};

    #[test]
    fn a_history_keeps_what_may_still_be_shown() {
        let settings = dataplane::settings::of(&Configuration::FIRST.document(&[])).unwrap();
        let mut history = History::new(settings.clone());
        let object = marks(1).remove(0);
        let place = (object.resource(), object.key());
        history.put(object.clone());
        let after_one = (history.number(), history.now());
        history.put(marks(2).remove(0));
        history.delete(place.clone());
        let versions = |history: &History, seen| {
            history.objects_since(seen).map(<[_]>::len).collect::<Vec<_>>()
        };
        assert_eq!(versions(&history, 0), [4]);
        assert_eq!(versions(&history, 2), [2]);
        assert_eq!(versions(&history, 3), [1]);
        history.restore(&after_one.1, settings);
        assert!(history.holds(&place));
        history.forget(history.number());
        assert_eq!(versions(&history, history.number()), [1]);
        history.delete(place);
        history.forget(history.number());
        assert_eq!(versions(&history, history.number()), [0_usize; 0]);
    }
}
