//! The condition Ready: does DNS answer for the clients of the Service? Also where another DNS server answers beside ours.

use crds::ClusterDNS;
use crds::v1alpha1::Replicas;
use jiff::Timestamp;

use super::clients_excluded::unless_excluded;
use super::conditions::{ConditionState, NOT_SWITCHED, OTHERS_SERVE, RELEASING, WITHOUT_PODS};
use super::fields::count;
use super::not_ready::next_step;
use crate::decide::adoption::{self, Standing};
use crate::decide::plan::{Plan, ServicePlan};
use crate::names;
use crate::observe::observed::Observed;
use crate::observe::pods;

/// No Service has the addresses that clients ask.
const GONE: &str = "ServiceGone";

/// Do pods of an earlier spec still answer?
pub(super) fn still_ready(dns: &ClusterDNS, observed: &Observed) -> ConditionState {
    let serving = |reason: &str, message: &str| {
        unless_excluded(ConditionState::yes(reason, message), observed)
    };
    if let Some(why) = adoption::without_addresses(dns, observed) {
        return ConditionState::no(GONE, &why);
    }
    let (namespace, name) = names::service(dns);
    let is_ours = observed.service.is_some()
        && adoption::standing(dns, observed.service.as_ref()) != Standing::Foreign;
    let behind = adoption::ready_behind(observed);
    match count(pods::ready(observed)) {
        _ if !is_ours && behind == 0 && adoption::has_others_behind(dns, observed) => {
            ConditionState::no(
                OTHERS_SERVE,
                &format!(
                    "the spec is refused, and Service {namespace}/{name} leads to the pods of another DNS server: correct what \
                     Accepted names"
                ),
            )
        }
        0 => ConditionState::no(
            "NotAccepted",
            "the spec is refused, and no pod is ready: correct what Accepted names",
        ),
        ready if is_ours => serving(
            "Serving",
            &format!(
                "Service {namespace}/{name} has ready pods behind it, which answer as an earlier spec says: {ready}; the present spec is refused"
            ),
        ),
        _ if observed.service.is_some() && behind > 0 => {
            let (reason, and_others) = beside_others(dns, observed);
            serving(
                reason,
                &format!(
                    "Service {namespace}/{name} leads to {behind} pods of this ClusterDNS{and_others}, and ours answer as an \
                     earlier spec says; the present spec is refused"
                ),
            )
        }
        _ => ConditionState::no(
            "NotAccepted",
            &format!(
                "the spec is refused, and Service {namespace}/{name} does not lead to the pods of this ClusterDNS"
            ),
        ),
    }
}

/// Decides Ready. Once true it stays true while one pod is ready: a rollout, a drained node or a
/// larger number of pods do not change that.
pub(super) fn readiness(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
    replicas: &Replicas,
    (was_ready, now): (bool, Timestamp),
) -> ConditionState {
    let Replicas { desired, ready, summary, .. } = replicas;
    if observed.service.is_none() {
        return match plan.rollout.state.service.cluster_ips.as_slice() {
            [] => ConditionState::no("ServiceMissing", "the Service does not exist yet"),
            lost => {
                let lost = lost.join(", ");
                ConditionState::no(
                    GONE,
                    &format!("the Service was deleted, and clients ask {lost}"),
                )
            }
        };
    }
    if let Some(why) = adoption::without_addresses(dns, observed) {
        return ConditionState::no(GONE, &why);
    }
    let (namespace, name) = names::service(dns);
    let enough = if was_ready { 1 } else { (desired - (desired / 4).max(1).min(*desired)).max(1) };
    match &plan.service {
        ServicePlan::Released { patch: None, labels }
            if labels.is_empty() && adoption::has_others_behind(dns, observed) =>
        {
            ConditionState::yes(
                "Released",
                &format!(
                    "Service {namespace}/{name} is served by the other DNS server again; you can delete this ClusterDNS"
                ),
            )
        }
        ServicePlan::Released { patch, .. }
            if adoption::ready_behind(observed) == 0
                && !adoption::has_others_behind(dns, observed) =>
        {
            given_back_to_none((&namespace, &name), patch.is_some())
        }
        ServicePlan::Released { .. } => ConditionState::no(
            RELEASING,
            &format!("Service {namespace}/{name} is being given back"),
        ),
        ServicePlan::Adopted { .. }
            if *ready < enough
                && adoption::standing(dns, observed.service.as_ref()) != Standing::Switched
                && adoption::has_others_behind(dns, observed) =>
        {
            ConditionState::no(
                NOT_SWITCHED,
                &format!(
                    "Service {namespace}/{name} still leads to the pods of the other DNS server: it moves when every pod of this \
                     ClusterDNS is ready, and {summary} are: {}",
                    next_step(dns, observed)
                ),
            )
        }
        _ if *ready < enough => ConditionState::no(
            if *ready == 0 { "NoPodReady" } else { "TooFewPodsReady" },
            &format!("{summary} pods are ready: {}", next_step(dns, observed)),
        ),
        ServicePlan::Adopted { .. }
            if adoption::standing(dns, observed.service.as_ref()) != Standing::Switched =>
        {
            not_switched(dns, observed, now)
        }
        ServicePlan::Own | ServicePlan::Adopted { .. } | ServicePlan::Recreated { .. } => {
            let ips: Vec<String> = observed
                .service
                .iter()
                .flat_map(adoption::cluster_ips)
                .map(|ip| ip.to_string())
                .collect();
            if ips.is_empty() {
                let message = format!("Service {namespace}/{name} has no clusterIP yet");
                return ConditionState::no("ServiceMissing", &message);
            }
            // No one asked at this address: kube-proxy or a NetworkPolicy can keep clients from it.
            let at = ips.join(", ");
            let message =
                format!("Service {namespace}/{name} at {at} has ready pods behind it: {ready}");
            unless_excluded(ConditionState::yes("Serving", &message), observed)
        }
    }
}

