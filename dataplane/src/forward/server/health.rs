//! Whether a server answers at all (FW27): what was sent and what came back in, whether it is down and the next probe out.
//! Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// Consecutive sends without a valid reply that start a probe (FW27).
const SILENT_SENDS: u32 = 3;
/// Seconds between probes of a server that is down, by how many it has not answered (FW27).
const DOWN_WAITS_S: [u64; 5] = [1, 2, 4, 8, 10];
/// The same while no server of its group is up (FW27).
const ALONE_WAIT: Duration = Duration::from_secs(1);
/// Until the next attempt at a probe that could not be sent.
const UNSENT_WAIT: Duration = Duration::from_secs(1);
/// Between the end of a probe and one for a suspicion. Names without a reply raise one suspicion after the other. Less than the
/// time after which a query is overdue: the replies keep the places of a server that answers nothing else (L16).
const SUSPECTED_WAIT: Duration = Duration::from_millis(250);

/// The result of one send or probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forward) enum Heard {
    /// A valid reply that is NOERROR, NXDOMAIN or YXDOMAIN.
    Good,
    /// A valid reply with another Rcode.
    Error,
    /// No valid reply in time, or an error of the network.
    Nothing,
}

/// The health of one server.
#[derive(Debug, Default)]
pub(in crate::forward) struct Health {
    silent_sends: u32,
    down_since: Option<Instant>,
    unanswered_probes: usize,
    /// When the latest probe began, and when it ended.
    probe_began: Option<Instant>,
    probed: Option<Instant>,
    is_suspected: bool,
    /// The next probe shows more than whether it answers.
    is_asked_for: bool,
    is_probing: bool,
    /// No probe before this, as the latest could not be sent, or has just been answered.
    not_before: Option<Instant>,
}

impl Health {
    pub(in crate::forward) fn is_down(&self) -> bool {
        self.down_since.is_some()
    }

    /// Since when it is down.
    pub(in crate::forward) fn down_since(&self) -> Option<Instant> {
        self.down_since
    }

