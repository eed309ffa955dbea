//! What could not be written, and when each of them is tried again. Each waits by itself: an object that a policy denies for
//! good delays no other one, and so not what clients wait for. Lost with the process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::backoff::{self, Failure};

/// Objects that are remembered; a ClusterDNS has about a dozen, and most of them never fail.
const MAX_REMEMBERED: usize = 1_000;

/// How one object failed.
#[derive(Debug)]
struct Attempt {
    /// Of the spec that asked for it: another spec is tried at once.
    generation: Option<i64>,
    /// In a row.
    failures: u32,
    not_before: Instant,
    why: String,
}

/// What failed, by kind, namespace and name.
#[derive(Debug)]
pub struct Attempts {
    failed: Mutex<HashMap<String, Attempt>>,
    now: fn() -> Instant,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts::by(Instant::now)
    }
}

impl Attempts {
    /// With this clock.
    pub(crate) fn by(now: fn() -> Instant) -> Attempts {
        Attempts { failed: Mutex::default(), now }
    }

    /// Why it failed last, and how long it still waits; none: it may be tried now.
    pub fn waits(&self, what: &str, generation: Option<i64>) -> Option<(String, Duration)> {
        let (failed, now) = (self.lock(), (self.now)());
        let last = failed.get(what).filter(|last| last.generation == generation)?;
        let left = last.not_before.saturating_duration_since(now);
        (!left.is_zero()).then(|| (last.why.clone(), left))
    }

    /// It failed: how long it waits, which is `at_most` this time where something else needs it.
    pub fn failed(
        &self,
        what: &str,
        generation: Option<i64>,
        (why, at_most): (&str, Option<Duration>),
    ) -> Duration {
        let (mut failed, now) = (self.lock(), (self.now)());
        if failed.len() >= MAX_REMEMBERED && !failed.contains_key(what) {
            failed.clear();
        }
        let before = failed.get(what).filter(|last| last.generation == generation);
        let failures = before.map_or(0, |last| last.failures).saturating_add(1);
        let wait = backoff::pause(failures, Failure { at_most, asked: None });
        let (not_before, why) = (now + wait, why.to_owned());
        failed.insert(what.to_owned(), Attempt { generation, failures, not_before, why });
        wait
    }

    /// It is as it should be.
    pub fn succeeded(&self, what: &str) {
        self.lock().remove(what);
    }

    /// A ClusterDNS is gone, and one of its name would have its failures. Those of others are tried once more.
    pub fn forget_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Attempt>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use super::*;

    thread_local! {
        static SECONDS: Cell<u64> = const { Cell::new(0) };
    }
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn attempts() -> Attempts {
        Attempts::by(|| *BEGIN + Duration::from_secs(SECONDS.get()))
    }

    #[test]
    fn o13_each_object_waits_by_itself_longer_each_time_up_to_a_minute() {
        let (attempts, mut tried) = (attempts(), Vec::new());
        for second in 0..300 {
            SECONDS.set(second);
            assert_eq!(attempts.waits("another", Some(1)), None);
            if attempts.waits("it", Some(1)).is_none() {
                attempts.failed("it", Some(1), ("denied", None));
                tried.push(second);
            }
            assert!(attempts.waits("it", Some(1)).is_some_and(|(why, _)| why == "denied"));
        }
        // After 1, 2, 4, 8, 16 and 32 s, then after 60 s each, and up to a quarter more.
        assert!((9..=12).contains(&tried.len()), "{tried:?}");
        let waits: Vec<u64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits.iter().all(|wait| *wait <= 76), "{waits:?}");
        assert_eq!(attempts.waits("it", Some(2)), None, "another spec is tried at once");
        attempts.succeeded("it");
        assert_eq!(attempts.waits("it", Some(1)), None);
        let wait = attempts.failed("it", Some(1), ("denied", None));
        assert!(wait < Duration::from_secs(2), "it begins again: {wait:?}");
    }

    #[test]
    fn o7_what_decides_a_trial_does_not_wait_longer_than_that_says() {
        let (attempts, soon) = (attempts(), Duration::from_secs(2));
        for _ in 0..10 {
            let wait = attempts.failed("it", Some(1), ("denied", Some(soon)));
            assert!(wait <= soon.mul_f64(1.25), "{wait:?}");
        }
        assert!(attempts.failed("it", Some(1), ("denied", None)) >= Duration::from_secs(60));
    }

    #[test]
    fn what_is_remembered_of_failures_is_bounded() {
        let attempts = attempts();
        for n in 0..=MAX_REMEMBERED {
            attempts.failed(&n.to_string(), Some(1), ("denied", None));
        }
        assert!(attempts.lock().len() <= MAX_REMEMBERED);
        assert!(attempts.waits(&MAX_REMEMBERED.to_string(), Some(1)).is_some());
    }
}
