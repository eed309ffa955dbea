//! One pass over the objects of a ClusterDNS: what failed a moment ago waits and counts as failed, what fails now waits from
//! now on. The others are written.

use std::time::Duration;

use crds::ClusterDNS;

use super::contention::Key;
use super::outcome::{Outcome, described, explained};
use crate::context::Context;
use crate::controller::attempts::Attempts;
use crate::desired::Kind;
use crate::runtime::write::WriteError;
use crate::shortened::shortened;

/// Octets of why an object cannot be written: a webhook of others may say anything.
const MAX_WHY: usize = 2_048;

/// What this pass has done so far.
pub(super) struct Tries<'a> {
    attempts: &'a Attempts,
    generation: Option<i64>,
    /// What decides a trial waits no longer than this.
    trial: Option<Duration>,
    /// rollout.json does not say what was decided now.
    pub(super) is_undecided: bool,
    pub(super) outcome: Outcome,
}

impl<'a> Tries<'a> {
    /// `trial`: a pod tries a configuration, and this pass is due again after this time.
    pub(super) fn of(ctx: &'a Context, dns: &ClusterDNS, trial: Option<Duration>) -> Tries<'a> {
        let (attempts, generation) = (&ctx.attempts, dns.metadata.generation);
        Tries { attempts, generation, trial, is_undecided: false, outcome: Outcome::default() }
    }

    /// Whether it failed a moment ago, so that it is not tried now.
    pub(super) fn waits(&mut self, key: &Key) -> bool {
        let what = described(key);
        let Some((why, left)) = self.attempts.waits(&what, self.generation) else { return false };
        tracing::debug!("{what} is tried again in {} ms: {why}", left.as_millis());
        self.is_undecided |= key.0 == Kind::ConfigMap;
        self.outcome.failed(key.0, what, why);
        self.outcome.again_within(left);
        true
    }

    /// Another object must be written before it.
    pub(super) fn depends(&mut self, key: &Key, why: String) {
        self.outcome.failed(key.0, described(key), why);
    }

    pub(super) fn failed(&mut self, key: &Key, why: &str) {
        let (what, why) = (described(key), shortened(why, MAX_WHY));
        tracing::warn!("the operator cannot write {what}: {why}");
        let at_most = self.trial.filter(|_| key.0 == Kind::ConfigMap);
        let wait = self.attempts.failed(&what, self.generation, (&why, at_most));
        self.is_undecided |= key.0 == Kind::ConfigMap;
        self.outcome.failed(key.0, what, why);
        self.outcome.again_within(wait);
    }

    pub(super) fn refused(&mut self, key: &Key, error: &WriteError) {
        self.outcome.retry_after = self.outcome.retry_after.max(error.retry_after());
        self.failed(key, &explained(key.0, error));
    }

    pub(super) fn succeeded(&self, key: &Key) {
        self.attempts.succeeded(&described(key));
        self.attempts.succeeded(&described(&as_it_was(key)));
    }
}

/// The object as it was before, while its new content is refused: it waits by itself.
pub(super) fn as_it_was((kind, namespace, name): &Key) -> Key {
    (*kind, namespace.clone(), format!("{name} as it was"))
}
