//! What is unwise in a ClusterDNS beside what its cluster reports: its kubelets, nodes and Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crds::ClusterDNS;
use ipnet::IpNet;

use super::kubelets;
use super::warning::{Warning, warning};
use super::warnings::may_be_asked_from;
use crate::ask_pods::canary_analysis::clients::ClientList;
use crate::names;

/// Clients ask from the addresses of their pods.
pub(super) fn excluded_pods(dns: &ClusterDNS, cluster: &kubelets::Said) -> Option<Warning> {
    let (first, more) = excluded(dns, cluster, cluster.pod_ranges.iter().copied())?;
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more ranges"),
    };
    let message = format!(
        "nodes of this cluster give pods addresses of {first}{more}, which these ranges do not hold: such pods get REFUSED; \
         add the ranges of all pods and nodes"
    );
    Some(warning("spec.access.clients", "ClientsExcludePods", message))
}

/// NodeLocal DNSCache, and pods on the network of their node, ask from its address.
pub(super) fn excluded_nodes(dns: &ClusterDNS, cluster: &kubelets::Said) -> Option<Warning> {
    let (first, more) = excluded(dns, cluster, cluster.nodes.iter().map(|ip| IpNet::from(*ip)))?;
    let message = format!(
        "{} addresses of nodes, such as {}, are not in these ranges: NodeLocal DNSCache and pods on the network of their node get \
         REFUSED, unless the network of the cluster gives their queries addresses of pods; add the ranges of all nodes",
        more + 1,
        first.addr()
    );
    Some(warning("spec.access.clients", "ClientsExcludeNodes", message))
}

/// The first of these ranges that the list does not hold, and how many more there are.
fn excluded(
    dns: &ClusterDNS,
    cluster: &kubelets::Said,
    ranges: impl Iterator<Item = IpNet>,
) -> Option<(IpNet, usize)> {
    let clients = dns.spec.access.as_ref()?.clients.as_ref().filter(|list| !list.is_empty())?;
    let clients: Vec<IpNet> = clients.iter().filter_map(|text| text.parse().ok()).collect();
    let clients = ClientList::of(&clients);
    let served: Vec<IpAddr> =
        served(dns, cluster).iter().filter_map(|ip| ip.parse().ok()).collect();
    let asked_from = ranges.filter(|range| may_be_asked_from(range, &served));
    let mut excluded = asked_from.filter(|range| !clients.allows(*range));
    Some((excluded.next()?, excluded.count()))
}

/// The addresses of its Service, as far as they are known: as written, or those of one that is adopted.
fn served<'a>(dns: &'a ClusterDNS, cluster: &'a kubelets::Said) -> &'a [String] {
    let service = dns.spec.service.as_ref();
    let written = service.and_then(|it| it.cluster_ips.as_deref()).unwrap_or_default();
    let real = cluster.services.get(&names::service(dns));
    let real = real.filter(|_| written.is_empty() && service.is_some_and(|it| it.adopt));
    real.map_or(written, Vec::as_slice)
}

/// Do kubelets name one of these? As addresses: kubelets and people write those of IPv6 in different ways.
fn are_asked(ips: &[String], cluster: &kubelets::Said) -> bool {
    let address = |text: &String| text.parse::<IpAddr>().ok();
    let used: BTreeSet<IpAddr> = cluster.cluster_dns.iter().filter_map(address).collect();
    ips.iter().filter_map(address).any(|ip| used.contains(&ip))
}

