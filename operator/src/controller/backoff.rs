//! How long to wait: after failures, longer each time; between two reconciles of one ClusterDNS, a moment.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wait after the first failure; doubled with each more.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait: a repair elsewhere is noticed within this time.
const LONGEST: Duration = Duration::from_secs(60);
/// Between the beginnings of two reconciles, so that a burst of changes costs one reconcile, not one each.
const APART: Duration = Duration::from_millis(300);
/// Reconciles are not more frequent than this for long: a client that undoes our writes must not cause a write each
/// time (O13).
const SUSTAINED: Duration = Duration::from_secs(1);
/// Reconciles that may exceed that rate after a quiet time: the steps of a rollout follow each other quickly.
const BURST: u32 = 15;
/// A request to wait longer than this is not honoured: an hour without a reconcile, or without a watch, is an outage of its own.
pub(crate) const LONGEST_ASKED: Duration = Duration::from_secs(300);
/// ClusterDNS that are remembered.
const MAX_REMEMBERED: usize = 1_000;

#[derive(Clone, Copy, Debug, Default)]
struct History {
    failures: u32,
    /// Of these, reconciles in a row that did not come to their end, and when the first of these ended.
    errors: Option<(u32, Instant)>,
    began: Option<Instant>,
    /// When the reconciles so far would have been over at the sustained rate.
    paid_until: Option<Instant>,
    /// The generation of the spec that failed, and when it may be tried again.
    failed: Option<(Option<i64>, Instant)>,
}

/// What bounds the wait after a failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failure {
    /// The wait that the API server asked for (`Retry-After`).
    pub asked: Option<Duration>,
    /// Something else needs a reconcile at this time; the wait that the API server asked for comes first.
    pub at_most: Option<Duration>,
}

/// Reconciles in a row that did not come to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// How many.
    pub errors: u32,
    /// From the first to the last.
    pub lasts: Duration,
}

/// Failures in a row, by name of the ClusterDNS.
#[derive(Debug, Default)]
pub struct Backoff {
    histories: Mutex<HashMap<String, History>>,
}

impl Backoff {
    /// Counts a reconcile as begun, unless it has to wait. After a failure only another spec is a reason to be early, or
    /// that clients are without DNS (`is_urgent`): other changes may come from the failure itself. The sustained rate
    /// holds always.
    ///
    /// # Errors
    /// How long the reconcile has to wait.
    pub fn begin(
        &self,
        name: &str,
        generation: Option<i64>,
        is_urgent: bool,
        now: Instant,
    ) -> Result<(), Duration> {
        self.with(name, |history| {
            if let Some((failed, not_before)) = history.failed
                && failed == generation
                && !is_urgent
                && now < not_before
            {
                return Err(not_before - now);
            }
            let since = history.began.map(|began| now.saturating_duration_since(began));
            if let Some(since) = since
                && since < APART
            {
                return Err(APART.saturating_sub(since));
            }
            let paid_until = history.paid_until.map_or(now, |until| until.max(now));
            let ahead = paid_until - now;
            if ahead > SUSTAINED * BURST {
                return Err(ahead.saturating_sub(SUSTAINED * BURST));
            }
            (history.began, history.paid_until) = (Some(now), Some(paid_until + SUSTAINED));
            Ok(())
        })
    }

    /// It failed: how long to wait.
    pub fn failed(
        &self,
        name: &str,
        generation: Option<i64>,
        now: Instant,
        failure: Failure,
    ) -> Duration {
        self.with(name, |history| {
            // Another spec has failures of its own.
            let before = match history.failed {
                Some((failed, _)) if failed == generation => history.failures,
                Some(_) | None => 0,
            };
            history.failures = before.saturating_add(1);
            let wait = pause(history.failures, failure);
            history.failed = Some((generation, now + wait));
            wait
        })
    }

    /// Its reconcile did not come to its end: which row of such ones it is in.
    pub fn errored(&self, name: &str, now: Instant) -> Row {
        self.with(name, |history| {
            let (errors, first) = history.errors.get_or_insert((0, now));
            *errors = errors.saturating_add(1);
            Row { errors: *errors, lasts: now.saturating_duration_since(*first) }
        })
    }

    /// Its reconcile came to its end, though the API server refused a write for now.
    pub fn ran(&self, name: &str) {
        self.with(name, |history| history.errors = None);
    }

    /// The reconcile of this ClusterDNS did not fail: its failures are forgotten.
    pub fn succeeded(&self, name: &str) {
        self.with(name, |history| {
            (history.failures, history.errors, history.failed) = (0, None, None);
        });
    }

    /// This ClusterDNS was deleted: nothing is remembered of it.
    pub fn forget(&self, name: &str) {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Only these ClusterDNS are there.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        histories.retain(|name, _| is_there(name));
    }

    fn with<T>(&self, name: &str, act: impl FnOnce(&mut History) -> T) -> T {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        if histories.len() >= MAX_REMEMBERED && !histories.contains_key(name) {
            histories.clear();
        }
        act(histories.entry(name.to_owned()).or_default())
    }
}

/// The wait after this many failures, of a ClusterDNS, or of one object and its status, within these bounds except for the jitter.
pub(super) fn pause(failures: u32, bounds: Failure) -> Duration {
    let asked = bounds.asked.unwrap_or_default().min(LONGEST_ASKED);
    let wait = after(failures).min(bounds.at_most.unwrap_or(LONGEST));
    with_jitter(wait.max(asked))
}

