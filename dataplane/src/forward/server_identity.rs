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

impl ServerIdentity {
    /// The name by which people and metrics distinguish servers of a group at one address and transport: the one that it
    /// must prove to have, empty where there is none. A hash of its own authorities follows, where it has some. It depends
    /// on nothing else: a series stays that of one server when others come and go, and all pods show the same.
    pub(super) fn shown_name(&self) -> String {
        let Some(config::ServerTls { server_name, ca_bundle }) = &self.tls else {
            return String::new();
        };
        let hash = match ca_bundle {
            None => return server_name.clone(),
            Some(config::CaBundle::Pem(text)) => config::revision_of(text),
            Some(config::CaBundle::ConfigMap { name, key }) => {
                config::revision_of(&format!("{name}/{key}"))
            }
        };
        format!("{server_name}#{hash}")
    }

    /// Octets of the authorities by which it is checked.
    pub(super) fn authority_octets(&self) -> usize {
        match self.tls.as_ref().and_then(|tls| tls.ca_bundle.as_ref()) {
            Some(config::CaBundle::Pem(text)) => text.len(),
            Some(config::CaBundle::ConfigMap { .. }) | None => 0,
        }
    }
}
