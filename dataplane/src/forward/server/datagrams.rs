//! Whether a server answers over UDP (FW27). Replies over TCP show that the server is up, and hide that its UDP is silent: so
//! they count apart. Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// Queries of clients over UDP without a reply, and with no reply over UDP between them, after which the server is asked in both
/// forms if it answers over TCP. A lookup that has one server to ask sends two of them before its query over TCP (FW23).
const SILENT_SENDS: u32 = 6;
/// Probes in both forms without a reply, in a row, after which the server is asked over TCP first: each is two datagrams at
/// least, so a few that the network loses move no server.
const SILENT_PROBES: u32 = 3;
/// Between probes over UDP of a server that is asked over TCP first.
const AGAIN: Duration = Duration::from_secs(60);
/// After a probe that was answered, until the next one. Names without a reply raise one suspicion after the other.
const ANSWERED_WAIT: Duration = Duration::from_secs(10);
/// Until the next probe where one decided nothing, doubled with each that could not be sent or got wrong datagrams only. An
/// error of the network comes at once, and three of them in a moment are one.
const NEXT_WAIT: Duration = Duration::from_secs(1);
/// How often it is doubled: up to about [`AGAIN`].
const MAX_DOUBLED: u32 = 6;

/// What a probe with an OPT record, and one without, show about UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forward) enum Shown {
    /// The form in which clients' queries are sent gets replies.
    Works,
    /// Only the form without an OPT record got a reply, and queries have one: the next probe decides (FW25).
    Undecided,
    /// None of both got a reply.
    Silence,
    /// A part could not be sent, and the rest got no reply.
    Nothing,
}

/// What is known of the UDP of one server.
#[derive(Debug, Default)]
pub(in crate::forward) struct Datagrams {
    /// Queries of clients over UDP without a reply, since the latest reply over UDP.
    silent_sends: u32,
    /// Probes in both forms without a reply, in a row.
    silent_probes: u32,
    /// Probes that showed nothing, in a row.
    unclear_probes: u32,
    is_silent: bool,
    /// When it is asked in both forms next.
    probe_at: Option<Instant>,
    /// No such probe before this, for a suspicion.
    not_before: Option<Instant>,
}

impl Datagrams {
    /// Whether its UDP gives no replies while its TCP does: it is asked over TCP first.
    pub(in crate::forward) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// When it must be asked in both forms; none without a reason.
    pub(in crate::forward) fn probe_at(&self) -> Option<Instant> {
        self.probe_at
    }

    /// A query of a client over UDP got no reply in time, or failed.
    pub(in crate::forward) fn was_silent(&mut self) {
        self.silent_sends = self.silent_sends.saturating_add(1);
    }

    /// A valid reply came over UDP.
    pub(in crate::forward) fn replied(&mut self) {
        *self = Datagrams { not_before: self.not_before, ..Datagrams::default() };
    }

    /// A query of a client got a valid reply over TCP.
    pub(in crate::forward) fn replied_over_tcp(&mut self, now: Instant) {
        if self.silent_sends >= SILENT_SENDS {
            self.suspect(now);
        }
    }

    /// A probe that got no reply over UDP got one over TCP.
    pub(in crate::forward) fn probe_replied_over_tcp(&mut self, now: Instant) {
        self.suspect(now);
    }

    fn suspect(&mut self, now: Instant) {
        if !self.is_silent && self.probe_at.is_none() {
            self.probe_at = Some(self.not_before.map_or(now, |not_before| now.max(not_before)));
        }
    }

