//! How long changes take to reach clients: E13's two spans, as histograms.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dataplane_udp::since_boot;
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
    /// When this process began, since the machine started: it did not see what changed before, as kube-proxy does not count it
    /// either. Not by the wall clock, which may be wrong at the start and set later.
    began: Duration,
    ignored: AtomicU64,
}

impl Default for DelaySince {
    fn default() -> DelaySince {
        let (delays, ignored) = (Delay::default(), AtomicU64::new(0));
        DelaySince { delays, began: since_boot(), ignored }
    }
}

impl DelaySince {
    /// Counts a change of this time, RFC 3339. Anyone who may write slices chooses it: an invalid or future time, or one before
    /// this process started, is counted separately.
    pub fn add(&self, changed: &str, now: SystemTime) {
        self.add_at(changed, now, since_boot().saturating_sub(self.began));
    }

    /// The same at this age of the process.
    fn add_at(&self, changed: &str, now: SystemTime, age: Duration) {
        let began = now.checked_sub(age).unwrap_or(UNIX_EPOCH);
        let changed = changed.parse::<jiff::Timestamp>().ok().map(SystemTime::from);
        let changed = changed.filter(|changed| *changed >= began);
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
        let age = now.duration_since(began).unwrap();
        let delay = DelaySince::default();
        for changed in ["1970-01-01T00:00:00Z", "2025-12-31T23:59:59Z", "2026-01-08T00:00:01Z", "x"]
        {
            delay.add_at(changed, now, age);
        }
        assert_eq!((delay.delays.0.read().count(), delay.ignored()), (0, 4));
        delay.add_at("2026-01-07T23:59:58Z", now, age);
        // After this process began, and longer ago than anything that the histogram tells apart.
        delay.add_at("2026-01-02T00:00:00Z", now, age);
        let read = delay.delays.0.read();
        assert_eq!((read.count(), read.above, read.sum as u64, delay.ignored()), (2, 1, 602, 4));
    }

    /// The clock was ahead at the start, and was set back a year while the process runs.
    #[test]
    fn e13_changes_count_also_after_a_clock_that_was_ahead_is_corrected() {
        let began = since_boot().saturating_sub(Duration::from_secs(10));
        let delay = DelaySince { began, ..DelaySince::default() };
        let corrected = SystemTime::now() - Duration::from_secs(365 * 86_400);
        let ago = |seconds| corrected - Duration::from_secs(seconds);
        for (seconds, counted) in [(1, 1), (60, 1)] {
            let changed = jiff::Timestamp::try_from(ago(seconds)).unwrap().to_string();
            delay.add(&changed, corrected);
            assert_eq!(delay.delays.0.read().count(), counted, "{seconds} s ago");
        }
        assert_eq!(delay.ignored(), 1, "before this process");
    }
}
