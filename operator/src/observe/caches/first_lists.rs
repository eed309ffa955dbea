//! Which watches have not read their first list, and why: nothing is decided from a cache that was never filled. A namespace
//! whose Role is gone, and perhaps the namespace too, is refused without end; it keeps no other namespace waiting. Pure, but
//! for the wait.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher::Error;
use tokio::sync::Notify;

use super::super::unlisted::{Cause, Unlisted};
use crate::shortened::shortened;

/// Refusals of a first list in a row until its ClusterDNS say so: one or two are usual when an installation starts.
const REPORTED_FROM: u32 = 3;
/// Time from the first failure of any other kind until they say so: an API server that starts, or is busy, is back before.
const REPORTED_AFTER: Duration = Duration::from_secs(60);
/// Octets of the error that people see.
pub(super) const MAX_WHY: usize = 300;

/// By namespace and kind (its plural): the lists that are missing. What has no namespace is under the empty one.
#[derive(Debug, Default)]
pub(super) struct FirstLists {
    missing: Mutex<BTreeMap<(String, String), Missing>>,
    read: Notify,
}

#[derive(Debug, Default)]
struct Missing {
    /// Refusals in a row.
    refusals: u32,
    /// The first failure.
    since: Option<Instant>,
    /// From the first failure to the last one.
    lasted: Duration,
    why: String,
}

impl Missing {
    /// None: it may only take a moment.
    fn cause(&self) -> Option<Cause> {
        match self.refusals >= REPORTED_FROM {
            true => Some(Cause::Refused),
            false => (self.lasted >= REPORTED_AFTER).then_some(Cause::Fails),
        }
    }
}

/// Why a namespace is not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// What fails; none: it may only take a moment.
    pub unlisted: Option<Unlisted>,
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

    /// A list or a watch failed. True: from now on the namespace counts as one that cannot be read. That is said once for all
    /// of its kinds.
    pub(super) fn failed(&self, namespace: &str, kind: &str, error: &Error, now: Instant) -> bool {
        let mut missing = self.missing();
        let was_known = of(&missing, namespace).any(|(_, it)| it.cause().is_some());
        let Some(it) = missing.get_mut(&key(namespace, kind)) else { return false };
        it.refusals = if is_refusal(error) { it.refusals.saturating_add(1) } else { 0 };
        it.lasted = now.saturating_duration_since(*it.since.get_or_insert(now));
        it.why = shortened(&error.to_string(), MAX_WHY);
        it.cause().is_some() && !was_known
    }

    pub(super) fn is_missing(&self, namespace: &str, kind: &str) -> bool {
        self.missing().contains_key(&key(namespace, kind))
    }

    /// Why this namespace is not read; none: all its lists were complete once.
    pub(super) fn unread(&self, namespace: &str) -> Option<Unread> {
        let missing = self.missing();
        of(&missing, namespace).next()?;
        let unlisted = |cause| {
            let mut all = of(&missing, namespace).filter(|(_, it)| it.cause() == Some(cause));
            let (kind, it) = all.next()?;
            let (kind, why) = (kind.to_owned(), it.why.clone());
            Some(Unlisted { cause, kind, others: all.count(), why })
        };
        Some(Unread { unlisted: unlisted(Cause::Refused).or_else(|| unlisted(Cause::Fails)) })
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

/// The API server has answered, and waiting does not change the answer.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::InitialListFailed(kube::Error::Api(status)) if [401, 403, 404].contains(&status.code))
}

pub(super) fn key(namespace: &str, kind: &str) -> (String, String) {
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
    use serde_json::json;

    #[test]
    fn k23_a_namespace_is_read_when_each_of_its_kinds_was_listed_once() {
        let lists = FirstLists::default();
        for (namespace, kind) in
            [("", "nodes"), ("dns", "pods"), ("dns", "services"), ("x", "pods")]
        {
            lists.expect(namespace, kind);
        }
        assert!(!lists.listed("dns", "pods"), "Services are missing");
        assert_eq!(lists.unread("dns"), Some(Unread { unlisted: None }), "nothing has failed");
        assert!(lists.is_missing("dns", "services") && !lists.is_missing("dns", "pods"));
        assert!(lists.listed("dns", "services"));
        assert!(!lists.listed("dns", "services"), "once");
        assert_eq!(lists.unread("dns"), None);
        assert_eq!(lists.unread("other"), None, "it is not watched");
        assert!(lists.unread("").is_some() && lists.unread("x").is_some());
    }

    fn answer(code: u16) -> Error {
        let status = json!({"status": "Failure", "message": "forbidden ".repeat(100), "reason": "r",
            "code": code});
        Error::InitialListFailed(kube::Error::Api(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn k23_a_namespace_counts_as_refused_after_some_refusals_and_says_why_once() {
        let (lists, now) = (FirstLists::default(), Instant::now());
        lists.expect("dns", "pods");
        lists.expect("dns", "services");
        let failed = |kind, code| lists.failed("dns", kind, &answer(code), now);
        let reported: Vec<bool> = (0..5).map(|_| failed("services", 403)).collect();
        assert_eq!(reported, [false, false, true, false, false], "it is said once");
        let unlisted = lists.unread("dns").unwrap().unlisted.unwrap();
        assert_eq!(
            (unlisted.cause, unlisted.kind.as_str(), unlisted.others),
            (Cause::Refused, "services", 0)
        );
        assert!(unlisted.why.contains("forbidden") && unlisted.why.len() <= MAX_WHY);
        let reported = (0..5).filter(|_| failed("pods", 404)).count();
        assert_eq!(reported, 0, "its ClusterDNS know that of another kind");
        let unlisted = lists.unread("dns").unwrap().unlisted.unwrap();
        assert_eq!((unlisted.kind.as_str(), unlisted.others), ("pods", 1));
        assert!(!failed("configmaps", 403), "it is not one that is waited for");
        assert!(!lists.listed("dns", "pods") && lists.listed("dns", "services"));
        assert!(!failed("pods", 403), "it was listed once");
    }

    #[test]
    fn k23_an_error_that_is_no_refusal_counts_after_a_minute_and_as_no_refusal() {
        let (lists, begin) = (FirstLists::default(), Instant::now());
        lists.expect("dns", "pods");
        let failed = |error: &Error, at: u64| {
            lists.failed("dns", "pods", error, begin + Duration::from_secs(at))
        };
        let unanswered = Error::NoResourceVersion;
        let cause = || lists.unread("dns").unwrap().unlisted.map(|it| it.cause);
        for (at, error) in [answer(429), answer(503), unanswered, answer(500)].iter().enumerate() {
            assert!(!failed(error, at as u64));
        }
        assert!(!failed(&answer(503), 59));
        assert_eq!(cause(), None, "an API server starts");
        assert!(failed(&answer(503), 60));
        assert!(!failed(&answer(503), 61), "it is said once");
        assert_eq!(cause(), Some(Cause::Fails));
        for at in 62..65 {
            failed(&answer(403), at);
        }
        assert_eq!(cause(), Some(Cause::Refused));
        failed(&answer(503), 65);
        assert_eq!(cause(), Some(Cause::Fails), "the last answer counts");
    }
}
