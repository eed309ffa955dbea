//! How much of the cluster the operator keeps. A user with write access to a watched namespace can make objects of 1 MiB, and
//! as many as etcd takes. What is beyond the bound is kept as a stub, which says that it exists; it is reported, and read
//! from the API server when it is needed (K23: memory does not follow what others write).

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DynamicObject;
use serde::Serialize;

use crate::names;

/// Octets of all objects that are kept, as JSON. In memory that is up to four times as much, and the container has 256 MiB.
pub(super) const MOST: usize = 48 << 20;
/// What a stub counts for.
const STUB: usize = 512;
/// Of this, the part that only stubs may use; beyond it nothing is kept of an object.
const FOR_STUBS: usize = 8 << 20;
/// Names of objects that are not kept whole, for people.
const MAX_NAMED: usize = 100;
/// On a stub: it is no whole object.
const MARK: &str = "clusterdns.dev/not-kept";
/// Labels that a stub keeps.
const LABELS: [&str; 3] = [names::INSTANCE, "kubernetes.io/service-name", "pod-template-hash"];

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is kept.
    Whole,
    /// Only that it exists is kept.
    Stub,
    /// Nothing of it is kept.
    Nothing,
}

/// The bound, and what all stores hold.
#[derive(Debug)]
pub struct Budget {
    most: usize,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// By store.
    octets: HashMap<u64, usize>,
    /// Namespace and kind with name: octets. At most [`MAX_NAMED`].
    refused: BTreeMap<(String, String), usize>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::of(MOST)
    }
}

impl Budget {
    fn of(most: usize) -> Budget {
        Budget { most, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("nothing panics while holding this lock")
    }

    /// Octets that are held.
    pub fn octets(&self) -> usize {
        self.books().octets.values().sum()
    }

    /// Objects of a namespace that are not kept whole, with their octets.
    pub fn not_kept(&self, namespace: &str) -> Vec<(String, usize)> {
        let books = self.books();
        let here = books.refused.iter().filter(|((of, _), _)| of == namespace);
        here.map(|((_, name), octets)| (name.clone(), *octets)).collect()
    }
}

/// What one store holds.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    store: u64,
    kind: String,
    kept: Held,
    /// The list that is being read. Until it is complete, the store holds what it held before.
    listed: Option<Held>,
}

/// Octets by object, and their sum.
#[derive(Debug, Default)]
struct Held {
    by_key: HashMap<(String, String), usize>,
    total: usize,
}

impl Held {
    fn of(&self, key: &(String, String)) -> usize {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    fn insert(&mut self, key: (String, String), octets: usize) {
        let before = self.by_key.insert(key, octets).unwrap_or_default();
        self.total = self.total - before + octets;
    }

    fn remove(&mut self, key: &(String, String)) {
        self.total -= self.by_key.remove(key).unwrap_or_default();
    }
}

impl Share {
    /// The share of a store with objects of this kind. Each store has a number of its own.
    pub(super) fn new(budget: Arc<Budget>, store: u64, kind: &str) -> Share {
        Share { budget, store, kind: kind.to_owned(), kept: Held::default(), listed: None }
    }

    /// A list begins.
    pub(super) fn list(&mut self) {
        self.listed = Some(Held::default());
    }

    /// The list is complete: what was held before is gone.
    pub(super) fn listed(&mut self) {
        if let Some(listed) = self.listed.take() {
            let before = std::mem::replace(&mut self.kept, listed);
            let gone = before.by_key.into_keys().filter(|key| !self.kept.by_key.contains_key(key));
            let gone: Vec<_> = gone.collect();
            gone.iter().for_each(|key| self.forget(key));
        }
        self.charge();
    }

