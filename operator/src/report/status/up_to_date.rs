//! The condition that people wait for after an edit: `kubectl wait --for=condition=UpToDate`. kubectl looks at the
//! `observedGeneration` of the condition, so that what was true of an earlier spec does not count.

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;

use super::conditions::{Conditions, Told};
use crate::apply::outcome::Applied;
use crate::decide::plan::Plan;
use crate::observe::observed::Observed;
use crate::observe::pods;

/// Does every ready pod run this spec? `way` is what is still on its way.
pub(super) fn up_to_date(
    dns: &ClusterDNS,
    plan: &Plan,
    applied: &Applied,
    observed: &Observed,
    way: Option<&Told>,
    before: &Conditions<'_>,
) -> Told {
    let rollout = &plan.rollout;
    let (desired, stable) = (&rollout.desired_revision, &rollout.state.stable);
    if let Some(way) = way {
        return way.clone().negated();
    }
    if dns.spec.management_state == ManagementState::Unmanaged {
        return Told::no("Unmanaged", "managementState is Unmanaged: the spec is not applied");
    }
    if !applied.failures.is_empty() {
        return Told::no("ApplyFailed", "some objects could not be written: Degraded names them");
    }
    if desired != stable {
        let message = format!("pods run configuration {stable}, and the spec asks for {desired}");
        return Told::no("OlderConfiguration", &message);
    }
    let (mut ready, mut refusing, mut silent) = (0, 0, 0);
    for pod in pods::ready(observed) {
        ready += 1;
        match observed.answers.get(pods::uid(pod)).map(|answer| &answer.said) {
            Some(Ok(said)) => refusing += usize::from(said.rejection.is_some()),
            Some(Err(_)) => silent += 1,
            // Of many pods some are asked, who speak for all.
            None => {}
        }
    }
    if ready == 0 {
        return Told::no("NoPodReady", "no pod is ready");
    }
    if refusing > 0 {
        let message = format!("{refusing} ready pods refuse this configuration");
        return Told::no("PodsRefuse", &message);
    }
    // A pod that was silent once does not make what was known unknown.
    if silent > 0 && !before.was_true_of_this_spec("UpToDate") {
        let message = format!(
            "{silent} of {ready} ready pods do not answer at /config on their metrics port, so it is not known what they run: \
             a NetworkPolicy must let the operator in"
        );
        return Told::no("PodsSilent", &message);
    }
    Told::yes("AllPodsCurrent", &format!("every ready pod runs configuration {stable}"))
}
