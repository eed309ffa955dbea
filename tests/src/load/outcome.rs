//! The results of the questions of one run.

use std::time::Duration;

use hdrhistogram::Histogram;

/// From a microsecond to ten seconds, two significant digits: one percent, in a table that stays in the nearest cache.
const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 10_000_000_000;
const DIGITS: u8 = 2;
/// Sent later than this after its time, a question counts as late: the generator would measure itself.
pub const LATE_NS: u64 = 1_000_000;
/// With more late questions than one in this many, or fewer sent than due, and the generator was the limit.
const LATE_SHARE: u64 = 100;

/// Counts and times of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Questions that were due; in a closed loop, those sent.
    pub due: u64,
    pub sent: u64,
    /// Sent more than [`LATE_NS`] after they were due.
    pub late: u64,
    /// Replies to a question that waited.
    pub answered: u64,
    /// Those of them that were not what is expected.
    pub wrong: u64,
    /// Datagrams that were no reply to a question that waited: late, double, or to another question.
    pub foreign: u64,
    /// Questions without a reply within the timeout.
    pub lost: u64,
    /// Replies by response code.
    pub rcodes: [u64; 16],
    /// Nanoseconds from when each was due until its reply was read.
    pub latency: Histogram<u64>,
    /// Nanoseconds from just before each was sent until the kernel put its reply into the socket. No wait for the generator is
    /// in it. Empty where the carrier does not stamp.
    pub between: Histogram<u64>,
    /// How long questions were sent.
    pub lasted: Duration,
    /// The first wrong reply, in words.
    pub example: Option<String>,
}

impl Default for Outcome {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS)
            .expect("the bounds are in order");
        Outcome {
            due: 0,
            sent: 0,
            late: 0,
            answered: 0,
            wrong: 0,
            foreign: 0,
            lost: 0,
            rcodes: [0; 16],
            between: latency.clone(),
            latency,
            lasted: Duration::ZERO,
            example: None,
        }
    }
}

impl Outcome {
    /// Whether the generator could not send as it should have: such a run measures the generator.
    pub fn is_generator_bound(&self) -> bool {
        self.sent < self.due || self.late > self.sent / LATE_SHARE
    }

    /// Questions that were sent a second.
    pub fn sent_per_s(&self) -> f64 {
        self.sent as f64 / self.lasted.as_secs_f64().max(1e-9)
    }

    /// Answers a second.
    pub fn answered_per_s(&self) -> f64 {
        self.answered as f64 / self.lasted.as_secs_f64().max(1e-9)
    }

    /// The latency that this share of the answers did not exceed, in microseconds.
    pub fn latency_us(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1e3
    }

    /// The same of [`Outcome::between`], where replies were stamped.
    pub fn between_us(&self, share: f64) -> Option<f64> {
        (!self.between.is_empty()).then(|| self.between.value_at_quantile(share) as f64 / 1e3)
    }

    /// Response codes that occurred, such as `0: 120, 3: 80`.
    pub fn rcodes_text(&self) -> String {
        let seen = self.rcodes.iter().enumerate().filter(|(_, count)| **count > 0);
        let seen: Vec<_> = seen.map(|(rcode, count)| format!("{rcode}: {count}")).collect();
        seen.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_that_is_late_or_sends_less_says_so() {
        let run = |due, sent, late| Outcome { due, sent, late, ..Outcome::default() };
        assert!(!run(1_000, 1_000, 10).is_generator_bound());
        assert!(run(1_000, 1_000, 11).is_generator_bound());
        assert!(run(1_000, 999, 0).is_generator_bound());
    }

    #[test]
    fn latencies_are_within_one_percent() {
        let mut outcome = Outcome::default();
        for us in 1..=1_000_u64 {
            outcome.latency.record(us * 1_000).expect("within the bounds");
        }
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let got = outcome.latency_us(share);
            assert!((got - us).abs() / us < 0.01, "{share}: {got}");
        }
    }

    #[test]
    fn response_codes_are_listed_as_they_occurred() {
        let mut outcome = Outcome::default();
        outcome.rcodes[0] = 120;
        outcome.rcodes[3] = 80;
        assert_eq!(outcome.rcodes_text(), "0: 120, 3: 80");
    }
}