pub(super) fn unused_by_kubelets(dns: &ClusterDNS, cluster: &kubelets::Said) -> Option<Warning> {
    let service = dns.spec.service.as_ref()?;
    let written = service.cluster_ips.as_ref().filter(|ips| !ips.is_empty());
    let ips = Some(served(dns, cluster)).filter(|ips| !ips.is_empty())?;
    if are_asked(ips, cluster) {
        return None;
    }
    let used: Vec<&str> = cluster.cluster_dns.iter().map(String::as_str).collect();
    let used = used.join(" and ");
    Some(match written {
        Some(_) => warning(
            "spec.service.clusterIPs",
            "NotUsedByKubelets",
            format!(
                "kubelets of this cluster make pods ask {used}, so no pod asks here: write that address, or set clusterDNS of the \
                 kubelets"
            ),
        ),
        None => warning(
            "spec.service.adopt",
            "NotUsedByKubelets",
            format!(
                "kubelets of this cluster make pods ask {used}, and this Service has {}, so pods do not ask it. If that address \
                 is of NodeLocal DNSCache, which asks this Service for them, adopt it. Otherwise adopt the Service with that \
                 address; where there is none, as with Cloud DNS of GKE, set clusterDNS of the kubelets or do not adopt",
                ips.join(" and ")
            ),
        ),
    })
}

