//! The addresses that a spec writes for its Service, and whether a Service with other ones can have them. Pure.

use std::net::IpAddr;

use crds::ClusterDNS;

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
