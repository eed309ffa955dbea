//! What is legal and unwise: what people want to know before they apply it.

use std::net::IpAddr;

use ipnet::IpNet;

use crds::ClusterDNS;
use crds::config::PodRecords;
use crds::defaults::{DNS_PORT, MIN_REPLICAS};
use crds::v1alpha1::{ManagementState, Proportional, Service};
use crds::without_effect::{self, WithoutEffect};

use super::aliases::{alias_loops, never_asked};
use super::budget::{budget, of_ladder};
use super::exposure::api_server;
use super::resources::{memory_limit, requests_of_nothing, sized_memory, storage_limit};
use super::servers::unlikely_servers;
use super::warning::{Warning, warning};
use crate::ask_pods::canary_analysis::clients::ClientList;
use crate::desired::ports;
use crate::desired::without_effect::beside_others;

/// A process needs permission for ports below this one.
const UNPRIVILEGED: u16 = 1024;
/// The alerts look at the last 5 minutes, in which they need two scrapes, also where one is late.
const RAREST_SCRAPE_S: u32 = 120;
/// Shorter prefixes than these hold the addresses of others.
const WIDEST_V4: u8 = 8;
const WIDEST_V6: u8 = 16;

/// Everything that is unwise in this spec alone.
pub fn unwise(dns: &ClusterDNS) -> Vec<Warning> {
    let service = dns.spec.service.clone().unwrap_or_default();
    let rules = [
        pod_records(dns),
        reverse_ranges(dns),
        pod_port(&service),
        listener_ports(dns, &service),
        cluster_ips(&service),
        canary(dns),
        replicas(dns),
        drain(dns),
        unmanaged(dns),
        memory_limit(dns),
        sized_memory(dns),
        rare_scrapes(dns),
        clients(dns),
        api_server(dns),
        budget(dns),
    ];
    let rules = rules.into_iter().flatten();
    let used = crds::check_resource(dns).map(|config| without_effect::of(&config));
    let mut used = used.unwrap_or_default();
    used.extend(beside_others(dns));
    let used = ineffective(used);
    let of_names = alias_loops(dns).into_iter().chain(never_asked(dns));
    let of_servers = unlikely_servers(dns);
    let of_servers =
        of_servers.into_iter().chain(requests_of_nothing(dns)).chain(storage_limit(dns));
    rules.chain(whole_internet(dns)).chain(of_names).chain(of_servers).chain(used).collect()
}

/// Fields that are accepted and do nothing.
fn ineffective(used: Vec<WithoutEffect>) -> Vec<Warning> {
    let warn = |it: WithoutEffect| {
        let message = format!("this field has no effect: {}", it.instead);
        warning(it.field, "WithoutEffect", message)
    };
    used.into_iter().map(warn).collect()
}

/// Reverse names of public addresses have owners elsewhere.
fn whole_internet(dns: &ClusterDNS) -> Vec<Warning> {
    let ranges = dns.spec.reverse_cidrs.iter().flatten().enumerate();
    let wide = ranges.filter(|(_, text)| {
        text.parse::<IpNet>().is_ok_and(|range| match range {
            IpNet::V4(range) => range.prefix_len() < WIDEST_V4,
            IpNet::V6(range) => range.prefix_len() < WIDEST_V6,
        })
    });
    let warn = |(index, text): (usize, &String)| {
        let message = format!(
            "the reverse names of all addresses in {text} are answered here, those of the internet too: unknown ones do not \
             exist then; write the Service and pod ranges"
        );
        warning(format!("spec.reverseCIDRs[{index}]"), "ReverseRangeTooWide", message)
    };
    wide.map(warn).collect()
}

