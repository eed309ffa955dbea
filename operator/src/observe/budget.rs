//! How much of the cluster the operator keeps. A user with write access to a watched namespace can make objects of 1 MiB, and
//! as many as etcd takes. Objects beyond the limit are kept as stubs, with only the fields that decisions need. They are
//! reported, and read from the API server when they are needed (K23: memory does not follow what others write). What is ours,
//! and Nodes, are never refused: to miss one of them is to decide wrongly. ClusterDNS have a budget of their own.

mod held;
mod lacks;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use held::{Entry, Held, Octets};
use lacks::Lacks;

/// Octets of all objects that are kept, as they are counted in [`super::octets::octets`]. While a kind is listed again the
/// objects from before are held as well, and the container has 256 MiB.
pub(super) const MOST: usize = 80 << 20;
/// The same of every ClusterDNS, which have a room of their own: who fills the other one hides none of them, and who may write
/// ClusterDNS ends no operator.
const MOST_OF_RESOURCES: usize = 32 << 20;
/// Least octets that a stub counts for.
const STUB: usize = 512;
/// The part of it that is reserved for stubs; when it is full, further objects are not kept at all. Stubs take no
/// room from whole objects.
const FOR_STUBS: usize = 8 << 20;
/// Names of objects that are not kept whole, for people: this many of each kind in each watched namespace, so that none hides another.
const MAX_NAMED: usize = 100;
/// What happens with an object that is not kept whole.
const READ_WHEN_NEEDED: &str = "the operator reads it from the API server when it needs it";
const READ_TO_RECONCILE: &str =
    "the operator reads it from the API server each time that it reconciles it";

/// How an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetVerdict {
    /// The object is kept with all its fields.
    Whole,
    /// Only that it exists is kept.
    Stub,
    /// The object is not kept, not even as a stub.
    Nothing,
}

/// The bound, and what all stores hold.
#[derive(Debug)]
pub struct Budget {
    most: Octets,
    /// What not to keep an object whole means, for people.
    consequence: &'static str,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// Octets that each store holds, by its number.
    octets: HashMap<u64, Octets>,
    /// Namespace, kind and name. At most [`MAX_NAMED`] of each store. What has no namespace is among them only as a ClusterDNS:
    /// of ClusterRoles and ClusterRoleBindings only ours are watched, and Nodes and ours are always kept whole.
    refused: BTreeSet<(String, String, String)>,
    /// Namespaces and kinds in which more objects were refused than are named.
    unnamed: BTreeSet<(String, String)>,
    /// Kinds and namespaces in which some objects are not kept, not even as a stub.
    incomplete: BTreeSet<(String, String)>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::of(MOST, READ_WHEN_NEEDED)
    }
}

impl Budget {
    /// The budget of every ClusterDNS.
    pub(super) fn of_resources() -> Budget {
        Budget::of(MOST_OF_RESOURCES, READ_TO_RECONCILE)
    }

    pub(super) fn of(most: usize, consequence: &'static str) -> Budget {
        let stubs = FOR_STUBS.min(most / 4);
        let most = Octets { whole: most - stubs, stubs, ..Octets::default() };
        Budget { most, ..Budget::without_stubs(0, consequence) }
    }