    /// It was asked in both forms.
    pub(in crate::forward) fn probed(&mut self, shown: Shown, now: Instant) {
        let unclear = std::mem::take(&mut self.unclear_probes).min(MAX_DOUBLED);
        match shown {
            Shown::Works => {
                let not_before = Some(now + ANSWERED_WAIT);
                *self = Datagrams { not_before, ..Datagrams::default() };
            }
            Shown::Undecided => {
                (self.silent_probes, self.probe_at) = (0, Some(now + NEXT_WAIT));
            }
            Shown::Nothing => {
                self.unclear_probes = unclear + 1;
                self.probe_at = self.probe_at.map(|_| now + NEXT_WAIT * (1 << unclear));
            }
            // It was for the OPT record alone (FW25), or a query of a client got its reply meanwhile.
            Shown::Silence if self.probe_at.is_none() => {}
            Shown::Silence => {
                self.silent_probes = self.silent_probes.saturating_add(1);
                self.is_silent |= self.silent_probes >= SILENT_PROBES;
                self.probe_at = Some(now + if self.is_silent { AGAIN } else { NEXT_WAIT });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    /// One lookup: its queries over UDP get no reply, the one over TCP does.
    fn look_up(datagrams: &mut Datagrams, now: Instant) {
        (0..2).for_each(|_| datagrams.was_silent());
        datagrams.replied_over_tcp(now);
    }

    /// A server that is asked over TCP first.
    fn silent(now: Instant) -> Datagrams {
        let mut datagrams = Datagrams::default();
        (0..3).for_each(|_| look_up(&mut datagrams, now));
        (0..3).for_each(|_| datagrams.probed(Shown::Silence, now));
        assert!(datagrams.is_silent());
        datagrams
    }

    #[test]
    fn fw27_replies_over_tcp_do_not_hide_that_udp_is_silent() {
        let now = Instant::now();
        let mut datagrams = Datagrams::default();
        for lookups in 0..3 {
            assert_eq!(datagrams.probe_at(), None, "after {lookups} lookups");
            look_up(&mut datagrams, now);
        }
        assert_eq!(datagrams.probe_at(), Some(now));
        for probes in 0..3 {
            assert!(!datagrams.is_silent(), "after {probes} probes");
            datagrams.probed(Shown::Silence, after(now, probes));
            look_up(&mut datagrams, after(now, probes));
        }
        assert!(datagrams.is_silent());
        assert_eq!(datagrams.probe_at(), Some(after(now, 62)), "a minute after the last one");
    }

    #[test]
    fn fw27_a_server_that_answers_nothing_at_all_is_not_asked_over_tcp_first() {
        let mut datagrams = Datagrams::default();
        (0..100).for_each(|_| datagrams.was_silent());
        assert_eq!(datagrams.probe_at(), None, "whether it is down, another probe says");
    }

    #[test]
    fn fw27_a_reply_over_udp_ends_each_suspicion_and_what_was_found() {
        let now = Instant::now();
        let mut datagrams = Datagrams::default();
        for _ in 0..100 {
            (0..5).for_each(|_| datagrams.was_silent());
            datagrams.replied_over_tcp(now);
            datagrams.replied();
        }
        assert_eq!(datagrams.probe_at(), None, "a network that loses most of them");
        let mut datagrams = silent(now);
        datagrams.replied();
        assert_eq!((datagrams.is_silent(), datagrams.probe_at()), (false, None), "of a client");
        for shown in [Shown::Works, Shown::Undecided, Shown::Nothing, Shown::Silence] {
            let mut datagrams = silent(now);
            datagrams.probed(shown, after(now, 60));
            assert_eq!(datagrams.is_silent(), shown != Shown::Works, "{shown:?}");
        }
    }

    #[test]
    fn fw27_lost_datagrams_move_no_server_to_tcp() {
        let now = Instant::now();
        let mut datagrams = Datagrams::default();
        (0..3).for_each(|_| look_up(&mut datagrams, now));
        for shown in [Shown::Silence, Shown::Silence, Shown::Undecided, Shown::Silence] {
            datagrams.probed(shown, now);
            let next = Some(after(now, 1));
            assert_eq!((datagrams.is_silent(), datagrams.probe_at()), (false, next));
        }
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            datagrams.probed(Shown::Nothing, now);
            assert_eq!(datagrams.probe_at(), Some(after(now, seconds)), "it could not be sent");
        }
        datagrams.probed(Shown::Works, now);
        assert_eq!(datagrams.probe_at(), None);
    }

    #[test]
    fn fw27_names_without_a_reply_do_not_cause_one_probe_in_both_forms_after_the_other() {
        let start = Instant::now();
        let (mut datagrams, mut probes) = (Datagrams::default(), 0);
        for second in 0..60 {
            let now = after(start, second);
            (0..10).for_each(|_| look_up(&mut datagrams, now));
            if datagrams.probe_at().is_some_and(|at| at <= now) {
                datagrams.probed(Shown::Works, now);
                probes += 1;
            }
        }
        assert_eq!(probes, 6);
    }

    #[test]
    fn fw27_a_probe_that_is_about_the_opt_record_alone_moves_no_server() {
        let now = Instant::now();
        let mut datagrams = Datagrams::default();
        (0..9).for_each(|_| datagrams.probed(Shown::Silence, now));
        assert_eq!((datagrams.is_silent(), datagrams.probe_at()), (false, None));
    }
}
