//! Whether a server understands EDNS (FW25): remembered for a quarter of an hour. Pure: time comes as an argument.
//!
//! A server that refuses an OPT record says so at once, so after that time a query of a client may try again. One that is silent
//! about it costs that query its time: so a probe tries, and queries have no OPT record until the server has answered it.

use std::time::{Duration, Instant};

/// Time without OPT records for a server that does not understand them (FW25).
const WITHOUT: Duration = Duration::from_secs(15 * 60);

/// Time in which silence with an OPT record and an answer without one must be seen twice: a server that came back between two
/// probes looks the same once.
const SEEN_TWICE_IN: Duration = Duration::from_secs(60);

/// After a probe in both forms that got no reply at all, until the next.
const SILENT_WAIT: Duration = Duration::from_secs(60);
/// Such probes in a row after which a query of a client tries an OPT record.
const MAX_UNHEARD: u32 = 15;

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

/// How it was seen that a server does not understand OPT records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It refused one.
    Refusal,
    /// It was silent, and answered without.
    Silence,
}

/// What is known about one server.
#[derive(Debug, Default)]
pub(in crate::forward) struct Edns {
    /// Until when queries to it have no OPT record. After silence this is when a probe tries one again.
    without: Option<(Instant, Seen)>,
    /// Since when it may be that it does not understand an OPT record.
    suspected: Option<Instant>,
    /// It answered a query of a client without OPT that it had refused with OPT. That may be about its name: the next probe
    /// says more.
    is_doubted: bool,
    /// Probes of a server that is down alternate: the next one has the other form.
    flips: bool,
    /// Probes in a row that got no reply in either form, after silence about OPT.
    unheard: u32,
}

impl Edns {
    /// Whether a query to it has an OPT record.
    pub(in crate::forward) fn is_used(&self, now: Instant) -> bool {
        match self.without {
            None => true,
            Some((until, Seen::Refusal)) => until <= now,
            Some((_, Seen::Silence)) => false,
        }
    }

    /// The same of a query over TCP to a server that is asked over UDP: silence over UDP says nothing of TCP.
    pub(in crate::forward) fn is_used_over_tcp(&self, now: Instant) -> bool {
        !matches!(self.without, Some((until, Seen::Refusal)) if until > now)
    }

    /// How long queries to it have no OPT record from now on.
    pub(in crate::forward) fn unused_for(&self, now: Instant) -> Option<Duration> {
        self.without.map(|(until, _)| until.saturating_duration_since(now))
    }

    /// When it must be asked in both forms, to learn whether it understands OPT records now.
    pub(in crate::forward) fn probe_at(&self) -> Option<Instant> {
        match self.without {
            Some((until, Seen::Silence)) => Some(until),
            Some((_, Seen::Refusal)) | None => None,
        }
    }

    /// It answered a probe without OPT, after it had refused one with OPT.
    pub(in crate::forward) fn refused(&mut self, now: Instant) {
        self.leave_out(Seen::Refusal, now);
    }

