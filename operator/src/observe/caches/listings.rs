//! How the lists and watches of each kind go. Nothing is decided from a cache that was never filled: a namespace whose Role is
//! gone, and perhaps the namespace too, is refused without end, and keeps no other namespace waiting. What is kept of a kind
//! whose Role was taken away later stays as it was, and looks as if no client deleted or edited anything. Pure, except for the wait.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher::Error;
use tokio::sync::Notify;

use super::super::unlisted::{Cause, Unlisted};
use crate::shortened::shortened;

/// Refusals in a row until they count: one or two are usual when an installation starts.
const REPORTED_FROM: u32 = 3;
/// Time from the first failure until other errors of a first list count, and refusals of what was listed: an API server that
/// starts, or is busy, is back before, and it refuses what it has not read the rights of.
const REPORTED_AFTER: Duration = Duration::from_secs(60);
/// Octets of the error that people see.
const MAX_WHY: usize = 300;

/// By namespace and kind (its plural): what decisions need. What has no namespace is under the empty one.
#[derive(Debug, Default)]
pub(super) struct Listings {
    all: Mutex<BTreeMap<(String, String), Listing>>,
    read: Notify,
}

/// How the lists and watches of one kind go.
#[derive(Debug, Default)]
struct Listing {
    /// Its list was complete once.
    was_listed: bool,
    /// Refusals in a row.
    refusals: u32,
    /// The first failure; of what was listed, the first refusal in the row.
    since: Option<Instant>,
    /// From then to the last failure.
    lasted: Duration,
    why: String,
}

impl Listing {
    fn listed() -> Listing {
        Listing { was_listed: true, ..Listing::default() }
    }

    fn failed(&mut self, error: &Error, now: Instant) {
        match (is_refusal(error, self.was_listed), self.was_listed) {
            (true, _) => self.refusals = self.refusals.saturating_add(1),
            (false, false) => self.refusals = 0,
            // It says nothing about rights, and ends the row.
            (false, true) => return *self = Listing::listed(),
        }
        self.lasted = now.saturating_duration_since(*self.since.get_or_insert(now));
        self.why = shortened(&error.to_string(), MAX_WHY);
    }

    /// Why decisions cannot depend on what is kept; none: nothing fails, or it may only take a moment.
    fn cause(&self) -> Option<Cause> {
        let (is_refused, is_long) = (self.refusals >= REPORTED_FROM, self.lasted >= REPORTED_AFTER);
        match (self.was_listed, is_refused, is_long) {
            (false, true, _) | (true, true, true) => Some(Cause::Refused),
            (false, false, true) => Some(Cause::Fails),
            (false, false, false) | (true, true, false) | (true, false, _) => None,
        }
    }
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Listing>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watch begins that decisions need.
    pub(super) fn expect(&self, namespace: &str, kind: &str) {
        self.lock().insert(key(namespace, kind), Listing::default());
    }

    /// The list of a kind is complete. True: no other one of its namespace is missing, so what it has found may be decided from. A
    /// list that is repeated is news too: it shows what was deleted while no watch was open.
    pub(super) fn listed(&self, namespace: &str, kind: &str) -> bool {
        let mut all = self.lock();
        let Some(it) = all.get_mut(&key(namespace, kind)) else { return false };
        *it = Listing::listed();
        let is_read = missing(&all, namespace).next().is_none();
        drop(all);
        if is_read {
            self.read.notify_waiters();
        }
        is_read
    }

    /// A watch was accepted: its list was complete before.
    pub(super) fn began(&self, namespace: &str, kind: &str) {
        if let Some(it) = self.lock().get_mut(&key(namespace, kind)) {
            *it = Listing::listed();
        }
    }

    /// A list or a watch failed. True: from now on the namespace counts as one that cannot be read. That is said once for all
    /// of its kinds. What is refused later is seen by each look of a ClusterDNS, and there is one every 30 s.
    pub(super) fn failed(&self, namespace: &str, kind: &str, error: &Error, now: Instant) -> bool {
        let mut all = self.lock();
        let was_known = missing(&all, namespace).any(|(_, it)| it.cause().is_some());
        let Some(it) = all.get_mut(&key(namespace, kind)) else { return false };
        it.failed(error, now);
        !it.was_listed && it.cause().is_some() && !was_known
    }

    /// Whether the list of this kind is expected, and was never complete.
    pub(super) fn is_missing(&self, namespace: &str, kind: &str) -> bool {
        self.lock().get(&key(namespace, kind)).is_some_and(|it| !it.was_listed)
    }

