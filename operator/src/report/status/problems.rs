//! Problems, the worst first: the reasons of `Degraded`.

use std::collections::BTreeSet;

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::certificates::{
    certificate_expires, certificate_not_yet_valid, certificate_unusable, listener_closed,
};
use super::failing_pods::failing_pods;
use super::nodes::{evictions_refused, many_nodes, no_node_fits, no_pod_wanted, on_one_node};
use super::not_ready::too_few_pods;
use super::not_scaled::not_scaled;
use super::outdated_pods::{pods_cut_off, pods_ignore_fields, pods_refuse};
use super::pods_shared::pods_shared;
use super::problem::{Problem, named, problem};
use super::silent_pods::pods_silent;
use super::trial_held::{self, trial_held};
use super::upstreams::{no_usable_upstream, upstream_down, upstream_failing, upstream_looping};
use super::{clients_excluded, operator_lacks};
use crate::apply::contention::Contested;
use crate::apply::outcome::Applied;
use crate::decide::admit::certificates;
use crate::decide::adoption;
use crate::decide::plan::Plan;
use crate::desired::Kind;
use crate::names::{self, CERTIFICATE};
use crate::observe::observed::{Certificate, Observed};
use crate::observe::pods;
use crate::runtime::resources;

/// Everything that is wrong now, the most urgent first.
pub(super) fn problems(
    dns: &ClusterDNS,
    plan: &Plan,
    applied: &Applied,
    observed: &Observed,
    now: Timestamp,
) -> Vec<Problem> {
    let first = [
        service_gone(dns, plan, applied, observed),
        addresses_changed(dns, observed),
        own_node_only(dns, observed),
        apply_failed(applied),
        operator_lacks::watches(dns, observed),
        trial_held(dns, plan, observed, now),
        canary_failed(dns, plan, observed, now),
        configuration_edited(dns, plan),
        contended(applied),
    ];
    let then = [
        clients_excluded::problem(plan, observed),
        pods_lost(observed),
        pods_cut_off(dns, observed),
        pods_refuse(dns, plan, observed),
        pods_ignore_fields(dns, plan, observed, now),
        too_few_pods(dns, observed),
        no_node_fits(dns, observed),
        no_pod_wanted(dns, observed),
        on_one_node(dns, observed, now),
        not_scaled(dns, observed, now),
        selector_reset(dns, observed, now),
        pods_shared(dns, plan, observed),
        no_usable_upstream(observed),
        upstream_looping(observed),
        upstream_down(observed),
        upstream_failing(observed),
        pods_silent(dns, observed),
        canary_warning(plan),
        certificate_missing(dns, observed),
        certificate_unread(observed),
        certificate_unusable(observed),
        listener_closed(observed),
        certificate_expires(observed, now),
        certificate_not_yet_valid(observed, now),
        operator_lacks::fields(observed),
        operator_lacks::room(observed),
        evictions_refused(dns, plan, observed),
        many_nodes(dns, observed),
    ];
    let failing = failing_pods(dns, observed, now);
    first.into_iter().flatten().chain(failing).chain(then.into_iter().flatten()).collect()
}

/// The Service is gone, or lost every address, so clients have no DNS. It is created or written again unless another problem
/// prevents it.
fn service_gone(
    dns: &ClusterDNS,
    plan: &Plan,
    applied: &Applied,
    observed: &Observed,
) -> Option<Problem> {
    let (addresses, what, again, cannot) = match observed.service {
        None => {
            let addresses = plan.rollout.state.service.cluster_ips.clone();
            (addresses, "was deleted", "created again", "be created again with")
        }
        Some(_) => {
            let addresses = adoption::emptied(dns, observed).map(|last| last.cluster_ips);
            (addresses.unwrap_or_default(), "has no clusterIP any more", "given them back", "get")
        }
    };
    if addresses.is_empty() {
        return None;
    }
    let (namespace, name) = names::service(dns);
    let own = dns.metadata.name.as_deref().unwrap_or_default();
    let kind = resources::name(Kind::Service);
    let failure = applied.failures.iter().find(|(object, _)| object.starts_with(kind));
    let why = match (dns.spec.management_state, failure) {
        (ManagementState::Unmanaged, _) => format!(
            "managementState is Unmanaged, so it is not {again}: kubectl patch clusterdns {own} --type=merge -p \
             '{{\"spec\":{{\"managementState\":\"Managed\"}}}}'"
        ),
        (ManagementState::Managed, Some((_, why))) => format!(
            "it cannot {cannot} these addresses, and never gets others: {why}. If another Service has one of them \
             (kubectl get services -A | grep -wF '{}'), delete that one",
            addresses[0]
        ),
        (ManagementState::Managed, None) => return None,
    };
    let message = format!(
        "Service {namespace}/{name} {what}, and clients ask {}: {why}",
        addresses.join(", ")
    );
    Some(Problem { reason: "ServiceGone", message, needs_a_person: true })
}

