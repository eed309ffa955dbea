//! When a snapshot is written (E40): a pure decision over what has happened and what time it is.

use std::time::{Duration, Instant};

use super::FRESH_S;

/// Between the starts of two snapshots, so that a cluster that changes all the time does not write
/// all the time ...
const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// ... and at random in each process up to this more: a change comes to all pods at once, and their disks, which control planes
/// with etcd share, must not all be asked in one moment. Together well within the time after a change that E40 allows ...
const MIN_SPREAD: Duration = Duration::from_secs(20);
/// ... and where a snapshot is large or the disk is slow, as long as it takes until the disk has less than this to write on
/// average, and is busy with it for less than a twentieth of the time ...
const OCTETS_PER_S: u64 = 1024 * 1024;
const PART_OF_TIME: u32 = 20;
/// ... but not longer: what is on disk must stay younger than the 5 min up to which readiness does not wait for live data (E43).
const MAX_INTERVAL: Duration = Duration::from_secs(180);
/// After a change of the configuration, which is rare: a restart while the next one is bad must find the last good one.
const MIN_CONFIGURATION_INTERVAL: Duration = Duration::from_secs(1);
/// While nothing changes the confirmation is renewed when it is this old.
const RENEW_AFTER: Duration = Duration::from_secs(120);
/// While nothing changes the API server sends one bookmark a minute for each kind of objects, and some come later.
const BETWEEN_CONTACTS: Duration = Duration::from_secs(75);
/// A process that is killed leaves a snapshot that is fresh for the next one, also in a quiet cluster (D4): its data was
/// confirmed up to one bookmark before it was begun, and the bookmark that makes the next one due may be late.
const _: () = {
    let (renewed, contacts) = (RENEW_AFTER.as_secs(), BETWEEN_CONTACTS.as_secs());
    let (most, written) = (MAX_INTERVAL.as_secs(), MAX_INTERVAL.as_secs() / PART_OF_TIME as u64);
    let begun = if renewed + contacts > most { renewed + contacts } else { most };
    assert!(contacts + begun + written < FRESH_S);
};
/// With the last snapshot it is renewed if it is at least this old.
const RENEW_LAST_AFTER: Duration = Duration::from_secs(1);
/// Wait after a failure, which is usually a full disk.
const RETRY: Duration = Duration::from_secs(60);

/// What has happened since the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Between the starts of two in this process, at least.
    shortest: Duration,
    /// Something that it would contain has changed.
    is_changed: bool,
    /// And among that the configuration.
    is_configured: bool,
    started: Option<Instant>,
    /// The latest contact before it.
    contact: Option<Instant>,
    has_failed: bool,
    /// One was started after the process was asked to end.
    is_last_started: bool,
}

/// The present facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// When the API server was last heard of; `None` while there is nothing to write that is not
    /// on disk already. A wall clock that is set back must not delay a snapshot.
    pub(super) contact: Option<Instant>,
    /// What the last attempt of this process cost.
    pub(super) cost: Cost,
    /// The process was asked to end.
    pub(super) is_last: bool,
}

/// What the disk had to do for one attempt to write a snapshot, also if it failed: all octets of both passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) octets: u64,
    pub(super) took: Duration,
}

impl Cost {
    /// The time until the next one, from start to start.
    fn interval(self, shortest: Duration) -> Duration {
        let by_octets = Duration::from_secs(self.octets / OCTETS_PER_S);
        let by_time = self.took.saturating_mul(PART_OF_TIME);
        by_octets.max(by_time).clamp(shortest, MAX_INTERVAL)
    }
}

