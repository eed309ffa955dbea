//! Ready pods that do not answer the operator: what they would report is not known, so silence is a problem and ends none.

use crds::ClusterDNS;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::conditions::ConditionState;
use super::problem::{Problem, named, problem};
use crate::names;
use crate::observe::observed::Observed;
use crate::observe::pods;

const SILENT: &str = "PodsSilent";
/// The reasons of `Degraded` that pods report.
const FROM_PODS: [&str; 13] = [
    "PodsCutOff",
    "PodsRefuse",
    "PodsIgnoreFields",
    "NoUsableUpstream",
    "UpstreamLooping",
    "UpstreamDown",
    "UpstreamFailing",
    "CertificateUnusable",
    "CertificateExpired",
    "CertificateExpiring",
    "CertificateNotYetValid",
    "ListenerClosed",
    SILENT,
];

/// Ready pods that have not answered for minutes.
pub(super) fn pods_silent(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let why = |pod| {
        let answer = observed.pod_reports.get(pods::uid(pod)).filter(|it| it.is_silent)?;
        Some((pods::name(pod).to_owned(), answer.reported.as_ref().err()?))
    };
    let (silent, whys): (Vec<String>, Vec<&String>) = pods::ready(observed).filter_map(why).unzip();
    let first = whys.first()?;
    problem(
        SILENT,
        format!(
            "{} of {} ready pods have not answered the operator for 5 minutes ({first}): {}. It does not know their upstreams, \
             certificates and refusals, so other problems may be hidden. If NetworkPolicies block it, allow this: from the \
             operator's namespace to pods with the label {}={}, TCP {} (spec.networkPolicy: true creates such a policy)",
            silent.len(),
            pods::ready(observed).count(),
            named(silent),
            names::INSTANCE,
            dns.name_any(),
            crds::defaults::HTTP_PORT
        ),
    )
}

/// A problem that pods reported to an operator before this one, or before they were restarted, while some of them have not said
/// whether it is over.
pub(super) fn until_heard(
    observed: &Observed,
    degraded: Option<&Condition>,
) -> Option<ConditionState> {
    let is_unheard = |pod| {
        let answer = observed.pod_reports.get(pods::uid(pod));
        answer.is_none_or(|answer| answer.known().is_none() && !answer.is_silent)
    };
    let before = degraded.filter(|it| it.status == "True")?;
    let is_open = FROM_PODS.contains(&before.reason.as_str());
    let is_kept = is_open && pods::ready(observed).any(is_unheard);
    is_kept.then(|| ConditionState::yes(&before.reason, &before.message))
}