    /// Whether a list of this namespace was never complete.
    pub(super) fn is_unread(&self, namespace: &str) -> bool {
        missing(&self.lock(), namespace).next().is_some()
    }

    /// Why lists of this namespace were never complete; none: they may only take a moment.
    pub(super) fn why_unread(&self, namespace: &str) -> Option<Unlisted> {
        let all = self.lock();
        let of = |cause| unlisted(missing(&all, namespace), cause);
        of(Cause::Refused).or_else(|| of(Cause::Fails))
    }

    /// What was listed and is refused for some time, in this namespace or of what has none.
    pub(super) fn refused(&self, namespace: &str) -> Option<Unlisted> {
        let all = self.lock();
        let is_its = |of: &str| of == namespace || of.is_empty();
        let listed = all.iter().filter(|((of, _), it)| it.was_listed && is_its(of));
        unlisted(listed.map(|((_, kind), it)| (kind.as_str(), it)), Cause::Refused)
    }

    /// Returns when all lists of this namespace were complete once.
    pub(super) async fn wait_for(&self, namespace: &str) {
        loop {
            let read = self.read.notified();
            if !self.is_unread(namespace) {
                return;
            }
            read.await;
        }
    }
}

/// The API server has answered, and waiting does not change the answer. Of a first list also that its namespace or its kind
/// does not exist.
fn is_refusal(error: &Error, was_listed: bool) -> bool {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status)) => match status.code {
            401 | 403 => true,
            404 => !was_listed,
            _ => false,
        },
        Error::InitialListFailed(_)
        | Error::WatchStartFailed(_)
        | Error::WatchFailed(_)
        | Error::WatchError(_)
        | Error::NoResourceVersion => false,
    }
}

fn key(namespace: &str, kind: &str) -> (String, String) {
    (namespace.to_owned(), kind.to_owned())
}

/// Kinds whose lists in this namespace were never complete.
fn missing<'a>(
    all: &'a BTreeMap<(String, String), Listing>,
    namespace: &str,
) -> impl Iterator<Item = (&'a str, &'a Listing)> {
    let first = key(namespace, "");
    let namespace = namespace.to_owned();
    let its = all.range(first..).take_while(move |((of, _), _)| *of == namespace);
    its.filter(|(_, it)| !it.was_listed).map(|((_, kind), it)| (kind.as_str(), it))
}

