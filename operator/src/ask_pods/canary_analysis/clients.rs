//! Whether pods and nodes may ask: `access.clients` against their addresses. The operator asks from one address only, so that its own
//! replies say nothing about all others. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crds::Config;
use ipnet::IpNet;

use crate::decide::adoption::cluster_ips;
use crate::observe::observed::{Check, CheckResult, Observed};
use crate::observe::pods;

/// The reason of a condition that says so.
pub const REASON: &str = "ClientsExcludePods";

/// Pods, ranges or nodes that a message names.
const MAX_NAMED: usize = 3;

/// What an empty list means, where people may have meant that no client may ask.
const EVERYONE: &str = "the list has no entries any more, so every client may ask";

/// Known clients that a changed `access.clients` newly refuses, or that it has become empty and refuses no client.
pub(super) fn check(config: &Config, before: &Config, observed: &Observed) -> Option<Check> {
    let (clients, before) = (&config.access.clients, &before.access.clients);
    if clients == before {
        return None;
    }
    let lists = (&ClientList::of(clients), &ClientList::of(before));
    let pods = refused(refused_pods, lists, observed);
    let nodes = refused(refused_nodes, lists, observed);
    let advice = match (&pods, &nodes) {
        (Some(pods), _) if pods.is_most => Some("add the ranges of pods and nodes"),
        // Nothing shows from which addresses the cache asks here.
        (_, Some(nodes)) if nodes.is_most && observed.known_clients.has_node_local => Some(
            "add the ranges of nodes. If it asks from other addresses here, write spec.rollout.canary: false for this edit",
        ),
        _ => None,
    };
    let words: Vec<String> = [pods, nodes].into_iter().flatten().map(|it| it.words).collect();
    let words = words.join("; ");
    let outcome = match advice {
        Some(advice) => CheckResult::Worse(format!("{words}: {advice}")),
        None if !words.is_empty() => CheckResult::Warning(words),
        None if clients.is_empty() => CheckResult::Warning(EVERYONE.to_owned()),
        None => CheckResult::Good,
    };
    Some(Check { what: "access.clients".to_owned(), outcome })
}

/// The problem with a client list that excludes most pods; the list before it does not matter. Nodes do not count: whether clients
/// ask from their addresses depends on the network, and people may mean to refuse them.
pub fn excluded(config: &Config, observed: &Observed) -> Option<String> {
    let clients = ClientList::of(&config.access.clients);
    let refused = refused(refused_pods, (&clients, &ClientList::of(&[])), observed)?;
    refused.is_most.then_some(refused.words)
}

/// Clients that would get REFUSED.
struct Refused {
    words: String,
    /// They are more than those that may ask.
    is_most: bool,
}

/// The ranges of `access.clients`.
pub(crate) struct ClientList(Vec<IpNet>);

impl ClientList {
    pub(crate) fn of(ranges: &[IpNet]) -> ClientList {
        ClientList(IpNet::aggregate(&ranges.to_vec()))
    }

    /// May every address of this range ask, by one entry or by several together?
    pub(crate) fn allows(&self, range: IpNet) -> bool {
        self.0.iter().any(|client| client.contains(&range))
    }
}

/// A list, and the one before.
type Lists<'a> = (&'a ClientList, &'a ClientList);

/// Whether an address is of the family that is looked at.
type IsOfFamily<'a> = &'a dyn Fn(IpAddr) -> bool;

/// Clients that the list excludes and that the list before did not. An empty list excludes none. Clients ask an address of the Service from their own of that family, so each family that it has is judged by itself: that of which most are refused is named.
fn refused(
    of_family: fn(IsOfFamily<'_>, Lists<'_>, &Observed) -> Option<Refused>,
    lists: Lists<'_>,
    observed: &Observed,
) -> Option<Refused> {
    if lists.0.0.is_empty() {
        return None;
    }
    let served: Vec<IpAddr> = observed.service.iter().flat_map(cluster_ips).collect();
    let served = match served.is_empty() {
        true => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        false => served,
    };
    let of_served = |served: &IpAddr| {
        of_family(&|ip: IpAddr| ip.is_ipv4() == served.is_ipv4(), lists, observed)
    };
    let mut found: Vec<Refused> = served.iter().filter_map(of_served).collect();
    found.sort_by_key(|it| !it.is_most);
    found.into_iter().next()
}