/// Another client created the Service in place of a deleted one, with other addresses. It is served; clients that started
/// before ask addresses that no longer exist.
fn addresses_changed(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let lost = adoption::lost_addresses(dns, observed).join(", ");
    let real = observed.service.iter().flat_map(adoption::cluster_ips).map(|ip| ip.to_string());
    let real = real.collect::<Vec<_>>().join(", ");
    // Without any it is gone for clients.
    if lost.is_empty() || real.is_empty() {
        return None;
    }
    let (namespace, name) = names::service(dns);
    let message = format!(
        "Service {namespace}/{name} was replaced by one with {real}, and clients still ask {lost}: if {real} is meant, write it \
         into spec.service.clusterIPs; otherwise delete that Service, and it is created again with {lost}",
    );
    Some(Problem { reason: "ServiceAddressesChanged", message, needs_a_person: true })
}

/// Someone set the field after the Service was adopted. The operator writes nothing but the selector of it.
fn own_node_only(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    if !adoption::leads_to_own_node_only(dns, observed) {
        return None;
    }
    let service = names::service(dns);
    let message = format!(
        "Service {}/{} has internalTrafficPolicy: Local, so clients on nodes without a ready pod of this ClusterDNS have no DNS. \
         The operator leaves the adopted Service as it is: {}",
        service.0,
        service.1,
        adoption::remedy(&service)
    );
    Some(Problem { reason: "ServiceTrafficLocal", message, needs_a_person: true })
}

pub(super) fn apply_failed(applied: &Applied) -> Option<Problem> {
    if applied.failures.is_empty() {
        return None;
    }
    let all = applied.failures.iter().map(|(object, why)| format!("{object}: {why}"));
    problem(
        "ApplyFailed",
        format!("the operator cannot write these objects: {}", named(all.collect())),
    )
}

/// O4: another client and the operator undo each other's edits.
pub(super) fn contended(applied: &Applied) -> Option<Problem> {
    if applied.contested.is_empty() {
        return None;
    }
    let all = applied.contested.iter().map(|Contested { what, managers, fields }| {
        let managers = match managers.is_empty() {
            true => "an unknown client".to_owned(),
            false => named(managers.clone()),
        };
        format!("{what}: {managers} writes {}", named(fields.clone()))
    });
    problem(
        "Contended",
        format!(
            "another field manager writes fields that the operator sets, again and again: {}. The operator puts them back, but only \
             after a pause of up to a minute where clients do not depend on it. Take these fields out of what that manager \
             applies, or exclude the object from it (an autoscaler: delete it, and use spec.scaling). kubectl get \
             --show-managed-fields -o yaml shows who writes what",
            named(all.collect())
        ),
    )
}

/// Findings of the trial that do not stop it.
fn canary_warning(plan: &Plan) -> Option<Problem> {
    let state = &plan.rollout.state;
    if state.warning.is_empty() {
        return None;
    }
    let revision = if plan.rollout.canary.is_some() { &state.canary } else { &state.stable };
    problem("CanaryWarning", format!("configuration {revision}: {}", state.warning))
}

fn canary_failed(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
    now: Timestamp,
) -> Option<Problem> {
    let state = &plan.rollout.state;
    if state.failed.is_empty() || state.is_unjudged {
        return None;
    }
    let (again, needs_a_person) = trial_held::next(dns, plan, observed, now);
    let message = format!(
        "configuration {} is not rolled out: {}. Every pod runs {}. {again}. Correct the spec, or set spec.rollout.canary to \
         false to give it to every pod",
        state.failed, state.failure, state.stable
    );
    Some(Problem { reason: "CanaryFailed", message, needs_a_person })
}

