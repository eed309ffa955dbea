//! Objects that are not served in full, each with its reason, for as long as they are there (E15):
//! a list shows which are, as it does for the objects that are served (E21).

use std::collections::BTreeMap;
use std::sync::Arc;

use dataplane_core::{Key, Resource};

use super::skipped::{Changes, Skipped};

/// Objects whose reasons are kept; beyond, they are skipped without one.
const MAX_REASONS: usize = 10_000;

/// Of these, in one namespace: its faults hide those of no other.
const MAX_OF_NAMESPACE: usize = 100;

/// Octets of one reason: a parser's error may repeat a whole field.
const MAX_REASON_OCTETS: usize = 1_000;

/// Reasons by resource and key.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    reasons: BTreeMap<(Resource, Key), Reason>,
    /// How many there are of each namespace.
    shares: BTreeMap<Box<str>, usize>,
    /// The last list that began of each resource.
    lists: [u64; Resource::ALL.len()],
    /// What is not reported yet.
    changes: Changes,
}

#[derive(Debug)]
struct Reason {
    skipped: Arc<Skipped>,
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
            let Some(known) = self.reasons.remove(&place) else { return false };
            self.changes.remove(known.skipped);
            self.give_back(&key.namespace);
            return true;
        };
        let text = cut(text);
        let list = self.lists[resource as usize];
        let share = self.shares.get(&key.namespace).copied().unwrap_or(0);
        let is_full = self.reasons.len() >= MAX_REASONS || share >= MAX_OF_NAMESPACE;
        match self.reasons.get_mut(&place) {
            Some(known) if known.skipped.reason == text => {
                known.list = list;
                false
            }
            Some(known) => {
                let skipped = Arc::new(Skipped { reason: text, ..known.skipped.as_ref().clone() });
                self.changes.add(Arc::clone(&skipped));
                self.changes.remove(std::mem::replace(&mut known.skipped, skipped));
                known.list = list;
                true
            }
            None if is_full => false,
            None => {
                let skipped = Arc::new(Skipped {
                    kind: kind(resource),
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    reason: text,
                });
                self.changes.add(Arc::clone(&skipped));
                self.shares.insert(key.namespace.clone(), share + 1);
                self.reasons.insert(place, Reason { skipped, list });
                true
            }
        }
    }

    fn give_back(&mut self, namespace: &str) {
        if let Some(share) = self.shares.get_mut(namespace) {
            *share -= 1;
            if *share == 0 {
                self.shares.remove(namespace);
            }
        }
    }

    /// A list is complete: drops objects that are neither listed nor held.
    pub(crate) fn complete(&mut self, resource: Resource, is_held: impl Fn(&Key) -> bool) {
        let list = self.lists[resource as usize];
        self.remove_where(|of, key, reason| of == resource && reason.list != list && !is_held(key));
    }

    /// All objects of a resource are gone.
    pub(crate) fn forget(&mut self, resource: Resource) {
        self.remove_where(|of, _, _| of == resource);
    }

    fn remove_where(&mut self, is_gone: impl Fn(Resource, &Key, &Reason) -> bool) {
        let mut gone = Vec::new();
        self.reasons.retain(|(of, key), reason| {
            let stays = !is_gone(*of, key, reason);
            if !stays {
                gone.push(Arc::clone(&reason.skipped));
            }
            stays
        });
        for skipped in gone {
            self.give_back(&skipped.namespace);
            self.changes.remove(skipped);
        }
    }

    /// What has changed since this was called last.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// All of them, for people.
    pub(crate) fn all(&self) -> impl Iterator<Item = Skipped> {
        self.reasons.values().map(|reason| reason.skipped.as_ref().clone())
    }
}

/// The beginning of a text that is too long.
fn cut(mut text: String) -> String {
    if text.len() > MAX_REASON_OCTETS {
        let end = (0..=MAX_REASON_OCTETS).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push_str(" ...");
        text.shrink_to_fit();
    }
    text
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
        assert!(unserved.set(Resource::Services, &key(0), None), "a place is free");
        assert!(unserved.set(Resource::Services, &key(MAX_REASONS), reason("unreadable")));
        unserved.begin(Resource::Services);
        unserved.complete(Resource::Services, |_| false);
        assert!(unserved.reasons.is_empty() && unserved.shares.is_empty());
    }

    #[test]
    fn e15_one_object_that_changes_among_thousands_is_one_change() {
        let mut unserved = Unserved::default();
        for number in 0..MAX_REASONS {
            unserved.set(Resource::Services, &spread(number), reason("unreadable"));
        }
        assert_eq!(unserved.take_changes().new.len(), MAX_REASONS);
        unserved.set(Resource::Services, &spread(7), None);
        unserved.set(Resource::Services, &spread(8), reason("something else"));
        let changes = unserved.take_changes();
        assert_eq!((changes.gone.len(), changes.new.len()), (2, 1));
        unserved.begin(Resource::Services);
        unserved.complete(Resource::Services, |_| false);
        assert_eq!(unserved.take_changes().gone.len(), MAX_REASONS - 1);
    }

    #[test]
    fn e15_a_reason_that_repeats_a_large_field_is_cut() {
        let mut unserved = Unserved::default();
        let long = format!("it cannot be read: invalid type: string {:?}", "é".repeat(500_000));
        assert!(unserved.set(Resource::Services, &key(0), Some(long.clone())));
        assert!(!unserved.set(Resource::Services, &key(0), Some(long)), "the same");
        let kept = unserved.all().next().unwrap().reason;
        assert!(kept.len() < MAX_REASON_OCTETS + 10 && kept.ends_with(" ..."), "{kept}");
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
