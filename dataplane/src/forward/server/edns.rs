//! Whether a server understands EDNS (FW25): remembered for a quarter of an hour. Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// Time without OPT records for a server that does not understand them (FW25).
const WITHOUT: Duration = Duration::from_secs(15 * 60);

/// Time in which silence with an OPT record and an answer without one must be seen twice: a server that came back between two
/// probes looks the same once.
const SEEN_TWICE_IN: Duration = Duration::from_secs(60);

/// What the reply to a probe says about OPT records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forward) enum OptHeard {
    /// The form of the query is understood.
    Answered,
    /// It is refused, maybe for the OPT record.
    Refused,
    /// Nothing: only a part of the questions was refused.
    Unclear,
}

/// What is known about one server.
#[derive(Debug, Default)]
pub(in crate::forward) struct Edns {
    without_until: Option<Instant>,
    /// Since when it may be that it does not understand an OPT record.
    suspected: Option<Instant>,
    /// It answered a query of a client without OPT that it had refused with OPT. That may be about its name: the next probe
    /// says more.
    is_doubted: bool,
    /// Probes of a server that is down alternate: the next one has the other form.
    flips: bool,
}

impl Edns {
    /// Whether a query to it has an OPT record.
    pub(in crate::forward) fn is_used(&self, now: Instant) -> bool {
        self.without_until.is_none_or(|until| until <= now)
    }

    /// How long queries to it have no OPT record from now on.
    pub(in crate::forward) fn unused_for(&self, now: Instant) -> Option<Duration> {
        self.without_until.map(|until| until.saturating_duration_since(now))
    }

    /// It answered a probe without OPT, after it had refused one with OPT or had been silent.
    pub(in crate::forward) fn refused(&mut self, now: Instant) {
        self.without_until = Some(now + WITHOUT);
        (self.suspected, self.is_doubted) = (None, false);
    }

    /// It answered a query of a client without OPT, after it had refused it with OPT. Who owns the name may decide that.
    pub(in crate::forward) fn doubted(&mut self) {
        self.is_doubted = true;
    }

    /// It answered a query with OPT of a client.
    pub(in crate::forward) fn answered(&mut self) {
        (self.suspected, self.is_doubted) = (None, false);
        self.flips = false;
    }

    /// Whether the next probe of a server that does not answer has an OPT record.
    pub(in crate::forward) fn next_probe(&self, now: Instant) -> bool {
        self.is_used(now) != self.flips
    }

    /// A probe of this form was not answered.
    pub(in crate::forward) fn probe_was_silent(&mut self, with: bool, now: Instant) {
        self.flips = with == self.is_used(now);
    }

    /// A server has refused a probe with an OPT record, which may be for that record: what is known stays. Where it has
    /// refused one of a client, which it answered without that record, it is for that record.
    pub(in crate::forward) fn probe_refused(&mut self, now: Instant) {
        self.flips = false;
        if self.is_doubted {
            self.refused(now);
        }
    }

    /// A server has answered a probe, which says nothing of the OPT record: what is known stays.
    pub(in crate::forward) fn probe_said_nothing(&mut self) {
        self.flips = false;
    }

    /// A server that did not answer has answered a probe of this form.
    pub(in crate::forward) fn probe_answered(&mut self, with: bool, now: Instant) {
        self.flips = false;
        if with {
            (self.without_until, self.suspected, self.is_doubted) = (None, None, false);
        } else if self.is_used(now) {
            match self.suspected {
                Some(suspected) if now <= suspected + SEEN_TWICE_IN => self.refused(now),
                Some(_) | None => self.suspected = Some(now),
            }
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
        let minutes = |minutes: u64| now + Duration::from_secs(minutes * 60);
        assert!(!edns.is_used(now) && !edns.is_used(minutes(15) - Duration::from_secs(1)));
        assert!(edns.is_used(minutes(15)));
    }

    /// The form of the probe that is answered if the server answers only probes without OPT.
    fn answers_without_opt(edns: &mut Edns, now: Instant) {
        assert!(edns.next_probe(now));
        edns.probe_was_silent(true, now);
        assert!(!edns.next_probe(now), "the other form");
        edns.probe_answered(false, now);
    }

    #[test]
    fn fw25_probes_alternate_and_record_which_is_answered() {
        let now = Instant::now();
        let mut edns = Edns::default();
        for with in [true, false, true, false] {
            assert_eq!(edns.next_probe(now), with);
            edns.probe_was_silent(with, now);
        }
        answers_without_opt(&mut edns, now);
        assert!(edns.is_used(now), "once is no proof");
        answers_without_opt(&mut edns, now + SEEN_TWICE_IN);
        assert!(!edns.is_used(now + SEEN_TWICE_IN));
        for with in [false, true] {
            assert_eq!(edns.next_probe(now), with);
            edns.probe_was_silent(with, now);
        }
        edns.probe_answered(true, now);
        assert!(edns.is_used(now));
    }

    #[test]
    fn fw25_what_a_client_asks_decides_only_together_with_a_probe() {
        let now = Instant::now();
        let mut edns = Edns::default();
        (0..9).for_each(|_| edns.doubted());
        assert!(edns.is_used(now));
        edns.probe_answered(true, now);
        edns.probe_refused(now);
        assert!(edns.is_used(now), "the probe before was answered");
        edns.doubted();
        edns.probe_refused(now);
        assert!(!edns.is_used(now));
    }

    #[test]
    fn fw25_a_short_outage_disables_no_edns() {
        let now = Instant::now();
        let mut edns = Edns::default();
        // The server starts again between the two probes.
        answers_without_opt(&mut edns, now);
        let long_after = now + SEEN_TWICE_IN + Duration::from_secs(1);
        answers_without_opt(&mut edns, long_after);
        assert!(edns.is_used(long_after), "another outage, a minute later");
        edns.answered();
        answers_without_opt(&mut edns, long_after);
        assert!(edns.is_used(long_after), "it answered a query with OPT in between");
        edns.probe_answered(true, long_after);
        answers_without_opt(&mut edns, long_after);
        assert!(edns.is_used(long_after), "it answered a probe with OPT in between");
    }
}
