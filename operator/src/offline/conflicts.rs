//! Conflicts between several ClusterDNS: two that claim one Service or one address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crds::ClusterDNS;
use kube::ResourceExt;

use crate::names;

/// One claim that another ClusterDNS has made before.
pub(super) struct Clash {
    /// The place of the ClusterDNS in the list.
    pub(super) at: usize,
    /// Path of the field, such as `spec.dns.domain`.
    pub(super) field: &'static str,
    /// What is wrong, and what to write.
    pub(super) message: String,
    /// Both are of one folder, and so of one cluster.
    pub(super) is_certain: bool,
}

/// A ClusterDNS and the folder of its file.
pub(super) type Placed<'a> = (Option<String>, &'a ClusterDNS);

/// Every claim after the first. Files of different folders may be of different clusters, so that those claims are no
/// certain mistakes. A resource that is in two files, as in two overlays of one base, does not conflict with itself.
pub(super) fn clashes(all: &[Placed<'_>]) -> Vec<Clash> {
    let mut claims: BTreeMap<(&Option<String>, String), &ClusterDNS> = BTreeMap::new();
    let mut anywhere: BTreeMap<String, &Placed<'_>> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, placed) in all.iter().enumerate() {
        let (folder, dns) = placed;
        let (namespace, name) = names::service(dns);
        let service = ("spec.service.name", format!("Service {namespace}/{name}"));
        let written = dns.spec.service.iter().flat_map(|it| it.cluster_ips.iter().flatten());
        // As addresses: those of IPv6 are written in different ways.
        let written = written.filter_map(|text| text.parse::<IpAddr>().ok());
        let addresses =
            written.map(|ip| ("spec.service.clusterIPs", format!("the clusterIP {ip}")));
        for (field, claim) in std::iter::once(service).chain(addresses) {
            let owner = claims.entry((folder, claim.clone())).or_insert(dns).name_any();
            if owner != dns.name_any() {
                let message = format!(
                    "ClusterDNS {owner} has {claim} too, and only one of them is acted on, the one that has it or is older: write another one here"
                );
                found.push(Clash { at, field, message, is_certain: true });
                break;
            }
            let (elsewhere, first) = anywhere.entry(claim.clone()).or_insert(placed);
            if first.metadata.name != dns.metadata.name {
                let message = format!(
                    "ClusterDNS {} of {} has {claim} too: where both are for one cluster, only one of them is acted on, the \
                     one that has it or is older: write another one here",
                    first.name_any(),
                    elsewhere.as_deref().unwrap_or("another folder")
                );
                found.push(Clash { at, field, message, is_certain: false });
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::dns;

    #[test]
    fn o3_one_address_in_different_words_is_claimed_twice() {
        let named = |name: &str, ip: &str| {
            let mut dns = dns(&format!("{{service: {{name: {name}, clusterIPs: [\"{ip}\"]}}}}"));
            dns.metadata.name = Some(name.to_owned());
            dns
        };
        let found = |first: &str, second: &str| {
            let (first, second) = (named("a", first), named("b", second));
            let clashes = clashes(&[(None, &first), (None, &second)]);
            clashes.into_iter().map(|it| (it.at, it.field)).collect::<Vec<_>>()
        };
        let clash = [(1, "spec.service.clusterIPs")];
        assert_eq!(found("fd00:96::a", "fd00:96:0::A"), clash);
        assert_eq!(found("fd00:96::a", "fd00:96::a"), clash);
        assert_eq!(found("fd00:96::a", "fd00:96::b"), []);
    }
}
