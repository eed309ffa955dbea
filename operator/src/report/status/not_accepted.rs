//! The status of a spec that is not acted on: it is invalid, or this cluster does not allow it now. What runs is left as it is.
//! Pure.

use crds::ClusterDNS;
use crds::bounds::{MESSAGE, REPORTED};
use crds::check::Violations;
use crds::v1alpha1::{ClusterDNSStatus, Revision, Violation};
use jiff::Timestamp;

use super::conditions::{ConditionState, Conditions};
use super::fields::{live_size, replicas, skipped};
use super::not_ready::{not_looked_at, too_few_pods, with_too_few_last};
use super::readiness::still_ready;
use super::{operator_lacks, outdated_pods, problems};
use crate::apply::outcome::{PutBack, Restored};
use crate::decide::config_map;
use crate::decide::plan::Refusal;
use crate::names;
use crate::observe::observed::Observed;
use crate::shortened::shortened;

/// Why it is not acted on.
struct Why<'a> {
    reason: &'a str,
    text: &'a str,
    /// See [`Refusal::is_passing`].
    is_passing: bool,
}

impl Why<'_> {
    fn no(&self) -> ConditionState {
        ConditionState::no(self.reason, self.text)
    }
}

/// The spec is invalid. What runs is left as it is.
pub fn rejected(
    dns: &ClusterDNS,
    violations: &Violations,
    observed: &Observed,
    put_back: &PutBack,
    now: Timestamp,
) -> ClusterDNSStatus {
    let first = violations.listed().first();
    let reason = first.map_or_else(|| "Invalid".to_owned(), |first| first.reason.to_string());
    let shown =
        first.map(|first| format!("{}: {}", first.field, first.message)).unwrap_or_default();
    let more = match violations.count().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let listed = violations.listed().iter().take(REPORTED).map(Violation::from).collect();
    let why = Why { reason: &reason, text: &format!("{shown}{more}"), is_passing: false };
    not_accepted(dns, &why, listed, observed, put_back, now)
}

/// The spec is valid, and not acted on in this cluster. What runs is left as it is.
pub fn refused(
    dns: &ClusterDNS,
    refusal: &Refusal,
    observed: &Observed,
    put_back: &PutBack,
    now: Timestamp,
) -> ClusterDNSStatus {
    let Refusal { reason, field, message, again_in: _, is_passing } = refusal;
    // It quotes what others wrote, such as a selector, and the API server refuses a status with a longer text as a whole.
    let violation = Violation {
        field: shortened(field, MESSAGE),
        reason: (*reason).to_owned(),
        message: shortened(message, MESSAGE),
    };
    let text = format!("{field}: {message}");
    let why = Why { reason, text: &text, is_passing: *is_passing };
    not_accepted(dns, &why, vec![violation], observed, put_back, now)
}

fn not_accepted(
    dns: &ClusterDNS,
    why: &Why<'_>,
    violations: Vec<Violation>,
    observed: &Observed,
    put_back: &PutBack,
    now: Timestamp,
) -> ClusterDNSStatus {
    let before = dns.status.clone().unwrap_or_default();
    let state = config_map::state(observed);
    let mut conditions = Conditions::of(dns, now);
    conditions.set("Accepted", why.no());
    match (observed.is_unwatched, why.is_passing) {
        (true, _) => conditions.set_unknown("Ready", unwatched(dns)),
        (false, true) => conditions.set("Ready", why.no()),
        (false, false) => conditions.set("Ready", still_ready(dns, observed)),
    }
    let waits =
        ConditionState::no("NotAccepted", "the spec is refused: correct what Accepted names");
    let waits = if why.is_passing { why.no() } else { waits };
    conditions.set("UpToDate", waits.clone());
    conditions.set("Progressing", if why.is_passing { waits.negated() } else { waits });
    conditions.set("Degraded", degraded_by(why, dns, observed, put_back));
    let yes = || why.no().negated();
    conditions.set_if("Stalled", (!why.is_passing).then(yes));
    conditions.set_if("Reconciling", why.is_passing.then(yes));
    ClusterDNSStatus {
        observed_generation: dns.metadata.generation,
        domain: before.domain,
        cluster_ips: before.cluster_ips,
        revision: (!state.stable.is_empty()).then_some(Revision {
            desired: String::new(),
            stable: state.stable.clone(),
            canary: state.canary_pod.as_ref().map(|_| state.canary.clone()).unwrap_or_default(),
        }),
        replicas: (!observed.is_unwatched)
            .then(|| replicas(live_size(observed), &state.stable, observed)),
        conditions: conditions.listed(),
        violations,
        skipped_objects: skipped(observed),
    }
}

/// Its pods may serve: the namespace may have been taken out of what this operator manages.
fn unwatched(dns: &ClusterDNS) -> ConditionState {
    let (namespace, _) = names::service(dns);
    let message = format!(
        "this operator does not watch namespace {namespace}, so it does not know whether pods answer there"
    );
    ConditionState::no("NamespaceNotManaged", &message)
}

/// Clients without a Service are a worse problem than a refused spec.
fn degraded_by(
    why: &Why<'_>,
    dns: &ClusterDNS,
    observed: &Observed,
    put_back: &PutBack,
) -> ConditionState {
    let Why { reason, text, is_passing: _ } = why;
    let text = match too_few_pods(dns, observed) {
        Some(too_few) => with_too_few_last(text, &too_few),
        None if observed.is_unwatched => not_looked_at(dns, text),
        None => (*text).to_owned(),
    };
    match &put_back.service {
        Restored::Unneeded | Restored::Created => {
            let applied = &put_back.outcome.applied;
            let others = [
                problems::apply_failed(applied),
                operator_lacks::watches(dns, observed),
                problems::contended(applied),
                outdated_pods::pods_cut_off(dns, observed),
            ];
            let others = others.into_iter().flatten().map(|it| format!("; {}", it.message));
            ConditionState::yes(reason, &format!("{text}{}", others.collect::<String>()))
        }
        Restored::Failed(error) => {
            let (namespace, name) = names::service(dns);
            let message = format!(
                "Service {namespace}/{name} was deleted, and the operator cannot create it again: {error}. Delete what has its \
                 addresses (kubectl get services -A); {text}"
            );
            ConditionState::yes("ServiceGone", &message)
        }
    }
}
