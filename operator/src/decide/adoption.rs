//! Whose the Service is. Ours is created. A foreign one is adopted when the spec says so: our key is added to its selector
//! once our pods are ready, and removed when the spec says so. Nothing else of it is written, and it always has a ready
//! pod. If another client resets the selector, that is reported, and the switch is repeated with back-off. Pure.

mod switch;
mod addresses;
mod deleted;
mod replaced;
mod ports;
mod traffic;
mod cluster_ips;
mod of_others;
mod shared_pods;

pub use cluster_ips::asks_for_others;
pub(crate) use cluster_ips::cluster_ips;
pub use deleted::{
    addresses_without_service, emptied, kept, lost_addresses, restorable, to_remember,
};
pub use replaced::is_same;
pub use switch::{remember, reset_by};
pub use traffic::leads_to_own_node_only;
pub(crate) use traffic::{is_local, remedy};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crds::ClusterDNS;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::Endpoint;

use crate::decide::config_map;
use crate::decide::plan::{Refusal, SelectorPatch, ServicePlan, Size};
use crate::decide::scale;
use crate::desired::ports as served;
use crate::names::{self, ADOPTED_BY, FIELD_MANAGER, INSTANCE, MANAGED_BY};
use crate::observe::observed::Observed;
use crate::observe::other_dns::{Workload, is_of_others};
use crate::observe::pods;

/// Pods that must be ready before a Service moves to ours, unless the spec asks for fewer.
const PODS_TO_SWITCH: u32 = 2;

/// When it is tried again: no watch covers the pods of the other DNS server, and a person waits for them.
const LIST_OTHERS_EVERY: Duration = Duration::from_secs(5);

/// What a Service is to this ClusterDNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It does not exist, or we created it for this ClusterDNS, or for one of its name that has gone without it.
    Own,
    /// Foreign, and our key is not in its selector.
    Foreign,
    /// Foreign, and our key is in its selector.
    Switched,
}

/// What the Service of this name is to us.
pub(crate) fn standing(dns: &ClusterDNS, service: Option<&Service>) -> Standing {
    match service {
        None => Standing::Own,
        Some(service) if is_owned_by(service, dns) || was_left_behind(service, dns) => {
            Standing::Own
        }
        Some(service) if selector(service).get(INSTANCE) == dns.metadata.name.as_ref() => {
            Standing::Switched
        }
        Some(_) => Standing::Foreign,
    }
}

