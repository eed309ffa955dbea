//! A Service that was deleted. Clients keep its addresses in resolv.conf until they restart, so it comes back with these
//! addresses or not at all. Ours is applied again; an adopted one is created as it was and stays foreign. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;

use super::cluster_ips::written;
use super::{Standing, addresses, cluster_ips, replaced, standing};
use crate::decide::config_map;
use crate::decide::plan::{LastService, Refusal, ServicePlan};
use crate::desired::as_it_was;
use crate::names::{self, ADOPTED_BY, INSTANCE};
use crate::observe::observed::Observed;

/// What happens while the Service does not exist.
///
/// # Errors
/// `NothingToAdopt`: there was none. `ServiceGone`: there was one, and its ports and labels are not known, or it was given back.
/// `ClusterIPsDiffer`: it would get other addresses than clients know.
pub(super) fn plan(dns: &ClusterDNS, observed: &Observed) -> Result<ServicePlan, Refusal> {
    let last = config_map::state(observed).service;
    let own = |last: &LastService| {
        addresses::keep_known(dns, &known_or_reported(dns, last)).map(|()| ServicePlan::Own)
    };
    if !dns.spec.service.clone().unwrap_or_default().adopt {
        // Who writes its addresses wants a Service of ours with them.
        let is_wanted = !last.cluster_ips.is_empty()
            && addresses_of(&last.cluster_ips).is_subset(&written(dns).collect());
        return match last.is_given_back {
            true if is_wanted => Ok(ServicePlan::Own),
            true => Err(given_back(dns, &last)),
            false => own(&last),
        };
    }
    match last.manifest {
        _ if last.is_ours => own(&last),
        Some(manifest) => Ok(ServicePlan::Recreated { labels: labels(&manifest), manifest }),
        None => Err(nothing_to_adopt(dns)),
    }
}

/// The deleted Service, for a reconcile that does not apply the spec: clients still use its address. One that was given back is
/// of the other DNS server, which may be about to create it again.
pub fn restorable(observed: &Observed) -> Option<Value> {
    let last = config_map::state(observed).service;
    last.manifest.filter(|_| observed.service.is_none() && !last.is_given_back)
}

/// A Service of ours would have the name that the other DNS server needs, and an address that no client asks.
fn given_back(dns: &ClusterDNS, last: &LastService) -> Refusal {
    let (namespace, name) = names::service(dns);
    let message = format!(
        "Service {namespace}/{name} was given back to another DNS server and then deleted, and pods still ask {}: create it \
         again with these clusterIPs, as that server does when it is installed with them; or set adopt to true, and it is created \
         as it was; or write these addresses as spec.service.clusterIPs, and the Service is one of ours; or delete this \
         ClusterDNS",
        last.cluster_ips.join(", ")
    );
    Refusal::new("ServiceGone", "spec.service.adopt", message)
}

/// Ours keeps the addresses that clients know.
///
/// # Errors
/// `ClusterIPsDiffer`: the spec asks for others.
pub(super) fn keep(
    dns: &ClusterDNS,
    observed: &Observed,
    service: &Service,
) -> Result<(), Refusal> {
    match emptied(dns, observed) {
        Some(last) => addresses::keep_known(dns, &last.cluster_ips),
        None => addresses::keep(dns, &known(observed), service),
    }
}

/// The addresses that clients know.
fn known(observed: &Observed) -> BTreeSet<IpAddr> {
    addresses_of(&config_map::state(observed).service.cluster_ips)
}

fn addresses_of(texts: &[String]) -> BTreeSet<IpAddr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn nothing_to_adopt(dns: &ClusterDNS) -> Refusal {
    let (namespace, name) = names::service(dns);
    let reported = reported(dns);
    if reported.is_empty() {
        let message = format!(
            "Service {namespace}/{name} does not exist, so there is nothing to adopt: set adopt to false to create it, with the \
             address that kubelet gives to pods in clusterIPs, or create this ClusterDNS again with the name of a Service that exists"
        );
        return Refusal::new("NothingToAdopt", "spec.service.adopt", message);
    }
    let own = dns.metadata.name.as_deref().unwrap_or_default();
    let message = format!(
        "Service {namespace}/{name} was deleted, pods still ask {}, and the operator does not know its ports and labels: create it again with these \
         clusterIPs from the manifest it came from, or let this operator create one of its own with them: kubectl patch \
         clusterdns {own} --type=merge -p '{{\"spec\":{{\"service\":{{\"adopt\":false}}}}}}'",
        reported.join(", ")
    );
    Refusal::new("ServiceGone", "spec.service.adopt", message)
}