/// Nodes of one family. Pods on their network ask from their addresses, unless the network of the cluster writes others.
fn refused_nodes(
    is_of_it: IsOfFamily<'_>,
    lists: Lists<'_>,
    observed: &Observed,
) -> Option<Refused> {
    let known = &observed.known_clients;
    let nodes: Vec<IpAddr> = known.nodes.iter().copied().filter(|ip| is_of_it(*ip)).collect();
    let lost: Vec<&IpAddr> = nodes.iter().filter(|ip| is_lost(lists, (**ip).into())).collect();
    if lost.is_empty() {
        return None;
    }
    let who = match known.has_node_local {
        true => "NodeLocal DNSCache asks for their pods",
        false => "pods on the network of their node ask",
    };
    let counted = counted(&lost, nodes.len(), "nodes");
    let words = format!("the list refuses {counted}, from which {who}");
    Some(Refused { words, is_most: lost.len() * 2 > nodes.len() })
}

/// How many of these there are of how many, and some of them.
fn counted<T: ToString>(lost: &[T], of: usize, what: &str) -> String {
    let named: Vec<String> = lost.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    format!("{} of {of} {what}, such as {}", lost.len(), named.join(", "))
}

/// Pods of one family.
fn refused_pods(
    is_of_it: IsOfFamily<'_>,
    lists: Lists<'_>,
    observed: &Observed,
) -> Option<Refused> {
    let of_pod = |pod| pods::addresses(pod).find(|ip| is_of_it(*ip));
    let pods: Vec<IpAddr> = observed.pods.iter().filter_map(of_pod).collect();
    let ranges = observed.known_clients.pod_ranges.iter();
    let ranges: Vec<&IpNet> = ranges.filter(|range| is_of_it(range.addr())).collect();
    let lost: Vec<IpAddr> =
        pods.iter().copied().filter(|ip| is_lost(lists, (*ip).into())).collect();
    // Some network plug-ins give addresses of their own and ignore the ranges of nodes.
    let are_used = pods.iter().all(|ip| ranges.iter().any(|range| range.contains(ip)));
    let lost_ranges: Vec<&IpNet> =
        ranges.iter().copied().filter(|range| are_used && is_lost(lists, **range)).collect();
    let (counted, is_most) = match (lost_ranges.is_empty(), lost.is_empty()) {
        (true, true) => return None,
        (false, _) => (
            counted(&lost_ranges, ranges.len(), "ranges of pods"),
            lost_ranges.len() * 2 > ranges.len(),
        ),
        (true, false) => {
            (counted(&lost, pods.len(), "pods that are known"), lost.len() * 2 > pods.len())
        }
    };
    Some(Refused { words: format!("the list refuses {counted}"), is_most })
}