/// Whose the Service is, and what happens to its selector now.
///
/// # Errors
/// Why it can be neither created nor adopted nor given back.
pub fn plan(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> Result<ServicePlan, Refusal> {
    let Some(service) = observed.service.as_ref() else {
        return deleted::plan(dns, observed);
    };
    let standing = standing(dns, Some(service));
    let own = || deleted::keep(dns, observed, service).map(|()| ServicePlan::Own);
    if standing == Standing::Own {
        return own();
    }
    of_others::is_not_of_others(dns, observed, service)?;
    if is_same(observed, service) {
        return own();
    }
    let labels = selector_without_us(service);
    if dns.spec.service.clone().unwrap_or_default().adopt {
        is_adoptable(dns, observed, service)?;
        shared_pods::are_not_of_others(dns, observed, service)?;
        let patch = switch::patch(dns, observed, service, now);
        Ok(ServicePlan::Adopted { labels, patch })
    } else {
        release(dns, observed, service, standing, labels)
    }
}

/// Is there the Service that we created, also where another client took away what shows it?
pub fn has_own(dns: &ClusterDNS, observed: &Observed) -> bool {
    let is_own = |service| standing(dns, Some(service)) == Standing::Own;
    observed.service.as_ref().is_some_and(|service| is_own(service) || is_same(observed, service))
}

/// The ClusterDNS that adopted a foreign Service. Another client may have taken the annotation away: then the selector names it, if
/// it is the operator that wrote that. People write this key into the selectors of Services of their own.
pub fn adopted_by(service: &Service) -> Option<String> {
    let by_selector = || selector(service).remove(INSTANCE).filter(|_| is_selector_ours(service));
    annotation(service).map(str::to_owned).or_else(by_selector)
}

/// Takes our key out of an adopted Service whose ClusterDNS is gone: none that is in `instances` adopted it.
pub fn leave(service: &Service, instances: &[String]) -> Option<SelectorPatch> {
    let adopted_by = adopted_by(service)?;
    let is_gone = !instances.contains(&adopted_by);
    is_gone.then(|| patch(service, false))
}

/// `adopt: false` on a Service that is not ours.
fn release(
    dns: &ClusterDNS,
    observed: &Observed,
    service: &Service,
    standing: Standing,
    labels: BTreeMap<String, String>,
) -> Result<ServicePlan, Refusal> {
    if replaced::is_another(dns, observed, service) {
        return Err(replaced::refusal(observed, service));
    }
    let others_serve = observed.foreign_pods.iter().any(pods::is_ready);
    if leaves_it_to_others(dns, observed, service) && !others_serve {
        return Err(no_other_server(observed, service));
    }
    match standing {
        // The labels go only when the selector has lost our key: until then clients would lose the pods that serve them.
        Standing::Switched => {
            Ok(ServicePlan::Released { labels, patch: Some(patch(service, false)) })
        }
        Standing::Foreign | Standing::Own if has_workload(observed) => {
            let patch = is_annotated(service, dns).then(|| patch(service, false));
            Ok(ServicePlan::Released { labels: BTreeMap::new(), patch })
        }
        Standing::Foreign | Standing::Own => Err(Refusal::new(
            "ServiceExists",
            "spec.service.adopt",
            format!(
                "{} exists and is not of this ClusterDNS: set adopt to true to take it over, or create this \
                 ClusterDNS again with another service.name",
                shown(service)
            ),
        )),
    }
}

/// Clients would lose the pods that serve them, or may.
fn no_other_server(observed: &Observed, service: &Service) -> Refusal {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let service = shown(service);
    let (reason, message) = match &observed.unread_foreign_pods {
        None => (
            "NoOtherServer",
            format!(
                "{service} cannot be given back: no pod of the other DNS server is ready{}, or set adopt to true",
                start_others(observed, namespace)
            ),
        ),
        Some(why) => (
            "OtherServerUnknown",
            format!(
                "{service} is not given back yet, because the operator cannot list the pods of the other DNS server: {why}. It \
                 tries again; our pods serve until then"
            ),
        ),
    };
    let refusal = Refusal::new(reason, "spec.service.adopt", message);
    Refusal { again_in: Some(LIST_OTHERS_EVERY), ..refusal }
}

/// What people do so that a pod of the other DNS server becomes ready. Where it has pods that find no node, it was started.
fn start_others(observed: &Observed, namespace: &str) -> String {
    let mut waiting = observed.foreign_pods.iter().filter(|pod| pods::unschedulable(pod).is_some());
    let Some(first) = waiting.next() else { return ". Start that server".to_owned() };
    let more = match waiting.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = pods::name(first);
    format!(
        ", and the scheduler finds no node for {name}{more}: kubectl -n {namespace} describe pod {name} shows the reason. If it \
         is a required podAntiAffinity of that server, it counts pods of this ClusterDNS too, which have the labels of the \
         Service: make it a preferred one"
    )
}

/// Does it matter whether pods of the other DNS server are ready? Only while the Service of `adopt: false` may lead to pods of
/// ours, which leave it then. Each look at those pods is a list, so this is asked before it.
pub fn needs_others(dns: &ClusterDNS, observed: &Observed) -> bool {
    let adopts = dns.spec.service.as_ref().is_some_and(|service| service.adopt);
    let Some(service) = observed.service.as_ref().filter(|_| !adopts) else { return false };
    standing(dns, Some(service)) != Standing::Own && leaves_it_to_others(dns, observed, service)
}

/// Its selector has our key, or pods of ours carry what else it selects by.
fn leaves_it_to_others(dns: &ClusterDNS, observed: &Observed, service: &Service) -> bool {
    standing(dns, Some(service)) == Standing::Switched
        || shared_pods::carry(observed, &selector_without_us(service))
}

/// Can our pods replace those that are behind it now?
fn is_adoptable(dns: &ClusterDNS, observed: &Observed, service: &Service) -> Result<(), Refusal> {
    let spec = service.spec.clone().unwrap_or_default();
    let refuse = |reason, field: &str, what: String| Err(Refusal::new(reason, field, what));
    if let Some(why) = not_adoptable(dns, observed, service) {
        return refuse("ServiceNotAdoptable", "spec.service.adopt", why);
    }
    addresses::can_keep(dns, service)?;
    traffic::can_move(dns, service)?;
    match ports::unserved(&spec, &served::of(&dns.spec)) {
        Some(what) => refuse(
            "ServicePortsUnserved",
            "spec.service.adopt",
            format!("{}: {what}", shown(service)),
        ),
        None => Ok(()),
    }
}

/// No spec of a ClusterDNS could take it over as it is. Where clients ask its addresses, a Service of another name is no way out.
fn not_adoptable(dns: &ClusterDNS, observed: &Observed, service: &Service) -> Option<String> {
    let last = config_map::state(observed).service;
    let shown = shown(service);
    if service.metadata.deletion_timestamp.is_some() {
        let then = match last.manifest {
            Some(_) => "when it is gone, it is created again as it was",
            None => "wait until it is gone; Accepted then says what to do",
        };
        return Some(format!("{shown} is being deleted: {then}"));
    }
    if let Some(why) = without_addresses(dns, observed) {
        return Some(why);
    }
    let another = "create this ClusterDNS again with another service.name";
    if selector_without_us(service).is_empty() {
        let labels = last.manifest.as_ref().map(deleted::labels).unwrap_or_default();
        let what_to_do = match (last.cluster_ips.as_slice(), labels.is_empty()) {
            ([], _) | (_, true) => another.to_owned(),
            (known, false) => {
                let labels: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let (known, labels) = (known.join(", "), labels.join(","));
                format!("clients ask {known}: give it the selector {labels} again")
            }
        };
        return Some(format!("{shown} selects no pods, so it cannot move to ours: {what_to_do}"));
    }
    let has_none = cluster_ips(service).next().is_none();
    has_none.then(|| format!("{shown} has no clusterIP that clients could ask: {another}"))
}

/// What is said where the Service lost every address, as by an edit to the type ExternalName. The operator gives one of ours its
/// addresses back, and writes nothing but the selector of another one.
pub fn without_addresses(dns: &ClusterDNS, observed: &Observed) -> Option<String> {
    let lost = addresses_without_service(dns, observed).join(", ");
    if lost.is_empty() {
        return None;
    }
    let (namespace, name) = names::service(dns);
    let what_to_do = match has_own(dns, observed) {
        true => String::new(),
        false => format!(": set its type to ClusterIP, with clusterIPs {lost}"),
    };
    Some(format!(
        "Service {namespace}/{name} has no clusterIP any more, and clients ask {lost}{what_to_do}"
    ))
}

/// May the Service move? Our workload is fully rolled out with the labels of its selector, and enough pods are ready
/// and behind it already: a controller that knows the new selector but not yet our pods would leave the Service
/// without a pod.
fn may_switch(dns: &ClusterDNS, observed: &Observed, service: &Service) -> bool {
    let labels = selector_without_us(service);
    let carried = pods::template_labels(observed, is_per_node(dns));
    let behind = behind(observed);
    let serves = |pod: &&Pod| pods::has_labels(pod, &labels) && behind.contains(pods::uid(pod));
    let ready = pods::ready(observed).filter(serves).count();
    let progress = pods::progress(observed, is_per_node(dns));
    // The spec asks for one pod: a second one would never come.
    let asked = match scale::size(&dns.spec, observed) {
        Size::Replicas(count) => count,
        Size::Autoscaled { min, .. } => min,
        Size::PerNode => progress.desired,
    };
    labels.iter().all(|(key, value)| carried.get(key) == Some(value))
        && progress.is_complete()
        && ready >= asked.clamp(1, PODS_TO_SWITCH) as usize
}

/// Ready pods of ours that clients of the Service reach now.
pub(crate) fn ready_behind(observed: &Observed) -> usize {
    let behind = behind(observed);
    pods::ready(observed).filter(|pod| behind.contains(pods::uid(pod))).count()
}

/// Do clients of the Service reach pods that are not ours?
pub(crate) fn has_others_behind(dns: &ClusterDNS, observed: &Observed) -> bool {
    let workload = Workload::of(dns, &observed.others);
    reached(observed).any(|endpoint| is_of_others(endpoint, &observed.pods, &workload))
}

/// uids of the pods that clients of the Service reach now.
fn behind(observed: &Observed) -> BTreeSet<&str> {
    let reached = reached(observed);
    reached.filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.as_deref()).collect()
}

