//! The addresses that the spec writes beside those of the Service that exists, or that was deleted: Kubernetes changes no
//! address of a Service, and clients keep the one that they know. Pure.

use std::net::IpAddr;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;

use super::{cluster_ips, deleted, shown};
use crate::decide::plan::Refusal;
use crate::names;
use crate::observe::observed::Observed;

const FIELD: &str = "spec.service.clusterIPs";
/// What a person does who wants another address.
const FOR_ANOTHER: &str = "leave clusterIPs out, or write its addresses; for another address, write a second ClusterDNS with another \
                           service.name beside this one, move the clients, then delete this one; or, if no client needs the old \
                           address, delete this ClusterDNS and create it again with the new one";

/// A Service of ours.
///
/// # Errors
/// `ClusterIPsDiffer`: the API server would refuse every change of the Service. One that lost addresses that clients know is
/// reported as that.
pub(super) fn keep(
    dns: &ClusterDNS,
    observed: &Observed,
    service: &Service,
) -> Result<(), Refusal> {
    let real: Vec<IpAddr> = cluster_ips(service).collect();
    let written: Vec<IpAddr> = deleted::written(dns).collect();
    if real.is_empty() || are_compatible(&written, &real) {
        return Ok(());
    }
    let known = deleted::known(observed);
    if known.iter().any(|address| !real.contains(address)) {
        return Ok(());
    }
    let message = format!(
        "{} has {} and cannot get {}, because Kubernetes does not change the addresses of a Service: {FOR_ANOTHER}",
        shown(service),
        texts(&real),
        texts(&written)
    );
    Err(Refusal::new("ClusterIPsDiffer", FIELD, message))
}

/// A Service of ours that was deleted, and whose clients know these addresses.
///
/// # Errors
/// `ClusterIPsDiffer`: it would come back with others, because of an edit that was refused while it existed.
pub(super) fn keep_known(dns: &ClusterDNS, known: &[String]) -> Result<(), Refusal> {
    if !asks_for_others(dns, known) {
        return Ok(());
    }
    let (namespace, name) = names::service(dns);
    let written: Vec<IpAddr> = deleted::written(dns).collect();
    let message = format!(
        "Service {namespace}/{name} was deleted, and does not come back with {}, because pods still ask {}: {FOR_ANOTHER}",
        texts(&written),
        known.join(", ")
    );
    Err(Refusal::new("ClusterIPsDiffer", FIELD, message))
}

/// Does the spec ask for addresses that a Service with these cannot get? Never where none are known.
pub fn asks_for_others(dns: &ClusterDNS, known: &[String]) -> bool {
    let known: Vec<IpAddr> = known.iter().filter_map(|text| text.parse().ok()).collect();
    let written: Vec<IpAddr> = deleted::written(dns).collect();
    !known.is_empty() && !are_compatible(&written, &known)
}

/// A Service of others.
///
/// # Errors
/// `ClusterIPsDiffer`: it has not all addresses of the spec, and no field of it is changed but its selector.
pub(super) fn can_keep(dns: &ClusterDNS, service: &Service) -> Result<(), Refusal> {
    let real: Vec<IpAddr> = cluster_ips(service).collect();
    let other = deleted::written(dns).find(|address| !real.contains(address));
    let Some(other) = other else { return Ok(()) };
    let message = format!(
        "{} has {} and cannot get {other}, because an adopted Service keeps its addresses: leave clusterIPs out",
        shown(service),
        texts(&real)
    );
    Err(Refusal::new("ClusterIPsDiffer", FIELD, message))
}

/// Does Kubernetes take these addresses for a Service that has those? It keeps the first, and adds or removes the second.
fn are_compatible(written: &[IpAddr], real: &[IpAddr]) -> bool {
    let is_kept =
        |address: &IpAddr| real.iter().all(|it| it.is_ipv4() != address.is_ipv4() || it == address);
    match written {
        [] => true,
        [first, ..] => real.first() == Some(first) && written.iter().all(is_kept),
    }
}

fn texts(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    texts.join(", ")
}
