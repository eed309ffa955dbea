//! The condition that people wait for after an edit: `kubectl wait --for=condition=UpToDate`. kubectl looks at the
//! `observedGeneration` of the condition, so that what was true of an earlier spec does not count.

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;

use super::conditions::{ConditionState, Conditions};
use super::readiness::given_back_to_none;
use crate::apply::outcome::Applied;
use crate::decide::adoption;
use crate::decide::plan::{Plan, ServicePlan};
use crate::names;
use crate::observe::observed::{Observed, PodReport};
use crate::observe::pods;

/// Does every ready pod run this spec? `progressing` is the condition of that name, if it is true.
pub(super) fn up_to_date(
    dns: &ClusterDNS,
    plan: &Plan,
    applied: &Applied,
    observed: &Observed,
    progressing: Option<&ConditionState>,
    before: &Conditions<'_>,
) -> ConditionState {
    let rollout = &plan.rollout;
    let (desired, stable) = (&rollout.desired_revision, &rollout.state.stable);
    if let Some(released) = released(dns, plan, observed).filter(|_| applied.failures.is_empty()) {
        return released;
    }
    if let Some(progressing) = progressing {
        return progressing.clone().negated();
    }
    if dns.spec.management_state == ManagementState::Unmanaged {
        return ConditionState::no(
            "Unmanaged",
            "managementState is Unmanaged: the operator does not apply the spec",
        );
    }
    if !applied.failures.is_empty() {
        return ConditionState::no(
            "ApplyFailed",
            "the operator cannot write some objects: Degraded names them",
        );
    }
    if desired != stable {
        let message = format!(
            "pods run configuration {stable}, and the spec asks for {desired}: Progressing shows whether a pod tries it, and \
             Degraded why it was refused"
        );
        return ConditionState::no("OlderConfiguration", &message);
    }
    let (mut ready, mut refusing, mut ignoring, mut silent) = (0, 0, 0, 0);
    for pod in pods::ready(observed) {
        ready += 1;
        // One without an answer has its turn later: Progressing says so.
        let answer = observed.pod_reports.get(pods::uid(pod));
        silent += usize::from(answer.is_some_and(|answer| answer.reported.is_err()));
        if let Some(known) = answer.and_then(PodReport::known) {
            refusing += usize::from(known.refusal().is_some());
            ignoring += usize::from(known.ignores_fields());
        }
    }
    if ready == 0 {
        return ConditionState::no("NoPodReady", "no pod is ready: Ready shows the next step");
    }
    if refusing > 0 {
        let message = format!(
            "{refusing} ready pods refuse this configuration: Degraded names them and the reason"
        );
        return ConditionState::no("PodsRefuse", &message);
    }
    if ignoring > 0 {
        let message = format!(
            "{ignoring} ready pods do not know some fields of this configuration, and run without them: Degraded names the fields"
        );
        return ConditionState::no("PodsIgnoreFields", &message);
    }
    // Nothing new was given to the pods since they were known to run it: silence is a problem that Degraded has after minutes.
    if silent > 0 && !before.was_true_of_this_spec("UpToDate") {
        let message = format!(
            "{silent} of {ready} ready pods do not answer at /config on their metrics port, so it is not known what they run: \
             a NetworkPolicy must let the operator in"
        );
        return ConditionState::no("PodsSilent", &message);
    }
    ConditionState::yes("AllPodsCurrent", &format!("every ready pod runs configuration {stable}"))
}

/// No client asks our pods any more, and others answer, so it does not matter what they run: people often go back because they are
/// broken. Pods of ours that are ready answer beside the others until they have lost the labels of the Service.
fn released(dns: &ClusterDNS, plan: &Plan, observed: &Observed) -> Option<ConditionState> {
    let is_managed = dns.spec.management_state == ManagementState::Managed;
    let is_released = matches!(plan.service, ServicePlan::Released { patch: None, .. })
        && adoption::ready_behind(observed) == 0;
    if !is_managed || !is_released {
        return None;
    }
    let (namespace, name) = names::service(dns);
    if !adoption::has_others_behind(dns, observed) {
        return Some(given_back_to_none((&namespace, &name), false));
    }
    let message = format!("Service {namespace}/{name} is served by the other DNS server again");
    Some(ConditionState::yes("Released", &message))
}