/// O4: for a moment, or until the spec's own configuration has passed, clients get answers by what another client wrote.
fn configuration_edited(dns: &ClusterDNS, plan: &Plan) -> Option<Problem> {
    let state = &plan.rollout.state;
    if state.edited_at.is_empty() {
        return None;
    }
    let (namespace, _) = names::service(dns);
    let map = names::child(dns.metadata.name.as_deref().unwrap_or_default());
    let now = match (state.is_edit_kept, plan.rollout.stable.is_empty()) {
        (true, _) => {
            "What was there before is not known, so every pod runs what that client wrote, until the configuration of the \
             spec passes its trial beside it"
        }
        (false, true) => {
            "What was there before is not known, and the configuration of the spec has failed: every pod keeps what it runs, \
             and a pod that starts gets nothing. The operator writes back what a pod says that it runs"
        }
        (false, false) => "The operator wrote the right one back",
    };
    problem(
        "ConfigurationEdited",
        format!(
            "another client changed stable.json of ConfigMap {namespace}/{map}, which all pods follow. {now}. The Event \
             ForeignEditUndone names that client: only the operator may write this ConfigMap"
        ),
    )
}

/// Pods that no longer answer and that the operator took out of the Service. A living kubelet puts them back.
fn pods_lost(observed: &Observed) -> Option<Problem> {
    let lost = observed.pods.iter().filter(|pod| pods::is_lost(pod));
    let named_with_node = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("none");
        format!("{} (node {node})", pods::name(pod))
    };
    let lost: Vec<String> = lost.map(named_with_node).collect();
    if lost.is_empty() {
        return None;
    }
    problem(
        pods::LOST,
        format!(
            "these pods left three or more questions of the operator and one of another DNS pod without a reply: {}. The operator took them out of the Service. \
             They return when their kubelet reports them ready. kubectl describe node shows what is wrong with the node",
            named(lost)
        ),
    )
}

fn selector_reset(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> Option<Problem> {
    let (manager, until) = adoption::reset_by(dns, observed, now)?;
    // The time it was noticed, not the time until then: an unchanged status must not differ.
    let again = until.map(|until| format!(" after {until:.0}")).unwrap_or_default();
    let has_others = adoption::has_others_behind(dns, observed);
    let mut effect = ", so the pods of the other DNS server answer too";
    let mut way_out = "scale that server to 0 after what scales it, or set adopt to false";
    if adoption::ready_behind(observed) > 0 && !has_others {
        effect = ". Pods of this ClusterDNS answer alone while the other DNS server has none";
        way_out = "leave that server, and what scales it, at 0 pods";
    }
    problem(
        "SelectorReset",
        format!(
            "field manager {manager} removed {} from the selector of the Service{effect}. The operator adds it again{again}. Stop \
             that manager from managing this Service, or {way_out}",
            names::INSTANCE
        ),
    )
}

/// Its listener is off, in pods that start after a Secret is gone; the others answer. Pods that served another certificate before
/// keep it.
fn certificate_missing(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let effects = [
        (
            Certificate::Missing,
            "the listeners of these certificates are off, or keep the certificate from before",
        ),
        (
            Certificate::Gone,
            "pods keep the last certificate while they run, and the listeners of pods that start are off",
        ),
    ];
    let text = |(certificate, effect)| {
        let is_it = |name: &&str| observed.certificates.get(*name) == Some(&certificate);
        let all = certificates(dns).into_iter().map(|(_, name)| name).filter(is_it);
        let all: BTreeSet<&str> = all.collect();
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        (!all.is_empty()).then(|| {
            format!("{effect}, because there is no such Secret beside the Service: {}", named(all))
        })
    };
    let texts: Vec<String> = effects.into_iter().filter_map(text).collect();
    if texts.is_empty() {
        return None;
    }
    problem(
        "CertificateMissing",
        format!(
            "{}. Create it with type kubernetes.io/tls. It needs the label {CERTIFICATE}: \"true\", unless certificates.names of \
             the operator's chart names it",
            texts.join("; ")
        ),
    )
}

/// Secrets that could not be read. Everything else works.
fn certificate_unread(observed: &Observed) -> Option<Problem> {
    if observed.unread_certificates.is_empty() {
        return None;
    }
    let effect = |name: &str| match observed.certificates.get(name) {
        Some(Certificate::Unread) | None => "its listener is off until it can be read",
        Some(_) => "its last known state is used",
    };
    let all = observed.unread_certificates.iter();
    let all = all.map(|(name, why)| format!("{name} ({why}; {})", effect(name))).collect();
    problem(
        "CertificateUnread",
        format!(
            "the operator cannot read these certificates of listeners: {}. It tries again; check the API server and the right \
             to list Secrets",
            named(all)
        ),
    )
}
