//! Whether a server answers the queries of one group with errors only (FW28). It may refuse the names of one group and answer
//! those of another, so each group knows this of each of its servers. Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// Consecutive error Rcodes to queries of one group, after which the server is failing in it (FW28).
const ERRORS: u32 = 10;
/// Between probes of a server for one group in which it is failing (FW28).
const WAIT: Duration = Duration::from_secs(5);

/// What replies to the queries of one group say about one server.
#[derive(Debug, Default)]
pub(super) struct Failing {
    errors: u32,
    since: Option<Instant>,
    probe_at: Option<Instant>,
}

impl Failing {
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// When the next probe is due; none while there is no reason, or one is on its way.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        self.probe_at
    }

    pub(super) fn probe_started(&mut self) {
        self.probe_at = None;
    }

    /// Records a reply to the query of a client.
    pub(super) fn replied(&mut self, is_error: bool, now: Instant) {
        if !is_error {
            *self = Failing::default();
            return;
        }
        self.errors = self.errors.saturating_add(1);
        if self.errors >= ERRORS && self.since.is_none() {
            self.since = Some(now);
            self.probe_at = Some(now + WAIT);
        }
    }

    /// Records whether a probe got a reply that is no error.
    pub(super) fn probe_ended(&mut self, is_good: bool, now: Instant) {
        match is_good {
            true => *self = Failing::default(),
            // A client's query may have ended it meanwhile.
            false => self.probe_at = self.since.map(|_| now + WAIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw28_ten_errors_in_a_row_are_failing_until_one_good_reply() {
        let start = Instant::now();
        let mut failing = Failing::default();
        (0..9).for_each(|_| failing.replied(true, start));
        assert_eq!(failing.since, None);
        failing.replied(false, start);
        (0..10).for_each(|_| failing.replied(true, start));
        assert_eq!((failing.since, failing.probe_at), (Some(start), Some(start + WAIT)));
        failing.probe_started();
        failing.replied(true, start + WAIT);
        assert_eq!(failing.probe_at, None, "one probe at a time");
        failing.probe_ended(false, start + WAIT);
        assert_eq!((failing.since, failing.probe_at), (Some(start), Some(start + 2 * WAIT)));
        failing.probe_ended(true, start + 2 * WAIT);
        assert_eq!((failing.since, failing.probe_at), (None, None));
        (0..10).for_each(|_| failing.replied(true, start));
        failing.replied(false, start);
        assert_eq!((failing.since, failing.probe_at), (None, None), "a query of a client");
        failing.probe_ended(false, start);
        assert_eq!(failing.probe_at, None, "nothing is left to probe for");
    }
}