/// The wait after this many failures; each doubles it, up to [`LONGEST`].
fn after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (FIRST * 2_u32.pow(doublings)).min(LONGEST)
}

/// Up to a quarter more, so that those that failed together do not come back together.
fn with_jitter(wait: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1_000;
    wait + wait.mul_f64(random as f64 / 4_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(backoff: &Backoff, name: &str, generation: i64, now: Instant) -> Duration {
        backoff.failed(name, Some(generation), now, Failure::default())
    }

    #[test]
    fn o14_a_write_that_waits_ends_a_row_of_reconciles_that_did_not_come_to_their_end() {
        let backoff = Backoff::default();
        let begin = Instant::now();
        let errored = |name, seconds| {
            let row = backoff.errored(name, begin + Duration::from_secs(seconds));
            (row.errors, row.lasts.as_secs())
        };
        assert_eq!(
            [errored("a", 0), errored("a", 10), errored("b", 10)],
            [(1, 0), (2, 10), (1, 0)]
        );
        backoff.ran("a");
        assert_eq!([errored("a", 20), errored("b", 20)], [(1, 0), (2, 10)]);
        backoff.succeeded("b");
        assert_eq!(errored("b", 30), (1, 0));
    }

    #[test]
    fn o13_each_failure_waits_longer_up_to_a_minute() {
        let waits: Vec<u64> = [1, 2, 3, 6, 7, 1_000].map(|n| after(n).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 32, 60, 60]);
        let (backoff, now) = (Backoff::default(), Instant::now());
        for _ in 0..20 {
            let wait = failed(&backoff, "a", 1, now);
            assert!(wait >= FIRST && wait <= LONGEST.mul_f64(1.25), "{wait:?}");
        }
        assert!(failed(&backoff, "b", 1, now) < FIRST * 2, "each by itself");
        backoff.succeeded("a");
        assert!(failed(&backoff, "a", 1, now) < FIRST * 2);
    }

    #[test]
    fn o13_events_do_not_shorten_the_wait_and_another_spec_does() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        let wait = failed(&backoff, "a", 1, now);
        assert_eq!(backoff.begin("a", Some(1), false, now), Err(wait));
        assert_eq!(backoff.begin("a", Some(2), false, now), Ok(()));
        assert_eq!(backoff.begin("a", Some(1), false, now + wait), Ok(()));
        let second = failed(&backoff, "a", 1, now);
        assert!(second >= FIRST * 2 && failed(&backoff, "a", 2, now) < FIRST * 2);
    }

    #[test]
    fn o13_the_api_server_may_ask_for_more_patience_within_reason() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        let asked = |seconds| {
            let failure =
                Failure { asked: Some(Duration::from_secs(seconds)), at_most: Some(FIRST * 2) };
            backoff.failed("a", Some(1), now, failure).as_secs()
        };
        assert!((20..=25).contains(&asked(20)));
        assert!((2..=3).contains(&asked(0)));
        assert!((300..=375).contains(&asked(86_400)));
    }

    #[test]
    fn o7_failures_elsewhere_do_not_keep_a_canary_waiting() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        let on_trial = Failure { asked: None, at_most: Some(FIRST * 2) };
        for _ in 0..10 {
            let wait = backoff.failed("a", Some(1), now, on_trial);
            assert!(wait <= (FIRST * 2).mul_f64(1.25), "{wait:?}");
            assert_eq!(backoff.begin("a", Some(1), false, now), Err(wait));
        }
        assert!(failed(&backoff, "a", 1, now) >= LONGEST, "they are counted too");
    }

    #[test]
    fn o13_a_client_that_undoes_everything_gets_one_look_a_second() {
        let (backoff, begin) = (Backoff::default(), Instant::now());
        let (mut now, mut reconciles) = (begin, 0);
        while now < begin + Duration::from_secs(600) {
            match backoff.begin("a", Some(1), false, now) {
                Ok(()) => reconciles += 1,
                Err(wait) => assert!(wait <= SUSTAINED, "{wait:?}"),
            }
            now += Duration::from_millis(10);
        }
        assert!((600..=600 + BURST + 1).contains(&reconciles), "{reconciles}");
    }

    #[test]
    fn looks_keep_their_distance() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        let begin =
            |name, after| backoff.begin(name, Some(1), false, now + Duration::from_millis(after));
        assert_eq!(begin("a", 0), Ok(()));
        assert_eq!(begin("a", 100), Err(Duration::from_millis(200)));
        assert_eq!(begin("b", 0), Ok(()));
        assert_eq!(begin("a", 300), Ok(()));
    }

    #[test]
    fn o16_clients_without_dns_do_not_wait_for_what_else_failed() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        assert_eq!(backoff.begin("a", Some(1), false, now), Ok(()));
        let wait = backoff.failed("a", Some(1), now, Failure::default());
        let soon = now + APART;
        assert_eq!(backoff.begin("a", Some(1), false, soon), Err(wait - APART));
        assert_eq!(backoff.begin("a", Some(1), true, soon), Ok(()));
        // When DNS has been away for long, it is reconciled no more often than at other times.
        assert!(backoff.begin("a", Some(1), true, soon).is_err());
    }
}
