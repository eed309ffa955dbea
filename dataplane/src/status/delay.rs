//! How long changes take to reach clients: E13's two spans, as histograms.

use std::time::{Duration, SystemTime};

use prometheus_client::metrics::histogram::Histogram;

/// From a millisecond to half a minute.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Seconds, counted by bucket.
#[derive(Clone, Debug)]
pub struct Delay(pub Histogram);

impl Default for Delay {
    fn default() -> Delay {
        Delay(Histogram::new(BUCKETS))
    }
}

impl Delay {
    /// Counts one.
    pub fn add(&self, delay: Duration) {
        self.0.observe(delay.as_secs_f64());
    }

    /// Counts one that began at this time, RFC 3339; a time that is none, or to come, is not one.
    pub fn add_since(&self, began: &str, now: SystemTime) {
        let Ok(began) = began.parse::<jiff::Timestamp>() else { return };
        if let Ok(delay) = now.duration_since(SystemTime::from(began)) {
            self.add(delay);
        }
    }
}
