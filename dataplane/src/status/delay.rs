//! How long changes take to reach clients: E13's two spans, as histograms.

use std::time::{Duration, SystemTime};

use crate::histogram::{DELAY_BUCKETS, Durations, Writers};

/// Seconds, counted by bucket.
#[derive(Debug, Default)]
pub struct Delay(pub Durations<DELAY_BUCKETS>);

impl Delay {
    /// Counts one change that took this long to be visible.
    pub fn add(&self, delay: Duration) {
        self.0.add(delay, Writers::Several);
    }

    /// Counts one that began at this time, RFC 3339; a time that is none, or to come, is not one.
    pub fn add_since(&self, began: &str, now: SystemTime) {
        let Ok(began) = began.parse::<jiff::Timestamp>() else { return };
        if let Ok(delay) = now.duration_since(SystemTime::from(began)) {
            self.add(delay);
        }
    }
}