    /// One of objects that have no stubs: it reserves nothing for them.
    pub(super) fn without_stubs(whole: usize, consequence: &'static str) -> Budget {
        let most = Octets { whole, ..Octets::default() };
        Budget { most, consequence, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kinds of which some objects of a namespace are not kept whole. The log names the objects: who writes them could change their
    /// names, number and octets all the time, and so the status.
    pub fn not_kept(&self, namespace: &str) -> BTreeSet<String> {
        let books = self.books();
        let named = books.refused.iter().map(|(of, kind, _)| (of, kind));
        let all = named.chain(books.unnamed.iter().map(|(of, kind)| (of, kind)));
        all.filter(|(of, _)| *of == namespace).map(|(_, kind)| kind.clone()).collect()
    }

    /// Octets of whole objects and of stubs that all stores hold.
    pub(super) fn held(&self) -> (usize, usize) {
        let held = self.sum();
        (held.whole, held.stubs)
    }

    fn sum(&self) -> Octets {
        self.books().octets.values().fold(Octets::default(), |sum, octets| sum + *octets)
    }

    /// Do objects that are never refused take most of the room? Then it does not help much to delete others.
    pub fn is_mostly_needed(&self) -> bool {
        self.sum().needed > self.most.whole / 2
    }

    /// Does this namespace have objects of this kind (its plural) that are not kept at all? If so, an object that is
    /// not found may exist.
    pub fn is_incomplete(&self, plural: &str, namespace: &str) -> bool {
        self.books().incomplete.contains(&(plural.to_owned(), namespace.to_owned()))
    }
}

/// Octets of whole objects and of stubs that one watch keeps.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    store: u64,
    /// The kind of its objects, as a plural.
    pub(super) kind: String,
    /// While a list is read: what was held before and is not listed yet. The store holds it until the list is complete.
    kept: Held,
    /// The list that is being read.
    listed: Option<Held>,
    /// The namespace of an object that is not kept at all.
    incomplete: Option<String>,
    /// The namespace of one that is refused and has no name in the books.
    unnamed: Option<String>,
    /// What the books name.
    named: BTreeSet<(String, String)>,
    /// While a list is read: what they named before, and was not refused again yet.
    named_before: BTreeSet<(String, String)>,
    lacks: Lacks,
    /// While a list is read: those of the list before.
    lacks_before: Lacks,
    /// The books say more than the store holds: the store forgot what a list that broke off brought.
    is_given_up: bool,
}

impl Share {
    /// The share of a store with objects of this kind (its plural). Each store has a number of its own.
    pub(super) fn new(budget: Arc<Budget>, store: u64, kind: &str) -> Share {
        Share {
            budget,
            store,
            kind: kind.to_owned(),
            kept: Held::default(),
            listed: None,
            incomplete: None,
            unnamed: None,
            named: BTreeSet::new(),
            named_before: BTreeSet::new(),
            lacks: Lacks::NOTHING,
            lacks_before: Lacks::NOTHING,
            is_given_up: false,
        }
    }

    /// A list begins. Objects of a list that broke off before count as held.
    pub(super) fn list(&mut self) {
        self.give_up_list();
        self.listed = Some(Held::default());
        self.named_before.append(&mut self.named);
        self.lacks_before = std::mem::replace(&mut self.lacks, Lacks::NOTHING);
    }

    /// The list that broke off is not read again before other events come: what was held and lacked before it counts, too.
    pub(super) fn give_up_list(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        for (key, entry) in listed.by_key {
            self.kept.insert(key, entry);
        }
        self.named.append(&mut self.named_before);
        self.lacks = self.lacks.and(self.lacks_before);
        self.is_given_up = true;
        self.charge();
    }

    /// The list is complete: what was held before and is not listed is gone.
    pub(super) fn listed(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.kept = listed;
            self.is_given_up = false;
            for gone in std::mem::take(&mut self.named_before) {
                self.forget(&gone);
            }
            if !self.lacks.has_incomplete {
                self.is_complete();
            }
            if !self.lacks.has_unnamed {
                self.all_are_named();
            }
        }
        self.charge();
    }

    /// Would a list say or keep something else than the last one? No event comes of an object that was refused when another one makes
    /// room for it, nor of one that has no name when those leave that have one.
    pub(super) fn has_to_be_listed(&self) -> bool {
        let (held, most, least) =
            (self.beside() + self.others(), self.budget.most, self.lacks.least);
        self.is_given_up
            || held.whole.saturating_add(least.whole) <= most.whole
            || held.stubs.saturating_add(least.stubs) <= most.stubs
            || self.unnamed.is_some() && self.named.len() < MAX_NAMED
    }

    /// May this object be kept whole? It has this many octets. One that is needed always may, and one that is held whole and
    /// did not grow, so that a full cache changes nothing about what it holds.
    pub(super) fn admit(&mut self, metadata: &ObjectMeta, octets: usize, is_needed: bool) -> bool {
        let key = key(metadata);
        let before = self.take(&key);
        let stays = matches!(before, Some(Entry::Whole(it) | Entry::Needed(it)) if octets <= it);
        let held = self.beside() + self.others();
        let is_whole = is_needed || stays || held.whole + octets <= self.budget.most.whole;
        if is_whole {
            self.forget(&key);
            let entry = if is_needed { Entry::Needed(octets) } else { Entry::Whole(octets) };
            self.hold(key, entry);
        } else if let Some(before @ Entry::Stub(_)) = before {
            self.hold(key, before);
        }
        self.charge();
        is_whole
    }