/// Neither pods of ours are behind a Service that is given back, or is about to be, nor those of another server.
pub(super) fn given_back_to_none(
    (namespace, name): (&str, &str),
    is_on_its_way: bool,
) -> ConditionState {
    let state = match is_on_its_way {
        true => "it is being given back",
        false => {
            "it was given back to another DNS server. Start that one, or set spec.service.adopt to true"
        }
    };
    let message = format!(
        "Service {namespace}/{name} leads to no ready pod, so clients have no DNS: {state}"
    );
    ConditionState::no(WITHOUT_PODS, &message)
}

/// The reason of Ready where our key is not in the selector and our pods answer, and who else does. On a platform that always
/// resets the selector people keep the other server at 0 pods.
fn beside_others(dns: &ClusterDNS, observed: &Observed) -> (&'static str, &'static str) {
    match adoption::has_others_behind(dns, observed) {
        true => ("Shared", " and to those of another DNS server"),
        false => ("Serving", " and to no others"),
    }
}

/// Our key is not in the selector of an adopted Service: it never was, or another client removed it. Then our pods still
/// carry the labels that it selects by, so that they answer beside those of the other server.
fn not_switched(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> ConditionState {
    let (namespace, name) = names::service(dns);
    let reset = adoption::reset_by(dns, observed, now);
    let moves = match reset.as_ref().and_then(|(_, until)| *until) {
        Some(until) => {
            format!("it moves after {until:.0}, when every pod of this ClusterDNS is ready")
        }
        None => "it moves when every pod of this ClusterDNS is ready".to_owned(),
    };
    let behind = adoption::ready_behind(observed);
    let (reason, message) = match (&reset, behind, adoption::has_others_behind(dns, observed)) {
        (Some(_), 1.., _) => {
            let (reason, and_others) = beside_others(dns, observed);
            let message = format!(
                "Service {namespace}/{name} leads to {behind} pods of this ClusterDNS{and_others}. Another client changed its \
                 selector: {moves}"
            );
            return unless_excluded(ConditionState::yes(reason, &message), observed);
        }
        (_, 0, false) => (
            WITHOUT_PODS,
            format!(
                "Service {namespace}/{name} leads to no ready pod, so clients have no DNS: {moves}"
            ),
        ),
        (None, _, true) => (
            NOT_SWITCHED,
            format!(
                "Service {namespace}/{name} still leads to the pods of the other DNS server: {moves}"
            ),
        ),
        (None, _, false) => (
            NOT_SWITCHED,
            format!(
                "Service {namespace}/{name} leads to {behind} pods of this ClusterDNS and to no others, and is not taken over: \
                 {moves}"
            ),
        ),
        (Some(_), 0, true) => (
            NOT_SWITCHED,
            format!(
                "another client changed the selector of Service {namespace}/{name}, so that it leads to no pod of this \
                 ClusterDNS: {moves}"
            ),
        ),
    };
    ConditionState::no(reason, &message)
}
