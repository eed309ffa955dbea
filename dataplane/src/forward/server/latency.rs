//! How fast a server replies: smoothed for the policy `Fastest` (FW22), by bucket for metrics.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

/// Seconds; from a server on the same node to one that is given up.
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 4.0];
/// A new measurement counts one part in so many (RFC 6298 §2 smooths round trips so).
const PARTS: u32 = 8;

/// Latency of one server.
#[derive(Debug)]
pub(in crate::forward) struct Latency {
    smoothed: Option<Duration>,
    histogram: Histogram,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { smoothed: None, histogram: Histogram::new(BUCKETS) }
    }
}

impl Latency {
    /// A reply took so long.
    pub(in crate::forward) fn measured(&mut self, latency: Duration) {
        self.histogram.observe(latency.as_secs_f64());
        self.smooth(latency);
    }

    /// No reply came in so long: it counts for the order, and in no bucket.
    pub(in crate::forward) fn waited(&mut self, time: Duration) {
        self.smooth(time);
    }

    /// None before the first measurement.
    pub(in crate::forward) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// What metrics show; a clone of it counts the same.
    pub(in crate::forward) fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    fn smooth(&mut self, latest: Duration) {
        let mixed = |before: Duration| (before * (PARTS - 1) + latest) / PARTS;
        self.smoothed = Some(self.smoothed.map_or(latest, mixed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw22_latency_is_smoothed_and_silence_counts() {
        let ms = Duration::from_millis;
        let mut latency = Latency::default();
        assert_eq!(latency.smoothed(), None);
        latency.measured(ms(8));
        assert_eq!(latency.smoothed(), Some(ms(8)));
        latency.measured(ms(16));
        assert_eq!(latency.smoothed(), Some(ms(9)));
        latency.waited(ms(809));
        assert_eq!(latency.smoothed(), Some(ms(109)));
    }
}
