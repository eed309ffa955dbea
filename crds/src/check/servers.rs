//! Servers that are asked, and ports that we listen on (A34).

use std::net::{IpAddr, Ipv4Addr};

use super::violations::{Reason, Violations};
use crate::ClusterDNSSpec;
use crate::bounds as limit;
use crate::config::{Config, Group, MetricNames, Server, ServiceAddresses, Upstreams};
use crate::defaults::{DNS_PORT, HTTP_PORT};

/// Adds what is wrong with servers and listeners.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    every_server(config, |server, field| transport_and_port(server, field, violations));
    if let ServiceAddresses::Listed(own) = &config.service_addresses {
        not_ourselves(config, own, violations);
    }
    listeners(config, violations);
    dnstap(config, violations);
}

/// A34 (no server may be ourselves) with the addresses that only a cluster knows: those that our Service and
/// listeners really have.
///
/// # Errors
/// The servers of the configuration that have one of these addresses.
pub fn check_own_addresses(config: &Config, own: &[IpAddr]) -> Result<(), Violations> {
    let mut violations = Violations::default();
    not_ourselves(config, own, &mut violations);
    violations.or(())
}

/// The clusterIPs as written are ours also where `serviceAddresses` says something else.
pub(super) fn cluster_ips_are_not_upstreams(
    spec: &ClusterDNSSpec,
    config: &Config,
    violations: &mut Violations,
) {
    let written = spec.service.iter().flat_map(|service| service.cluster_ips.iter().flatten());
    let mut own: Vec<IpAddr> = written.filter_map(|text| text.parse().ok()).collect();
    if let ServiceAddresses::Listed(listed) = &config.service_addresses {
        own.retain(|ip| !listed.contains(ip));
    }
    not_ourselves(config, &own, violations);
}

/// Addresses that are the pod's own, or that a pod cannot reach without the name of an interface. Link-local IPv4 is
/// not among them: resolvers of clouds and of nodes are there (169.254.169.253, 169.254.20.10).
pub(super) fn reachable_from_pods(spec: &ClusterDNSSpec, violations: &mut Violations) {
    let upstreams = spec.upstreams.iter().flat_map(|upstreams| upstreams.servers.iter().flatten());
    let upstreams =
        upstreams.enumerate().map(|(at, server)| (format!("spec.upstreams.servers[{at}]"), server));
    let stubs = spec.stub_domains.iter().flatten().enumerate().flat_map(|(stub, domain)| {
        let servers = domain.servers.iter().enumerate();
        servers.map(move |(at, server)| (format!("spec.stubDomains[{stub}].servers[{at}]"), server))
    });
    let servers = upstreams.chain(stubs).map(|(field, server)| (field, server.address.as_str()));
    let dnstap = spec.logging.iter().filter_map(|logging| logging.dnstap.as_ref());
    let dnstap = dnstap.map(|dnstap| ("spec.logging.dnstap".to_owned(), dnstap.address.as_str()));
    for (field, address) in servers.chain(dnstap) {
        let Ok(ip) = address.parse::<IpAddr>() else { continue };
        let why = match ip.to_canonical() {
            ip if ip.is_loopback() => "is the pod itself",
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                "cannot be reached without the name of an interface"
            }
            IpAddr::V4(_) | IpAddr::V6(_) => continue,
        };
        let message = format!("{ip} {why}: write the address of the server on the network");
        violations.add(format!("{field}.address"), Reason::InvalidAddress, message);
    }
}

fn not_ourselves(config: &Config, own: &[IpAddr], violations: &mut Violations) {
    every_server(config, |server, field| {
        if own.contains(&server.ip) {
            let message = format!(
                "{} is an address of this ClusterDNS itself, so questions would go in circles: write the server behind it",
                server.ip
            );
            violations.add(format!("{field}.address"), Reason::OwnAddress, message);
        }
    });
}

fn every_server(config: &Config, mut visit: impl FnMut(&Server, &str)) {
    let mut group = |group: &Group, field: &str| {
        for (index, server) in group.servers.iter().enumerate() {
            visit(server, &format!("{field}.servers[{index}]"));
        }
    };
    if let Upstreams::Servers(servers) = &config.upstreams {
        group(servers, "spec.upstreams");
    }
    for (index, stub) in config.stub_domains.iter().enumerate() {
        group(&stub.group, &format!("spec.stubDomains[{index}]"));
    }
}

/// Can one host have this address?
fn is_one_host(ip: IpAddr) -> bool {
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

fn transport_and_port(server: &Server, field: &str, violations: &mut Violations) {
    if server.port == 0 {
        violations.add(
            format!("{field}.port"),
            Reason::OutOfRange,
            "0 is not in 1-65535: leave port out for the usual one",
        );
    }
    if !is_one_host(server.ip) {
        let message =
            format!("{} is not the address of one server: write that of a DNS server", server.ip);
        violations.add(format!("{field}.address"), Reason::InvalidAddress, message);
    }
    match (server.transport.is_encrypted(), &server.tls) {
        (true, None) => {
            let message = "an encrypted transport must know whom to expect: add tls: {serverName: <the name in the \
                           server's certificate>}";
            violations.add(format!("{field}.tls"), Reason::Missing, message);
        }
        (false, Some(_)) => {
            let message = "tls is for the transports TLS, HTTPS and QUIC: set transport to one of them, or leave tls out";
            violations.add(format!("{field}.tls"), Reason::Unused, message);
        }
        (true, Some(_)) | (false, None) => {}
    }
}

/// Whether one program can listen there.
fn dnstap(config: &Config, violations: &mut Violations) {
    let Some(dnstap) = &config.logging.dnstap else { return };
    if !is_one_host(dnstap.ip) {
        let message = format!(
            "{} is not the address of one program: write that of the reader of dnstap",
            dnstap.ip
        );
        violations.add("spec.logging.dnstap.address", Reason::InvalidAddress, message);
    }
    if dnstap.port == 0 {
        violations.add("spec.logging.dnstap.port", Reason::OutOfRange, "0 is not in 1-65535");
    }
}

fn listeners(config: &Config, violations: &mut Violations) {
    let tls = config.listeners.tls.as_ref().map(|listener| listener.port);
    let https = config.listeners.https.as_ref().map(|listener| listener.port);
    let quic = config.listeners.quic.as_ref().map(|listener| listener.port);
    for (name, port) in [("tls", tls), ("https", https), ("quic", quic)] {
        let Some(port) = port else { continue };
        let field = format!("spec.listeners.{name}.port");
        if port == 0 {
            violations.add(field, Reason::OutOfRange, "0 is not in 1-65535");
        } else if u32::from(port) == DNS_PORT || u32::from(port) == HTTP_PORT {
            let message = format!(
                "{port} is taken by DNS (53) or metrics (9153): use 853 for TLS and QUIC, 443 for HTTPS"
            );
            violations.add(field, Reason::PortTaken, message);
        } else if config.metrics.compatibility.contains(&MetricNames::KubeDNS)
            && limit::KUBE_DNS_PORTS.contains(&port)
        {
            let message = format!(
                "{port} is a port of kube-dns, which metrics.compatibility asks for: use another, normally 853 or 443"
            );
            violations.add(field, Reason::PortTaken, message);
        }
    }
    if tls.is_some() && tls == https {
        let message = "DNS over TLS has this port already: use a port each, normally 853 and 443";
        violations.add("spec.listeners.https.port", Reason::PortTaken, message);
    }
}
