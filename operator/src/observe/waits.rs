//! How long the operator waits before a watch that failed begins again (K22). Pure.

use std::time::{Duration, Instant};

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

    /// It failed. `chance` is between 0 and 1: those that failed together do not come back together.
    pub(super) fn next(&mut self, now: Instant, chance: f64) -> Duration {
        self.forget_old_failures(now);
        let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        wait.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k22_a_watch_that_fails_again_and_again_waits_longer_each_time() {
        let (mut waits, begin) = (Waits::up_to(LONGEST_WAIT), Instant::now());
        let seconds: Vec<u64> = (0..8).map(|_| waits.next(begin, 0.5).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
        // A complete list is no success when the watch of it fails at once.
        waits.began(begin);
        assert_eq!(waits.next(begin + Duration::from_secs(1), 0.5).as_secs(), 30);
        waits.began(begin);
        assert_eq!(waits.next(begin + Duration::from_secs(60), 0.5).as_secs(), 1);
        let (early, late) = (waits.next(begin, 0.0), waits.next(begin, 1.0));
        assert_eq!((early.as_millis(), late.as_millis()), (1_500, 5_000));
        // A watch that ends well after its time was a success, also if the one after it fails soon.
        waits.began(begin);
        waits.began(begin + Duration::from_secs(180));
        assert_eq!(waits.next(begin + Duration::from_secs(185), 0.5).as_secs(), 1);
    }
}
