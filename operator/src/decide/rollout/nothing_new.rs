//! What pods run while nothing new may be given to them: the spec is refused, or what it asks for waits for a right. Pure.

use crds::ClusterDNS;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{edited, keep, retry};
use crate::decide::adoption;
use crate::decide::config_map::{Current, Edit};
use crate::decide::plan::{RolloutPlan, RolloutState};
use crate::observe::observed::Observed;
use crate::observe::pods;

/// What the ConfigMap should hold while the spec is refused, or what it asks for cannot be written yet: what every pod runs, and no
/// pod that tries another configuration, because nothing judges it. What failed stays known. None: it is not known what pods run.
pub fn nothing_new(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> Option<RolloutPlan> {
    let written = Current::read(observed);
    let is_known = matches!(written.edit, Edit::None | Edit::Undone);
    let stable = written.stable.as_deref().filter(|_| is_known)?;
    let before = &written.state;
    let mut plan = keep(stable, before);
    (plan.state.edited_at, plan.state.is_edit_kept) = edited(&plan, &written, now);
    let RolloutState {
        stable, warning, warned_at, has_errors_only, edited_at, is_edit_kept, ..
    } = plan.state;
    plan.needs_pods = before.needs_pods;
    plan.state = RolloutState {
        stable,
        warning,
        warned_at,
        has_errors_only,
        edited_at,
        is_edit_kept,
        canary: if is_suspect(before, observed) { before.canary.clone() } else { String::new() },
        losses: before.losses,
        failed_pod: before.failed_pod.clone(),
        needs_pods: before.needs_pods,
        switch: before.switch.clone(),
        service: adoption::kept(dns, observed),
        account: before.account.clone(),
        ..retry::remembered(before)
    };
    Some(plan)
}

/// Whether the trial that ends may have broken a pod: then too few ready pods are no reason to skip the next trial. Otherwise they
/// are, after a while, as for a configuration that no pod has tried: a second pod may never come.
fn is_suspect(state: &RolloutState, observed: &Observed) -> bool {
    // It ended before, and what is known of it stays known.
    let Some(canary) = &state.canary_pod else { return true };
    let is_well = |pod: &Pod| {
        let reported = pods::reported(observed, pod);
        let is_refused = reported.is_some_and(|reported| reported.refusal().is_some());
        let is_another = reported.is_some_and(|reported| {
            let known = !reported.process.is_empty() && !canary.process.is_empty();
            known && reported.process != canary.process
        });
        pods::uid(pod) == canary.uid
            && pods::restarts(pod) <= state.restarts
            && !is_refused
            && !is_another
    };
    state.losses > 0 || !state.worse.is_empty() || !pods::ready(observed).any(is_well)
}
