//! Remembers each applied object and the result, to skip writes that change nothing. Lost with the process: a
//! new leader applies everything once, which changes nothing either.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use kube::ResourceExt;
use kube::core::DynamicObject;

use super::contention::{Contention, Key};
use super::fingerprint;
use super::last_applied::Kept;
use crate::desired::Kind;

/// Objects that are remembered; a ClusterDNS has about a dozen.
const MAX_REMEMBERED: usize = 10_000;

/// One object after we applied it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    /// Hash of the object that was sent.
    sent: u64,
    /// What the API server made of it.
    uid: String,
    version: String,
    /// Hash of the fields that are ours in it.
    owned: Option<u64>,
    /// A later write got no answer: the version that the object had then. What is newer may be ours.
    unanswered_at: Option<String>,
}

/// What was applied, by object.
#[derive(Debug, Default)]
pub struct Memory {
    objects: Mutex<HashMap<Key, Remembered>>,
    /// The version of each Service for which a patch of its selector was refused, because it had another one at that time.
    conflicts: Mutex<HashMap<Key, String>>,
    /// What other clients edit again and again.
    pub(super) contention: Contention,
    /// The objects themselves, for as long as a spec is refused.
    pub(super) kept: Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It does not exist.
    Missing,
    /// This leader has not applied it yet.
    FirstTime,
    /// Its desired content has changed.
    Wanted,
    /// Another client has changed a field of ours.
    Edited,
}

impl Memory {
    /// Why it must be applied; `None` if it is as desired.
    pub fn why(
        &self,
        kind: Kind,
        wanted: &DynamicObject,
        live: Option<&DynamicObject>,
    ) -> Option<Why> {
        let Some(live) = live else { return Some(Why::Missing) };
        let mut objects = self.lock();
        let Some(remembered) = objects.get_mut(&key(kind, wanted)) else {
            return Some(Why::FirstTime);
        };
        let live_uid = live.metadata.uid.as_deref().unwrap_or_default();
        if live_uid != remembered.uid
            && !is_older(&live.metadata.resource_version, &remembered.version)
        {
            return Some(Why::FirstTime);
        }
        let version = live.resource_version().unwrap_or_default();
        if remembered.unanswered_at.as_ref().is_some_and(|at| *at != version) {
            return Some(Why::FirstTime);
        }
        // What a watch shows may be older than what we wrote last.
        let is_newer = version != remembered.version
            && !is_older(&live.metadata.resource_version, &remembered.version);
        if is_newer && fingerprint(live) != remembered.owned {
            return Some(Why::Edited);
        }
        if remembered.sent != hash(wanted) {
            return Some(Why::Wanted);
        }
        if !is_newer {
            return None;
        }
        remembered.version = version;
        None
    }

    /// Whether this was sent last.
    pub(super) fn was_sent(&self, kind: Kind, wanted: &DynamicObject) -> bool {
        let objects = self.lock();
        objects.get(&key(kind, wanted)).is_some_and(|remembered| remembered.sent == hash(wanted))
    }

    /// Whether this process has applied it.
    pub(super) fn knows(&self, kind: Kind, wanted: &DynamicObject) -> bool {
        self.lock().contains_key(&key(kind, wanted))
    }

    /// Whether there may be one of ours that no watch shows: this process has applied it, or no workload of this name yet.
    pub fn may_exist(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let objects = self.lock();
        let is_applied =
            |kind| objects.contains_key(&(kind, namespace.to_owned(), name.to_owned()));
        is_applied(kind) || !(is_applied(Kind::Deployment) || is_applied(Kind::DaemonSet))
    }

    /// The object as the API server returned it.
    pub fn applied(&self, kind: Kind, sent: &DynamicObject, made: &DynamicObject) {
        let remembered = Remembered {
            sent: hash(sent),
            uid: made.uid().unwrap_or_default(),
            version: made.resource_version().unwrap_or_default(),
            owned: fingerprint(made),
            unanswered_at: None,
        };
        self.kept.applied(kind, sent);
        let mut objects = self.lock();
        if objects.len() >= MAX_REMEMBERED {
            objects.clear();
        }
        objects.insert(key(kind, sent), remembered);
    }