/// The state of the Service as it is seen.
pub(super) fn last_seen(dns: &ClusterDNS, observed: &Observed) -> LastService {
    let before = config_map::state(observed).service;
    let adopt = dns.spec.service.clone().unwrap_or_default().adopt;
    let Some(service) = &observed.service else {
        let cluster_ips = known_or_reported(dns, &before);
        let is_ours = before.is_ours || (!adopt && !before.is_given_back);
        return match is_ours && !cluster_ips.is_empty() {
            true => LastService { cluster_ips, is_pinned: true, is_ours: true, ..before },
            false => before,
        };
    };
    if let Some(last) = emptied(dns, observed) {
        return last;
    }
    let standing = standing(dns, Some(service));
    // What is there now is not what clients know: what they know must come back.
    let is_replaced = replaced::is_same(observed, service)
        || (!adopt && replaced::is_another(dns, observed, service));
    if standing != Standing::Own && is_replaced {
        return before;
    }
    let real: Vec<String> = cluster_ips(service).map(|ip| ip.to_string()).collect();
    // The other DNS server decides about it now. Where it is deleted, its addresses must still be known.
    if standing == Standing::Foreign && !adopt {
        // One that is too large has no manifest.
        let was_adopted =
            before.is_given_back || (!before.cluster_ips.is_empty() && !before.is_ours);
        if !was_adopted {
            return LastService::default();
        }
        return LastService {
            cluster_ips: real,
            is_given_back: true,
            manifest: as_it_was(service),
            ..LastService::default()
        };
    }
    let is_leaving = service.metadata.deletion_timestamp.is_some();
    // A person gave up the one that was ours: this one was taken over instead of it.
    let is_taken_over =
        before.is_ours && standing != Standing::Own && super::is_annotated(service, dns);
    let has_lost = !is_taken_over && !missing(dns, &before, service).is_empty();
    if is_leaving || real.is_empty() || has_lost {
        return before;
    }
    let is_ours = standing == Standing::Own;
    LastService {
        cluster_ips: real,
        is_pinned: is_ours && before.is_pinned,
        is_ours,
        is_given_back: false,
        uid: service.metadata.uid.clone().unwrap_or_default(),
        manifest: as_it_was(service),
    }
}

/// The state of the Service to remember: part of rollout.json. It has what is decided now, too: that the Service is given back is
/// written before the patch that does it. Who leads next may find it deleted, and then it is not known whether the patch was
/// made.
pub fn to_remember(dns: &ClusterDNS, observed: &Observed) -> LastService {
    let last = last_seen(dns, observed);
    let Some(service) = observed.service.as_ref().filter(|_| is_released(dns, observed)) else {
        return last;
    };
    LastService {
        cluster_ips: last.cluster_ips,
        is_given_back: true,
        manifest: as_it_was(&without_us(service)),
        ..LastService::default()
    }
}

/// What is remembered while nothing is decided, as while the spec is refused.
pub fn kept(dns: &ClusterDNS, observed: &Observed) -> LastService {
    // One without addresses is written with those of before, and keeps them as its own.
    if let Some(emptied) = emptied(dns, observed) {
        return emptied;
    }
    let before = config_map::state(observed).service;
    // That it is given back was decided on, and is refused by now: our pods serve it, so it comes back if it is deleted.
    let is_ours_still =
        before.is_given_back && standing(dns, observed.service.as_ref()) == Standing::Switched;
    match before.is_unknown() || is_ours_still {
        true => LastService { is_given_back: false, ..last_seen(dns, observed) },
        false => before,
    }
}