    /// May this object be kept? It has so many octets.
    pub(super) fn admit(&mut self, metadata: &ObjectMeta, octets: usize) -> Verdict {
        let key = key(metadata);
        let others: usize = {
            let books = self.budget.books();
            books.octets.iter().filter(|(store, _)| **store != self.store).map(|(_, it)| it).sum()
        };
        let (this, other) = match &self.listed {
            Some(listed) => (listed, self.kept.total),
            None => (&self.kept, 0),
        };
        let beside = this.total - this.of(&key);
        // A list replaces what is held, so that both at once count as the larger of them.
        let with = |octets: usize| others + (beside + octets).max(other);
        let most = self.budget.most;
        let (verdict, counted) = if with(octets) <= most - FOR_STUBS.min(most / 4) {
            (Verdict::Whole, octets)
        } else if with(STUB) <= most {
            (Verdict::Stub, STUB)
        } else {
            (Verdict::Nothing, 0)
        };
        let this = self.listed.as_mut().unwrap_or(&mut self.kept);
        match verdict {
            Verdict::Whole | Verdict::Stub => this.insert(key.clone(), counted),
            Verdict::Nothing => this.remove(&key),
        }
        match verdict {
            Verdict::Whole => self.forget(&key),
            Verdict::Stub | Verdict::Nothing => self.refuse(key, octets),
        }
        self.charge();
        verdict
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, metadata: &ObjectMeta) {
        let key = key(metadata);
        self.kept.remove(&key);
        self.forget(&key);
        self.charge();
    }

    fn charge(&self) {
        let listed = self.listed.as_ref().map_or(0, |listed| listed.total);
        let octets = self.kept.total.max(listed);
        self.budget.books().octets.insert(self.store, octets);
    }

    fn refuse(&self, (namespace, name): (String, String), octets: usize) {
        let what = format!("{} {name}", self.kind);
        let mut books = self.budget.books();
        let has_room = books.refused.len() < MAX_NAMED;
        if has_room && books.refused.insert((namespace.clone(), what.clone()), octets).is_none() {
            tracing::warn!(
                "{namespace}/{what} has {octets} octets and is not kept whole: all objects that are kept may have {} together. \
                 It is read from the API server when it is needed; delete what is not needed",
                self.budget.most
            );
        }
    }

    fn forget(&self, (namespace, name): &(String, String)) {
        let what = format!("{} {name}", self.kind);
        self.budget.books().refused.remove(&(namespace.clone(), what));
    }
}

/// A store that ends holds nothing.
impl Drop for Share {
    fn drop(&mut self) {
        self.kept.by_key.keys().for_each(|key| self.forget(key));
        self.budget.books().octets.remove(&self.store);
    }
}

fn key(metadata: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

/// Octets of an object as JSON.
pub(super) fn octets(object: &impl Serialize) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0 += octets.len();
            Ok(octets.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, object).expect("an object of the API is JSON");
    counter.0
}

/// Leaves as much of an object as says that it exists, and whose it is.
pub(super) fn stub<K: Resource + Default>(object: &mut K) {
    let mut metadata = std::mem::take(object.meta_mut());
    slim(&mut metadata);
    *object = K::default();
    *object.meta_mut() = metadata;
}

/// The same of an object of any kind.
pub(super) fn dynamic_stub(object: &mut DynamicObject) {
    slim(&mut object.metadata);
    object.data = serde_json::Value::Null;
}

/// Is only this kept of the object?
pub fn is_stub(object: &DynamicObject) -> bool {
    object.data.is_null()
        && object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MARK))
}

