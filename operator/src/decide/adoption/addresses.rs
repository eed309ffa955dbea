//! The addresses that the spec writes beside those of the Service that exists: Kubernetes changes no address of a Service.
//! Pure.

use std::net::IpAddr;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;

use super::{cluster_ips, deleted, shown};
use crate::decide::plan::Refusal;
use crate::observe::observed::Observed;

const FIELD: &str = "spec.service.clusterIPs";

/// A Service of ours.
///
/// # Errors
/// `ClusterIPsDiffer`: the API server would refuse every change of the Service. One that lost addresses that clients know is
/// reported as that, and one that is being deleted comes back with the addresses of the spec.
pub(super) fn keep(
    dns: &ClusterDNS,
    observed: &Observed,
    service: &Service,
) -> Result<(), Refusal> {
    let real: Vec<IpAddr> = cluster_ips(service).collect();
    let written: Vec<IpAddr> = deleted::written(dns).collect();
    let is_leaving = service.metadata.deletion_timestamp.is_some();
    if is_leaving || real.is_empty() || are_compatible(&written, &real) {
        return Ok(());
    }
    let known = deleted::known(observed);
    if known.iter().any(|address| !real.contains(address)) {
        return Ok(());
    }
    let message = format!(
        "{} has {} and cannot get {}, because Kubernetes does not change the addresses of a Service: leave clusterIPs out, or \
         write its addresses; for another address, write a second ClusterDNS with another service.name beside this one, move \
         the clients, then delete this one",
        shown(service),
        texts(&real),
        texts(&written)
    );
    Err(Refusal::new("ClusterIPsDiffer", FIELD, message))
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