/// Clients ask from the addresses of their pods.
fn clients(dns: &ClusterDNS) -> Option<Warning> {
    let clients = dns.spec.access.as_ref()?.clients.as_ref().filter(|list| !list.is_empty())?;
    let clients: Vec<IpNet> = clients.iter().filter_map(|text| text.parse().ok()).collect();
    let service = dns.spec.service.iter().flat_map(|it| it.cluster_ips.iter().flatten());
    let service: Vec<IpAddr> = service.filter_map(|text| text.parse().ok()).collect();
    let ranges = dns.spec.reverse_cidrs.iter().flatten().filter_map(|text| text.parse().ok());
    // No client has an address of the range of Services.
    let pods = ranges.filter(|range: &IpNet| !service.iter().any(|ip| range.contains(ip)));
    let mut pods = pods.filter(|range| may_be_asked_from(range, &service));
    let list = ClientList::of(&clients);
    let excluded = pods.find(|range| !list.allows(*range))?;
    let is_part = clients.iter().any(|client| excluded.contains(client));
    let how = if is_part { "only in part in these ranges" } else { "in none of these ranges" };
    let message = format!(
        "{excluded} of spec.reverseCIDRs is {how}: pods with other addresses get REFUSED; add the ranges of all pods and nodes"
    );
    Some(warning("spec.access.clients", "ClientsExcludePods", message))
}

/// Clients ask an address of a Service from their own of that family. Its addresses may not be known.
pub(super) fn may_be_asked_from(range: &IpNet, served: &[IpAddr]) -> bool {
    served.is_empty() || served.iter().any(|ip| ip.is_ipv4() == range.addr().is_ipv4())
}

/// `Insecure` is the default, so that a switch breaks no name; this advice is part of that rule (RR56).
fn pod_records(dns: &ClusterDNS) -> Option<Warning> {
    match dns.spec.pod_records {
        PodRecords::Insecure => Some(warning(
            "spec.podRecords",
            "InsecurePodRecords",
            "any address has a name in any namespace, so certificates for such names prove nothing: write Disabled, or \
             Verified where these names are used",
        )),
        PodRecords::Disabled | PodRecords::Verified => None,
    }
}

fn reverse_ranges(dns: &ClusterDNS) -> Option<Warning> {
    let is_empty = dns.spec.reverse_cidrs.as_ref().is_none_or(Vec::is_empty);
    // Without upstreams they are refused: nothing leaves.
    let leaves = dns.spec.upstreams.as_ref().is_none_or(|upstreams| upstreams.none != Some(true));
    (is_empty && leaves).then(|| {
        warning(
            "spec.reverseCIDRs",
            "NoReverseCIDRs",
            "reverse questions about unknown cluster addresses leave the cluster: write the Service and pod ranges",
        )
    })
}

fn pod_port(service: &Service) -> Option<Warning> {
    (u32::from(service.pod_port) != DNS_PORT).then(|| {
        let port = service.pod_port;
        warning(
            "spec.service.podPort",
            "PodPortIsNot53",
            format!(
                "network policies match the port of the pod: users' egress policies that allow 53 block {port}; write 53 \
                 unless the container runtime refuses sysctls"
            ),
        )
    })
}

fn listener_ports(dns: &ClusterDNS, service: &Service) -> Option<Warning> {
    let listens_low = ports::of(&dns.spec).iter().any(|port| port.pod < UNPRIVILEGED);
    (service.pod_port >= UNPRIVILEGED && listens_low).then(|| {
        warning(
            "spec.listeners",
            "ListenerNeedsPermission",
            format!(
                "with podPort {} pods ask for no sysctl, and ports below {UNPRIVILEGED} need one: give listeners ports from \
                 {UNPRIVILEGED} up",
                service.pod_port
            ),
        )
    })
}

