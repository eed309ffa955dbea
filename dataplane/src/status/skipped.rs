//! Objects that are not served in full, as people see them. A change of one object has the same cost for any number
//! of objects, because the source waits for it. A page takes a copy that shares all of them, and is written without
//! the lock; a change meanwhile copies the part that it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Parts of the list. Each has some namespaces, by a hash that no one outside can know: of 10,000 reasons a part has some
/// 80, and those of one namespace more at most.
const PARTS: usize = 128;

/// The reasons of some namespaces.
type Part = BTreeMap<Box<str>, BTreeSet<Arc<Skipped>>>;

/// An object, or a part of one, that is not served, and why (E15).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Skipped {
    pub kind: &'static str,
    /// Its namespace; empty for a Namespace.
    pub namespace: String,
    pub name: String,
    /// What is wrong, and what to write instead where that is known.
    pub reason: String,
}

/// Objects that are not served in full, by namespace.
#[derive(Clone, Debug)]
pub struct SkippedObjects {
    parts: Arc<[Arc<Part>; PARTS]>,
    hasher: RandomState,
    count: usize,
    not_listed: u64,
}

impl Default for SkippedObjects {
    fn default() -> Self {
        let parts = Arc::new(std::array::from_fn(|_| Arc::default()));
        SkippedObjects { parts, hasher: RandomState::new(), count: 0, not_listed: 0 }
    }
}

/// The difference to the last report.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) gone: BTreeSet<Arc<Skipped>>,
    pub(crate) new: BTreeSet<Arc<Skipped>>,
    /// Times that there was no room for the reason of an object.
    pub(crate) not_listed: u64,
}

impl Changes {
    pub(crate) fn add(&mut self, skipped: Arc<Skipped>) {
        if !self.gone.remove(&skipped) {
            self.new.insert(skipped);
        }
    }

    /// These, and others that are about other objects.
    pub(crate) fn and(mut self, mut others: Changes) -> Changes {
        self.gone.append(&mut others.gone);
        self.new.append(&mut others.new);
        self.not_listed += others.not_listed;
        self
    }

    /// Some of the new ones, of each namespace in turn.
    pub(super) fn first_new(&self, limit: usize) -> Vec<&Skipped> {
        let mut of_each: BTreeMap<&str, Vec<&Skipped>> = BTreeMap::new();
        for skipped in &self.new {
            of_each.entry(&skipped.namespace).or_default().push(skipped);
        }
        in_turns(of_each.into_values().map(Vec::into_iter), limit)
    }

    pub(crate) fn remove(&mut self, skipped: Arc<Skipped>) {
        if !self.new.remove(&skipped) {
            self.gone.insert(skipped);
        }
    }
}

impl SkippedObjects {
    /// Reasons in the list, of all namespaces.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, by namespace.
    pub fn iter(&self) -> impl Iterator<Item = &Skipped> {
        self.by_namespace().into_iter().flat_map(|(_, objects)| objects).map(AsRef::as_ref)
    }

    fn by_namespace(&self) -> Vec<(&str, &BTreeSet<Arc<Skipped>>)> {
        let parts = self.parts.iter().flat_map(|part| part.iter());
        let mut all: Vec<_> = parts.map(|(namespace, objects)| (&**namespace, objects)).collect();
        all.sort_unstable_by_key(|(namespace, _)| *namespace);
        all
    }

    /// The first ones: one of each namespace, then the next one of each, and so on, so that a page that shows only some
    /// shows some of each namespace.
    pub fn first(&self, limit: usize) -> Vec<&Skipped> {
        let of_each = self.by_namespace().into_iter();
        in_turns(of_each.map(|(_, objects)| objects.iter().map(AsRef::as_ref)), limit)
    }

    /// Times since start that an object was not served in full and is not among them, because too many are.
    pub fn not_listed(&self) -> u64 {
        self.not_listed
    }

    pub(super) fn apply(&mut self, changes: &Changes) {
        self.not_listed += changes.not_listed;
        if changes.gone.is_empty() && changes.new.is_empty() {
            return;
        }
        for skipped in &changes.gone {
            let part = part_of(&mut self.parts, &self.hasher, &skipped.namespace);
            let Some(objects) = part.get_mut(&*skipped.namespace) else { continue };
            self.count -= usize::from(objects.remove(skipped));
            if objects.is_empty() {
                part.remove(&*skipped.namespace);
            }
        }
        for skipped in &changes.new {
            let part = part_of(&mut self.parts, &self.hasher, &skipped.namespace);
            let objects = part.entry(skipped.namespace.as_str().into()).or_default();
            self.count += usize::from(objects.insert(Arc::clone(skipped)));
        }
    }