    fn leave_out(&mut self, seen: Seen, now: Instant) {
        self.without = Some((now + WITHOUT, seen));
        (self.suspected, self.is_doubted, self.unheard) = (None, false, 0);
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
            (self.without, self.suspected, self.is_doubted) = (None, None, false);
        } else if self.is_used(now) {
            self.answered_only_without(now);
        }
    }

    fn answered_only_without(&mut self, now: Instant) {
        match self.suspected {
            Some(suspected) if now <= suspected + SEEN_TWICE_IN => {
                self.leave_out(Seen::Silence, now);
            }
            Some(_) | None => self.suspected = Some(now),
        }
    }

    /// It was asked in both forms at once. `None` where it is not known whether the form got a reply. A refusal is a reply.
    pub(in crate::forward) fn forms_probed(
        &mut self,
        with: Option<bool>,
        without: Option<bool>,
        now: Instant,
    ) {
        match (with, without, self.without) {
            // What it refused before it may have refused again. A query of a client learns that at once.
            (Some(true), _, Some((_, Seen::Refusal))) => {}
            (Some(true), _, Some((_, Seen::Silence)) | None) => {
                (self.without, self.suspected) = (None, None);
            }
            (Some(false), Some(true), Some((_, Seen::Silence))) => {
                self.leave_out(Seen::Silence, now);
            }
            (Some(false), Some(true), Some((_, Seen::Refusal)) | None) if self.is_used(now) => {
                self.answered_only_without(now);
            }
            // Nothing is known of the OPT record.
            (None | Some(false), _, Some((until, Seen::Silence))) if until <= now => {
                self.unheard = self.unheard.saturating_add(1);
                // It may answer the names of clients, and not those of probes.
                self.without =
                    (self.unheard < MAX_UNHEARD).then_some((now + SILENT_WAIT, Seen::Silence));
            }
            (None | Some(false), _, _) => {}
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

    /// What is known of a server that answers only queries without OPT, and since when.
    fn silent_about_opt(now: Instant) -> Edns {
        let mut edns = Edns::default();
        (0..2).for_each(|_| answers_without_opt(&mut edns, now));
        assert!(!edns.is_used(now));
        edns
    }

    #[test]
    fn fw25_after_silence_a_probe_and_no_query_of_a_client_tries_opt_again() {
        let now = Instant::now();
        let mut edns = silent_about_opt(now);
        let mut at = now + WITHOUT;
        assert_eq!(edns.probe_at(), Some(at));
        for _ in 0..3 {
            assert!(!edns.is_used(at + Duration::from_secs(1)), "the probe is on its way");
            edns.forms_probed(Some(false), Some(true), at);
            assert_eq!(edns.probe_at(), Some(at + WITHOUT), "it is so still");
            at += WITHOUT;
        }
        for nothing in [(Some(false), Some(false)), (Some(false), None), (None, Some(true))] {
            edns.forms_probed(nothing.0, nothing.1, at);
            assert!(!edns.is_used(at));
            assert_eq!(edns.probe_at(), Some(at + SILENT_WAIT), "{nothing:?} decides nothing");
            at += SILENT_WAIT;
        }
        edns.forms_probed(Some(true), None, at);
        assert!(edns.is_used(at));
        assert_eq!(edns.probe_at(), None);
    }

    #[test]
    fn fw25_after_a_refusal_a_query_of_a_client_tries_opt_again() {
        let now = Instant::now();
        let mut edns = Edns::default();
        edns.refused(now);
        assert_eq!(edns.probe_at(), None);
        // It may have refused this probe too, or have lost it.
        edns.forms_probed(Some(true), Some(true), now);
        edns.forms_probed(Some(false), Some(true), now);
        assert!(!edns.is_used(now + WITHOUT - Duration::from_secs(1)));
        assert!(edns.is_used(now + WITHOUT));
    }

    #[test]
    fn fw25_what_silence_showed_ends_where_no_probe_gets_a_reply() {
        let mut now = Instant::now();
        let mut edns = Edns::default();
        (0..2).for_each(|_| edns.probe_answered(false, now));
        assert!(!edns.is_used(now) && edns.is_used_over_tcp(now), "it was seen over UDP");
        let mut probes = 0;
        while let Some(at) = edns.probe_at() {
            assert!(!edns.is_used(at));
            (now, probes) = (at, probes + 1);
            edns.forms_probed(Some(false), Some(false), now);
        }
        assert!(edns.is_used(now) && probes == 15, "{probes}");
        edns.refused(now);
        assert!(!edns.is_used_over_tcp(now) && edns.is_used_over_tcp(now + WITHOUT));
    }

    #[test]
    fn fw25_asked_in_both_forms_it_must_be_silent_about_opt_twice() {
        let now = Instant::now();
        let mut edns = Edns::default();
        for nothing in [(Some(false), Some(false)), (None, Some(true)), (Some(false), None)] {
            (0..9).for_each(|_| edns.forms_probed(nothing.0, nothing.1, now));
            assert!(edns.is_used(now), "{nothing:?}");
        }
        edns.forms_probed(Some(false), Some(true), now);
        edns.forms_probed(Some(true), Some(true), now);
        edns.forms_probed(Some(false), Some(true), now);
        assert!(edns.is_used(now), "a reply with OPT came in between");
        edns.forms_probed(Some(false), Some(true), now + SEEN_TWICE_IN);
        assert!(!edns.is_used(now + SEEN_TWICE_IN));
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
