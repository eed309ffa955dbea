//! Servers that are legal and rarely meant: one that is twice in its group, and one with the port of another transport.

use crds::ClusterDNS;
use crds::config::Transport;
use crds::defaults::{DNS_PORT, TLS_PORT};
use crds::v1alpha1::Server;

use super::warning::{Warning, warning};

/// A warning for each server that its group has already, and for each port of another transport.
pub(super) fn unlikely_servers(dns: &ClusterDNS) -> Vec<Warning> {
    let upstreams = dns.spec.upstreams.iter().flat_map(|upstreams| upstreams.servers.as_deref());
    let upstreams = upstreams.map(|servers| ("spec.upstreams".to_owned(), servers));
    let stubs = dns.spec.stub_domains.iter().flatten().enumerate();
    let stubs = stubs.map(|(at, stub)| (format!("spec.stubDomains[{at}]"), &stub.servers[..]));
    let groups = upstreams.chain(stubs);
    groups
        .flat_map(|(field, servers)| {
            let ports = servers.iter().enumerate().filter_map(|(at, server)| {
                other_port(server).map(|message| {
                    let field = format!("{field}.servers[{at}].port");
                    warning(field, "PortOfOtherTransport", message)
                })
            });
            let ports: Vec<Warning> = ports.take(crds::bounds::SERVERS).collect();
            twice(&field, servers).into_iter().chain(ports)
        })
        .collect()
}

/// Why a port is not that of its transport: each of the two has a port on which hardly any server has the other.
fn other_port(server: &Server) -> Option<String> {
    let (port, transport) = (u32::from(server.port?), server.transport);
    match transport {
        Transport::Udp | Transport::Tcp if port == TLS_PORT => Some(format!(
            "{TLS_PORT} is the port of DNS over TLS, and this server is asked in clear text there: write transport: TLS with \
             tls.serverName, or port {DNS_PORT}"
        )),
        Transport::Tls | Transport::Https | Transport::Quic if port == DNS_PORT => Some(format!(
            "{DNS_PORT} is the port of DNS in clear text, and this server is asked over an encrypted transport there: leave \
             the port out, which means {}",
            transport.default_port()
        )),
        Transport::Udp | Transport::Tcp | Transport::Tls | Transport::Https | Transport::Quic => {
            None
        }
    }
}

fn twice(field: &str, servers: &[Server]) -> Vec<Warning> {
    // An address that cannot be read is an error already.
    let usable = servers.len().min(crds::bounds::SERVERS);
    let is_same = |one: &Server, other: &Server| {
        let port = |server: &Server| server.port.unwrap_or(server.transport.default_port());
        let ip = |server: &Server| server.address.parse::<std::net::IpAddr>().ok();
        ip(one).is_some()
            && ip(one) == ip(other)
            && port(one) == port(other)
            && one.transport == other.transport
    };
    let servers = &servers[..usable];
    let repeated = servers
        .iter()
        .enumerate()
        .filter(|(at, server)| servers[..*at].iter().any(|other| is_same(other, server)));
    let warn = |(at, server): (usize, &Server)| {
        let message = format!(
            "{} is in this group already, and is one server: leave one out",
            server.address
        );
        warning(format!("{field}.servers[{at}]"), "ServerTwice", message)
    };
    repeated.map(warn).collect()
}
