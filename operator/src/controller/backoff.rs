//! How long to wait: after failures, longer each time; between two looks at one ClusterDNS, a moment.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// At most: what people repair is seen by a watch anyway, except on the far side of the API server.
const LONGEST: Duration = Duration::from_secs(300);
/// Looks begin no closer to each other, so that a burst of changes costs one look, not one each.
const APART: Duration = Duration::from_millis(300);
/// ClusterDNS that are remembered.
const MAX_REMEMBERED: usize = 1_000;

#[derive(Clone, Copy, Debug, Default)]
struct History {
    failures: u32,
    began: Option<Instant>,
}

/// Remembers failures by name.
#[derive(Debug, Default)]
pub struct Backoff {
    histories: Mutex<HashMap<String, History>>,
}

impl Backoff {
    /// A look begins, or how long it has to wait.
    pub fn begin(&self, name: &str, now: Instant) -> Result<(), Duration> {
        self.with(name, |history| {
            let since = history.began.map(|began| now.saturating_duration_since(began));
            match since {
                Some(since) if since < APART => Err(APART - since),
                Some(_) | None => {
                    history.began = Some(now);
                    Ok(())
                }
            }
        })
    }

    /// It failed: how long to wait.
    pub fn failed(&self, name: &str) -> Duration {
        self.with(name, |history| {
            history.failures = history.failures.saturating_add(1);
            with_jitter(after(history.failures))
        })
    }

    /// It did not.
    pub fn succeeded(&self, name: &str) {
        self.with(name, |history| history.failures = 0);
    }

    /// It is gone.
    pub fn forget(&self, name: &str) {
        self.histories.lock().expect("nothing panics while holding this lock").remove(name);
    }

    fn with<T>(&self, name: &str, act: impl FnOnce(&mut History) -> T) -> T {
        let mut histories = self.histories.lock().expect("nothing panics while holding this lock");
        if histories.len() >= MAX_REMEMBERED && !histories.contains_key(name) {
            histories.clear();
        }
        act(histories.entry(name.to_owned()).or_default())
    }
}

/// Doubled with each failure.
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

    #[test]
    fn o13_each_failure_waits_longer_up_to_five_minutes() {
        let waits: Vec<u64> = [1, 2, 3, 8, 9, 10, 1_000].map(|n| after(n).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 128, 256, 300, 300]);
        let backoff = Backoff::default();
        for _ in 0..20 {
            let wait = backoff.failed("a");
            assert!(wait >= FIRST && wait <= LONGEST.mul_f64(1.25), "{wait:?}");
        }
        assert!(backoff.failed("b") < FIRST * 2, "each by itself");
        backoff.succeeded("a");
        assert!(backoff.failed("a") < FIRST * 2);
    }

    #[test]
    fn looks_keep_their_distance() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        assert_eq!(backoff.begin("a", now), Ok(()));
        assert_eq!(
            backoff.begin("a", now + Duration::from_millis(100)),
            Err(Duration::from_millis(200))
        );
        assert_eq!(backoff.begin("b", now), Ok(()));
        assert_eq!(backoff.begin("a", now + APART), Ok(()));
    }
}