/// Does a plan of now take our key out of the selector?
fn is_released(dns: &ClusterDNS, observed: &Observed) -> bool {
    let adopt = dns.spec.service.clone().unwrap_or_default().adopt;
    let is_switched = |service| standing(dns, Some(service)) == Standing::Switched;
    observed.service.as_ref().is_some_and(|service| {
        !adopt && is_switched(service) && !replaced::is_same(observed, service)
    })
}

/// As the patch leaves it that takes our key out.
fn without_us(service: &Service) -> Service {
    let mut service = service.clone();
    if let Some(selector) = service.spec.as_mut().and_then(|spec| spec.selector.as_mut()) {
        selector.remove(INSTANCE);
    }
    if let Some(annotations) = service.metadata.annotations.as_mut() {
        annotations.remove(ADOPTED_BY);
    }
    service
}

/// Ours, where another client took every address from it, as an edit to the type ExternalName does: unless it is written with the
/// addresses that clients know, the API server chooses others.
pub fn emptied(dns: &ClusterDNS, observed: &Observed) -> Option<LastService> {
    let cluster_ips = addresses_without_service(dns, observed);
    if cluster_ips.is_empty() || !super::has_own(dns, observed) {
        return None;
    }
    let before = config_map::state(observed).service;
    let (is_pinned, is_ours, is_given_back) = (true, true, false);
    Some(LastService { cluster_ips, is_pinned, is_ours, is_given_back, ..before })
}

/// Addresses that clients know, where the Service is there and has none any more, ours or not. Those of one that was given
/// back are not our concern.
pub fn addresses_without_service(dns: &ClusterDNS, observed: &Observed) -> Vec<String> {
    let Some(service) = &observed.service else { return Vec::new() };
    let before = config_map::state(observed).service;
    if cluster_ips(service).next().is_some() || is_left_to_others(dns, &before) {
        return Vec::new();
    }
    known_or_reported(dns, &before)
}

/// It was given back, and the spec does not ask for it again.
fn is_left_to_others(dns: &ClusterDNS, last: &LastService) -> bool {
    last.is_given_back && !dns.spec.service.clone().unwrap_or_default().adopt
}

/// Addresses that clients know and that the Service of this name, which another client created in its place, does not have. Those
/// of one that was given back are not our concern.
pub fn lost_addresses(dns: &ClusterDNS, observed: &Observed) -> Vec<String> {
    let before = config_map::state(observed).service;
    if is_left_to_others(dns, &before) {
        return Vec::new();
    }
    observed.service.as_ref().map(|service| missing(dns, &before, service)).unwrap_or_default()
}

/// None if the spec names all present addresses: then the user chose them. Nor where the same object has the first one still:
/// Kubernetes lets people take the second family of a Service away.
fn missing(dns: &ClusterDNS, before: &LastService, service: &Service) -> Vec<String> {
    let real: Vec<IpAddr> = cluster_ips(service).collect();
    let has = |text: &&String| text.parse::<IpAddr>().is_ok_and(|ip| real.contains(&ip));
    let is_same = before.uid.is_empty() || service.metadata.uid.as_ref() == Some(&before.uid);
    let has_first = before.cluster_ips.first().is_some_and(|first| has(&first));
    let written: BTreeSet<IpAddr> = written(dns).collect();
    let is_chosen = !real.is_empty() && real.iter().all(|ip| written.contains(ip));
    if (is_same && has_first) || is_chosen {
        return Vec::new();
    }
    before.cluster_ips.iter().filter(|text| !has(text)).cloned().collect()
}

/// What rollout.json remembers; where it is lost, what the status says.
fn known_or_reported(dns: &ClusterDNS, last: &LastService) -> Vec<String> {
    match last.cluster_ips.is_empty() {
        true => reported(dns).to_vec(),
        false => last.cluster_ips.clone(),
    }
}

fn reported(dns: &ClusterDNS) -> &[String] {
    dns.status.as_ref().map(|status| status.cluster_ips.as_slice()).unwrap_or_default()
}

/// Labels of its selector, without our key.
pub(super) fn labels(manifest: &Value) -> BTreeMap<String, String> {
    let selector = manifest.pointer("/spec/selector").cloned().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = serde_json::from_value(selector).unwrap_or_default();
    labels.remove(INSTANCE);
    labels
}