    /// A write over this version of the object got no answer: it may have been made.
    pub fn unanswered(&self, kind: Kind, sent: &DynamicObject, live: Option<&DynamicObject>) {
        if let Some(remembered) = self.lock().get_mut(&key(kind, sent)) {
            remembered.unanswered_at = live.and_then(ResourceExt::resource_version);
        }
    }

    /// Whether what a watch keeps is older than our own last write, or may be.
    pub fn is_behind(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        kept: Option<&DynamicObject>,
    ) -> bool {
        let objects = self.lock();
        let Some(remembered) = objects.get(&(kind, namespace.to_owned(), name.to_owned())) else {
            return false;
        };
        let version = |kept: &DynamicObject| kept.metadata.resource_version.clone();
        kept.is_none_or(|kept| {
            let is_unanswered = remembered.unanswered_at.is_some();
            is_older(&version(kept), &remembered.version)
                || is_unanswered && version(kept) == remembered.unanswered_at
        })
    }

    /// It is gone, or not ours any more.
    pub fn forget(&self, kind: Kind, namespace: &str, name: &str) {
        self.lock().remove(&(kind, namespace.to_owned(), name.to_owned()));
    }

    /// The API server has not made this patch of a selector: the Service has another version.
    pub(super) fn conflicted(&self, key: &Key, version: &str) {
        let mut conflicts = self.conflicts();
        if conflicts.len() >= MAX_REMEMBERED {
            conflicts.clear();
        }
        conflicts.insert(key.clone(), version.to_owned());
    }

