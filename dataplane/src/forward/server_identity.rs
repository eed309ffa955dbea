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