    /// What must change so that these are all.
    pub(super) fn changes_to(&self, all: Vec<Skipped>) -> Changes {
        let mut changes = Changes::default();
        changes.new.extend(all.into_iter().map(Arc::new));
        for skipped in self.parts.iter().flat_map(|part| part.values()).flatten() {
            if !changes.new.remove(skipped) {
                changes.gone.insert(Arc::clone(skipped));
            }
        }
        changes
    }
}

/// The part of a namespace, to change it. It is copied if a page is still written from it.
fn part_of<'a>(
    parts: &'a mut Arc<[Arc<Part>; PARTS]>,
    hasher: &RandomState,
    namespace: &str,
) -> &'a mut Part {
    let place = (hasher.hash_one(namespace) % PARTS as u64) as usize;
    Arc::make_mut(&mut Arc::make_mut(parts)[place])
}

/// The first of each group, then the second of each, and so on.
fn in_turns<'a, I>(groups: impl Iterator<Item = I>, limit: usize) -> Vec<&'a Skipped>
where
    I: Iterator<Item = &'a Skipped>,
{
    let mut groups: Vec<I> = groups.take(limit).collect();
    let mut first = Vec::new();
    while first.len() < limit && !groups.is_empty() {
        groups.retain_mut(|group| {
            let next = group.next();
            first.extend(next);
            next.is_some()
        });
    }
    first.truncate(limit);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(namespace: &str, name: &str) -> Arc<Skipped> {
        let (namespace, name, reason) = (namespace.into(), name.into(), "unreadable".into());
        Arc::new(Skipped { kind: "Service", namespace, name, reason })
    }

    #[test]
    fn e15_a_page_shows_objects_of_each_namespace_in_turn() {
        let mut changes = Changes::default();
        for name in ["a", "b", "c"] {
            changes.add(skipped("shop", name));
        }
        changes.add(skipped("victim", "cart"));
        let new: Vec<_> = changes.first_new(3).iter().map(|skipped| &*skipped.name).collect();
        assert_eq!(new, ["a", "cart", "b"], "the log does the same");
        let mut objects = SkippedObjects::default();
        objects.apply(&changes);
        let first = |limit| -> Vec<_> {
            objects.first(limit).iter().map(|skipped| skipped.name.clone()).collect()
        };
        assert_eq!(first(10), ["a", "cart", "b", "c"]);
        assert_eq!(first(3), ["a", "cart", "b"]);
        assert_eq!((objects.len(), first(1).len()), (4, 1));
    }

    #[test]
    fn what_comes_and_goes_between_two_reports_is_no_change() {
        let (one, two) = (skipped("shop", "a"), skipped("shop", "b"));
        let mut changes = Changes::default();
        changes.add(one.clone());
        changes.remove(one.clone());
        changes.remove(two.clone());
        changes.add(two.clone());
        assert!(changes.gone.is_empty() && changes.new.is_empty());
        let mut objects = SkippedObjects::default();
        changes.add(one.clone());
        objects.apply(&changes);
        let changes = objects.changes_to(vec![two.as_ref().clone()]);
        assert_eq!((changes.gone, changes.new), ([one].into(), [two].into()));
    }

    #[test]
    fn e15_a_change_while_a_page_is_written_copies_one_part_of_the_list() {
        let mut objects = SkippedObjects::default();
        let mut changes = Changes::default();
        (0..10_000).for_each(|n| changes.add(skipped(&format!("ns-{n}"), "cart")));
        objects.apply(&changes);
        let page = objects.clone();
        let mut change = Changes::default();
        change.remove(skipped("ns-7", "cart"));
        change.add(skipped("ns-7", "till"));
        objects.apply(&change);
        let copied = page.parts.iter().zip(&*objects.parts);
        let copied: Vec<_> = copied.filter(|(old, new)| !Arc::ptr_eq(old, new)).collect();
        assert_eq!(copied.len(), 1);
        assert!(copied[0].0.len() < 1_000, "{} of 10,000", copied[0].0.len());
        let name = |of: &SkippedObjects| {
            of.iter().find(|it| it.namespace == "ns-7").map(|it| it.name.clone())
        };
        assert_eq!((name(&page).as_deref(), page.len()), (Some("cart"), 10_000));
        assert_eq!((name(&objects).as_deref(), objects.len()), (Some("till"), 10_000));
    }
}
