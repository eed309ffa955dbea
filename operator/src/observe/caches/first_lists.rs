//! Which watches have not read their first list, and why: nothing is decided from a cache that was never filled. A namespace
//! whose Role is gone, and perhaps the namespace too, is refused without end; it keeps no other namespace waiting. Pure, but
//! for the wait.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::shortened::shortened;

/// Failures of a first list until its ClusterDNS say so: one or two are usual when an installation starts.
const REPORTED_FROM: u32 = 3;
/// Octets of the error that people see.
const MAX_WHY: usize = 300;

/// By namespace and kind (its plural): the lists that are missing. What has no namespace is under the empty one.
#[derive(Debug, Default)]
pub(super) struct FirstLists {
    missing: Mutex<BTreeMap<(String, String), Missing>>,
    read: Notify,
}

#[derive(Debug, Default)]
struct Missing {
    failures: u32,
    why: String,
}

/// Why a namespace is not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The first kind that is missing, how many more are, and the error; none: it may only take a moment.
    pub refused: Option<Refused>,
}

/// Lists that failed several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A kind that cannot be listed (its plural).
    pub kind: String,
    /// How many other kinds cannot be listed.
    pub others: usize,
    /// The error for the first.
    pub why: String,
}

impl FirstLists {
    fn missing(&self) -> MutexGuard<'_, BTreeMap<(String, String), Missing>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watch begins that decisions need.
    pub(super) fn expect(&self, namespace: &str, kind: &str) {
        self.missing().insert(key(namespace, kind), Missing::default());
    }

    /// The list of a kind is complete. True: it was the last one of its namespace.
    pub(super) fn listed(&self, namespace: &str, kind: &str) -> bool {
        let mut missing = self.missing();
        if missing.remove(&key(namespace, kind)).is_none() {
            return false;
        }
        let is_last = of(&missing, namespace).next().is_none();
        drop(missing);
        if is_last {
            self.read.notify_waiters();
        }
        is_last
    }

    /// A list or a watch failed. True: from now on the namespace counts as one that cannot be read.
    pub(super) fn failed(&self, namespace: &str, kind: &str, why: &str) -> bool {
        let mut missing = self.missing();
        let Some(it) = missing.get_mut(&key(namespace, kind)) else { return false };
        it.failures = it.failures.saturating_add(1);
        it.why = shortened(why, MAX_WHY);
        it.failures == REPORTED_FROM
    }

    pub(super) fn is_missing(&self, namespace: &str, kind: &str) -> bool {
        self.missing().contains_key(&key(namespace, kind))
    }

    /// Why this namespace is not read; none: all its lists were complete once.
    pub(super) fn unread(&self, namespace: &str) -> Option<Unread> {
        let missing = self.missing();
        of(&missing, namespace).next()?;
        let all = of(&missing, namespace);
        let mut refused = all.filter(|(_, it)| it.failures >= REPORTED_FROM);
        let first = refused.next();
        let others = refused.count();
        let refused =
            first.map(|(kind, it)| Refused { kind: kind.to_owned(), others, why: it.why.clone() });
        Some(Unread { refused })
    }

    /// Returns when all lists of this namespace were complete once.
    pub(super) async fn wait_for(&self, namespace: &str) {
        loop {
            let read = self.read.notified();
            if self.unread(namespace).is_none() {
                return;
            }
            read.await;
        }
    }
}

fn key(namespace: &str, kind: &str) -> (String, String) {
    (namespace.to_owned(), kind.to_owned())
}

/// Kinds that are missing in this namespace.
fn of<'a>(
    missing: &'a BTreeMap<(String, String), Missing>,
    namespace: &str,
) -> impl Iterator<Item = (&'a str, &'a Missing)> {
    let first = key(namespace, "");
    let namespace = namespace.to_owned();
    let from = missing.range(first..);
    from.take_while(move |((of, _), _)| *of == namespace).map(|((_, kind), it)| (kind.as_str(), it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k23_a_namespace_is_read_when_each_of_its_kinds_was_listed_once() {
        let lists = FirstLists::default();
        for (namespace, kind) in
            [("", "nodes"), ("dns", "pods"), ("dns", "services"), ("x", "pods")]
        {
            lists.expect(namespace, kind);
        }
        assert!(!lists.listed("dns", "pods"), "Services are missing");
        assert_eq!(lists.unread("dns"), Some(Unread { refused: None }), "nothing has failed");
        assert!(lists.is_missing("dns", "services") && !lists.is_missing("dns", "pods"));
        assert!(lists.listed("dns", "services"));
        assert!(!lists.listed("dns", "services"), "once");
        assert_eq!(lists.unread("dns"), None);
        assert_eq!(lists.unread("other"), None, "it is not watched");
        assert!(lists.unread("").is_some() && lists.unread("x").is_some());
    }

    #[test]
    fn k23_a_namespace_counts_as_refused_after_some_failures_and_says_why() {
        let lists = FirstLists::default();
        lists.expect("dns", "pods");
        lists.expect("dns", "services");
        let failed = |kind| lists.failed("dns", kind, &"forbidden ".repeat(100));
        let reported: Vec<bool> = (0..5).map(|_| failed("services")).collect();
        assert_eq!(reported, [false, false, true, false, false], "it is said once");
        let refused = lists.unread("dns").unwrap().refused.unwrap();
        assert_eq!((refused.kind.as_str(), refused.others), ("services", 0));
        assert!(refused.why.starts_with("forbidden") && refused.why.len() <= MAX_WHY);
        (0..3).for_each(|_| {
            failed("pods");
        });
        let refused = lists.unread("dns").unwrap().refused.unwrap();
        assert_eq!((refused.kind.as_str(), refused.others), ("pods", 1));
        assert!(!lists.failed("dns", "configmaps", "gone"), "it is not one that is waited for");
        assert!(!lists.listed("dns", "pods") && lists.listed("dns", "services"));
        assert!(!lists.failed("dns", "pods", "a watch ended"), "it was listed once");
    }
}
