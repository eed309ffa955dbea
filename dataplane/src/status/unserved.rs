//! Objects that are not served in full, each with its reason, for as long as they are there (E15):
//! a list shows which are, as it does for the objects that are served (E21).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use dataplane_core::{Key, Resource};

use super::skipped::{Changes, Skipped};

/// Objects whose reasons are kept. Beyond, the namespace with most gives one up for one with fewer, and others are counted only.
const MAX_REASONS: usize = 10_000;

/// The limit of one namespace, so that its faults hide those of no other.
const MAX_OF_NAMESPACE: usize = 100;

/// Objects that one check of shared limits looks at.
const MAX_LOOKS: usize = 64;
/// The same ends after this many rows: one slice may have thousands.
const MAX_ROWS: usize = 2_000;

/// Octets of one reason: a parser's error may repeat a whole field.
const MAX_REASON_OCTETS: usize = 1_000;

/// Reasons by resource and key.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    reasons: BTreeMap<Place, Reason>,
    /// How many there are of each namespace.
    shares: BTreeMap<Box<str>, usize>,
    /// The same, the namespace with most last.
    by_share: BTreeSet<(usize, Box<str>)>,
    /// The last list that began of each resource.
    lists: [u64; Resource::ALL.len()],
    /// What is not reported yet.
    changes: Changes,
    /// Where the next look at limits that objects share begins.
    look_from: Option<Place>,
}

type Place = (Resource, Key);

#[derive(Debug)]
struct Reason {
    skipped: Arc<Skipped>,
    /// If a shared limit hides the object (others may end this): the reason of the object itself.
    own: Option<Box<str>>,
    /// The list in which, or after which, it was last said.
    list: u64,
}

/// Why an object is not served in full: a text for its own faults, and one for limits that it shares with others;
/// each may be empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) own: String,
    pub(crate) crowded: String,
}

impl Texts {
    fn joined(&self) -> Option<String> {
        let both = [&*self.own, &*self.crowded].into_iter().filter(|text| !text.is_empty());
        Some(both.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
    }
}

impl Unserved {
    /// Remembers which objects had reasons before; those not listed again lose them at `complete`.
    pub(crate) fn begin(&mut self, resource: Resource) {
        self.lists[resource as usize] += 1;
    }

    /// Replaces the reasons of an object. Returns whether the report has changed.
    pub(crate) fn set(&mut self, resource: Resource, key: &Key, reason: Option<String>) -> bool {
        let place = (resource, key.clone());
        let Some(text) = reason else {
            return self.take(&place);
        };
        let text = cut(text);
        let list = self.lists[resource as usize];
        if let Some(known) = self.reasons.get_mut(&place) {
            known.list = list;
            if known.skipped.reason == text {
                return false;
            }
            let skipped = Arc::new(Skipped { reason: text, ..known.skipped.as_ref().clone() });
            self.changes.add(Arc::clone(&skipped));
            self.changes.remove(std::mem::replace(&mut known.skipped, skipped));
            return true;
        }
        if !self.makes_room(&key.namespace) {
            self.changes.not_listed += 1;
            return true;
        }
        let skipped = Arc::new(Skipped {
            kind: kind(resource),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            reason: text,
        });
        self.changes.add(Arc::clone(&skipped));
        self.set_share(&key.namespace, self.share(&key.namespace) + 1);
        self.reasons.insert(place, Reason { skipped, own: None, list });
        true
    }

    /// The same, where limits that it shares with others may hide it.
    pub(crate) fn set_texts(&mut self, resource: Resource, key: &Key, texts: Texts) -> bool {
        let is_new = self.set(resource, key, texts.joined());
        if let Some(known) = self.reasons.get_mut(&(resource, key.clone())) {
            known.own = (!texts.crowded.is_empty()).then(|| cut(texts.own).into());
        }
        is_new
    }

    /// Checks some objects again that shared limits hide: `crowded` gives the present reason, or an empty text, and how many
    /// rows it looked at. The next call continues after them. Returns whether the report has changed.
    pub(crate) fn look_again(
        &mut self,
        crowded: impl Fn(Resource, &Key) -> (String, usize),
    ) -> bool {
        let from = self.look_from.take().map_or(Bound::Unbounded, Bound::Excluded);
        let some = self.reasons.range((from, Bound::Unbounded)).take(MAX_LOOKS);
        let some: Vec<(Place, Option<Box<str>>)> =
            some.map(|(place, reason)| (place.clone(), reason.own.clone())).collect();
        let (mut is_new, mut looked, mut rows) = (false, 0, 0);
        for ((resource, key), own) in &some {
            looked += 1;
            let Some(own) = own else { continue };
            let (crowded, looked_at) = crowded(*resource, key);
            rows += looked_at;
            is_new |= self.set_texts(*resource, key, Texts { own: own.to_string(), crowded });
            if rows >= MAX_ROWS {
                break;
            }
        }
        if looked == MAX_LOOKS || looked < some.len() {
            self.look_from = some.into_iter().nth(looked - 1).map(|(place, _)| place);
        }
        is_new
    }

    fn share(&self, namespace: &str) -> usize {
        self.shares.get(namespace).copied().unwrap_or(0)
    }

    fn set_share(&mut self, namespace: &str, share: usize) {
        if let Some(before) = self.shares.remove(namespace) {
            self.by_share.remove(&(before, namespace.into()));
        }
        if share > 0 {
            self.shares.insert(namespace.into(), share);
            self.by_share.insert((share, namespace.into()));
        }
    }

    /// Whether there is room for one more reason of this namespace, which another may have to give up.
    fn makes_room(&mut self, namespace: &str) -> bool {
        let share = self.share(namespace);
        if share >= MAX_OF_NAMESPACE {
            return false;
        }
        if self.reasons.len() < MAX_REASONS {
            return true;
        }
        let most = self.by_share.last().filter(|(most, _)| *most > share + 1);
        let Some((_, largest)) = most.cloned() else { return false };
        let place = Resource::ALL.into_iter().find_map(|resource| {
            let from = (resource, Key::new(largest.clone(), ""));
            let (place, _) = self.reasons.range(from..).next()?;
            (place.0 == resource && place.1.namespace == largest).then(|| place.clone())
        });
        place.is_some_and(|place| self.take(&place))
    }

    /// Forgets a reason; whether there was one.
    fn take(&mut self, place: &Place) -> bool {
        let Some(known) = self.reasons.remove(place) else { return false };
        self.changes.remove(known.skipped);
        self.set_share(&place.1.namespace, self.share(&place.1.namespace) - 1);
        true
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
            self.set_share(&skipped.namespace, self.share(&skipped.namespace) - 1);
            self.changes.remove(skipped);
        }
    }

    /// Replaces all reasons by these, which were never reported; only the differences are changes.
    pub(crate) fn become_those(&mut self, those: Unserved) {
        let before = std::mem::replace(self, those);
        let not_listed = before.changes.not_listed + self.changes.not_listed;
        self.changes = Changes { not_listed, ..before.changes };
        before.reasons.into_values().for_each(|reason| self.changes.remove(reason.skipped));
        for reason in self.reasons.values() {
            self.changes.add(Arc::clone(&reason.skipped));
        }
    }

    /// The changes since the last call.
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
mod tests;