/// Those of these kinds that fail for this cause.
fn unlisted<'a>(
    kinds: impl Iterator<Item = (&'a str, &'a Listing)>,
    cause: Cause,
) -> Option<Unlisted> {
    let mut all = kinds.filter(|(_, it)| it.cause() == Some(cause));
    let (kind, it) = all.next()?;
    let (kind, why) = (kind.to_owned(), it.why.clone());
    Some(Unlisted { cause, kind, others: all.count(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn k23_a_namespace_is_read_when_each_of_its_kinds_was_listed_once() {
        let lists = Listings::default();
        for (namespace, kind) in
            [("", "nodes"), ("dns", "pods"), ("dns", "services"), ("x", "pods")]
        {
            lists.expect(namespace, kind);
        }
        assert!(!lists.listed("dns", "pods"), "Services are missing");
        assert!(lists.is_unread("dns"));
        assert_eq!(lists.why_unread("dns"), None, "nothing has failed");
        assert!(lists.is_missing("dns", "services") && !lists.is_missing("dns", "pods"));
        assert!(lists.listed("dns", "services"));
        assert!(lists.listed("dns", "services"), "it may show what was deleted");
        assert!(!lists.is_unread("dns"));
        assert!(!lists.is_unread("other"), "it is not watched");
        assert!(lists.is_unread("") && lists.is_unread("x"));
    }

    fn api(code: u16) -> kube::Error {
        let status = json!({"status": "Failure", "message": "forbidden ".repeat(100), "reason": "r",
            "code": code});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    fn answer(code: u16) -> Error {
        Error::InitialListFailed(api(code))
    }

    #[test]
    fn k23_a_namespace_counts_as_refused_after_some_refusals_and_says_why_once() {
        let (lists, now) = (Listings::default(), Instant::now());
        lists.expect("dns", "pods");
        lists.expect("dns", "services");
        let failed = |kind, code| lists.failed("dns", kind, &answer(code), now);
        let reported: Vec<bool> = (0..5).map(|_| failed("services", 403)).collect();
        assert_eq!(reported, [false, false, true, false, false], "it is said once");
        let unlisted = lists.why_unread("dns").unwrap();
        assert_eq!(
            (unlisted.cause, unlisted.kind.as_str(), unlisted.others),
            (Cause::Refused, "services", 0)
        );
        assert!(unlisted.why.contains("forbidden") && unlisted.why.len() <= MAX_WHY);
        let reported = (0..5).filter(|_| failed("pods", 404)).count();
        assert_eq!(reported, 0, "its ClusterDNS know that of another kind");
        let unlisted = lists.why_unread("dns").unwrap();
        assert_eq!((unlisted.kind.as_str(), unlisted.others), ("pods", 1));
        assert!(!failed("configmaps", 403), "it is not one that is waited for");
        assert!(!lists.listed("dns", "pods") && lists.listed("dns", "services"));
        assert!(!failed("pods", 403), "it was listed once");
    }

    #[test]
    fn k23_an_error_that_is_no_refusal_counts_after_a_minute_and_as_no_refusal() {
        let (lists, begin) = (Listings::default(), Instant::now());
        lists.expect("dns", "pods");
        let failed = |error: &Error, at: u64| {
            lists.failed("dns", "pods", error, begin + Duration::from_secs(at))
        };
        let unanswered = Error::NoResourceVersion;
        let cause = || lists.why_unread("dns").map(|it| it.cause);
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

    /// Lists of these kinds of a namespace that were complete.
    fn listed(namespace: &str, kinds: &[&str]) -> Listings {
        let lists = Listings::default();
        for kind in kinds {
            lists.expect(namespace, kind);
            lists.listed(namespace, kind);
        }
        lists
    }

    #[test]
    fn o4_a_watch_counts_as_refused_after_three_refusals_over_a_minute() {
        let lists = listed("dns", &["deployments", "pods", "roles"]);
        let begin = Instant::now();
        let failed = |kind: &str, code, at| {
            let at = begin + Duration::from_secs(at);
            assert!(!lists.failed("dns", kind, &Error::WatchStartFailed(api(code)), at));
            lists.refused("dns").map(|it| (it.kind, it.others))
        };
        for at in [0, 1, 3, 59] {
            assert_eq!(failed("deployments", 403, at), None, "an API server starts: {at}");
        }
        let counted = |kind: &str, others| Some((kind.to_owned(), others));
        assert_eq!(failed("deployments", 401, 60), counted("deployments", 0));
        assert!(lists.refused("dns").unwrap().why.len() <= MAX_WHY);
        assert_eq!(lists.refused("other"), None);
        failed("roles", 403, 0);
        assert_eq!(failed("roles", 403, 100), counted("deployments", 0), "two refusals of roles");
        assert_eq!(failed("roles", 403, 101), counted("deployments", 1));
        assert!(!lists.is_unread("dns"), "what is kept is still decided from");
        lists.began("dns", "deployments");
        assert_eq!(lists.refused("dns").map(|it| (it.kind, it.others)), counted("roles", 0));
        assert_eq!(failed("deployments", 403, 200), counted("roles", 0), "it begins again");
        assert!(lists.listed("dns", "roles"));
        for at in 300..400 {
            assert_eq!(failed("pods", 503, at), None, "it says nothing about rights");
            assert_eq!(failed("pods", 404, at), None, "nor does this");
        }
    }

    #[test]
    fn o4_another_error_ends_a_row_of_refusals_of_a_watch() {
        let (lists, begin) = (listed("dns", &["pods"]), Instant::now());
        let is_refused = |code, at| {
            let at = begin + Duration::from_secs(at);
            lists.failed("dns", "pods", &Error::WatchStartFailed(api(code)), at);
            lists.refused("dns").is_some()
        };
        assert!(!is_refused(403, 0), "an API server stops");
        for at in 1..3600 {
            assert!(!is_refused(503, at));
        }
        assert!(!is_refused(403, 3600) && !is_refused(403, 3601), "it starts");
        assert!(!is_refused(403, 3602), "three in a row, over two seconds");
        assert!(is_refused(403, 3660));
        assert!(!is_refused(503, 3661), "the last answer counts");
    }

    #[test]
    fn o4_what_has_no_namespace_concerns_each_one() {
        let (lists, begin) = (listed("", &["nodes"]), Instant::now());
        for at in [0, 30, 60] {
            lists.failed("", "nodes", &answer(403), begin + Duration::from_secs(at));
        }
        assert!(lists.refused("dns").is_some_and(|it| it.kind == "nodes"));
        assert!(lists.refused("other").is_some());
    }
}
