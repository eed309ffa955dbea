//! Whether a server answers the queries of one group with errors only (FW28). It may refuse the names of one group and answer
//! those of another, so each group knows this of each of its servers. Pure: time comes as an argument.

use std::time::{Duration, Instant};

use super::server::Heard;

/// Consecutive error Rcodes to queries of one group, after which the server is failing in it (FW28).
const ERRORS: u32 = 10;
/// Between probes of a server for one group in which it is failing (FW28).
const WAIT: Duration = Duration::from_secs(5);
/// The same after several good probes that queries of clients proved wrong: each doubles the time, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Between a good probe and the one that ends it where no client asks the server. Shorter than the time for which a server must
/// be failing before the status names it.
const PROBATION: Duration = Duration::from_secs(30);

/// What replies to the queries of one group say about one server.
#[derive(Debug, Default)]
pub(super) struct Failing {
    errors: u32,
    since: Option<Instant>,
    probe_at: Option<Instant>,
    is_on_probation: bool,
    /// Probations that an error ended.
    put_back: u32,
}

impl Failing {
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Whether other servers are asked first. One on probation is asked in its turn: a broken resolver may answer a probe from its
    /// cache, so the reply to the next query of a client decides.
    pub(super) fn is_avoided(&self) -> bool {
        self.since.is_some() && !self.is_on_probation
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
            self.probe_at = Some(now + self.wait());
        }
        if std::mem::take(&mut self.is_on_probation) {
            self.put_back = self.put_back.saturating_add(1);
            self.probe_at = Some(now + self.wait());
        }
    }

    /// Records what came of a probe.
    pub(super) fn probe_ended(&mut self, heard: Heard, now: Instant) {
        // A client's query has ended it, or put the server back, while the probe was on its way.
        if self.since.is_none() || self.probe_at.is_some() {
            return;
        }
        match heard {
            Heard::Good if self.is_on_probation => *self = Failing::default(),
            Heard::Good => {
                self.is_on_probation = true;
                self.probe_at = Some(now + PROBATION);
            }
            Heard::Error => {
                self.is_on_probation = false;
                self.probe_at = Some(now + self.wait());
            }
            Heard::Nothing => self.probe_at = Some(now + self.wait()),
        }
    }

    fn wait(&self) -> Duration {
        WAIT.saturating_mul(1 << self.put_back.min(4)).min(LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    /// Failing since then, with a probe on its way.
    fn probed(start: Instant) -> Failing {
        let mut failing = Failing::default();
        (0..10).for_each(|_| failing.replied(true, start));
        failing.probe_started();
        failing
    }

    #[test]
    fn fw28_ten_errors_in_a_row_are_failing_until_one_good_reply() {
        let start = Instant::now();
        let mut failing = Failing::default();
        (0..9).for_each(|_| failing.replied(true, start));
        assert_eq!(failing.since, None);
        failing.replied(false, start);
        (0..10).for_each(|_| failing.replied(true, start));
        assert_eq!((failing.since, failing.probe_at), (Some(start), Some(start + WAIT)));
        assert!(failing.is_avoided());
        failing.probe_started();
        failing.replied(true, start + WAIT);
        assert_eq!(failing.probe_at, None, "one probe at a time");
        failing.probe_ended(Heard::Error, start + WAIT);
        assert_eq!((failing.since, failing.probe_at), (Some(start), Some(start + 2 * WAIT)));
        failing.probe_started();
        failing.replied(false, start);
        assert_eq!((failing.since, failing.probe_at), (None, None), "a query of a client");
        for heard in [Heard::Good, Heard::Error, Heard::Nothing] {
            failing.probe_ended(heard, start);
            assert_eq!((failing.since, failing.probe_at), (None, None), "nothing is left");
        }
    }

    #[test]
    fn fw28_after_a_good_probe_the_next_reply_to_a_client_decides() {
        let start = Instant::now();
        let mut failing = probed(start);
        let mut at = start + WAIT;
        for wait_s in [10, 20, 40, 60, 60] {
            failing.probe_ended(Heard::Good, at);
            assert!(!failing.is_avoided() && failing.since == Some(start), "it has its turn");
            failing.replied(true, at);
            assert!(failing.is_avoided(), "one error is enough");
            failing.replied(true, after(at, 1));
            assert_eq!(failing.probe_at, Some(after(at, wait_s)));
            at = after(at, wait_s);
            failing.probe_started();
            failing.probe_ended(Heard::Nothing, at);
            assert_eq!(failing.probe_at, Some(after(at, wait_s)), "silence changes nothing");
            failing.probe_started();
        }
        assert_eq!(failing.since, Some(start), "it is failing all the time");
        failing.probe_ended(Heard::Good, at);
        failing.replied(false, at);
        assert_eq!((failing.since, failing.probe_at), (None, None));
        (0..10).for_each(|_| failing.replied(true, at));
        assert_eq!(failing.probe_at, Some(at + WAIT), "as if it were the first time");
    }

    #[test]
    fn fw28_a_second_good_probe_ends_it_where_no_client_asks() {
        let start = Instant::now();
        for (second, is_over) in [(Heard::Good, true), (Heard::Error, false)] {
            let mut failing = probed(start);
            failing.probe_ended(Heard::Good, start);
            assert_eq!(failing.probe_at, Some(start + PROBATION));
            failing.probe_started();
            failing.probe_ended(second, start + PROBATION);
            assert_eq!((failing.since.is_none(), failing.is_avoided()), (is_over, !is_over));
        }
    }

    #[test]
    fn fw28_a_probe_that_was_on_its_way_does_not_outweigh_an_error_to_a_client() {
        let start = Instant::now();
        let mut failing = probed(start);
        failing.probe_ended(Heard::Good, start);
        failing.probe_started();
        failing.replied(true, start + PROBATION);
        failing.probe_ended(Heard::Good, start + PROBATION);
        assert!(failing.is_avoided());
        assert_eq!(failing.probe_at, Some(start + PROBATION + 2 * WAIT));
    }
}
