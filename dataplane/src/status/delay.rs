//! How long changes take to reach clients: E13's two spans, as histograms.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use process::histogram::{DELAY_BUCKETS, Durations, Writers};

/// The longest delay since a change, beyond the largest bound of the histogram: one that is longer counts as this long. Who may
/// write slices writes when they changed, and one entry must not outweigh all others in the sum.
const MOST: Duration = Duration::from_secs(600);

/// Seconds, counted by bucket.
#[derive(Debug, Default)]
pub struct Delay(pub Durations<DELAY_BUCKETS>);

impl Delay {
    /// Counts one change that took this long to be visible.
    pub fn add(&self, delay: Duration) {
        self.0.add(delay, Writers::Several);
    }
}

/// Delays since times that are written in objects.
#[derive(Debug)]
pub struct DelaySince {
    /// Those that can be.
    pub delays: Delay,
    /// When this process began: it did not see what changed before, as kube-proxy does not count it either.
    began: SystemTime,
    ignored: AtomicU64,
}

impl Default for DelaySince {
    fn default() -> DelaySince {
        DelaySince::since(SystemTime::now())
    }
}

impl DelaySince {
    fn since(began: SystemTime) -> DelaySince {
        DelaySince { delays: Delay::default(), began, ignored: AtomicU64::new(0) }
    }

    /// Counts a change of this time, RFC 3339. Anyone who may write slices chooses it: a time that is none, to come, or from
    /// before this process is counted apart.
    pub fn add(&self, changed: &str, now: SystemTime) {
        let changed = changed.parse::<jiff::Timestamp>().ok().map(SystemTime::from);
        let changed = changed.filter(|changed| *changed >= self.began);
        match changed.and_then(|changed| now.duration_since(changed).ok()) {
            Some(delay) => self.delays.add(delay.min(MOST)),
            None => {
                self.ignored.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Changes whose time cannot be.
    pub fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e13_a_time_of_a_change_that_cannot_be_spoils_no_histogram() {
        let at = |text: &str| SystemTime::from(text.parse::<jiff::Timestamp>().unwrap());
        let (began, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-08T00:00:00Z"));
        let delay = DelaySince::since(began);
        for changed in ["1970-01-01T00:00:00Z", "2025-12-31T23:59:59Z", "2026-01-08T00:00:01Z", "x"]
        {
            delay.add(changed, now);
        }
        assert_eq!((delay.delays.0.read().count(), delay.ignored()), (0, 4));
        delay.add("2026-01-07T23:59:58Z", now);
        // After this process began, and longer ago than anything that the histogram tells apart.
        delay.add("2026-01-02T00:00:00Z", now);
        let read = delay.delays.0.read();
        assert_eq!((read.count(), read.above, read.sum as u64, delay.ignored()), (2, 1, 602, 4));
    }
}
