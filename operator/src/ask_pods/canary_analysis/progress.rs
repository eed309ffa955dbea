//! A change may have thousands of hosts and records, and a hundred stub domains. Each round asks the next part of them, and a configuration
//! passes when all were asked. How far a trial is, is in memory: a new leader begins again. A part counts as asked when rollout.json
//! says what was found: what was worse is remembered only there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crds::ClusterDNS;

use super::question::Question;
use crate::decide::plan::RolloutState;

/// Questions for changed hosts and records of one round. With 4 rounds at a time, of at least a second, that is 4,000 small questions a second at most,
/// half of them to each of two pods.
const HOSTS: usize = 256;
/// Changed groups of one round: each may wait for servers that are silent.
const GROUPS: usize = 16;
/// Trials that are remembered: one of each ClusterDNS.
const MAX_TRIALS: usize = 1_000;

/// Which trial of which ClusterDNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    dns: String,
    pod: String,
    revision: String,
    started_at: String,
}

impl Trial {
    pub(super) fn of(dns: &ClusterDNS, state: &RolloutState) -> Trial {
        Trial {
            dns: dns.metadata.name.clone().unwrap_or_default(),
            pod: state.canary_pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default(),
            revision: state.canary.clone(),
            started_at: state.started_at.clone(),
        }
    }
}

/// How far each trial is, by the name of its ClusterDNS.
#[derive(Debug, Default)]
pub struct Trials(Mutex<HashMap<String, Known>>);

/// How far one trial is.
#[derive(Debug)]
struct Known {
    trial: Trial,
    progress: Progress,
    /// After a round of which rollout.json does not say yet what it found.
    unwritten: Option<Progress>,
    /// When this process saw it first.
    since: Option<Instant>,
}

impl Trials {
    /// Of a new trial: nothing was asked.
    pub(super) fn progress(&self, trial: &Trial) -> Progress {
        let trials = self.lock();
        let known = trials.get(&trial.dns).filter(|known| known.trial == *trial);
        known.map(|known| known.progress).unwrap_or_default()
    }

    /// A round ended early. Where the ConfigMap was deleted, the trial of that revision has begun again since the one before.
    pub(super) fn ended(&self, trial: Trial) {
        let is_same = |known: &&Known| known.trial.revision == trial.revision;
        let before = self.lock().get(&trial.dns).filter(is_same).map(|known| known.progress.ended);
        let ended = before.unwrap_or_default().saturating_add(1);
        self.change(trial, |known| known.progress.ended = ended);
    }

    /// A round did not end early.
    pub(super) fn heard(&self, trial: Trial) {
        self.change(trial, |known| known.progress.ended = 0);
    }

    /// For how long this process has watched this trial.
    pub(super) fn watched(&self, trial: Trial, now: Instant) -> Duration {
        let mut watched = Duration::ZERO;
        self.change(trial, |known| {
            watched = now.saturating_duration_since(*known.since.get_or_insert(now));
        });
        watched
    }

    /// A round came this far. It counts when what it found is [written](Trials::written).
    pub(super) fn proceeded(&self, trial: Trial, progress: Progress) {
        self.change(trial, |known| known.unwritten = Some(progress));
    }

    /// rollout.json says what the last round found.
    pub(super) fn written(&self, dns: &str) {
        if let Some(known) = self.lock().get_mut(dns)
            && let Some(next) = known.unwritten.take()
        {
            known.progress = Progress { ended: known.progress.ended, ..next };
        }
    }

    /// What the last round found will not be written any more: the next one asks the same.
    pub(super) fn forget_unwritten(&self, dns: &str) {
        if let Some(known) = self.lock().get_mut(dns) {
            known.unwritten = None;
        }
    }

