//! Objects that are not served in full, each with its reason, for as long as they are there (E15):
//! a list shows which are, as it does for the objects that are served (E21).

use std::collections::BTreeMap;

use dataplane_core::{Key, Resource};

use super::Skipped;

/// Objects whose reasons are kept; beyond, they are skipped without one.
const MAX_REASONS: usize = 10_000;

/// Reasons by object.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    reasons: BTreeMap<(Resource, Key), Reason>,
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
        let Some(text) = reason else { return self.reasons.remove(&place).is_some() };
        let list = self.lists[resource as usize];
        let is_full = self.reasons.len() >= MAX_REASONS;
        match self.reasons.get_mut(&place) {
            Some(known) => {
                known.list = list;
                let is_new = known.text != text;
                known.text = text;
                is_new
            }
            None if is_full => false,
            None => {
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
    }

    /// All objects of a resource are gone.
    pub(crate) fn forget(&mut self, resource: Resource) {
        self.reasons.retain(|(of, _), _| *of != resource);
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

    fn reason(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn at_the_bound_known_objects_still_change_their_reason_and_nothing_else_is_news() {
        let mut unserved = Unserved::default();
        for number in 0..MAX_REASONS {
            assert!(unserved.set(Resource::Services, &key(number), reason("unreadable")));
        }
        assert!(!unserved.set(Resource::Services, &key(0), reason("unreadable")));
        assert!(!unserved.set(Resource::Services, &key(MAX_REASONS), reason("unreadable")));
        assert!(unserved.set(Resource::Services, &key(0), reason("something else")));
        assert_eq!(unserved.all().count(), MAX_REASONS);
        assert!(unserved.all().any(|skipped| skipped.reason == "something else"));
        assert!(unserved.set(Resource::Services, &key(0), None));
        assert!(unserved.set(Resource::Services, &key(MAX_REASONS), reason("unreadable")));
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
