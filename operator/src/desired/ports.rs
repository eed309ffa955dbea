//! Which ports the pods serve: the one list behind containers, Services and network policies, and what an adopted
//! Service may point to.

use crds::ClusterDNSSpec;
use crds::bounds::KUBE_DNS_PORTS;
use crds::config::{Listeners, MetricNames};
use crds::defaults::{DNS_PORT, HTTP_PORT};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A process needs permission for ports below this one: the default of `net.ipv4.ip_unprivileged_port_start`.
const UNPRIVILEGED: u16 = 1024;

/// The container port with DNS over UDP; names are those of existing kube-dns Services.
pub const DNS: &str = "dns";
/// The container port with DNS over TCP.
const DNS_TCP: &str = "dns-tcp";
/// The container port with `/livez`, `/readyz`, `/metrics` and `/config`.
pub const METRICS: &str = "metrics";
/// The container ports of kube-dns, in the order of `KUBE_DNS_PORTS`: `/readiness`, the sidecar, the resolver's metrics.
const KUBE_DNS: [&str; 3] = ["kubedns-health", "sidecar", "kubedns"];
/// The container port with DNS over TLS.
pub(super) const DNS_TLS: &str = "dns-tls";
/// The container port with DNS over HTTPS.
pub(super) const DNS_HTTPS: &str = "dns-https";

/// The container port with DNS over QUIC.
pub(super) const DNS_QUIC: &str = "dns-quic";

/// The names of all ports that a pod of ours can have: what is kept of a pod has the ports with these names.
pub const NAMES: [&str; 9] =
    [DNS, DNS_TCP, DNS_TLS, DNS_HTTPS, DNS_QUIC, METRICS, KUBE_DNS[0], KUBE_DNS[1], KUBE_DNS[2]];

/// A port of our pods that the Service and the policies name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, in the container and in our own Service.
    pub name: &'static str,
    /// `UDP` or `TCP`.
    pub protocol: &'static str,
    /// Its number in our own Service.
    pub service: u16,
    /// Its number in the pod.
    pub pod: u16,
}

impl Port {
    /// Whether this port serves DNS.
    pub fn is_dns(&self) -> bool {
        self.name != METRICS && !KUBE_DNS.contains(&self.name)
    }

    /// Whether a Service with this target port and protocol reaches it.
    pub fn is_target(&self, target: &IntOrString, protocol: &str) -> bool {
        let matches = match target {
            IntOrString::Int(number) => *number == i32::from(self.pod),
            IntOrString::String(name) => name == self.name,
        };
        matches && protocol == self.protocol
    }
}

/// Every port that pods of this spec serve.
pub fn of(spec: &ClusterDNSSpec) -> Vec<Port> {
    let listeners = spec.listeners.as_ref();
    let tls = listeners.and_then(|it| it.tls.as_ref()).map(|it| it.port);
    let https = listeners.and_then(|it| it.https.as_ref()).map(|it| it.port);
    let quic = listeners.and_then(|it| it.quic.as_ref()).map(|it| it.port);
    with_listeners(spec, [tls, https, quic])
}

/// The same of pods that open these listeners, which may be from before an edit. Each number once, because the API server refuses
/// it twice: DNS itself may have got the port of such a listener.
pub(super) fn of_pods(spec: &ClusterDNSSpec, listeners: &Listeners) -> Vec<Port> {
    let Listeners { tls, https, quic } = listeners;
    let tls = tls.as_ref().map(|it| it.port);
    let https = https.as_ref().map(|it| it.port);
    let quic = quic.as_ref().map(|it| it.port);
    let mut ports: Vec<Port> = Vec::new();
    for port in with_listeners(spec, [tls, https, quic]) {
        if !ports.iter().any(|it| (it.pod, it.protocol) == (port.pod, port.protocol)) {
            ports.push(port);
        }
    }
    ports
}

/// `listeners` are the ports of TLS, HTTPS and QUIC.
fn with_listeners(spec: &ClusterDNSSpec, listeners: [Option<u16>; 3]) -> Vec<Port> {
    let dns = spec.service.as_ref().map_or(DNS_PORT as u16, |service| service.pod_port);
    let fixed =
        |name, protocol, service: u32, pod| Port { name, protocol, service: service as u16, pod };
    let mut ports = vec![
        fixed(DNS, "UDP", DNS_PORT, dns),
        fixed(DNS_TCP, "TCP", DNS_PORT, dns),
        fixed(METRICS, "TCP", HTTP_PORT, HTTP_PORT as u16),
    ];
    let same = |name, protocol, port| Port { name, protocol, service: port, pod: port };
    let [tls, https, quic] = listeners;
    ports.extend(tls.map(|port| same(DNS_TLS, "TCP", port)));
    ports.extend(https.map(|port| same(DNS_HTTPS, "TCP", port)));
    ports.extend(quic.map(|port| same(DNS_QUIC, "UDP", port)));
    let names = spec.metrics.as_ref().map(|metrics| metrics.compatibility.as_slice());
    if names.is_some_and(|names| names.contains(&MetricNames::KubeDNS)) {
        let kube_dns = KUBE_DNS.into_iter().zip(KUBE_DNS_PORTS);
        ports.extend(kube_dns.map(|(name, port)| same(name, "TCP", port)));
    }
    ports
}

/// The lowest of our ports that needs permission; the pod's sysctl then allows ports from it on. A DNS port that
/// needs no permission is chosen where the container runtime refuses sysctls, so none is set then.
pub(super) fn unprivileged_from(ports: &[Port]) -> Option<u16> {
    let dns = ports.iter().find(|port| port.name == DNS)?;
    let least = ports.iter().map(|port| port.pod).min()?;
    (dns.pod < UNPRIVILEGED).then_some(least)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fixtures::dns;

    #[test]
    fn s10_the_names_of_ports_are_those_that_a_pod_with_all_listeners_has() {
        let full = "{listeners: {tls: {port: 853, certificate: {name: c}}, https: {port: 443, certificate: {name: c}},
            quic: {port: 853, certificate: {name: c}}}, metrics: {compatibility: [KubeDNS]}}";
        let all: BTreeSet<&str> = of(&dns(full).spec).iter().map(|port| port.name).collect();
        assert_eq!(all, BTreeSet::from(NAMES));
    }
}