    /// The version of this Service for which the last patch was refused so.
    pub fn conflict(&self, namespace: &str, name: &str) -> Option<String> {
        self.conflicts().get(&(Kind::Service, namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Nothing of this ClusterDNS is put back from here on: it is gone, or people write its objects themselves.
    pub fn let_go(&self, instance: &str) {
        self.kept.forget(instance);
    }

    /// Versions mean nothing any more: the API server shows an older state.
    pub fn forget_all(&self) {
        self.lock().clear();
        self.conflicts().clear();
        self.kept.forget_all();
    }

    fn conflicts(&self) -> std::sync::MutexGuard<'_, HashMap<Key, String>> {
        self.conflicts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Remembered>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn key(kind: Kind, object: &DynamicObject) -> Key {
    (kind, object.namespace().unwrap_or_default(), object.name_any())
}

/// Versions of one resource are numbers that grow. If they are not numbers, nothing counts as older.
fn is_older(kept: &Option<String>, than: &str) -> bool {
    let number = |version: &str| version.parse::<u128>().ok();
    match (kept.as_deref().and_then(number), number(than)) {
        (Some(kept), Some(than)) => kept < than,
        (None | Some(_), None | Some(_)) => false,
    }
}

/// Ignores resourceVersion, or foreign edits would trigger writes.
fn hash(object: &DynamicObject) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut object = object.clone();
    object.metadata.resource_version = None;
    serde_json::to_string(&object).expect("a Kubernetes object is JSON").hash(&mut hasher);
    hasher.finish()
}

fn fingerprint(object: &DynamicObject) -> Option<u64> {
    fingerprint::fingerprint(&serde_json::to_value(object).expect("a Kubernetes object is JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn wanted(value: &str) -> DynamicObject {
        object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"},
            "data": {"k": value}}),
        )
    }

    fn live(version: &str, value: &str, extra: &str) -> DynamicObject {
        object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value, "extra": extra},
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": version, "managedFields": [
                {"manager": "clusterdns-operator", "operation": "Apply", "fieldsV1": {"f:data": {"f:k": {}}}}]}}),
        )
    }

    #[test]
    fn o13_nothing_is_applied_without_a_reason() {
        let memory = Memory::default();
        let why = |wanted: &DynamicObject, live: Option<&DynamicObject>| {
            memory.why(Kind::ConfigMap, wanted, live)
        };
        assert_eq!(why(&wanted("a"), None), Some(Why::Missing));
        assert_eq!(why(&wanted("a"), Some(&live("5", "a", ""))), Some(Why::FirstTime));

        memory.applied(Kind::ConfigMap, &wanted("a"), &live("10", "a", ""));
        assert_eq!(why(&wanted("a"), Some(&live("10", "a", ""))), None);
        assert_eq!(
            why(&wanted("a"), Some(&live("9", "old", ""))),
            None,
            "the watch is behind our own write"
        );
        assert_eq!(
            why(&wanted("a"), Some(&live("11", "a", "theirs"))),
            None,
            "others edit what is theirs"
        );
        assert_eq!(why(&wanted("a"), Some(&live("12", "b", ""))), Some(Why::Edited));
        assert_eq!(why(&wanted("b"), Some(&live("11", "a", ""))), Some(Why::Wanted));
        let mut over_another = wanted("a");
        over_another.metadata.resource_version = Some("11".into());
        assert_eq!(why(&over_another, Some(&live("11", "a", "theirs"))), None);
        assert_eq!(why(&wanted("a"), None), Some(Why::Missing));
        let mut another = live("20", "a", "");
        another.metadata.uid = Some("v".into());
        assert_eq!(
            why(&wanted("a"), Some(&another)),
            Some(Why::FirstTime),
            "deleted and created by another client"
        );
    }

    #[test]
    fn o14_a_write_of_ours_without_an_answer_is_no_edit_by_another_client() {
        let memory = Memory::default();
        let why = |value: &str, live: &DynamicObject| {
            memory.why(Kind::ConfigMap, &wanted(value), Some(live))
        };
        let unanswered = |value: &str, live: &DynamicObject| {
            memory.unanswered(Kind::ConfigMap, &wanted(value), Some(live));
        };
        let before = live("10", "a", "");
        memory.applied(Kind::ConfigMap, &wanted("a"), &before);
        unanswered("b", &before);
        assert_eq!(why("b", &before), Some(Why::Wanted), "it was not written, or not yet seen");
        assert_eq!(why("b", &live("11", "b", "")), Some(Why::FirstTime), "it was written");
        assert_eq!(why("a", &live("11", "b", "")), Some(Why::FirstTime), "no longer wanted");
        memory.applied(Kind::ConfigMap, &wanted("b"), &live("12", "b", ""));
        assert_eq!(why("b", &live("13", "c", "")), Some(Why::Edited));
        unanswered("b", &live("13", "c", ""));
        let why = why("b", &live("13", "c", ""));
        assert_eq!(why, Some(Why::Edited), "another client's edit, still there");
    }

    #[test]
    fn o12_a_workload_may_exist_until_one_was_applied() {
        let memory = Memory::default();
        let may = |kind| memory.may_exist(kind, "n", "c");
        memory.applied(Kind::ConfigMap, &wanted("a"), &live("10", "a", ""));
        assert!(
            may(Kind::Deployment),
            "its write may have failed beside that of the configuration"
        );
        memory.applied(Kind::Deployment, &wanted("a"), &live("10", "a", ""));
        assert!(may(Kind::Deployment), "a watch may not show it");
        assert!(!may(Kind::DaemonSet) && !may(Kind::HorizontalPodAutoscaler), "none was applied");
    }

    #[test]
    fn a_watch_behind_our_own_write_is_noticed() {
        let memory = Memory::default();
        let is_behind =
            |kept: Option<&DynamicObject>| memory.is_behind(Kind::ConfigMap, "n", "c", kept);
        assert!(!is_behind(None), "nothing was written");
        memory.applied(Kind::ConfigMap, &wanted("a"), &live("10", "a", ""));
        assert!(is_behind(None), "not seen yet, or deleted");
        assert!(is_behind(Some(&live("9", "", ""))));
        assert!(!is_behind(Some(&live("10", "", ""))));
        memory.unanswered(Kind::ConfigMap, &wanted("b"), Some(&live("10", "", "")));
        assert!(is_behind(Some(&live("10", "", ""))), "the write may have been made");
        assert!(!is_behind(Some(&live("11", "", ""))));
        memory.forget(Kind::ConfigMap, "n", "c");
        assert!(!is_behind(None));
    }
}
