//! The addresses that a spec writes for its Service, those that a Service has, and whether one can have the other. Pure.

use std::net::IpAddr;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;

/// All of them.
pub(super) fn written(dns: &ClusterDNS) -> impl Iterator<Item = IpAddr> {
    let texts = dns.spec.service.iter().flat_map(|service| service.cluster_ips.iter().flatten());
    texts.filter_map(|text| text.parse().ok())
}

/// Does the spec ask for addresses that a Service with these cannot get? Never where none are known.
pub fn asks_for_others(dns: &ClusterDNS, known: &[String]) -> bool {
    let known: Vec<IpAddr> = known.iter().filter_map(|text| text.parse().ok()).collect();
    let asked: Vec<IpAddr> = written(dns).collect();
    !known.is_empty() && !are_compatible(&asked, &known)
}

/// Does Kubernetes take these addresses for a Service that has those? It keeps the first, and adds or removes the second.
pub(super) fn are_compatible(written: &[IpAddr], real: &[IpAddr]) -> bool {
    let is_kept =
        |address: &IpAddr| real.iter().all(|it| it.is_ipv4() != address.is_ipv4() || it == address);
    match written {
        [] => true,
        [first, ..] => real.first() == Some(first) && written.iter().all(is_kept),
    }
}

/// The clusterIPs that a Service really has.
pub(crate) fn cluster_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    let spec = service.spec.as_ref();
    let all = spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
    let one =
        spec.and_then(|spec| spec.cluster_ip.as_ref()).filter(|_| all.clone().next().is_none());
    // A headless Service has the text "None" there.
    all.chain(one).filter_map(|text| text.parse().ok()).collect::<Vec<_>>().into_iter()
}
