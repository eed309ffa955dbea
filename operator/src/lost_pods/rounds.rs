//! When the next round of questions is, and how many pods it asks, so that a large cluster costs a bounded number of questions
//! (O20). Pure.

use std::time::Duration;

/// From the beginning of one round to that of the next.
const EVERY: Duration = Duration::from_secs(1);
/// The same while a pod is silent that may be lost soon: a question has no answer after this time, and each tenth of a
/// second counts for clients whose queries go to a dead node.
pub(super) const SOON: Duration = Duration::from_millis(700);

/// Pods that one round asks in turn, and so one second: 600 pods within 3 s.
const MOST_ASKED: usize = 200;
/// The same of a round that comes sooner: 600 pods within 2.8 s.
const MOST_ASKED_SOON: usize = 150;
/// Pods up to which all have their turns together, and each within 3 s.
const TOGETHER: usize = 600;
/// Pods that fell silent a moment ago and that a round asks besides, with those that look at them. Lossy pods fall silent
/// again and again, and a pod whose turn it is may have died.
const MOST_SILENT: usize = 40;

/// Whether each ClusterDNS has turns of its own where there are this many pods in all: one with thousands must not keep the few
/// pods of others waiting.
pub(super) fn has_own_turns(pods: usize) -> bool {
    pods > TOGETHER
}

/// One round of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Usual,
    /// A pod is silent that may be lost soon.
    Soon,
}

impl Round {
    /// The next round, where a pod may be lost soon or not.
    pub(super) fn next(is_soon: bool) -> Round {
        if is_soon { Round::Soon } else { Round::Usual }
    }

    /// From the beginning of the round before to that of this one.
    pub(super) fn wait(self) -> Duration {
        match self {
            Round::Usual => EVERY,
            Round::Soon => SOON,
        }
    }

    /// Pods that are asked in turn: those that were not asked for longest.
    pub(super) fn most_in_turn(self) -> usize {
        match self {
            Round::Usual => MOST_ASKED,
            Round::Soon => MOST_ASKED_SOON,
        }
    }

    /// Pods that fell silent a moment ago that are asked besides, with those that look at them.
    pub(super) fn most_silent(self) -> usize {
        MOST_SILENT
    }

    /// How many questions it has at most.
    pub(super) fn most(self) -> usize {
        self.most_in_turn() + self.most_silent()
    }
}