fn slim(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.retain(|key, _| LABELS.contains(&key.as_str()));
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| key == names::ADOPTED_BY);
    annotations.insert(MARK.to_owned(), "true".to_owned());
    let owners = metadata.owner_references.get_or_insert_default();
    owners.retain(|owner| owner.kind == "ClusterDNS");
    owners.truncate(1);
    (metadata.managed_fields, metadata.finalizers) = (None, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::from;
    use serde_json::json;

    const MIB: usize = 1 << 20;

    fn named(name: &str) -> ObjectMeta {
        from(json!({"namespace": "dns", "name": name}))
    }

    fn share(budget: &Arc<Budget>, store: u64) -> Share {
        Share::new(budget.clone(), store, "ConfigMap")
    }

    #[test]
    fn k23_what_others_write_is_kept_up_to_a_bound_and_the_rest_is_named() {
        let budget = Arc::new(Budget::default());
        let (mut one, mut other) = (share(&budget, 1), share(&budget, 2));
        assert_eq!(other.admit(&named("ours"), MIB), Verdict::Whole);
        let verdicts: Vec<Verdict> =
            (0..60).map(|n| one.admit(&named(&format!("m{n}")), MIB)).collect();
        let whole = verdicts.iter().filter(|it| **it == Verdict::Whole).count();
        assert_eq!((whole, verdicts[whole]), (39, Verdict::Stub), "40 MiB, and stubs");
        assert!(budget.octets() <= MOST);
        assert_eq!(budget.not_kept("dns").len(), 21);
        assert_eq!(budget.not_kept("dns")[0], ("ConfigMap m39".to_owned(), MIB));
        assert!(budget.not_kept("elsewhere").is_empty());
        // Room that is made is used.
        one.remove(&named("m0"));
        one.remove(&named("m1"));
        assert_eq!(one.admit(&named("m39"), MIB), Verdict::Whole);
        assert_eq!(budget.not_kept("dns").len(), 20);
        drop(one);
        assert_eq!((budget.octets(), budget.not_kept("dns").len()), (MIB, 0));
    }

    #[test]
    fn k23_a_new_list_of_the_same_objects_needs_no_more_room() {
        let budget = Arc::new(Budget::default());
        let mut share = share(&budget, 1);
        for round in 0..3 {
            share.list();
            for n in 0..40 {
                let verdict = share.admit(&named(&format!("m{n}")), MIB);
                assert_eq!(verdict, Verdict::Whole, "{round} {n}");
            }
            share.listed();
            assert_eq!(budget.octets(), 40 * MIB);
        }
        share.list();
        share.admit(&named("m0"), MIB);
        share.listed();
        assert_eq!(budget.octets(), MIB, "what is not listed any more is gone");
    }

    #[test]
    fn k23_so_many_objects_that_even_stubs_are_too_many_take_no_more_memory() {
        let budget = Arc::new(Budget::of(100 * STUB));
        let mut share = share(&budget, 1);
        let count = |wanted| {
            let verdicts = (0..300).map(|n| share.admit(&named(&format!("m{n}")), 2 * STUB));
            verdicts.filter(|it| *it == wanted).count()
        };
        let nothing = { count }(Verdict::Nothing);
        assert!(nothing > 100, "{nothing}");
        assert!(budget.octets() <= 100 * STUB);
        assert_eq!(budget.not_kept("dns").len(), MAX_NAMED);
    }

    #[test]
    fn a_stub_says_that_an_object_exists_and_whose_it_is() {
        let mut map: DynamicObject = from(
            json!({"metadata": {"name": "a", "namespace": "dns", "uid": "u",
            "labels": {"clusterdns.dev/instance": "default", "team": "a"}, "annotations": {"x": "y"},
            "ownerReferences": [{"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "default",
                "uid": "dns-uid"}]}, "data": {"a": "b"}}),
        );
        assert!(!is_stub(&map));
        let before = octets(&map);
        dynamic_stub(&mut map);
        assert!(is_stub(&map) && octets(&map) < before);
        let metadata = &map.metadata;
        assert_eq!(
            metadata.labels.as_ref().unwrap().keys().collect::<Vec<_>>(),
            ["clusterdns.dev/instance"]
        );
        assert_eq!((metadata.name.as_deref(), metadata.uid.as_deref()), (Some("a"), Some("u")));
        assert_eq!(metadata.owner_references.as_ref().unwrap().len(), 1);
        let mut pod = crate::fixtures::pod("dns-0", 0, 0);
        stub(&mut pod);
        assert_eq!(
            (crate::observe::pods::name(&pod), crate::observe::pods::is_ready(&pod)),
            ("dns-0", false)
        );
    }
}
