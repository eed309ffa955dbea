//! Lists and watches that are refused although they went well before: a Role was taken away while the operator runs. What is kept
//! of their kinds stays as it was, and looks as if no client deleted or edited anything. Pure.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher::Error;

use super::super::unlisted::{Cause, Unlisted};
use super::first_lists::{MAX_WHY, key};
use crate::shortened::shortened;

/// Refusals in a row from which on it counts,
const REPORTED_FROM: u32 = 3;
/// and the time from the first to the last: an API server that has just started refuses what it has not read the rights of.
const REPORTED_AFTER: Duration = Duration::from_secs(60);

/// By namespace and kind (its plural); what has no namespace is under the empty one.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: Mutex<BTreeMap<(String, String), Refused>>,
}

#[derive(Debug)]
struct Refused {
    in_a_row: u32,
    since: Instant,
    lasted: Duration,
    why: String,
}

impl Refused {
    fn counts(&self) -> bool {
        self.in_a_row >= REPORTED_FROM && self.lasted >= REPORTED_AFTER
    }
}

impl Refusals {
    /// A list or a watch failed. An error that is no refusal says nothing about rights.
    pub(super) fn failed(&self, namespace: &str, kind: &str, error: &Error, now: Instant) {
        if !is_refusal(error) {
            return;
        }
        let mut all = self.lock();
        let it = all.entry(key(namespace, kind)).or_insert_with(|| Refused {
            in_a_row: 0,
            since: now,
            lasted: Duration::ZERO,
            why: String::new(),
        });
        it.in_a_row = it.in_a_row.saturating_add(1);
        it.lasted = now.saturating_duration_since(it.since);
        it.why = shortened(&error.to_string(), MAX_WHY);
    }

    /// A list is complete, or a watch was accepted.
    pub(super) fn went_well(&self, namespace: &str, kind: &str) {
        self.lock().remove(&key(namespace, kind));
    }

    /// What is refused for some time, in this namespace or of what has none.
    pub(super) fn of(&self, namespace: &str) -> Option<Unlisted> {
        let all = self.lock();
        let is_its = |of: &str| of == namespace || of.is_empty();
        let mut counted = all.iter().filter(|((of, _), it)| is_its(of) && it.counts());
        let ((_, kind), it) = counted.next()?;
        let (kind, why) = (kind.clone(), it.why.clone());
        Some(Unlisted { cause: Cause::Refused, kind, others: counted.count(), why })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The API server has answered, and waiting does not change the answer.
fn is_refusal(error: &Error) -> bool {
    let (Error::InitialListFailed(kube::Error::Api(status))
    | Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    [401, 403].contains(&status.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(code: u16) -> kube::Error {
        let status = json!({"status": "Failure", "message": "forbidden ".repeat(100), "reason": "r",
            "code": code});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn o4_a_watch_counts_as_refused_after_three_refusals_over_a_minute() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        let failed = |kind: &str, code, at| {
            let at = begin + Duration::from_secs(at);
            refusals.failed("dns", kind, &Error::WatchStartFailed(answer(code)), at);
            refusals.of("dns").map(|it| (it.kind, it.others))
        };
        for at in [0, 1, 3, 59] {
            assert_eq!(failed("deployments", 403, at), None, "an API server starts: {at}");
        }
        let counted = |kind: &str, others| Some((kind.to_owned(), others));
        assert_eq!(failed("deployments", 401, 60), counted("deployments", 0));
        assert!(refusals.of("dns").unwrap().why.len() <= MAX_WHY);
        assert_eq!(refusals.of("other"), None);
        failed("roles", 403, 0);
        assert_eq!(failed("roles", 403, 100), counted("deployments", 0), "two refusals of roles");
        assert_eq!(failed("roles", 403, 101), counted("deployments", 1));
        refusals.went_well("dns", "deployments");
        assert_eq!(refusals.of("dns").map(|it| (it.kind, it.others)), counted("roles", 0));
        assert_eq!(failed("deployments", 403, 200), counted("roles", 0), "it begins again");
        refusals.went_well("dns", "roles");
        for at in 300..400 {
            assert_eq!(failed("pods", 503, at), None, "it says nothing about rights");
        }
    }

    #[test]
    fn o4_what_has_no_namespace_concerns_each_one() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        for at in [0, 30, 60] {
            let error = Error::InitialListFailed(answer(403));
            refusals.failed("", "nodes", &error, begin + Duration::from_secs(at));
        }
        assert!(refusals.of("dns").is_some_and(|it| it.kind == "nodes"));
        assert!(refusals.of("other").is_some());
    }
}