/// Whether all of this range may not ask any more.
fn is_lost((clients, before): Lists<'_>, range: IpNet) -> bool {
    !clients.allows(range) && (before.0.is_empty() || before.allows(range))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{config, dns, from, own_service, pod};
    use crate::observe::observed::KnownClients;

    /// Two pods with these addresses, on nodes with these ranges, behind a Service with these.
    fn observed(pod_ips: [[&str; 2]; 2], ranges: &[&str], served: &[&str]) -> Observed {
        let pods = pod_ips.map(|ips| {
            let mut pod = pod("dns", 0, 0);
            let all = ips.map(|ip| json!({"ip": ip}));
            pod.status = Some(from(json!({"podIP": ips[0], "podIPs": all})));
            pod
        });
        let mut service = own_service();
        service.spec = Some(from(json!({"clusterIPs": served})));
        Observed {
            pods: pods.to_vec(),
            known_clients: KnownClients {
                pod_ranges: ranges.iter().map(|text| text.parse().unwrap()).collect(),
                ..KnownClients::default()
            },
            service: Some(service),
            ..Observed::default()
        }
    }

    /// What a new list leads to, and the problem that it is once every pod has it.
    fn judged(list: &str, observed: &Observed) -> (CheckResult, Option<String>) {
        let of = |spec: &str| config(&dns(spec));
        let (config, before) = (of(&format!("{{access: {{clients: {list}}}}}")), of("{}"));
        let check = check(&config, &before, observed).expect("a check");
        (check.outcome, excluded(&config, observed))
    }

    const V6_FIRST: [[&str; 2]; 2] = [["fd00:1::5", "10.1.0.5"], ["fd00:2::5", "10.2.0.5"]];
    const RANGES: [&str; 4] = ["fd00:1::/64", "10.1.0.0/24", "fd00:2::/64", "10.2.0.0/24"];

    #[test]
    fn o14_a_list_without_a_family_of_the_service_refuses_all_its_clients() {
        let words = "the list refuses 2 of 2 ranges of pods, such as fd00:1::/64, fd00:2::/64";
        for served in [&["fd00:96::a"][..], &["10.96.0.10", "fd00:96::a"], &[]] {
            let (outcome, excluded) = judged("[10.0.0.0/8]", &observed(V6_FIRST, &RANGES, served));
            assert!(matches!(outcome, CheckResult::Worse(_)), "{served:?}: {outcome:?}");
            assert_eq!(excluded.as_deref(), Some(words), "{served:?}");
        }
        let of_ipv4 = observed(V6_FIRST, &RANGES, &["10.96.0.10"]);
        assert_eq!(judged("[10.0.0.0/8]", &of_ipv4), (CheckResult::Good, None));
        let (outcome, excluded) =
            judged("[10.1.0.0/24, 'fd00::/8']", &observed(V6_FIRST, &RANGES, &[]));
        assert!(matches!(outcome, CheckResult::Warning(_)), "one of two: {outcome:?}");
        assert_eq!(excluded, None);
    }

    #[test]
    fn o17_addresses_of_a_family_that_the_service_has_not_fail_no_list() {
        // Pools of the network plug-in, which nodes do not name.
        let of_ipv4 = observed(V6_FIRST, &[], &["10.96.0.10"]);
        assert_eq!(judged("[10.0.0.0/8]", &of_ipv4), (CheckResult::Good, None));
        let of_both = observed(V6_FIRST, &[], &["10.96.0.10", "fd00:96::a"]);
        let words = "the list refuses 2 of 2 pods that are known, such as fd00:1::5, fd00:2::5";
        assert_eq!(judged("[10.0.0.0/8]", &of_both).1.as_deref(), Some(words));
    }

    /// Pods of both families that this list has, on nodes with these addresses.
    fn on_nodes(nodes: &[&str], has_node_local: bool) -> Observed {
        let mut observed = observed(V6_FIRST, &RANGES, &["10.96.0.10"]);
        observed.known_clients.nodes = nodes.iter().map(|text| text.parse().unwrap()).collect();
        observed.known_clients.has_node_local = has_node_local;
        observed
    }

    const NODES: [&str; 3] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];

    #[test]
    fn o17_a_list_without_nodes_fails_where_node_local_dns_cache_asks() {
        let (outcome, excluded) = judged("[10.0.0.0/8]", &on_nodes(&NODES, true));
        let CheckResult::Worse(words) = outcome else { panic!("{outcome:?}") };
        for part in [
            "the list refuses 3 of 3 nodes, such as 192.0.2.1, 192.0.2.2, 192.0.2.3",
            "NodeLocal DNSCache asks for their pods",
            ": add the ranges of nodes. If it asks from other addresses here, write spec.rollout.canary: false",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert_eq!(excluded, None, "people may mean it, or the network writes other addresses");
        let few = judged("[10.0.0.0/8, 192.0.2.0/31, 192.0.2.2/32]", &on_nodes(&NODES, true)).0;
        assert!(matches!(&few, CheckResult::Warning(it) if it.contains("1 of 3 nodes")), "{few:?}");
        let none = judged("[10.0.0.0/8, 192.0.2.0/24]", &on_nodes(&NODES, true));
        assert_eq!(none, (CheckResult::Good, None));
        let of_ipv6 = on_nodes(&["fd00::1", "fd00::2"], true);
        assert_eq!(judged("[10.0.0.0/8]", &of_ipv6).0, CheckResult::Good, "it asks over IPv4");
    }

    #[test]
    fn o17_a_list_without_nodes_is_a_warning_where_only_few_pods_need_them() {
        let (outcome, excluded) = judged("[10.0.0.0/8]", &on_nodes(&NODES, false));
        let CheckResult::Warning(words) = outcome else { panic!("{outcome:?}") };
        assert!(words.contains("3 of 3 nodes"), "{words}");
        assert!(words.ends_with("from which pods on the network of their node ask"), "{words}");
        assert_eq!(excluded, None);
    }

    #[test]
    fn o17_nodes_that_the_list_before_refused_fail_no_list() {
        let of = |spec: &str| config(&dns(&format!("{{access: {{clients: {spec}}}}}")));
        let (after, before) = (of("[10.0.0.0/8, 172.16.0.0/12]"), of("[10.0.0.0/8]"));
        let found = check(&after, &before, &on_nodes(&NODES, true)).expect("a check");
        assert_eq!(found.outcome, CheckResult::Good);
    }

    #[test]
    fn o17_a_list_that_refuses_pods_and_nodes_names_both() {
        let (outcome, _) = judged("[198.51.100.0/24]", &on_nodes(&NODES, true));
        let CheckResult::Worse(words) = outcome else { panic!("{outcome:?}") };
        assert!(
            words.contains("2 of 2 ranges of pods") && words.contains("3 of 3 nodes"),
            "{words}"
        );
        assert!(words.ends_with(": add the ranges of pods and nodes"), "{words}");
    }
}
