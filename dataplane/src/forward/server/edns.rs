//! Whether a server understands EDNS (FW25): remembered for a quarter of an hour. Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// So long a server that does not understand an OPT record is not sent one (FW25).
const WITHOUT: Duration = Duration::from_secs(15 * 60);

/// What is known of one server.
#[derive(Debug, Default)]
pub(in crate::forward) struct Edns {
    without_until: Option<Instant>,
    /// Probes of a server that is down alternate: the next goes the other way.
    flips: bool,
}

impl Edns {
    /// Whether a query to it has an OPT record.
    pub(in crate::forward) fn is_used(&self, now: Instant) -> bool {
        self.without_until.is_none_or(|until| until <= now)
    }

    /// It answered a query without OPT, after it had refused one with OPT or had been silent.
    pub(in crate::forward) fn refused(&mut self, now: Instant) {
        self.without_until = Some(now + WITHOUT);
    }

    /// Whether the next probe of a server that does not answer has an OPT record.
    pub(in crate::forward) fn next_probe(&mut self, now: Instant) -> bool {
        let with = self.is_used(now) != self.flips;
        self.flips = !self.flips;
        with
    }

    /// A server that did not answer has answered a probe of this form.
    pub(in crate::forward) fn probe_answered(&mut self, with: bool, now: Instant) {
        self.flips = false;
        if with {
            self.without_until = None;
        } else if self.is_used(now) {
            self.refused(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw25_a_server_without_edns_gets_no_opt_for_fifteen_minutes() {
        let now = Instant::now();
        let mut edns = Edns::default();
        assert!(edns.is_used(now));
        edns.refused(now);
        assert!(!edns.is_used(now) && !edns.is_used(now + WITHOUT - Duration::from_secs(1)));
        assert!(edns.is_used(now + WITHOUT));
    }

    #[test]
    fn fw25_probes_alternate_and_record_which_is_answered() {
        let now = Instant::now();
        let mut edns = Edns::default();
        assert_eq!([(); 4].map(|()| edns.next_probe(now)), [true, false, true, false]);
        edns.probe_answered(false, now);
        assert!(!edns.is_used(now));
        assert_eq!([(); 2].map(|()| edns.next_probe(now)), [false, true]);
        edns.probe_answered(true, now);
        assert!(edns.is_used(now));
    }
}