    fn change(&self, trial: Trial, by: impl FnOnce(&mut Known)) {
        let mut trials = self.lock();
        if trials.len() >= MAX_TRIALS && !trials.contains_key(&trial.dns) {
            trials.clear();
        }
        let new = Known { trial, progress: Progress::default(), unwritten: None, since: None };
        match trials.entry(new.trial.dns.clone()) {
            Entry::Occupied(mut known) => {
                if known.get().trial != new.trial {
                    known.insert(new);
                }
                by(known.get_mut());
            }
            Entry::Vacant(place) => by(place.insert(new)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many of the changed hosts and groups the rounds of a trial have asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    hosts: Part,
    groups: Part,
    /// Rounds in a row that ended early, because another client deleted or edited what clients depend on.
    ended: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    asked: usize,
    all: usize,
}

impl Progress {
    /// Rounds in a row that ended early.
    pub(super) fn ended(&self) -> u32 {
        self.ended
    }

    /// Changed hosts and groups that no round has asked, of how many.
    pub fn unasked(&self) -> (usize, usize) {
        let left = |part: &Part| part.all.saturating_sub(part.asked);
        (left(&self.hosts) + left(&self.groups), self.hosts.all + self.groups.all)
    }

    /// The same before a round that would have come as far as `next`.
    pub(super) fn unasked_after(mut self, next: &Progress) -> (usize, usize) {
        (self.hosts.all, self.groups.all) = (next.hosts.all, next.groups.all);
        self.unasked()
    }

    /// The next of the changed hosts, and those that were worse in a round before.
    pub(super) fn of_hosts(&mut self, all: Vec<Question>, worse: &[String]) -> Vec<Question> {
        self.hosts.next(all, worse, HOSTS)
    }

    /// The next of the changed groups, and those that were worse in a round before.
    pub(super) fn of_groups(&mut self, all: Vec<Question>, worse: &[String]) -> Vec<Question> {
        self.groups.next(all, worse, GROUPS)
    }
}

impl Part {
    fn next(&mut self, all: Vec<Question>, worse: &[String], most: usize) -> Vec<Question> {
        self.all = all.len();
        // When all were asked, the rounds begin again.
        let from = if self.asked >= self.all { 0 } else { self.asked };
        let until = (from + most).min(self.all);
        self.asked = self.asked.max(until);
        let is_next = |place: usize| (from..until).contains(&place);
        let chosen = all
            .into_iter()
            .enumerate()
            .filter(|(place, question)| is_next(*place) || worse.contains(&question.what));
        chosen.map(|(_, question)| question).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask_pods::canary_analysis::question::Expects;

    fn questions(count: usize) -> Vec<Question> {
        let question = |n: usize| Question {
            what: format!("h{n}"),
            asked: Vec::new(),
            expects: Expects::Records,
            of: None,
        };
        (0..count).map(question).collect()
    }

    #[test]
    fn o17_rounds_ask_all_parts_in_turn_and_again_what_was_worse() {
        let mut progress = Progress::default();
        assert_eq!(progress.unasked(), (0, 0));
        let mut names = Vec::new();
        for (expected, left) in [(256, 344), (256, 88), (88, 0)] {
            let part = progress.of_hosts(questions(600), &[]);
            assert_eq!((part.len(), progress.unasked()), (expected, (left, 600)));
            names.extend(part.into_iter().map(|question| question.what));
        }
        names.dedup();
        assert_eq!(names.len(), 600, "each one once");
        let again = progress.of_hosts(questions(600), &["h599".to_owned()]);
        assert_eq!((again.len(), again[256].what.as_str()), (257, "h599"));
        assert_eq!(progress.of_groups(questions(17), &[]).len(), 16);
        assert_eq!(progress.unasked(), (1, 617));
    }

    #[test]
    fn o8_a_trial_is_watched_since_it_was_seen_first() {
        let (trials, begin) = (Trials::default(), Instant::now());
        let watched = |pod: &str, started: &str, at| {
            let trial = Trial {
                dns: "default".to_owned(),
                pod: pod.to_owned(),
                revision: "r".to_owned(),
                started_at: started.to_owned(),
            };
            trials.heard(trial.clone());
            trials.watched(trial, begin + Duration::from_secs(at)).as_secs()
        };
        assert_eq!([watched("p", "1", 5), watched("p", "1", 5), watched("p", "1", 35)], [0, 0, 30]);
        assert_eq!([watched("p", "2", 40), watched("p", "2", 41)], [0, 1], "it began again");
        assert_eq!([watched("q", "2", 50), watched("q", "2", 40)], [0, 0], "on another pod");
    }

    #[test]
    fn o17_a_trial_that_begins_again_asks_everything_again() {
        let trials = Trials::default();
        let trial = |started: &str| Trial {
            dns: "default".to_owned(),
            pod: "p".to_owned(),
            revision: "r".to_owned(),
            started_at: started.to_owned(),
        };
        let mut progress = trials.progress(&trial("1"));
        progress.of_groups(questions(20), &[]);
        trials.proceeded(trial("1"), progress);
        trials.written("default");
        assert_eq!(trials.progress(&trial("1")).unasked(), (4, 20));
        assert_eq!(trials.progress(&trial("2")), Progress::default());
        for number in 0..=MAX_TRIALS {
            trials.proceeded(Trial { dns: number.to_string(), ..trial("1") }, progress);
        }
        assert!(trials.0.lock().unwrap().len() <= MAX_TRIALS);
    }
}
