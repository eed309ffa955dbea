//! Whether pods may ask: `access.clients` against the addresses that pods have. The operator asks from one address only, so
//! that its own replies say nothing about all others. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crds::Config;
use ipnet::IpNet;

use crate::decide::adoption::cluster_ips;
use crate::observe::observed::{Check, CheckResult, Observed};
use crate::observe::pods;

/// The reason of a condition that says so.
pub const REASON: &str = "ClientsExcludePods";

/// Pods or ranges that a message names.
const MAX_NAMED: usize = 3;

/// What an empty list means, where people may have meant that no client may ask.
const EVERYONE: &str = "the list has no entries any more, so every client may ask";

/// Known pods that a changed `access.clients` newly refuses, or that it has become empty and refuses no client.
pub(super) fn check(config: &Config, before: &Config, observed: &Observed) -> Option<Check> {
    let clients = &config.access.clients;
    if *clients == before.access.clients {
        return None;
    }
    let outcome = match refused(clients, &before.access.clients, observed) {
        None if clients.is_empty() => CheckResult::Warning(EVERYONE.to_owned()),
        None => CheckResult::Good,
        Some(Refused { words, is_most: true }) => {
            CheckResult::Worse(format!("{words}: add the ranges of pods"))
        }
        Some(Refused { words, is_most: false }) => CheckResult::Warning(words),
    };
    Some(Check { what: "access.clients".to_owned(), outcome })
}

/// The problem with a client list that excludes most pods; the list before it does not matter.
pub fn excluded(config: &Config, observed: &Observed) -> Option<String> {
    let refused = refused(&config.access.clients, &[], observed)?;
    refused.is_most.then_some(refused.words)
}

/// Pods that would get REFUSED.
struct Refused {
    words: String,
    /// They are more than those that may ask.
    is_most: bool,
}

/// Pods that the list excludes and that the list before did not. An empty list excludes none. Clients ask an address of the Service
/// from their own of that family, so each family that it has is judged by itself: that of which most are refused is named.
fn refused(clients: &[IpNet], before: &[IpNet], observed: &Observed) -> Option<Refused> {
    if clients.is_empty() {
        return None;
    }
    let served: Vec<IpAddr> = observed.service.iter().flat_map(cluster_ips).collect();
    let served = match served.is_empty() {
        true => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        false => served,
    };
    let of_family = |served: &IpAddr| {
        let is_of_it = |ip: IpAddr| ip.is_ipv4() == served.is_ipv4();
        refused_of(is_of_it, (clients, before), observed)
    };
    let mut found: Vec<Refused> = served.iter().filter_map(of_family).collect();
    found.sort_by_key(|it| !it.is_most);
    found.into_iter().next()
}

/// Those of one family.
fn refused_of(
    is_of_it: impl Fn(IpAddr) -> bool,
    (clients, before): (&[IpNet], &[IpNet]),
    observed: &Observed,
) -> Option<Refused> {
    let of_pod = |pod| pods::addresses(pod).find(|ip| is_of_it(*ip));
    let pods: Vec<IpAddr> = observed.pods.iter().filter_map(of_pod).collect();
    let ranges = observed.pod_ranges.iter().filter(|range| is_of_it(range.addr()));
    let ranges: Vec<&IpNet> = ranges.collect();
    let lost: Vec<IpAddr> = pods
        .iter()
        .copied()
        .filter(|ip| !allows(clients, (*ip).into()) && is_allowed(before, (*ip).into()))
        .collect();
    // Some network plug-ins give addresses of their own and ignore the ranges of nodes.
    let are_used = pods.iter().all(|ip| ranges.iter().any(|range| range.contains(ip)));
    let lost_ranges: Vec<&IpNet> = ranges
        .iter()
        .copied()
        .filter(|range| are_used && !allows(clients, **range) && is_allowed(before, **range))
        .collect();
    if lost.is_empty() && lost_ranges.is_empty() {
        return None;
    }
    let (counted, is_most) = match lost_ranges.is_empty() {
        false => {
            let named: Vec<String> =
                lost_ranges.iter().take(MAX_NAMED).map(ToString::to_string).collect();
            let counted = format!(
                "{} of {} ranges of pods, such as {}",
                lost_ranges.len(),
                ranges.len(),
                named.join(", ")
            );
            (counted, lost_ranges.len() * 2 > ranges.len())
        }
        true => {
            let named: Vec<String> = lost.iter().take(MAX_NAMED).map(IpAddr::to_string).collect();
            let counted = format!(
                "{} of {} pods that are known, such as {}",
                lost.len(),
                pods.len(),
                named.join(", ")
            );
            (counted, lost.len() * 2 > pods.len())
        }
    };
    Some(Refused { words: format!("the list refuses {counted}"), is_most })
}

/// An empty list allows all.
fn is_allowed(clients: &[IpNet], range: IpNet) -> bool {
    clients.is_empty() || allows(clients, range)
}

/// May every address of this range ask, by one entry or by several together?
pub(crate) fn allows(clients: &[IpNet], range: IpNet) -> bool {
    let clients = IpNet::aggregate(&clients.to_vec());
    clients.iter().any(|client| client.contains(&range))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{config, dns, from, own_service, pod};

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
            pod_ranges: ranges.iter().map(|text| text.parse().unwrap()).collect(),
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
}
