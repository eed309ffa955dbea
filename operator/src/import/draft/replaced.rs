//! The addresses of the DNS server that is replaced: a ClusterDNS that takes its Service over cannot ask it. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::import::values::address;

/// Servers as they are written, and the addresses of those that are no loopback ones: a process may ask itself at many ports.
#[derive(Default)]
pub(in crate::import) struct Replaced {
    texts: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl Replaced {
    /// Adds a server such as `10.96.0.10` or `dns://10.96.0.10:53`.
    pub(in crate::import) fn add(&mut self, server: &str) {
        self.addresses.extend(ip(server).filter(|it| !it.is_loopback()));
        self.texts.insert(server.to_owned());
    }

    /// Is it one of them?
    pub(in crate::import) fn has(&self, server: &str) -> bool {
        self.texts.contains(server) || self.has_address(server)
    }

    /// The same of servers that are written by their address, at any port.
    pub(in crate::import) fn has_address(&self, server: &str) -> bool {
        ip(server).is_some_and(|it| self.addresses.contains(&it))
    }
}

fn ip(server: &str) -> Option<IpAddr> {
    let text = server.split_once("://").map_or(server, |(_, text)| text);
    Some(address(text)?.0.to_canonical())
}