    /// What becomes of an object that may not be kept whole; its stub has this many octets, none: it has no stub.
    pub(super) fn admit_stub(
        &mut self,
        metadata: &ObjectMeta,
        octets: usize,
        stub: Option<usize>,
    ) -> BudgetVerdict {
        let key = key(metadata);
        let before = self.take(&key);
        let held = self.beside() + self.others();
        let least = &mut self.lacks.least;
        least.whole = least.whole.min(octets);
        let stub = stub.map(|stub| stub.max(STUB));
        let may_stay = stub.filter(|stub| {
            let stays = matches!(before, Some(Entry::Stub(before)) if *stub <= before);
            stays || held.stubs + stub <= self.budget.most.stubs
        });
        self.refuse(&key, octets);
        let verdict = match may_stay {
            Some(stub) => {
                self.hold(key, Entry::Stub(stub));
                BudgetVerdict::Stub
            }
            None => {
                let least = &mut self.lacks.least;
                least.stubs = least.stubs.min(stub.unwrap_or(usize::MAX));
                self.is_incomplete_in(&key.0);
                BudgetVerdict::Nothing
            }
        };
        self.charge();
        verdict
    }

    /// Objects of this namespace were passed over, because they cannot be read: they are not kept at all, and a list says when
    /// they can be read.
    pub(super) fn pass_over(&mut self, namespace: &str) {
        self.lacks.least.whole = 0;
        self.is_incomplete_in(namespace);
    }

    fn is_incomplete_in(&mut self, namespace: &str) {
        self.lacks.has_incomplete = true;
        self.budget.books().incomplete.insert((self.kind.clone(), namespace.to_owned()));
        self.incomplete = Some(namespace.to_owned());
    }

    pub(super) fn remove(&mut self, metadata: &ObjectMeta) {
        let key = key(metadata);
        self.take(&key);
        self.forget(&key);
        self.charge();
    }

    /// Octets of whole objects and of stubs that all stores hold.
    pub(super) fn held_by_all(&self) -> (usize, usize) {
        self.budget.held()
    }

    fn take(&mut self, key: &(String, String)) -> Option<Entry> {
        let listed = self.listed.as_mut().and_then(|listed| listed.remove(key));
        let kept = self.kept.remove(key);
        listed.or(kept)
    }

    fn hold(&mut self, key: (String, String), entry: Entry) {
        self.listed.as_mut().unwrap_or(&mut self.kept).insert(key, entry);
    }

    fn beside(&self) -> Octets {
        self.kept.total + self.listed.as_ref().map_or(Octets::default(), |listed| listed.total)
    }

    fn others(&self) -> Octets {
        let books = self.budget.books();
        let others = books.octets.iter().filter(|(store, _)| **store != self.store);
        others.fold(Octets::default(), |sum, (_, octets)| sum + *octets)
    }

    fn charge(&self) {
        let octets = self.beside();
        self.budget.books().octets.insert(self.store, octets);
    }

    fn refuse(&mut self, key: &(String, String), octets: usize) {
        if self.named_before.remove(key) || self.named.contains(key) {
            self.named.insert(key.clone());
            return;
        }
        let (namespace, name) = key;
        if self.named.len() + self.named_before.len() >= MAX_NAMED {
            self.lacks.has_unnamed = true;
            self.unnamed = Some(namespace.clone());
            self.budget.books().unnamed.insert((namespace.clone(), self.kind.clone()));
            return;
        }
        self.named.insert(key.clone());
        self.budget.books().refused.insert(object(&self.kind, key));
        tracing::warn!(
            "{namespace}/{} {name} takes {octets} octets and is not kept whole, because all objects together may take {}: {}. \
             Delete what is not needed",
            self.kind,
            self.budget.most.whole + self.budget.most.stubs,
            self.budget.consequence
        );
    }

    fn forget(&mut self, key: &(String, String)) {
        self.named_before.remove(key);
        self.named.remove(key);
        self.budget.books().refused.remove(&object(&self.kind, key));
    }

    fn all_are_named(&mut self) {
        if let Some(namespace) = self.unnamed.take() {
            self.budget.books().unnamed.remove(&(namespace, self.kind.clone()));
        }
    }

    fn is_complete(&mut self) {
        if let Some(namespace) = self.incomplete.take() {
            self.budget.books().incomplete.remove(&(self.kind.clone(), namespace));
        }
    }
}

/// A store that ends holds nothing.
impl Drop for Share {
    fn drop(&mut self) {
        self.named_before.append(&mut self.named);
        for gone in std::mem::take(&mut self.named_before) {
            self.forget(&gone);
        }
        self.is_complete();
        self.all_are_named();
        self.budget.books().octets.remove(&self.store);
    }
}

fn object(kind: &str, (namespace, name): &(String, String)) -> (String, String, String) {
    (namespace.clone(), kind.to_owned(), name.clone())
}

fn key(metadata: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

#[cfg(test)]
mod tests;
