//! When a snapshot is written (E40): a pure decision over what has happened and what time it is.

use std::time::{Duration, Instant};

/// Between the starts of two snapshots, so that a cluster that changes all the time does not write
/// all the time; well within the 60 s after a change that E40 allows.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// After a change of the configuration, which is rare: a restart while the next one is bad must find the last good one.
const MIN_CONFIGURATION_INTERVAL: Duration = Duration::from_secs(1);
/// While nothing changes the confirmation is renewed when it is this old.
const RENEW_AFTER_S: u64 = 600;
/// Wait after a failure, which is usually a full disk.
const RETRY: Duration = Duration::from_secs(60);

/// What has happened since the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Something that it would contain has changed.
    is_changed: bool,
    /// And among that the configuration.
    is_configured: bool,
    started: Option<Instant>,
    /// The latest contact before it, in Unix seconds.
    contact_s: u64,
    has_failed: bool,
}

/// The present facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// When the API server was last heard of, in Unix seconds; `None` while there is nothing to
    /// write that is not on disk already.
    pub(super) contact_s: Option<u64>,
    /// The process was asked to end.
    pub(super) is_last: bool,
}

impl Due {
    /// What a snapshot would contain has changed.
    pub(super) fn changed(&mut self) {
        self.is_changed = true;
    }

    /// The configuration that a restart must run changed.
    pub(super) fn configured(&mut self) {
        (self.is_changed, self.is_configured) = (true, true);
    }

    /// The snapshot that was started last could not be written.
    pub(super) fn failed(&mut self) {
        (self.is_changed, self.has_failed) = (true, true);
    }

    /// Whether one is due; then it counts as started.
    pub(super) fn start(&mut self, moment: Moment) -> bool {
        let Some(contact_s) = moment.contact_s.filter(|&contact_s| self.is_due(moment, contact_s))
        else {
            return false;
        };
        let started = Some(moment.now);
        *self = Due { started, contact_s, ..Due::default() };
        true
    }

    fn is_due(&self, moment: Moment, contact_s: u64) -> bool {
        let Some(started) = self.started else {
            return true;
        };
        let since_start = moment.now.saturating_duration_since(started);
        if self.has_failed {
            return since_start >= RETRY;
        }
        let renewed_s = contact_s.saturating_sub(self.contact_s);
        let is_worth_it = self.is_changed || renewed_s >= RENEW_AFTER_S;
        match moment.is_last {
            // The last snapshot: the next process benefits from a young one.
            true => is_worth_it || renewed_s > 0,
            false if self.is_configured => since_start >= MIN_CONFIGURATION_INTERVAL,
            false => is_worth_it && since_start >= MIN_INTERVAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: seconds since the beginning, latest contact, whether something has changed, whether the process ends; and
    /// whether a snapshot starts.
    fn check(rows: &[(u64, Option<u64>, bool, bool, bool)]) {
        let (begin, mut due) = (Instant::now(), Due::default());
        for &(second, contact_s, is_changed, is_last, starts) in rows {
            if is_changed {
                due.changed();
            }
            let now = begin + Duration::from_secs(second);
            let moment = Moment { now, contact_s, is_last };
            assert_eq!(due.start(moment), starts, "at {second} s");
        }
    }

    #[test]
    fn e40_after_the_first_sync_and_soon_after_a_change() {
        check(&[
            (0, None, true, false, false),
            (1, Some(1), true, false, true),
            (2, Some(2), true, false, false),
            (10, Some(10), false, false, false),
            (11, Some(11), false, false, true),
            (12, Some(12), false, false, false),
            (100, Some(100), false, false, false),
            (101, Some(101), true, false, true),
        ]);
    }

    #[test]
    fn e40_o6_a_changed_configuration_is_written_soon() {
        let (begin, mut due) = (Instant::now(), Due::default());
        let mut starts = |second, is_configured| {
            if is_configured {
                due.configured();
            }
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact_s: Some(0), is_last: false })
        };
        assert!(starts(0, false));
        assert!(!starts(0, true));
        assert!(starts(1, false));
        assert!(!starts(2, false), "it was written");
    }

    #[test]
    fn e40_a_quiet_cluster_is_confirmed_every_ten_minutes() {
        check(&[
            (0, Some(0), true, false, true),
            (599, Some(599), false, false, false),
            (600, Some(600), false, false, true),
            (601, Some(601), false, false, false),
        ]);
    }

    #[test]
    fn e40_without_contact_nothing_is_confirmed() {
        check(&[(0, Some(5), true, false, true), (10_000, Some(5), false, false, false)]);
    }

    #[test]
    fn e40_draining_writes_at_once_and_once() {
        check(&[
            (0, Some(0), true, false, true),
            (1, Some(1), true, true, true),
            (2, Some(1), false, true, false),
            (3, Some(2), false, true, true),
        ]);
    }

    #[test]
    fn e40_a_failure_is_tried_again_later() {
        let (begin, mut due) = (Instant::now(), Due::default());
        let mut starts = |second, failed| {
            if failed {
                due.failed();
            }
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact_s: Some(0), is_last: false })
        };
        assert!(starts(0, false));
        assert!(!starts(59, true));
        assert!(starts(60, false));
        assert!(!starts(120, false), "it worked");
    }
}
