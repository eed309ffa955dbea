//! How long the operator waits before a watch that failed begins again (K22). Pure, except for [`chance`].

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use crate::controller::backoff::LONGEST_ASKED;

/// After the first failure; doubled with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between two attempts, on average.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// After a watch that lasted this long the first wait is used again.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// When a watch that failed begins again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    longest: Duration,
    failures: u32,
    began: Option<Instant>,
}

impl Waits {
    /// At most this long, on average.
    pub(super) fn up_to(longest: Duration) -> Waits {
        Waits { longest, failures: 0, began: None }
    }

    /// A list is complete, or a watch was accepted.
    pub(super) fn began(&mut self, now: Instant) {
        self.forget_old_failures(now);
        self.began = Some(now);
    }

    /// A watch that lasted long enough was a success, however it ended: earlier failures no longer count.
    fn forget_old_failures(&mut self, now: Instant) {
        let lasted = self.began.take().map(|since| now.saturating_duration_since(since));
        if lasted.is_some_and(|lasted| lasted >= HEALTHY_AFTER) {
            self.failures = 0;
        }
    }

    /// It failed, and the API server may have `asked` for a wait. `chance` is between 0 and 1: those that failed together do not
    /// come back together.
    pub(super) fn next(&mut self, now: Instant, chance: f64, asked: Option<Duration>) -> Duration {
        self.forget_old_failures(now);
        let (wait, chance) = (FIRST_WAIT * (1 << self.failures.min(16)), chance.clamp(0.0, 1.0));
        self.failures = self.failures.saturating_add(1);
        let wait = wait.min(self.longest).mul_f64(0.75 + chance / 2.0);
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED).mul_f64(1.0 + chance / 4.0);
        wait.max(asked)
    }
}

/// A random number between 0 and 1.
pub(super) fn chance() -> f64 {
    (RandomState::new().build_hasher().finish() % 1_000) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k22_a_watch_that_fails_again_and_again_waits_longer_each_time() {
        let (mut waits, begin) = (Waits::up_to(LONGEST_WAIT), Instant::now());
        let seconds: Vec<u64> = (0..8).map(|_| waits.next(begin, 0.5, None).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
        // A complete list is no success when the watch of it fails at once.
        waits.began(begin);
        assert_eq!(waits.next(begin + Duration::from_secs(1), 0.5, None).as_secs(), 30);
        waits.began(begin);
        assert_eq!(waits.next(begin + Duration::from_secs(60), 0.5, None).as_secs(), 1);
        let (early, late) = (waits.next(begin, 0.0, None), waits.next(begin, 1.0, None));
        assert_eq!((early.as_millis(), late.as_millis()), (1_500, 5_000));
        // A watch that ends well after its time was a success, also if the one after it fails soon.
        waits.began(begin);
        waits.began(begin + Duration::from_secs(180));
        assert_eq!(waits.next(begin + Duration::from_secs(185), 0.5, None).as_secs(), 1);
    }

    #[test]
    fn o13_a_watch_waits_as_long_as_the_api_server_asks_within_reason() {
        let begin = Instant::now();
        let wait = |failures: u32, chance, asked| {
            let mut waits = Waits::up_to(LONGEST_WAIT);
            for _ in 0..failures {
                waits.next(begin, chance, None);
            }
            waits.next(begin, chance, Some(Duration::from_secs(asked))).as_secs()
        };
        assert_eq!([wait(0, 0.0, 7), wait(0, 1.0, 8)], [7, 10], "never less than it asks for");
        assert_eq!(wait(6, 0.5, 7), 30, "failures before count");
        assert_eq!([wait(0, 0.0, 86_400), wait(0, 1.0, 86_400)], [300, 375]);
    }
}
