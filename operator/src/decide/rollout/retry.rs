//! When a revision that failed on its canary is tried again: what failed may have been a server that was down. After a
//! while, longer each time, and at once when a person asks for it by an annotation. Pure.

use std::time::Duration;

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;
use jiff::{SignedDuration, Timestamp};

use super::{WAIT_FOR_SECOND, has_one_pod};
use crate::decide::plan::{FailedEarlier, Held, HeldBy, RolloutPlan, RolloutState};
use crate::names::RETRY;
use crate::observe::observed::Observed;
use crate::shortened::shortened;

/// After the first failure; doubled after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(5 * 60);
/// Longest wait between two trials of a revision.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// Revisions that are remembered besides the one that failed last.
const MAX_EARLIER: usize = 8;
/// Octets of the annotation that are remembered and compared.
const MAX_ANNOTATION: usize = 128;

/// Did this revision fail, with this spec?
pub(super) fn has_failed(dns: &ClusterDNS, state: &RolloutState, revision: &str) -> bool {
    state.failed == revision && state.failed_generation == dns.metadata.generation
}

/// Did this revision fail, with this spec or one before?
pub(super) fn is_known_to_fail(state: &RolloutState, revision: &str) -> bool {
    let is_last = state.failed == revision && !state.is_unjudged;
    is_last || state.failed_earlier.iter().any(|earlier| earlier.revision == revision)
}

/// Why the last trial of this revision could not be judged, which is said until another one is.
pub(super) fn unjudged(dns: &ClusterDNS, state: &RolloutState, revision: &str) -> Option<Held> {
    let is_unjudged = state.is_unjudged && has_failed(dns, state, revision);
    is_unjudged.then(|| HeldBy::of_reason(&state.unjudged_by).because(&state.failure))
}

/// May it be tried again? A time that is too far from now, which a wrong clock wrote, is ignored.
pub(super) fn is_due(dns: &ClusterDNS, state: &RolloutState, now: Timestamp) -> bool {
    let Ok(retry_at) = state.retry_at.parse::<Timestamp>() else { return true };
    let far = now + signed(LONGEST_WAIT);
    now >= retry_at || retry_at > far || annotation(dns) != state.retried
}

/// What an Event of a trial that ended says about the next one.
pub(super) const LATER: &str = "Degraded shows the time of the next trial";
pub(super) const NEVER: &str = "There is no trial while there is only one pod";

/// When the revision that failed is tried again, for status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTrial {
    /// A pod tries it.
    Now,
    /// Not before this time.
    At(Timestamp),
    /// As soon as two pods are ready, and no rollout of pods is in progress.
    WithTwoPods,
    /// As soon as two pods are ready; if they are not at this time, every pod gets it untried.
    WithTwoPodsUntil(Timestamp),
    /// Never: the spec asks for one pod, so there is nothing to compare with.
    OnePod,
    /// Never, for the same reason; nothing is known against it, so that pod gets it at this time.
    OnePodAt(Timestamp),
    /// Never: the operator does nothing.
    Unmanaged,
}

/// When the revision that failed is tried again.
pub fn next_trial(
    dns: &ClusterDNS,
    plan: &RolloutPlan,
    observed: &Observed,
    now: Timestamp,
) -> NextTrial {
    let state = &plan.state;
    let waits = has_failed(dns, state, &state.failed) && !is_due(dns, state, now);
    let may_go_untried = !is_known_to_fail(state, &state.failed);
    // A sum would panic where the text has a time of the year 9999.
    let goes_untried = state.waits_since.parse::<Timestamp>();
    let goes_untried = goes_untried.and_then(|since| since.checked_add(WAIT_FOR_SECOND));
    match (dns.spec.management_state, state.retry_at.parse::<Timestamp>()) {
        _ if plan.canary.is_some() => NextTrial::Now,
        (ManagementState::Unmanaged, _) => NextTrial::Unmanaged,
        (ManagementState::Managed, Ok(at))
            if waits && may_go_untried && has_one_pod(dns, observed) =>
        {
            NextTrial::OnePodAt(at)
        }
        (ManagementState::Managed, _) if has_one_pod(dns, observed) => NextTrial::OnePod,
        (ManagementState::Managed, Ok(at)) if waits => NextTrial::At(at),
        (ManagementState::Managed, Ok(_) | Err(_)) => {
            goes_untried.map_or(NextTrial::WithTwoPods, NextTrial::WithTwoPodsUntil)
        }
    }
}

/// Time until the failed revision is tried again.
pub(super) fn due_in(state: &RolloutState, now: Timestamp) -> Option<Duration> {
    let retry_at = state.retry_at.parse::<Timestamp>().ok()?;
    Duration::try_from(retry_at.duration_since(now)).ok()
}

/// Keeps only what is remembered about a failure.
pub fn remembered(state: &RolloutState) -> RolloutState {
    let RolloutState {
        failed,
        failure,
        failed_generation,
        failures,
        retry_at,
        is_unjudged,
        unjudged_by,
        retried,
        failed_earlier,
        ..
    } = state.clone();
    RolloutState {
        failed,
        failure,
        failed_generation,
        failures,
        retry_at,
        is_unjudged,
        unjudged_by,
        retried,
        failed_earlier,
        ..RolloutState::default()
    }
}

/// The same of this revision, which failed: it may be one that failed before others were asked for, or before a trial that
/// could not be judged.
pub(super) fn recalled(state: &RolloutState, revision: &str) -> RolloutState {
    let earlier = state.failed_earlier.iter().find(|earlier| earlier.revision == revision);
    match earlier.filter(|_| state.failed != revision || state.is_unjudged) {
        Some(FailedEarlier { revision, failure }) => RolloutState {
            failed: revision.clone(),
            failure: failure.clone(),
            ..RolloutState::default()
        },
        None => remembered(state),
    }
}

/// What the next state has as failed earlier: also what failed last, where that state is about another revision, or about a
/// trial that could not be judged. What every pod runs is out of it: it passed, or a person insisted.
pub(super) fn earlier(before: &RolloutState, next: &RolloutState) -> Vec<FailedEarlier> {
    let mut all = before.failed_earlier.clone();
    if !before.failed.is_empty() && !before.is_unjudged {
        let (revision, failure) = (before.failed.clone(), before.failure.clone());
        all.retain(|earlier| earlier.revision != revision);
        all.push(FailedEarlier { revision, failure });
    }
    let is_last = |revision: &String| *revision == next.failed && !next.is_unjudged;
    all.retain(|earlier| earlier.revision != next.stable && !is_last(&earlier.revision));
    all.drain(..all.len().saturating_sub(MAX_EARLIER));
    all
}

/// The state to remember after one more failure.
pub(super) fn failed(
    dns: &ClusterDNS,
    before: &RolloutState,
    (revision, why): (&str, String),
    now: Timestamp,
) -> RolloutState {
    let failures = if has_failed(dns, before, revision) { before.failures } else { 0 };
    let wait = FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(LONGEST_WAIT);
    RolloutState {
        failed: revision.to_owned(),
        failure: why,
        failed_generation: dns.metadata.generation,
        failures: failures.saturating_add(1),
        retry_at: (now + signed(wait)).to_string(),
        retried: annotation(dns),
        ..RolloutState::default()
    }
}

/// What a person last wrote to have it tried again.
fn annotation(dns: &ClusterDNS) -> String {
    let annotations = dns.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(RETRY)).map(String::as_str);
    shortened(text.unwrap_or_default(), MAX_ANNOTATION)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::from_secs(duration.as_secs().try_into().unwrap_or(i64::MAX))
}
