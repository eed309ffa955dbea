//! Whether a server leads back to us (FW50), and when it is asked that. Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// Between loop probes (FW50).
const EVERY: Duration = Duration::from_secs(60);
/// Probes in a row without a reply that end a loop: one that leads back is answered by us, and soon. A server that does so no
/// longer may have no reply to a name that does not exist, as where it cannot ask the root servers.
const MAX_SILENT: u32 = 5;

/// What one loop probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forward) enum Found {
    /// The server leads back to us.
    Loop,
    /// It does not.
    NoLoop,
    /// It gave no reply.
    Silence,
    /// Its reply does not say.
    Unclear,
    /// It was not asked.
    Nothing,
}

/// What loop probes of one server found.
#[derive(Debug, Default)]
pub(in crate::forward) struct Loops {
    is_watched: bool,
    looping_since: Option<Instant>,
    /// When the last probe ended.
    probed: Option<Instant>,
    /// The number of our replicas (A43) in the name of the last probe.
    replicas: u64,
    is_probing: bool,
    /// Probes in a row without a reply.
    silent: u32,
}

impl Loops {
    /// Since when it leads back to us: it is not asked meanwhile.
    pub(in crate::forward) fn looping_since(&self) -> Option<Instant> {
        self.looping_since
    }

    /// When the next probe is due; none while one is on its way, or where loops are not looked for. A probe with another
    /// number than our replicas have now does not count: they do not know it. A process has its own until it knows its
    /// cluster.
    pub(in crate::forward) fn probe_at(&self, replicas: u64, now: Instant) -> Option<Instant> {
        (self.is_watched && !self.is_probing).then(|| match self.probed {
            Some(probed) if self.replicas == replicas => probed + EVERY,
            Some(_) | None => now,
        })
    }

    pub(in crate::forward) fn probe_started(&mut self, replicas: u64) {
        self.is_probing = true;
        self.replicas = replicas;
    }

    /// Silence changes nothing until it is so again and again.
    pub(in crate::forward) fn probe_ended(&mut self, found: Found, now: Instant) {
        self.is_probing = false;
        self.probed = Some(now);
        match found {
            // The configuration has changed since the probe was sent.
            Found::Loop if !self.is_watched => {}
            Found::Loop => {
                self.silent = 0;
                self.looping_since.get_or_insert(now);
            }
            Found::NoLoop => (self.silent, self.looping_since) = (0, None),
            Found::Silence => {
                self.silent = self.silent.saturating_add(1);
                if self.silent >= MAX_SILENT {
                    self.looping_since = None;
                }
            }
            Found::Unclear => self.silent = 0,
            Found::Nothing => {}
        }
    }

    /// The configuration changed: the next probe is due now. Only servers of the default group are probed: one that only
    /// stub domains name is asked for some names only, and need not know others.
    pub(in crate::forward) fn configured(&mut self, is_default: bool) {
        self.is_watched = is_default;
        self.probed = None;
        if !is_default {
            self.looping_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw50_probes_come_at_start_on_a_change_and_every_minute() {
        let start = Instant::now();
        let mut loops = Loops::default();
        loops.configured(true);
        assert_eq!(loops.probe_at(0, start), Some(start));
        loops.probe_started(0);
        assert_eq!(loops.probe_at(0, start), None, "one at a time");
        loops.probe_ended(Found::NoLoop, start);
        assert_eq!(loops.probe_at(0, start), Some(start + EVERY));
        loops.configured(true);
        assert_eq!(loops.probe_at(0, start), Some(start));
    }

    #[test]
    fn fw50_a_probe_that_our_replicas_do_not_know_does_not_count() {
        let start = Instant::now();
        let mut loops = Loops::default();
        loops.configured(true);
        loops.probe_started(1);
        loops.probe_ended(Found::NoLoop, start);
        assert_eq!(loops.probe_at(1, start), Some(start + Duration::from_secs(60)));
        assert_eq!(loops.probe_at(2, start), Some(start), "the cluster became known");
    }

    #[test]
    fn fw50_a_loop_is_left_by_a_reply_that_shows_no_loop_and_not_by_silence() {
        let start = Instant::now();
        let mut loops = Loops::default();
        loops.configured(true);
        loops.probe_ended(Found::Loop, start);
        loops.probe_ended(Found::Silence, start + EVERY);
        loops.probe_ended(Found::Loop, start + 2 * EVERY);
        assert_eq!(loops.looping_since(), Some(start));
        loops.probe_ended(Found::NoLoop, start + 3 * EVERY);
        assert_eq!(loops.looping_since(), None);
    }

    #[test]
    fn fw50_a_loop_is_left_after_five_probes_in_a_row_without_a_reply() {
        let start = Instant::now();
        let mut loops = Loops::default();
        loops.configured(true);
        loops.probe_ended(Found::Silence, start);
        loops.probe_ended(Found::Loop, start);
        for silent in 1..MAX_SILENT {
            loops.probe_ended(Found::Silence, start + silent * EVERY);
            loops.probe_ended(Found::Nothing, start + silent * EVERY);
            assert_eq!(loops.looping_since(), Some(start), "{silent}");
        }
        // Two that lead to each other say this, as often as they are asked.
        loops.probe_ended(Found::Unclear, start + MAX_SILENT * EVERY);
        for silent in 1..MAX_SILENT {
            loops.probe_ended(Found::Silence, start + silent * EVERY);
            assert_eq!(loops.looping_since(), Some(start), "{silent} behind a reply");
        }
        loops.probe_ended(Found::Silence, start + MAX_SILENT * EVERY);
        assert_eq!(loops.looping_since(), None);
        loops.probe_ended(Found::Loop, start + 6 * EVERY);
        assert_eq!(loops.looping_since(), Some(start + 6 * EVERY), "a reply says more");
    }

    #[test]
    fn fw50_a_server_that_only_stub_domains_name_is_neither_probed_nor_left_out() {
        let start = Instant::now();
        let mut loops = Loops::default();
        loops.configured(true);
        loops.probe_ended(Found::Loop, start);
        loops.probe_started(0);
        loops.configured(false);
        assert_eq!(loops.looping_since(), None, "it was moved to a stub domain");
        loops.probe_ended(Found::Loop, start);
        assert_eq!((loops.looping_since(), loops.probe_at(0, start)), (None, None));
    }
}
