//! How the operator lists: how many objects a page has, and how long it waits before a watch that failed begins again. Pages
//! shrink when a list fails, and grow again when one succeeds or takes too long for the API server (K23). Pure.

use std::time::{Duration, Instant};

/// After the first failure; doubled with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// At most this long. A watch that lasted so long begins with the first wait again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The size of the next list's pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    most: Option<u32>,
    next: Option<u32>,
}

impl Pages {
    /// Pages of at most so many objects; none: one page has all.
    pub(super) fn new(most: Option<u32>) -> Pages {
        Pages { most, next: most }
    }

    /// Objects to ask for.
    pub(super) fn limit(&self) -> Option<u32> {
        self.next
    }

    /// A page was too large, or took too long.
    pub(super) fn shrink(&mut self) {
        self.next = self.next.map(|objects| (objects / 2).max(1));
    }

    /// A list is complete, or took longer than the API server keeps its version: the next one has fewer pages.
    pub(super) fn grow(&mut self) {
        self.next = self.next.map(|objects| objects.saturating_mul(2)).min(self.most);
    }
}

/// When a watch that failed begins again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    failures: u32,
    listed: Option<Instant>,
}

impl Waits {
    /// A list is complete, and is watched from now on.
    pub(super) fn listed(&mut self, now: Instant) {
        self.listed = Some(now);
    }

    /// It failed. `chance` is between 0 and 1: those that failed together do not come back together.
    pub(super) fn next(&mut self, now: Instant, chance: f64) -> Duration {
        let lasted = self.listed.take().map(|since| now.saturating_duration_since(since));
        if lasted.is_some_and(|lasted| lasted >= LONGEST_WAIT) {
            self.failures = 0;
        }
        let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        wait.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k23_pages_that_shrank_grow_again() {
        let mut pages = Pages::new(Some(20));
        let mut sizes = vec![pages.limit()];
        for _ in 0..6 {
            pages.shrink();
            sizes.push(pages.limit());
        }
        assert_eq!(sizes, [20, 10, 5, 2, 1, 1, 1].map(Some));
        let grown: Vec<_> = (0..6)
            .map(|_| {
                pages.grow();
                pages.limit()
            })
            .collect();
        assert_eq!(grown, [2, 4, 8, 16, 20, 20].map(Some));
        let mut whole = Pages::new(None);
        whole.shrink();
        whole.grow();
        assert_eq!(whole.limit(), None);
    }

    #[test]
    fn k22_a_watch_that_fails_again_and_again_waits_longer_each_time() {
        let (mut waits, begin) = (Waits::default(), Instant::now());
        let seconds: Vec<u64> = (0..8).map(|_| waits.next(begin, 0.5).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        // A complete list is no success when the watch of it fails at once.
        waits.listed(begin);
        assert_eq!(waits.next(begin + Duration::from_secs(1), 0.5).as_secs(), 60);
        waits.listed(begin);
        assert_eq!(waits.next(begin + Duration::from_secs(60), 0.5).as_secs(), 1);
        let (early, late) = (waits.next(begin, 0.0), waits.next(begin, 1.0));
        assert_eq!((early.as_millis(), late.as_millis()), (1_500, 5_000));
    }
}
