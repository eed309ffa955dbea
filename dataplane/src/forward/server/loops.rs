//! Whether a server leads back to us (FW50), and when it is asked that. Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// Between loop probes (FW50).
const EVERY: Duration = Duration::from_secs(60);

/// What loop probes of one server found.
#[derive(Debug, Default)]
pub(in crate::forward) struct Loops {
    looping_since: Option<Instant>,
    probed: Option<Instant>,
    is_probing: bool,
}

impl Loops {
    /// Since when it leads back to us: it is not asked meanwhile.
    pub(in crate::forward) fn looping_since(&self) -> Option<Instant> {
        self.looping_since
    }

    /// When the next probe is due; none while one is on its way.
    pub(in crate::forward) fn probe_at(&self, now: Instant) -> Option<Instant> {
        (!self.is_probing).then(|| self.probed.map_or(now, |probed| probed + EVERY))
    }

    pub(in crate::forward) fn probe_started(&mut self) {
        self.is_probing = true;
    }

    /// `leads_back` is what the reply said; none where there was no reply, which says nothing new.
    pub(in crate::forward) fn probe_ended(&mut self, leads_back: Option<bool>, now: Instant) {
        self.is_probing = false;
        self.probed = Some(now);
        match leads_back {
            Some(true) => _ = self.looping_since.get_or_insert(now),
            Some(false) => self.looping_since = None,
            None => {}
        }
    }

    /// The configuration changed: the next probe is due now.
    pub(in crate::forward) fn probe_soon(&mut self) {
        self.probed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw50_probes_come_at_start_on_a_change_and_every_minute() {
        let start = Instant::now();
        let mut loops = Loops::default();
        assert_eq!(loops.probe_at(start), Some(start));
        loops.probe_started();
        assert_eq!(loops.probe_at(start), None, "one at a time");
        loops.probe_ended(Some(false), start);
        assert_eq!(loops.probe_at(start), Some(start + EVERY));
        loops.probe_soon();
        assert_eq!(loops.probe_at(start), Some(start));
    }

    #[test]
    fn fw50_a_loop_is_left_by_a_reply_that_is_none_and_not_by_silence() {
        let start = Instant::now();
        let mut loops = Loops::default();
        loops.probe_ended(Some(true), start);
        loops.probe_ended(None, start + EVERY);
        loops.probe_ended(Some(true), start + 2 * EVERY);
        assert_eq!(loops.looping_since(), Some(start));
        loops.probe_ended(Some(false), start + 3 * EVERY);
        assert_eq!(loops.looping_since(), None);
    }
}
