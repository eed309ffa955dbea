//! Pods that run another configuration than the spec asks for and do not say "soon": they refuse it, cannot read it, or do not know
//! all of its fields.

use std::collections::BTreeSet;

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;
use jiff::Timestamp;
use kube::ResourceExt;

use super::problem::{Problem, named, problem};
use crate::decide::adoption::is_per_node;
use crate::decide::plan::Plan;
use crate::desired::Kind;
use crate::names;
use crate::observe::observed::{CutOff, Observed, Reported};
use crate::observe::pods;
use crate::runtime::resources;

/// Time after which a watch that fails is a problem: one that ends is begun again within seconds.
const CUT_OFF_S: u64 = 60;

/// O5: pods that keep their previous configuration because they refuse the new one.
pub(super) fn pods_refuse(dns: &ClusterDNS, plan: &Plan, observed: &Observed) -> Option<Problem> {
    let canary = plan.rollout.state.canary_pod.as_ref().map(|pod| pod.uid.as_str());
    let refusing =
        pods::ready(observed).filter(|pod| Some(pods::uid(pod)) != canary).filter_map(|pod| {
            let why = refusal(dns, pods::known(observed, pod)?)?;
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

/// Pods that run their configuration without fields that they do not know: what such a field restricts is open. While a rollout of
/// pods makes steps, newer ones are on their way.
pub(super) fn pods_ignore_fields(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
    now: Timestamp,
) -> Option<Problem> {
    let per_node = is_per_node(dns);
    let stay = pods::stay(observed, per_node, now);
    let canary = plan.rollout.state.canary_pod.as_ref().map(|pod| pod.uid.as_str());
    let others = pods::ready(observed).filter(|pod| stay && Some(pods::uid(pod)) != canary);
    let reported = others.filter_map(|pod| Some((pod, pods::known(observed, pod)?)));
    let (mut ignoring, mut fields) = (Vec::new(), BTreeSet::new());
    for (pod, reported) in reported.filter(|(_, it)| it.ignores_fields()) {
        ignoring.push(pods::name(pod).to_owned());
        fields.extend(reported.ignored.iter().cloned());
    }
    if ignoring.is_empty() {
        return None;
    }
    let message = format!(
        "{} pods do not know these fields of their configuration, and run without them: {} (pods {}). Their image is older than the \
         operator: update it, in spec.image if it is set there, or take the fields out of the spec. Until then no pod can try an edit",
        ignoring.len(),
        named(fields.into_iter().collect()),
        named(ignoring)
    );
    Some(Problem { reason: "PodsIgnoreFields", message, needs_a_person: true })
}

/// A deleted document is written again within a second, unless the operator may not: then a person must know.
fn refusal<'o>(dns: &ClusterDNS, reported: &'o Reported) -> Option<&'o str> {
    match dns.spec.management_state {
        ManagementState::Managed => reported.refusal(),
        ManagementState::Unmanaged => reported.rejection.as_deref(),
    }
}

/// Ready pods that cannot read their configuration: they answer from what they know, and no change reaches them.
pub(super) fn pods_cut_off(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let cut_off: Vec<(&str, &CutOff)> = pods::ready(observed)
        .filter_map(|pod| {
            let cut_off = pods::known(observed, pod)?.cut_off.as_ref()?;
            (cut_off.seconds > CUT_OFF_S).then_some((pods::name(pod), cut_off))
        })
        .collect();
    if cut_off.is_empty() {
        return None;
    }
    let is_said = |code: &str| cut_off.iter().any(|(_, it)| it.why.contains(code));
    let mut advice = String::new();
    if is_said("(401)") {
        let kind = if is_per_node(dns) { Kind::DaemonSet } else { Kind::Deployment };
        advice = format!(
            ". 401: most likely their ServiceAccount was deleted and made again, so their tokens are refused for up to an hour. If \
             they are not replaced now: kubectl -n {} rollout restart {}/{}",
            names::service(dns).0,
            resources::name(kind).to_lowercase(),
            names::child(&dns.name_any())
        );
    }
    if is_said("(403)") {
        advice.push_str(". 403: look for what changes or denies their Role and RoleBinding");
    }
    if advice.is_empty() {
        let text =
            ". Check the API server, and that a NetworkPolicy with egress rules lets pods reach it";
        advice = text.to_owned();
    }
    let named_with_why = |(name, it): &(&str, &CutOff)| format!("{name} ({})", it.why);
    problem(
        "PodsCutOff",
        format!(
            "these pods have not been able to read their configuration for more than {CUT_OFF_S} s: {}. They answer from what \
             they know, and get no change of the spec{advice}",
            named(cut_off.iter().map(named_with_why).collect())
        ),
    )
}