impl Due {
    /// None was written by this process; `chance` is in [0, 1).
    pub(super) fn new(chance: f64) -> Due {
        Due { shortest: MIN_INTERVAL + MIN_SPREAD.mul_f64(chance), ..Due::default() }
    }

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
        let Some(contact) = moment.contact.filter(|&contact| self.is_due(moment, contact)) else {
            return false;
        };
        let (started, contact) = (Some(moment.now), Some(contact));
        let is_last_started = self.is_last_started || moment.is_last;
        let shortest = self.shortest;
        *self = Due { shortest, started, contact, is_last_started, ..Due::default() };
        true
    }

    fn is_due(&self, moment: Moment, contact: Instant) -> bool {
        let Some(started) = self.started else {
            return true;
        };
        let since_start = moment.now.saturating_duration_since(started);
        if self.has_failed {
            return since_start >= RETRY.max(moment.cost.interval(self.shortest));
        }
        let renewed =
            self.contact.map_or(Duration::ZERO, |known| contact.saturating_duration_since(known));
        let is_worth_it = self.is_changed || renewed >= RENEW_AFTER;
        match moment.is_last {
            // The last snapshot does not wait: the next process benefits from a young one. A drain may take minutes, in which
            // a cluster that changes all the time is written no more often than before.
            true => {
                (is_worth_it || renewed >= RENEW_LAST_AFTER)
                    && (!self.is_last_started
                        || since_start >= moment.cost.interval(self.shortest)
                        || (self.is_configured && since_start >= MIN_CONFIGURATION_INTERVAL))
            }
            false if self.is_configured => since_start >= MIN_CONFIGURATION_INTERVAL,
            false => is_worth_it && since_start >= moment.cost.interval(self.shortest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::waits_for_live;
    use crate::status::snapshot::Loaded;

    /// Rows: seconds since the beginning, latest contact, whether something has changed, whether the process ends; and
    /// whether a snapshot starts.
    fn check(rows: &[(u64, Option<u64>, bool, bool, bool)]) {
        let (begin, mut due) = (Instant::now(), Due::new(0.0));
        for &(second, contact_s, is_changed, is_last, starts) in rows {
            if is_changed {
                due.changed();
            }
            let now = begin + Duration::from_secs(second);
            let contact = contact_s.map(|second| begin + Duration::from_secs(second));
            let moment = Moment { now, contact, cost: Cost::default(), is_last };
            assert_eq!(due.start(moment), starts, "at {second} s");
        }
    }

    #[test]
    fn e40_after_the_first_sync_and_soon_after_a_change() {
        check(&[
            (0, None, true, false, false),
            (1, Some(1), true, false, true),
            (2, Some(2), true, false, false),
            (30, Some(30), false, false, false),
            (31, Some(31), false, false, true),
            (32, Some(32), false, false, false),
            (100, Some(100), false, false, false),
            (101, Some(101), true, false, true),
        ]);
    }

    #[test]
    fn e40_o6_a_changed_configuration_is_written_soon() {
        let (begin, mut due) = (Instant::now(), Due::new(0.0));
        let mut starts = |second, is_configured| {
            if is_configured {
                due.configured();
            }
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact: Some(begin), cost: Cost::default(), is_last: false })
        };
        assert!(starts(0, false));
        assert!(!starts(0, true));
        assert!(starts(1, false));
        assert!(!starts(2, false), "it was written");
    }

    #[test]
    fn e40_a_quiet_cluster_is_confirmed_every_two_minutes() {
        check(&[
            (0, Some(0), true, false, true),
            (119, Some(119), false, false, false),
            (120, Some(120), false, false, true),
            (121, Some(121), false, false, false),
        ]);
    }

    #[test]
    fn e43_d4_a_quiet_cluster_leaves_a_snapshot_that_does_not_wait_for_live_data() {
        let largest = Cost { octets: 256 << 20, took: Duration::from_secs(9) };
        for cost in [Cost::default(), largest] {
            let (begin, mut due) = (Instant::now(), Due::new(0.0));
            // When what is on disk was confirmed; and, of what is being written, when it is there and was confirmed.
            let (mut on_disk, mut next) = (0, None);
            for second in 0..3_600_u64 {
                let at = |second| begin + Duration::from_secs(second);
                let every = BETWEEN_CONTACTS.as_secs();
                // The last bookmark of each kind of objects.
                let contacts =
                    [0, 1, every - 1].map(|first: u64| match second.checked_sub(first) {
                        Some(since) => first + since - since % every,
                        None => 0,
                    });
                let contact = contacts.into_iter().max().map(at);
                if due.start(Moment { now: at(second), contact, cost, is_last: false }) {
                    next =
                        Some((second + cost.took.as_secs(), contacts.into_iter().min().unwrap()));
                }
                if let Some((_, confirmed)) = next.take_if(|(written, _)| *written <= second) {
                    on_disk = confirmed;
                }
                let age_s = second - on_disk;
                let loaded = Loaded { confirmed_at_s: 0, age_s, is_partial: false, at: begin };
                assert!(
                    !waits_for_live(loaded, begin, Some(true)),
                    "killed at {second} s: {age_s}"
                );
            }
        }
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
            (3, Some(2), true, true, false),
            (30, Some(29), true, true, false),
            (31, Some(30), true, true, true),
        ]);
    }

    #[test]
    fn e40_a_long_drain_of_a_cluster_that_changes_all_the_time_writes_no_more_often() {
        let (begin, mut due) = (Instant::now(), Due::new(0.0));
        let cost = Cost { octets: 60 << 20, took: Duration::ZERO };
        let starts = (0..600).filter(|&second| {
            due.changed();
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact: Some(now), cost, is_last: second >= 30 })
        });
        let starts: Vec<u64> = starts.collect();
        assert_eq!(starts[..4], [0, 30, 90, 150]);
        assert_eq!(starts.len(), 11);
    }

    #[test]
    fn e40_a_failure_is_tried_again_later() {
        let (begin, mut due) = (Instant::now(), Due::new(0.0));
        let mut starts = |second, failed| {
            if failed {
                due.failed();
            }
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact: Some(begin), cost: Cost::default(), is_last: false })
        };
        assert!(starts(0, false));
        assert!(!starts(59, true));
        assert!(starts(60, false));
        assert!(!starts(120, false), "it worked");
    }

    /// The seconds at which snapshots start in ten minutes of a cluster that changes all the time.
    fn starts(chance: f64, cost: Cost) -> Vec<u64> {
        let (begin, mut due) = (Instant::now(), Due::new(chance));
        let seconds = (0..600).filter(|&second| {
            due.changed();
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact: Some(now), cost, is_last: false })
        });
        seconds.collect()
    }

    #[test]
    fn e40_a_cluster_that_changes_all_the_time_is_written_as_often_as_it_costs() {
        let cost = |octets: u64, millis| Cost { octets, took: Duration::from_millis(millis) };
        for (chance, every) in [(0.0, 30), (0.5, 40), (0.999, 50)] {
            let small = starts(chance, cost(6_000_000, 100));
            assert!(small.len() <= 20, "{small:?}");
            let apart: Vec<u64> = small.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(apart.iter().all(|apart| *apart == every && every < 60), "{apart:?}");
        }
        assert_eq!(starts(0.0, cost(100 << 20, 900)), [0, 100, 200, 300, 400, 500], "1 MiB/s");
        assert_eq!(starts(0.0, cost(6_000_000, 6_000)), [0, 120, 240, 360, 480], "a slow disk");
        let bound = MAX_INTERVAL.as_secs();
        for worst in [cost(256 << 20, 0), cost(0, 3_600_000), cost(u64::MAX, u64::MAX)] {
            assert_eq!(
                starts(0.999, worst),
                [0, bound, 2 * bound, 3 * bound],
                "no older than minutes"
            );
        }
        let (begin, mut due) = (Instant::now(), Due::new(0.0));
        let mut starts = |second, is_last| {
            due.changed();
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact: Some(now), cost: cost(256 << 20, 0), is_last })
        };
        assert!(starts(0, false) && !starts(1, false) && starts(2, true), "the end does not wait");
    }

    #[test]
    fn e40_a_snapshot_that_fails_is_not_tried_more_often_than_it_costs() {
        let (begin, mut due) = (Instant::now(), Due::new(0.0));
        let cost = Cost { octets: 150 << 20, took: Duration::ZERO };
        let mut starts = |second| {
            due.failed();
            let now = begin + Duration::from_secs(second);
            due.start(Moment { now, contact: Some(begin), cost, is_last: false })
        };
        assert!(starts(0) && !starts(60) && !starts(149) && starts(150));
    }
}
