//! Objects that are not served in full, each with its reason, for as long as they are there (E15):
//! a list shows which are, as it does for the objects that are served (E21).

use std::collections::BTreeMap;

use dataplane_core::{Key, Resource};

use super::Skipped;

/// Objects whose reasons are kept; beyond, they are skipped without one.
const MAX_REASONS: usize = 10_000;

/// Of these, in one namespace: its faults hide those of no other.
const MAX_OF_NAMESPACE: usize = 100;

/// Reasons by resource and key.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    reasons: BTreeMap<(Resource, Key), Reason>,
    /// How many there are of each namespace.
    shares: BTreeMap<Box<str>, usize>,
    /// The last list that began of each resource.
    lists: [u64; Resource::ALL.len()],
}

#[derive(Debug)]
struct Reason {
    text: String,
    /// The list in which, or after which, it was last said.
    list: u64,
}

impl Unserved {
    /// Remembers which objects had reasons before; those not listed again lose them at `complete`.
    pub(crate) fn begin(&mut self, resource: Resource) {
        self.lists[resource as usize] += 1;
    }

    /// What is not served of an object now; replaces what was said of it before. Returns whether
    /// there is something else to report.
    pub(crate) fn set(&mut self, resource: Resource, key: &Key, reason: Option<String>) -> bool {
        let place = (resource, key.clone());
        let Some(text) = reason else {
            let was_there = self.reasons.remove(&place).is_some();
            if was_there && let Some(share) = self.shares.get_mut(&key.namespace) {
                *share -= 1;
                if *share == 0 {
                    self.shares.remove(&key.namespace);
                }
            }
            return was_there;
        };
        let list = self.lists[resource as usize];
        let share = self.shares.get(&key.namespace).copied().unwrap_or(0);
        let is_full = self.reasons.len() >= MAX_REASONS || share >= MAX_OF_NAMESPACE;
        match self.reasons.get_mut(&place) {
            Some(known) => {
                known.list = list;
                let is_new = known.text != text;
                known.text = text;
                is_new
            }
            None if is_full => false,
            None => {
                self.shares.insert(key.namespace.clone(), share + 1);
                self.reasons.insert(place, Reason { text, list });
                true
            }
        }
    }

    /// A list is complete: drops objects that are neither listed nor held.
    pub(crate) fn complete(&mut self, resource: Resource, is_held: impl Fn(&Key) -> bool) {
        let list = self.lists[resource as usize];
        self.reasons
            .retain(|(of, key), reason| *of != resource || reason.list == list || is_held(key));
        self.count_shares();
    }

    /// All objects of a resource are gone.
    pub(crate) fn forget(&mut self, resource: Resource) {
        self.reasons.retain(|(of, _), _| *of != resource);
        self.count_shares();
    }

    fn count_shares(&mut self) {
        self.shares.clear();
        for (_, key) in self.reasons.keys() {
            *self.shares.entry(key.namespace.clone()).or_default() += 1;
        }
    }

    /// All of them, for people.
    pub(crate) fn all(&self) -> impl Iterator<Item = Skipped> {
        self.reasons.iter().map(|((resource, key), reason)| Skipped {
            kind: kind(*resource),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            reason: reason.text.clone(),
        })
    }
}

/// The same objects, sorted; one of each namespace, then the next one of each, and so on: a page that shows only the
/// first ones shows some of each.
pub(crate) fn in_turns(mut objects: Vec<Skipped>) -> Vec<Skipped> {
    objects.sort();
    let mut turns: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<(usize, Skipped)> = Vec::with_capacity(objects.len());
    for object in objects {
        let turn = turns.entry(object.namespace.clone()).or_default();
        all.push((*turn, object));
        *turn += 1;
    }
    all.sort();
    all.into_iter().map(|(_, object)| object).collect()
}

fn kind(resource: Resource) -> &'static str {
    match resource {
        Resource::Services => "Service",
        Resource::EndpointSlices => "EndpointSlice",
        Resource::Namespaces => "Namespace",
        Resource::Pods => "Pod",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new("shop", format!("bad-{number}"))
    }

    /// As many in each namespace as may be.
    fn spread(number: usize) -> Key {
        Key::new(format!("shop-{}", number / MAX_OF_NAMESPACE), format!("bad-{number}"))
    }

    #[test]
    fn e15_the_faults_of_one_namespace_hide_those_of_no_other() {
        let mut unserved = Unserved::default();
        unserved.begin(Resource::Services);
        for number in 0..2 * MAX_REASONS {
            unserved.set(Resource::Services, &key(number), reason("unreadable"));
        }
        let victim = Key::new("victim", "cart");
        assert!(unserved.set(Resource::Services, &victim, reason("unreadable")));
        assert_eq!(unserved.all().count(), MAX_OF_NAMESPACE + 1);
        let listed = in_turns(unserved.all().collect());
        assert_eq!([&*listed[0].namespace, &*listed[1].namespace], ["shop", "victim"]);
        assert!(unserved.set(Resource::Services, &key(0), None), "a place is free");
        assert!(unserved.set(Resource::Services, &key(MAX_REASONS), reason("unreadable")));
        unserved.begin(Resource::Services);
        unserved.complete(Resource::Services, |_| false);
        assert!(unserved.reasons.is_empty() && unserved.shares.is_empty());
    }

    fn reason(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn at_the_bound_known_objects_still_change_their_reason_and_nothing_else_is_news() {
        let mut unserved = Unserved::default();
        for number in 0..MAX_REASONS {
            assert!(unserved.set(Resource::Services, &spread(number), reason("unreadable")));
        }
        assert!(!unserved.set(Resource::Services, &spread(0), reason("unreadable")));
        assert!(!unserved.set(Resource::Services, &spread(MAX_REASONS), reason("unreadable")));
        assert!(unserved.set(Resource::Services, &spread(0), reason("something else")));
        assert_eq!(unserved.all().count(), MAX_REASONS);
        assert!(unserved.all().any(|skipped| skipped.reason == "something else"));
        assert!(unserved.set(Resource::Services, &spread(0), None));
        assert!(unserved.set(Resource::Services, &spread(MAX_REASONS), reason("unreadable")));
    }

    #[test]
    fn a_list_takes_away_what_it_does_not_show_unless_that_is_held() {
        let mut unserved = Unserved::default();
        unserved.begin(Resource::Services);
        (0..4).for_each(|number| {
            unserved.set(Resource::Services, &key(number), reason("unreadable"));
        });
        unserved.set(Resource::Namespaces, &key(9), reason("unreadable"));
        unserved.complete(Resource::Services, |_| false);
        assert_eq!(unserved.all().count(), 5);
        unserved.begin(Resource::Services);
        unserved.set(Resource::Services, &key(1), reason("unreadable"));
        unserved.complete(Resource::Services, |held| *held == key(2));
        let left: Vec<String> = unserved.all().map(|skipped| skipped.name).collect();
        assert_eq!(left, ["bad-1", "bad-2", "bad-9"]);
    }
}
