//! Servers that are written twice in one group: the second has no effect, and is rarely meant.

use crds::ClusterDNS;
use crds::v1alpha1::Server;

use super::warning::{Warning, warning};

/// A warning for each server that its group has already.
pub(super) fn servers_twice(dns: &ClusterDNS) -> Vec<Warning> {
    let upstreams = dns.spec.upstreams.iter().flat_map(|upstreams| upstreams.servers.as_deref());
    let upstreams = upstreams.map(|servers| ("spec.upstreams".to_owned(), servers));
    let stubs = dns.spec.stub_domains.iter().flatten().enumerate();
    let stubs = stubs.map(|(at, stub)| (format!("spec.stubDomains[{at}]"), &stub.servers[..]));
    upstreams.chain(stubs).flat_map(|(field, servers)| of_group(&field, servers)).collect()
}

fn of_group(field: &str, servers: &[Server]) -> Vec<Warning> {
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
    let twice = servers
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
    twice.map(warn).collect()
}