    /// Records the result of a client's query; for probes see [`Health::probe_ended`].
    pub(in crate::forward) fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Good | Heard::Error => self.answered(),
            Heard::Nothing => {
                self.silent_sends = self.silent_sends.saturating_add(1);
                if self.silent_sends >= SILENT_SENDS && self.down_since.is_none() {
                    self.is_suspected = true;
                }
            }
        }
    }

    /// A probe must show more than whether it answers.
    pub(in crate::forward) fn ask_for_probe(&mut self) {
        self.is_asked_for = true;
    }

    /// When the next probe is due; none while there is no reason, or one is on its way. `is_alone`: no server of its
    /// group is up.
    pub(in crate::forward) fn probe_at(&self, is_alone: bool, now: Instant) -> Option<Instant> {
        if self.is_probing {
            return None;
        }
        let due = self.probe_due(is_alone, now)?;
        Some(self.not_before.map_or(due, |not_before| due.max(not_before)))
    }

    fn probe_due(&self, is_alone: bool, now: Instant) -> Option<Instant> {
        if self.is_suspected || self.is_asked_for {
            return Some(now);
        }
        if !self.is_down() {
            return None;
        }
        if is_alone {
            // From beginning to beginning: one without a reply takes this long.
            return self.probe_began.map(|began| began + ALONE_WAIT);
        }
        let place = self.unanswered_probes.clamp(1, DOWN_WAITS_S.len()) - 1;
        let wait = Duration::from_secs(DOWN_WAITS_S[place]);
        self.probed.map(|probed| probed + wait)
    }

    pub(in crate::forward) fn probe_started(&mut self, now: Instant) {
        self.is_probing = true;
        self.is_asked_for = false;
        self.probe_began = Some(now);
        self.not_before = None;
    }

    /// The probe could not be sent: the server was not asked, and a suspicion stays.
    pub(in crate::forward) fn probe_unsent(&mut self, now: Instant) {
        self.is_probing = false;
        self.not_before = Some(now + UNSENT_WAIT);
    }

    /// Records the result of the probe.
    pub(in crate::forward) fn probe_ended(&mut self, heard: Heard, now: Instant) {
        self.is_probing = false;
        self.probed = Some(now);
        match heard {
            Heard::Good | Heard::Error => {
                self.answered();
                self.not_before = Some(now + SUSPECTED_WAIT);
            }
            Heard::Nothing if self.is_suspected || self.down_since.is_some() => {
                self.is_suspected = false;
                self.down_since.get_or_insert(now);
                self.unanswered_probes += 1;
            }
            // A query of a client was answered meanwhile.
            Heard::Nothing => {}
        }
    }

    /// Any valid reply ends a suspicion of silence (FW27).
    fn answered(&mut self) {
        self.silent_sends = 0;
        self.is_suspected = false;
        self.down_since = None;
        self.unanswered_probes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn down(start: Instant) -> Health {
        let mut health = Health::default();
        (0..3).for_each(|_| health.heard(Heard::Nothing));
        health.probe_started(start);
        health.probe_ended(Heard::Nothing, start);
        assert!(health.is_down());
        health
    }

    #[test]
    fn fw27_three_silent_sends_and_a_silent_probe_make_a_server_down() {
        let now = Instant::now();
        let mut health = Health::default();
        for sends in 0..3 {
            assert_eq!(health.probe_at(false, now), None, "after {sends} sends");
            health.heard(Heard::Nothing);
        }
        assert_eq!(health.probe_at(false, now), Some(now));
        assert!(!health.is_down(), "the probe decides");
        health.probe_started(now);
        assert_eq!(health.probe_at(false, now), None, "one probe at a time");
        health.probe_ended(Heard::Nothing, now);
        assert_eq!(health.down_since(), Some(now));
    }

    #[test]
    fn fw27_silence_about_one_domain_condemns_no_server_that_answers_its_probe() {
        for heard in [Heard::Good, Heard::Error] {
            let now = Instant::now();
            let mut health = Health::default();
            (0..3).for_each(|_| health.heard(Heard::Nothing));
            health.probe_started(now);
            health.probe_ended(heard, now);
            assert_eq!((health.down_since(), health.probe_at(false, now)), (None, None));
        }
    }

    #[test]
    fn fw27_a_probe_that_could_not_be_sent_condemns_no_server_and_is_tried_again() {
        let now = Instant::now();
        let mut health = Health::default();
        (0..3).for_each(|_| health.heard(Heard::Nothing));
        health.probe_started(now);
        health.probe_unsent(now);
        assert!(!health.is_down());
        assert_eq!(health.probe_at(false, now), Some(after(now, 1)), "suspected still");
        health.probe_started(now);
        health.probe_ended(Heard::Good, after(now, 1));
        assert_eq!(health.probe_at(false, after(now, 1)), None);
    }

    #[test]
    fn fw27_names_without_a_reply_do_not_cause_one_probe_after_the_other() {
        let start = Instant::now();
        for answer in [Heard::Good, Heard::Error] {
            let (mut health, mut probes) = (Health::default(), 0);
            // Ten seconds of a thousand names without a reply and of a hundred replies in each.
            for ms in 0..10_000 {
                let now = start + Duration::from_millis(ms);
                health.heard(Heard::Nothing);
                if ms % 10 == 0 {
                    health.heard(Heard::Good);
                }
                if health.probe_at(false, now).is_some_and(|at| at <= now) {
                    health.probe_started(now);
                    health.probe_ended(answer, now);
                    probes += 1;
                }
            }
            assert_eq!(probes, 40, "{answer:?}");
        }
    }

    #[test]
    fn fw25_a_probe_that_is_asked_for_comes_once_and_condemns_no_server() {
        let now = Instant::now();
        let mut health = Health::default();
        health.ask_for_probe();
        health.heard(Heard::Good);
        assert_eq!(health.probe_at(false, now), Some(now), "a reply does not replace it");
        health.probe_started(now);
        health.probe_ended(Heard::Nothing, now);
        assert_eq!((health.down_since(), health.probe_at(false, now)), (None, None));
        health.probe_started(now);
        health.probe_ended(Heard::Good, now);
        health.ask_for_probe();
        assert_eq!(health.probe_at(false, now), Some(now + SUSPECTED_WAIT), "not all the time");
    }

    #[test]
    fn fw27_replies_in_between_start_the_count_again() {
        let now = Instant::now();
        let mut health = Health::default();
        for heard in [Heard::Good, Heard::Error] {
            (0..2).for_each(|_| health.heard(Heard::Nothing));
            health.heard(heard);
        }
        (0..2).for_each(|_| health.heard(Heard::Nothing));
        assert_eq!(health.probe_at(false, now), None);
    }

    #[test]
    fn fw27_a_server_that_is_down_is_probed_ever_more_seldom_up_to_ten_seconds() {
        let start = Instant::now();
        let (mut health, mut at) = (down(start), 0);
        for wait in [1, 2, 4, 8, 10, 10, 10] {
            assert_eq!(health.probe_at(false, start), Some(after(start, at + wait)));
            at += wait;
            health.probe_started(after(start, at));
            // It has had a second for its reply.
            at += 1;
            health.probe_ended(Heard::Nothing, after(start, at));
            assert_eq!(health.probe_at(true, start), Some(after(start, at)), "alone");
        }
        assert_eq!(health.down_since(), Some(start));
    }

    #[test]
    fn fw27_any_valid_reply_ends_it() {
        let start = Instant::now();
        for heard in [Heard::Good, Heard::Error] {
            let mut health = down(start);
            health.heard(heard);
            assert!(!health.is_down(), "a client's query: {heard:?}");
            let mut health = down(start);
            health.probe_started(start);
            health.probe_ended(heard, start);
            assert!(!health.is_down(), "a probe: {heard:?}");
        }
    }
}
