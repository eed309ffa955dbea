//! How fast a server answers, smoothed for the policy `Fastest` (FW22).

use std::time::Duration;

/// A new measurement counts one part in this many (RFC 6298 §2 smooths round trips so).
const PARTS: u32 = 8;

/// Smoothed time from query to answer of one server, which `Fastest` compares.
#[derive(Debug, Default)]
pub(in crate::forward) struct Latency {
    smoothed: Option<Duration>,
}

impl Latency {
    /// Records the time from a query to its answer.
    pub(in crate::forward) fn measured(&mut self, latency: Duration) {
        self.smooth(latency);
    }

    /// Records a query that had no answer after this time: it counts for the order, and in no histogram of answers.
    pub(in crate::forward) fn waited(&mut self, time: Duration) {
        self.smooth(time);
    }

    /// None before the first measurement.
    pub(in crate::forward) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
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
