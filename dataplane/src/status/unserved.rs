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
/// The same ends when these looked at so many rows: one slice may have thousands.
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
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new("shop", format!("bad-{number}"))
    }

    /// The most reasons that a namespace may have, in each namespace.
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
        assert!(unserved.by_share.is_empty());
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
        assert!(unserved.set(Resource::Services, &spread(0), reason("something else")));
        assert_eq!(unserved.all().count(), MAX_REASONS);
        assert!(unserved.all().any(|skipped| skipped.reason == "something else"));
        // Its namespace has the most reasons that it may have, so this one is only counted.
        let more = Key::new("shop-3", "more");
        unserved.set(Resource::Services, &more, reason("unreadable"));
        assert!(unserved.all().all(|skipped| skipped.name != "more"));
        assert_eq!(unserved.take_changes().not_listed, 1);
        assert!(unserved.set(Resource::Services, &spread(300), None));
        unserved.set(Resource::Services, &more, reason("unreadable"));
        assert!(unserved.all().any(|skipped| skipped.name == "more"));
    }

    #[test]
    fn e15_who_has_a_hundred_namespaces_hides_no_fault_of_another_one() {
        let mut unserved = Unserved::default();
        for number in 0..MAX_REASONS {
            unserved.set(Resource::Services, &spread(number), reason("unreadable"));
        }
        let faults = |resource| Key::new("victim", format!("{resource:?}"));
        for resource in [Resource::Services, Resource::EndpointSlices] {
            unserved.set(resource, &faults(resource), reason("unreadable"));
        }
        let of = |unserved: &Unserved, namespace: &str| {
            unserved.all().filter(|skipped| skipped.namespace == namespace).count()
        };
        assert_eq!((of(&unserved, "victim"), unserved.all().count()), (2, MAX_REASONS));
        // This continues until all namespaces have the same number: then none hides another.
        for number in 0..3 * MAX_OF_NAMESPACE {
            let key = Key::new(format!("more-{}", number % 3), format!("bad-{number}"));
            unserved.set(Resource::Services, &key, reason("unreadable"));
        }
        let least = (0..100).map(|number| of(&unserved, &format!("shop-{number}"))).min();
        assert!(least >= Some(95), "{least:?}");
        assert_eq!(unserved.by_share.iter().map(|(share, _)| share).sum::<usize>(), MAX_REASONS);
    }

    #[test]
    fn e15_a_limit_that_others_filled_is_no_reason_once_they_are_gone() {
        let mut unserved = Unserved::default();
        let texts =
            |own: &str| Texts { own: own.to_owned(), crowded: "more than 9 addresses".to_owned() };
        for number in 0..2 * MAX_LOOKS {
            let own = if number == 3 { "a bad address" } else { "" };
            assert!(unserved.set_texts(Resource::EndpointSlices, &spread(number), texts(own)));
        }
        let still = |_: Resource, _: &Key| ("more than 9 addresses".to_owned(), 1);
        assert!(!unserved.look_again(still), "still");
        // The calls check all of them, some at a time.
        let looks = (0..9).filter(|_| unserved.look_again(|_, _| (String::new(), 1))).count();
        assert!((2..=3).contains(&looks), "{looks}");
        let left: Vec<String> = unserved.all().map(|skipped| skipped.reason).collect();
        assert_eq!(left, ["a bad address"]);
        assert_eq!(unserved.shares.len(), 1);
    }

    #[test]
    fn l12_a_look_at_slices_of_thousands_of_rows_ends_and_the_next_one_continues() {
        use std::cell::RefCell;
        let mut unserved = Unserved::default();
        for number in 0..9 {
            let texts = Texts { own: String::new(), crowded: "more than 9 addresses".to_owned() };
            unserved.set_texts(Resource::EndpointSlices, &key(number), texts);
        }
        let looked = RefCell::new(Vec::new());
        let mut look = || {
            unserved.look_again(|_, key| {
                looked.borrow_mut().push(key.name.to_string());
                ("more than 9 addresses".to_owned(), MAX_ROWS / 2)
            });
            looked.take()
        };
        assert_eq!(look(), ["bad-0", "bad-1"]);
        assert_eq!(look(), ["bad-2", "bad-3"]);
        assert_eq!(look(), ["bad-4", "bad-5"]);
        assert_eq!(look(), ["bad-6", "bad-7"]);
        assert_eq!(look(), ["bad-8"]);
        assert_eq!(look(), ["bad-0", "bad-1"]);
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
