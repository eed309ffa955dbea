//! Pods that refuse their configuration and run an older one.

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;

use super::problem::{Problem, named, problem};
use crate::decide::plan::Plan;
use crate::observe::observed::{Observed, Reported};
use crate::observe::pods;

/// O5: pods that keep their previous configuration because they refuse the new one.
pub(super) fn pods_refuse(dns: &ClusterDNS, plan: &Plan, observed: &Observed) -> Option<Problem> {
    let canary = plan.rollout.state.canary_pod.as_ref().map(|pod| pod.uid.as_str());
    let refusing =
        pods::ready(observed).filter(|pod| Some(pods::uid(pod)) != canary).filter_map(|pod| {
            let why = refusal(dns, pods::reported(observed, pod)?)?;
            Some(format!("{} ({why})", pods::name(pod)))
        });
    let refusing: Vec<String> = refusing.collect();
    if refusing.is_empty() {
        return None;
    }
    problem(
        "PodsRefuse",
        format!(
            "{} pods refuse their configuration and keep the last good one: {}. Correct the field that they name, or update \
             their image",
            refusing.len(),
            named(refusing)
        ),
    )
}

/// A deleted document is written again within a second, unless the operator may not: then a person must know.
fn refusal<'o>(dns: &ClusterDNS, reported: &'o Reported) -> Option<&'o str> {
    match dns.spec.management_state {
        ManagementState::Managed => reported.refusal(),
        ManagementState::Unmanaged => reported.rejection.as_deref(),
    }
}