fn cluster_ips(service: &Service) -> Option<Warning> {
    let ips = service.cluster_ips.as_deref().unwrap_or_default();
    if service.adopt {
        return None;
    }
    if ips.is_empty() {
        return Some(warning(
            "spec.service.clusterIPs",
            "AddressIsChosen",
            "the API server chooses the address, and kubelets need it: write the one that is clusterDNS of the \
             kubelets before the first apply, or adopt the Service that has it",
        ));
    }
    let is_loopback =
        ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()).any(|ip| ip.is_loopback());
    is_loopback.then(|| {
        warning(
            "spec.service.clusterIPs",
            "LoopbackAddress",
            "the API server takes addresses of its Service range only: write one of these",
        )
    })
}

fn canary(dns: &ClusterDNS) -> Option<Warning> {
    let is_off = dns.spec.rollout.as_ref().is_some_and(|rollout| !rollout.canary);
    is_off.then(|| {
        warning(
            "spec.rollout.canary",
            "NoCanary",
            "a configuration that answers worse reaches every pod at once: write true",
        )
    })
}

fn replicas(dns: &ClusterDNS) -> Option<Warning> {
    let scaling = dns.spec.scaling.clone().unwrap_or_default();
    let fixed = scaling.fixed.map(|fixed| ("spec.scaling.fixed.replicas", fixed.replicas));
    // With more than one node there are two of them then.
    let is_alone =
        |it: &Proportional| !it.prevent_single_point_of_failure || it.max_replicas < MIN_REPLICAS;
    let least = scaling
        .proportional
        .filter(is_alone)
        .map(|proportional| ("spec.scaling.proportional.minReplicas", proportional.min_replicas));
    // With one node a second pod would not outlive it.
    let by_ladder = scaling.ladder.and_then(|ladder| of_ladder(&ladder, 2));
    let at = if by_ladder.is_some() { " at a step of the tables" } else { "" };
    let by_ladder = by_ladder.map(|replicas| ("spec.scaling.ladder", replicas));
    let (field, replicas) = fixed.or(least).or(by_ladder)?;
    (replicas < MIN_REPLICAS).then(|| {
        warning(
            field,
            "SinglePod",
            format!(
                "{replicas} pod{at}: when its node goes, the cluster has no DNS, and there is no canary; write \
                 {MIN_REPLICAS} or more"
            ),
        )
    })
}

fn drain(dns: &ClusterDNS) -> Option<Warning> {
    const ENOUGH_S: u32 = 5;
    let seconds = dns.spec.drain_seconds;
    (seconds < ENOUGH_S).then(|| {
        warning(
            "spec.drainSeconds",
            "ShortDrain",
            format!(
                "nodes send queries for some seconds after a pod is asked to stop: {seconds} s loses some; write 20"
            ),
        )
    })
}

fn unmanaged(dns: &ClusterDNS) -> Option<Warning> {
    match dns.spec.management_state {
        ManagementState::Managed => None,
        ManagementState::Unmanaged => Some(warning(
            "spec.managementState",
            "Unmanaged",
            "nothing that is written here takes effect: write Managed once you are done by hand",
        )),
    }
}