/// The endpoints that clients of the Service reach now.
fn reached(observed: &Observed) -> impl Iterator<Item = &Endpoint> {
    let endpoints = observed.slices.iter().flat_map(|slice| &slice.endpoints);
    endpoints.filter(|endpoint| {
        endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    })
}

/// Labels that the pods behind a Service need besides our key.
pub(crate) fn selector_without_us(service: &Service) -> BTreeMap<String, String> {
    let mut labels = selector(service);
    labels.remove(INSTANCE);
    labels
}

fn selector(service: &Service) -> BTreeMap<String, String> {
    service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default()
}

fn annotation(service: &Service) -> Option<&str> {
    service.metadata.annotations.as_ref()?.get(ADOPTED_BY).map(String::as_str)
}

/// Whether the patch of a foreign Service wrote its selector. One of ours is applied.
fn is_selector_ours(service: &Service) -> bool {
    let mut entries = service.metadata.managed_fields.iter().flatten();
    entries.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Update")
            && fields.is_some_and(|fields| fields.pointer("/f:spec/f:selector").is_some())
    })
}

fn is_annotated(service: &Service, dns: &ClusterDNS) -> bool {
    annotation(service).is_some_and(|name| Some(name) == dns.metadata.name.as_deref())
}

fn is_owned_by(service: &Service, dns: &ClusterDNS) -> bool {
    let mut owners = service.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "ClusterDNS" && Some(&owner.uid) == dns.metadata.uid.as_ref())
}

/// Created by us for a ClusterDNS of this name that was deleted without its children: `apply` owns it again.
fn was_left_behind(service: &Service, dns: &ClusterDNS) -> bool {
    let is_free = service.metadata.owner_references.iter().flatten().next().is_none();
    let labels = service.metadata.labels.clone().unwrap_or_default();
    is_free
        && annotation(service).is_none()
        && labels.get(MANAGED_BY).is_some_and(|manager| manager == FIELD_MANAGER)
        && labels.get(INSTANCE) == dns.metadata.name.as_ref()
}

fn has_workload(observed: &Observed) -> bool {
    observed.deployment.is_some() || observed.daemon_set.is_some()
}

pub(crate) fn is_per_node(dns: &ClusterDNS) -> bool {
    dns.spec.scaling.as_ref().is_some_and(|scaling| scaling.per_node.is_some())
}

fn patch(service: &Service, add: bool) -> SelectorPatch {
    SelectorPatch {
        resource_version: service.metadata.resource_version.clone().unwrap_or_default(),
        add,
    }
}

fn shown(service: &Service) -> String {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let name = service.metadata.name.as_deref().unwrap_or_default();
    format!("Service {namespace}/{name}")
}

#[cfg(test)]
mod tests;
