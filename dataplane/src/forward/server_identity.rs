//! The identity of an upstream server: a server keeps its state over changes of the configuration as long as this is
//! equal.

use std::net::SocketAddr;

use crds::config;

/// The address, the transport, and the name and authorities that we expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerIdentity {
    pub(super) address: SocketAddr,
    pub(super) transport: config::Transport,
    /// The name and the authorities that it must prove to have.
    pub(super) tls: Option<config::ServerTls>,
}

/// The names by which people and metrics distinguish servers of a group at one address and transport, in their order:
/// the name that each must prove to have, empty where there is none. Where only the authorities differ, a number follows.
pub(super) fn names<'i>(servers: impl Iterator<Item = &'i ServerIdentity>) -> Vec<String> {
    let mut before: Vec<&ServerIdentity> = Vec::new();
    let mut names = Vec::new();
    for server in servers {
        let name = server.name();
        let is_twin = |other: &&&ServerIdentity| {
            (other.address, other.transport, other.name())
                == (server.address, server.transport, name)
        };
        names.push(match before.iter().filter(is_twin).count() {
            0 => name.to_owned(),
            twins => format!("{name}#{}", twins + 1),
        });
        before.push(server);
    }
    names
}

impl ServerIdentity {
    /// Octets of the authorities by which it is checked.
    pub(super) fn authority_octets(&self) -> usize {
        match self.tls.as_ref().and_then(|tls| tls.ca_bundle.as_ref()) {
            Some(config::CaBundle::Pem(text)) => text.len(),
            Some(config::CaBundle::ConfigMap { .. }) | None => 0,
        }
    }

    fn name(&self) -> &str {
        self.tls.as_ref().map_or("", |tls| &tls.server_name)
    }
}
