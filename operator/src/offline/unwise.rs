//! What is legal, and what people wish they had been told before.

use std::net::IpAddr;

use crds::ClusterDNS;
use crds::config::PodRecords;
use crds::defaults::{DNS_PORT, MIN_REPLICAS};
use crds::v1alpha1::{ManagementState, Service};

use crate::desired::ports;

/// Below this, a process needs permission.
const UNPRIVILEGED: u16 = 1024;

/// One thing that is legal and unwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where.
    pub field: &'static str,
    /// One CamelCase word.
    pub reason: &'static str,
    /// What may come of it, and what to write instead.
    pub message: String,
}

/// Everything that is unwise in this spec, by itself.
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
    ];
    rules.into_iter().flatten().collect()
}

fn warning(field: &'static str, reason: &'static str, message: impl Into<String>) -> Warning {
    Warning { field, reason, message: message.into() }
}

/// `Insecure` is the default so that a switch breaks no name; this advice is part of that rule (RR56).
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
    is_empty.then(|| {
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
            "the API server chooses the address, and kubelets must be told it: write the one that is clusterDNS of the \
             kubelets, or adopt the Service that has it",
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
    let least = scaling
        .proportional
        .map(|proportional| ("spec.scaling.proportional.minReplicas", proportional.min_replicas));
    let (field, replicas) = fixed.or(least)?;
    (replicas < MIN_REPLICAS).then(|| {
        warning(
            field,
            "SinglePod",
            format!(
                "{replicas} pod: when its node goes, the cluster has no DNS, and there is no canary; write {MIN_REPLICAS} or more"
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
                "nodes go on sending queries for some seconds after a pod is told to stop: {seconds} s loses some; write 20"
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

fn memory_limit(dns: &ClusterDNS) -> Option<Warning> {
    let resources = dns.spec.resources.as_ref()?;
    let has = |resource: &str| {
        resources.limits.as_ref().is_some_and(|limits| limits.contains_key(resource))
    };
    if has("cpu") {
        let message = "a pod at its CPU limit answers nobody for up to 100 ms at a time: leave it out, and raise the request";
        return Some(warning("spec.resources.limits.cpu", "CPULimit", message));
    }
    (!has("memory")).then(|| {
        let message = "a pod may take all memory of its node: write a limit, such as 256Mi";
        warning("spec.resources.limits", "NoMemoryLimit", message)
    })
}
