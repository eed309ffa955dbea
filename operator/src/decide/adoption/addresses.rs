//! The addresses that the spec writes beside those of the Service that exists, or that was deleted: Kubernetes changes no
//! address of a Service, and clients keep the one that they know. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;

use super::cluster_ips::{are_compatible, asks_for_others, written};
use super::{cluster_ips, shown};
use crate::decide::plan::Refusal;
use crate::names;

const FIELD: &str = "spec.service.clusterIPs";
/// What a person does who wants another address.
const FOR_ANOTHER: &str = "leave clusterIPs out, or write its addresses; for another address, write a second ClusterDNS with another \
                           service.name beside this one, move the clients, then delete this one; or, if no client needs the old \
                           address, delete this ClusterDNS and create it again with the new one";

/// A Service of ours, whose clients know these addresses.
///
/// # Errors
/// `ClusterIPsDiffer`: the API server would refuse every change of the Service. One that lost addresses that clients know is
/// reported as that.
pub(super) fn keep(
    dns: &ClusterDNS,
    known: &BTreeSet<IpAddr>,
    service: &Service,
) -> Result<(), Refusal> {
    let real: Vec<IpAddr> = cluster_ips(service).collect();
    let asked: Vec<IpAddr> = written(dns).collect();
    if real.is_empty() || are_compatible(&asked, &real) {
        return Ok(());
    }
    if known.iter().any(|address| !real.contains(address)) {
        return Ok(());
    }
    let message = format!(
        "{} has {} and cannot get {}, because Kubernetes does not change the addresses of a Service: {FOR_ANOTHER}",
        shown(service),
        texts(&real),
        texts(&asked)
    );
    Err(Refusal::new("ClusterIPsDiffer", FIELD, message))
}

/// A Service of ours that was deleted or lost its addresses, and whose clients know these addresses.
///
/// # Errors
/// `ClusterIPsDiffer`: it would come back with others, because of an edit that was refused while it existed.
pub(super) fn keep_known(dns: &ClusterDNS, known: &[String]) -> Result<(), Refusal> {
    if !asks_for_others(dns, known) {
        return Ok(());
    }
    let (namespace, name) = names::service(dns);
    let asked: Vec<IpAddr> = written(dns).collect();
    let message = format!(
        "Service {namespace}/{name} was deleted or lost its addresses, and does not come back with {}, because pods still ask {}: {FOR_ANOTHER}",
        texts(&asked),
        known.join(", ")
    );
    Err(Refusal::new("ClusterIPsDiffer", FIELD, message))
}

/// A Service of others.
///
/// # Errors
/// `ClusterIPsDiffer`: it has not all addresses of the spec, and no field of it is changed but its selector.
pub(super) fn can_keep(dns: &ClusterDNS, service: &Service) -> Result<(), Refusal> {
    let real: Vec<IpAddr> = cluster_ips(service).collect();
    let other = written(dns).find(|address| !real.contains(address));
    let Some(other) = other else { return Ok(()) };
    let message = format!(
        "{} has {} and cannot get {other}, because an adopted Service keeps its addresses: leave clusterIPs out",
        shown(service),
        texts(&real)
    );
    Err(Refusal::new("ClusterIPsDiffer", FIELD, message))
}

fn texts(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    texts.join(", ")
}
