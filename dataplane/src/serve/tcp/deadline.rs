//! When a connection must close (WR42, WR45). Pure: what it waits for is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::super::{CloseReason, Deadlines};

/// How long the end of a session may take.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_millis(100);

/// How long a connection that asked nothing yet may wait for its first query in a drain (E45): it may have been opened for that.
/// A process has a second for queries in progress, at the beginning of which its listeners close.
pub(super) const FIRST_QUERY_WITHIN: Duration = Duration::from_millis(800);

/// What one connection waits for, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Nothing in progress: no message begun, no reply to come or to write.
    pub(super) quiet: Option<Instant>,
    /// The first octet of an unfinished message, while we read.
    pub(super) message: Option<Instant>,
    /// Since when only the buffers of others keep it from being read.
    pub(super) held_back: Option<Instant>,
    /// The last progress of a write that is not done.
    pub(super) write: Option<Instant>,
    /// When it is old enough to be closed once quiet.
    pub(super) old: Instant,
}

impl Waiting {
    /// The next deadline and what it would mean; none while only an upstream is waited for, whose time is bounded
    /// by the forwarder (FW24).
    pub(super) fn due(&self, deadlines: &Deadlines) -> Option<(Instant, CloseReason)> {
        let quiet = self.quiet.map(|since| {
            let idle = since + deadlines.idle;
            if self.old < idle { (self.old, CloseReason::Age) } else { (idle, CloseReason::Idle) }
        });
        let message =
            self.message.map(|since| (since + deadlines.message, CloseReason::SlowMessage));
        let write = self.write.map(|since| (since + deadlines.write, CloseReason::SlowReader));
        // The same time as for an idle connection, for the same reason: it occupies a place, and here also octets,
        // which are short for all.
        let held_back = self.held_back.map(|since| (since + deadlines.idle, CloseReason::Backlog));
        [quiet, message, held_back, write].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

/// A lifetime of the mean ± 20 %, so that connections opened together do not end together (WR45).
pub(super) fn lifetime(mean: Duration, seed: u64) -> Duration {
    mean.mul_f64(0.8 + 0.4 * (seed % 1_000_000) as f64 / 1_000_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[tokio::test(start_paused = true)]
    async fn wr42_each_wait_has_its_own_deadline_and_the_first_counts() {
        let now = Instant::now();
        let nothing =
            Waiting { quiet: None, message: None, held_back: None, write: None, old: now + DAY };
        let due = |waiting: Waiting| {
            let due = waiting.due(&Deadlines::default());
            due.map(|(at, reason)| (at - now, reason))
        };
        let quiet = Waiting { quiet: Some(now), ..nothing };
        let message = Waiting { message: Some(now), ..nothing };
        let write = Waiting { write: Some(now), ..nothing };
        let held_back = Waiting { held_back: Some(now), ..nothing };
        assert_eq!(due(nothing), None, "only an upstream is waited for");
        assert_eq!(due(quiet), Some((seconds(10), CloseReason::Idle)));
        assert_eq!(due(message), Some((seconds(3), CloseReason::SlowMessage)));
        assert_eq!(due(write), Some((seconds(5), CloseReason::SlowReader)));
        assert_eq!(due(held_back), Some((seconds(10), CloseReason::Backlog)));
        let both = Waiting { message: Some(now + seconds(4)), ..write };
        assert_eq!(due(both), Some((seconds(5), CloseReason::SlowReader)));
    }

    #[tokio::test(start_paused = true)]
    async fn wr45_age_closes_a_quiet_connection_only() {
        let now = Instant::now();
        let busy = Waiting { quiet: None, message: None, held_back: None, write: None, old: now };
        assert_eq!(busy.due(&Deadlines::default()), None);
        let quiet = Waiting { quiet: Some(now), ..busy };
        let due = quiet.due(&Deadlines::default());
        assert_eq!(due, Some((now, CloseReason::Age)));
    }

    #[test]
    fn wr45_lifetimes_are_spread_20_percent_around_their_mean() {
        let mean = seconds(300);
        let all: Vec<_> = (0..1000).map(|n| lifetime(mean, n * 1000)).collect();
        let (min, max) = (all.iter().min(), all.iter().max());
        assert_eq!(min, Some(&seconds(240)));
        assert!(max > Some(&seconds(359)) && max <= Some(&seconds(360)));
    }
}
