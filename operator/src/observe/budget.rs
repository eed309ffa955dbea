//! How much of the cluster the operator keeps. A user with write access to a watched namespace can make objects of 1 MiB, and
//! as many as etcd takes. Objects beyond the limit are kept as stubs, with only the fields that decisions need. They are
//! reported, and read from the API server when they are needed (K23: memory does not follow what others write). What is ours,
//! and Nodes, are never refused: to miss one of them is to decide wrongly. ClusterDNS have a budget of their own.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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
/// Names of objects that are not kept whole, for people: this many in each watched namespace, so that a full one hides no other.
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
    most: usize,
    /// What not to keep an object whole means, for people.
    consequence: &'static str,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// Octets that each store holds, by its number.
    octets: HashMap<u64, Octets>,
    /// Namespace, kind and name. At most [`MAX_NAMED`] of each namespace. What has no namespace is among them only as a ClusterDNS:
    /// of ClusterRoles and ClusterRoleBindings only ours are watched, and Nodes and ours are always kept whole.
    refused: BTreeSet<(String, String, String)>,
    /// Kinds and namespaces in which some objects are not kept, not even as a stub.
    incomplete: BTreeSet<(String, String)>,
}

/// Whole objects and stubs have bounds of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Octets {
    whole: usize,
    stubs: usize,
}

impl std::ops::Add for Octets {
    type Output = Octets;

    fn add(self, other: Octets) -> Octets {
        Octets { whole: self.whole + other.whole, stubs: self.stubs + other.stubs }
    }
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
        Budget { most, consequence, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn most_of_stubs(&self) -> usize {
        FOR_STUBS.min(self.most / 4)
    }

    /// Kinds of which some objects of a namespace are not kept whole. The log names the objects: who writes them could change their
    /// names, number and octets all the time, and so the status.
    pub fn not_kept(&self, namespace: &str) -> BTreeSet<String> {
        let books = self.books();
        let here = books.refused.iter().filter(|(of, _, _)| of == namespace);
        here.map(|(_, kind, _)| kind.clone()).collect()
    }

    /// Octets of whole objects and of stubs that all stores hold.
    pub(super) fn held(&self) -> (usize, usize) {
        let books = self.books();
        let held = books.octets.values().fold(Octets::default(), |sum, octets| sum + *octets);
        (held.whole, held.stubs)
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
    /// There was one in this list, or since.
    has_refused: bool,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Whole(usize),
    Stub(usize),
}

impl Entry {
    fn octets(self) -> Octets {
        match self {
            Entry::Whole(whole) => Octets { whole, stubs: 0 },
            Entry::Stub(stubs) => Octets { whole: 0, stubs },
        }
    }
}

/// Octets by object, and their sum.
#[derive(Debug, Default)]
struct Held {
    by_key: HashMap<(String, String), Entry>,
    total: Octets,
}

impl Held {
    fn insert(&mut self, key: (String, String), entry: Entry) {
        self.remove(&key);
        self.total = self.total + entry.octets();
        self.by_key.insert(key, entry);
    }

    fn remove(&mut self, key: &(String, String)) -> Option<Entry> {
        let entry = self.by_key.remove(key)?;
        self.total.whole -= entry.octets().whole;
        self.total.stubs -= entry.octets().stubs;
        Some(entry)
    }
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
            has_refused: false,
        }
    }

    /// A list begins. Objects of a list that broke off before count as held.
    pub(super) fn list(&mut self) {
        for (key, entry) in self.listed.replace(Held::default()).unwrap_or_default().by_key {
            self.kept.insert(key, entry);
        }
        self.has_refused = false;
    }

    /// The list is complete: what was held before and is not listed is gone.
    pub(super) fn listed(&mut self) {
        if let Some(listed) = self.listed.take() {
            let gone = std::mem::replace(&mut self.kept, listed);
            gone.by_key.keys().for_each(|key| self.forget(key));
            if !self.has_refused {
                self.is_complete();
            }
        }
        self.charge();
    }

    /// May this object be kept whole? It has this many octets. One that is needed always may, and one that is held whole and
    /// did not grow, so that a full cache changes nothing about what it holds.
    pub(super) fn admit(&mut self, metadata: &ObjectMeta, octets: usize, is_needed: bool) -> bool {
        let key = key(metadata);
        let before = self.take(&key);
        let stays = matches!(before, Some(Entry::Whole(before)) if octets <= before);
        let held = self.beside() + self.others();
        let most = self.budget.most - self.budget.most_of_stubs();
        let is_whole = is_needed || stays || held.whole + octets <= most;
        if is_whole {
            self.forget(&key);
            self.hold(key, Entry::Whole(octets));
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
        let stub = stub.map(|stub| stub.max(STUB)).filter(|stub| {
            let stays = matches!(before, Some(Entry::Stub(before)) if *stub <= before);
            stays || held.stubs + stub <= self.budget.most_of_stubs()
        });
        self.refuse(key.clone(), octets);
        let verdict = match stub {
            Some(stub) => {
                self.hold(key, Entry::Stub(stub));
                BudgetVerdict::Stub
            }
            None => {
                self.pass_over(&key.0);
                BudgetVerdict::Nothing
            }
        };
        self.charge();
        verdict
    }

    /// Objects of this namespace were passed over: they are not kept at all.
    pub(super) fn pass_over(&mut self, namespace: &str) {
        self.has_refused = true;
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

    fn refuse(&self, (namespace, name): (String, String), octets: usize) {
        let mut books = self.budget.books();
        let named = books.refused.iter().filter(|(of, _, _)| *of == namespace).count();
        let object = (namespace.clone(), self.kind.clone(), name.clone());
        if named < MAX_NAMED && books.refused.insert(object) {
            tracing::warn!(
                "{namespace}/{} {name} takes {octets} octets and is not kept whole, because all objects together may take {}: {}. \
                 Delete what is not needed",
                self.kind,
                self.budget.most,
                self.budget.consequence
            );
        }
    }

    fn forget(&self, (namespace, name): &(String, String)) {
        let object = (namespace.clone(), self.kind.clone(), name.clone());
        self.budget.books().refused.remove(&object);
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
        let listed = self.listed.take().unwrap_or_default();
        self.kept.by_key.keys().chain(listed.by_key.keys()).for_each(|key| self.forget(key));
        self.is_complete();
        self.budget.books().octets.remove(&self.store);
    }
}

fn key(metadata: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

#[cfg(test)]
mod tests;