/// Prometheus forgets a sample after 5 minutes: alerts come and go with each scrape, or never fire.
fn rare_scrapes(dns: &ClusterDNS) -> Option<Warning> {
    let metrics = dns.spec.metrics.as_ref()?;
    let seconds = metrics.interval_seconds?;
    let has_alerts = metrics.prometheus_rule && metrics.pod_monitor;
    (has_alerts && seconds > RAREST_SCRAPE_S).then(|| {
        let message = format!(
            "the alerts of spec.metrics.prometheusRule look at the last 5 minutes: with a scrape each {seconds} s ClusterDNSDown \
             may fire while pods answer, and others cannot fire; write {RAREST_SCRAPE_S} or less, or prometheusRule: false"
        );
        warning("spec.metrics.intervalSeconds", "ScrapesTooRare", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields and messages of this reason, of a spec.
    fn of_reason(reason: &str, spec: &str) -> Vec<(String, String)> {
        let warnings = unwise(&crate::fixtures::dns(spec)).into_iter();
        let it = warnings.filter(|it| it.reason == reason);
        it.map(|it| (it.field, it.message)).collect()
    }

    #[test]
    fn o18_one_pod_is_said_where_no_second_one_is_asked_for() {
        for (proportional, expected) in [
            ("{minReplicas: 1}", 0),
            ("{minReplicas: 1, maxReplicas: 1}", 1),
            ("{minReplicas: 1, preventSinglePointOfFailure: false}", 1),
        ] {
            let spec = format!("{{scaling: {{proportional: {proportional}}}}}");
            assert_eq!(of_reason("SinglePod", &spec).len(), expected, "{spec}");
        }
        let one = "{cores: 1, replicas: 1}, {cores: 512, replicas: 3}";
        let by_nodes = "{nodes: 1, replicas: 1}, {nodes: 2, replicas: 2}";
        for (ladder, expected) in [
            (format!("coresToReplicas: [{one}]"), 1),
            ("coresToReplicas: [{cores: 1, replicas: 2}, {cores: 512, replicas: 3}]".to_owned(), 0),
            ("coresToReplicas: [{cores: 1, replicas: 3}, {cores: 512, replicas: 1}]".to_owned(), 1),
            (format!("nodesToReplicas: [{by_nodes}]"), 0),
            (format!("coresToReplicas: [{one}], nodesToReplicas: [{by_nodes}]"), 0),
            ("nodesToReplicas: [{nodes: 1, replicas: 1}, {nodes: 3, replicas: 2}]".to_owned(), 1),
            ("nodesToReplicas: [{nodes: 3, replicas: 1}]".to_owned(), 1),
            ("nodesToReplicas: [{nodes: 3, replicas: 2}, {nodes: 9, replicas: 1}]".to_owned(), 1),
        ] {
            let found = of_reason("SinglePod", &format!("{{scaling: {{ladder: {{{ladder}}}}}}}"));
            assert_eq!(found.len(), expected, "{ladder}");
            let is_named = |(field, message): &(String, String)| {
                field == "spec.scaling.ladder"
                    && message.starts_with("1 pod at a step of the tables:")
            };
            assert!(found.iter().all(is_named), "{found:?}");
        }
    }

    #[test]
    fn o18_scrapes_that_are_too_rare_for_the_alerts_are_said() {
        for (metrics, expected) in [
            ("{}", 0),
            ("{intervalSeconds: 120}", 0),
            ("{intervalSeconds: 121}", 1),
            ("{intervalSeconds: 3600, prometheusRule: false}", 0),
            ("{intervalSeconds: 3600, podMonitor: false}", 0),
        ] {
            let found = of_reason("ScrapesTooRare", &format!("{{metrics: {metrics}}}"));
            assert_eq!(found.len(), expected, "{metrics}: {found:?}");
        }
    }

    #[test]
    fn o18_check_warns_of_a_field_that_is_used_and_has_no_effect() {
        // No field is without effect in this version: this is how one would be named.
        let field = "spec.ttlSeconds".to_owned();
        let warnings = ineffective(vec![WithoutEffect { field, instead: "every TTL is 5".into() }]);
        let message = "this field has no effect: every TTL is 5";
        assert_eq!(warnings, [warning("spec.ttlSeconds", "WithoutEffect", message)]);
    }
    #[test]
    fn o14_ranges_of_a_family_that_the_service_has_not_are_no_clients() {
        let warned = |cluster_ips: &str| {
            let spec = format!(
                "{{service: {{clusterIPs: [{cluster_ips}]}}, access: {{clients: [10.0.0.0/8]}}, \
                 reverseCIDRs: [10.244.0.0/16, 'fd00:244::/64']}}"
            );
            of_reason("ClientsExcludePods", &spec).len()
        };
        assert_eq!(warned("10.96.0.10"), 0);
        assert_eq!([warned("10.96.0.10, 'fd00:96::a'"), warned("")], [1, 1]);
    }
}