/// The search list of a pod has the clusterDomain of its kubelet. Where that is not ours, names such as `db.data` do not
/// resolve. Only of a ClusterDNS that pods ask: one beside it may have a domain of its own.
pub(super) fn other_domains(dns: &ClusterDNS, cluster: &kubelets::Said) -> Option<Warning> {
    if !are_asked(served(dns, cluster), cluster) {
        return None;
    }
    let own = &dns.spec.domain;
    let plain = |domain: &str| domain.trim_end_matches('.').to_ascii_lowercase();
    let others = cluster.cluster_domains.iter().filter(|it| plain(it) != plain(own));
    let others: Vec<&str> = others.map(String::as_str).collect();
    if others.is_empty() {
        return None;
    }
    let others = others.join(" and ");
    Some(warning(
        "spec.domain",
        "NotDomainOfKubelets",
        format!(
            "kubelets of this cluster make pods search names in {others}, and this ClusterDNS answers for {own}: short names such \
             as kubernetes.default do not resolve in pods. Write the clusterDomain of the kubelets; it cannot be changed later"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::kubelets::Said;
    use super::super::warning::Warning;
    use super::{excluded_nodes, excluded_pods, other_domains, unused_by_kubelets};
    use crate::fixtures::dns;

    #[test]
    fn o1_client_lists_that_exclude_the_pods_of_the_cluster_are_said() {
        let said = |clients: &str| {
            let dns = dns(&format!("{{access: {{clients: {clients}}}}}"));
            let ranges = ["10.244.0.0/24", "10.244.1.0/24"].map(|text| text.parse().unwrap());
            let cluster = Said { pod_ranges: ranges.into(), ..Said::default() };
            excluded_pods(&dns, &cluster).map(|warning| warning.message)
        };
        assert_eq!(said("[]"), None, "everyone may ask");
        assert_eq!(said("[10.244.0.0/16]"), None);
        assert!(said("[10.244.0.0/24]").unwrap().contains("addresses of 10.244.1.0/24, which"));
        assert!(said("[192.0.2.0/24]").unwrap().contains("10.244.0.0/24 and 1 more ranges"));
        assert!(said("[10.244.0.0/25]").is_some(), "half of a range");
    }

    #[test]
    fn o1_client_lists_that_exclude_the_nodes_of_the_cluster_are_said() {
        let said = |spec: &str| {
            let dns = dns(&format!("{{{spec}}}"));
            let nodes = ["192.0.2.1", "192.0.2.2", "fd00::1"].map(|text| text.parse().unwrap());
            let cluster = Said { nodes: nodes.into(), ..Said::default() };
            let warning = excluded_nodes(&dns, &cluster)?;
            assert_eq!(warning.reason, "ClientsExcludeNodes");
            Some(warning.message)
        };
        assert_eq!(said("access: {clients: []}"), None, "everyone may ask");
        assert_eq!(said("access: {clients: [192.0.2.0/24, 'fd00::/64']}"), None);
        let of_ipv4 = "service: {clusterIPs: [10.96.0.10]}, access: {clients: [192.0.2.0/24]}";
        assert_eq!(said(of_ipv4), None, "no node asks from its IPv6 address");
        let message = said("access: {clients: [10.0.0.0/8, 192.0.2.2/32]}").expect("a warning");
        for words in ["2 addresses of nodes, such as 192.0.2.1, are", "NodeLocal DNSCache"] {
            assert!(message.contains(words), "{words}: {message}");
        }
    }

    /// The warning of a ClusterDNS with this Service where kubelets give pods this address, and kube-dns has another one.
    fn unused(service: &str, used: &str) -> Option<Warning> {
        let text = format!(
            "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: a}}\nspec: {{service: {service}}}"
        );
        let (dns, _) = crds::manifest::read(&text, "a").unwrap();
        let kube_dns = ("kube-system".to_owned(), "kube-dns".to_owned());
        let services = [(kube_dns, vec!["10.96.0.10".to_owned()])].into();
        let cluster_dns = [used.to_owned()].into();
        unused_by_kubelets(&dns, &Said { cluster_dns, services, ..Said::default() })
    }

    #[test]
    fn an_address_that_no_kubelet_gives_to_pods_is_said() {
        let warning = unused("{clusterIPs: [10.96.0.10]}", "10.96.0.11").expect("a warning");
        assert!(warning.message.contains("10.96.0.11"), "{}", warning.message);
        assert!(unused("{clusterIPs: [10.96.0.10]}", "10.96.0.10").is_none());
        assert!(unused("{clusterIPs: [\"fd00::a\"]}", "fd00:0::a").is_none(), "the same");
    }

    #[test]
    fn o1_an_adopted_service_that_no_pod_asks_is_said() {
        let warning = unused("{adopt: true}", "169.254.169.254").expect("a warning");
        assert_eq!(
            (warning.field.as_str(), warning.reason),
            ("spec.service.adopt", "NotUsedByKubelets")
        );
        for words in ["169.254.169.254", "this Service has 10.96.0.10", "GKE"] {
            assert!(warning.message.contains(words), "{words}: {}", warning.message);
        }
        assert!(unused("{adopt: true}", "10.96.0.10").is_none());
        assert!(unused("{adopt: true, name: other}", "10.96.0.11").is_none(), "it does not exist");
        assert!(unused("{}", "10.96.0.11").is_none(), "it gets its address later");
    }

    /// The warning of a ClusterDNS of this domain where kubelets have these.
    fn searched(spec: &str, domains: &[&str]) -> Option<Warning> {
        let text = format!(
            "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: a}}\nspec: {spec}"
        );
        let (dns, _) = crds::manifest::read(&text, "a").unwrap();
        let cluster_dns = ["10.96.0.10".to_owned()].into();
        let cluster_domains = domains.iter().map(|&domain| domain.to_owned()).collect();
        other_domains(&dns, &Said { cluster_dns, cluster_domains, ..Said::default() })
    }

    #[test]
    fn o1_a_domain_that_pods_do_not_search_is_said() {
        let asked = "{domain: corp.example, service: {clusterIPs: [10.96.0.10]}}";
        let warning = searched(asked, &["cluster.local"]).expect("a warning");
        assert_eq!(
            (warning.field.as_str(), warning.reason),
            ("spec.domain", "NotDomainOfKubelets")
        );
        for words in ["search names in cluster.local,", "answers for corp.example:"] {
            assert!(warning.message.contains(words), "{words}: {}", warning.message);
        }
        assert!(searched(asked, &["corp.example"]).is_none());
        assert!(searched(asked, &["Corp.example."]).is_none(), "the same");
        let some = searched(asked, &["cluster.local", "corp.example"]).expect("some kubelets");
        assert!(some.message.contains("search names in cluster.local,"), "{}", some.message);
        assert!(searched(asked, &[]).is_none(), "kubelets do not say it");
        let beside = "{domain: corp.example, service: {clusterIPs: [10.96.0.77]}}";
        assert!(searched(beside, &["cluster.local"]).is_none(), "no pod asks it by itself");
    }
}
