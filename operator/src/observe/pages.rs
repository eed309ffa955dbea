//! How the operator lists: how many objects a page has, and how long it waits before a watch that failed begins again. Pages
//! shrink when objects are large or a list fails, and grow while objects are small (K23). Pure.

use std::time::{Duration, Instant};

/// After the first failure; doubled with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between two attempts, on average.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// After a watch that lasted this long the first wait is used again.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// Octets that a page has at most, because the API server builds a page as a whole, which takes memory and time.
const PAGE_OCTETS: usize = 8 << 20;
/// Objects in the first page, while nothing is known of their size.
const FIRST_PAGE: u32 = 20;
/// Most objects of a page.
const MOST: u32 = 500;

/// The size of the next page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    next: u32,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages { next: FIRST_PAGE }
    }
}

impl Pages {
    /// Number of objects to ask for in the next page.
    pub(super) fn limit(&self) -> u32 {
        self.next
    }

    /// A page had this many objects, in this many octets: the next one has at most twice as many, and no more than fit if they
    /// are as large.
    pub(super) fn took(&mut self, objects: u32, octets: usize) {
        let each = octets / objects.max(1) as usize;
        let fit = u32::try_from(PAGE_OCTETS / each.max(1)).unwrap_or(u32::MAX);
        self.next = fit.clamp(1, self.next.saturating_mul(2).min(MOST));
    }

    /// A page was too large, or took too long.
    pub(super) fn shrink(&mut self) {
        self.next = (self.next / 2).max(1);
    }

    /// The list took longer than the API server keeps its version: the next one has fewer pages.
    pub(super) fn grow(&mut self) {
        self.next = self.next.saturating_mul(2).min(MOST);
    }
}

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
    fn k23_pages_shrink_by_the_octets_that_were_seen_and_grow_again() {
        let mut pages = Pages::default();
        let mut sizes = |octets_each: usize, count: usize| -> Vec<u32> {
            let step = |_| {
                let limit = pages.limit();
                pages.took(limit, limit as usize * octets_each);
                limit
            };
            (0..count).map(step).collect()
        };
        assert_eq!(sizes(1_500, 7), [20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(sizes(1_400_000, 3), [500, 5, 5]);
        assert_eq!(sizes(20 << 20, 2), [5, 1]);
        assert_eq!(sizes(1_500, 4), [1, 2, 4, 8]);
    }

    #[test]
    fn k23_a_page_that_fails_is_not_asked_for_again_in_the_same_size() {
        let mut pages = Pages::default();
        let mut sizes = vec![pages.limit()];
        for _ in 0..6 {
            pages.shrink();
            sizes.push(pages.limit());
        }
        assert_eq!(sizes, [20, 10, 5, 2, 1, 1, 1]);
        pages.grow();
        assert_eq!(pages.limit(), 2);
    }

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
