//! What makes an upstream server another one: a server keeps its state through configurations as long as this is equal.

use std::net::SocketAddr;

use crds::config;

/// The address, what is spoken there, and whom we expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerIdentity {
    pub(super) address: SocketAddr,
    pub(super) transport: config::Transport,
    /// The name and the authorities that it must prove to have.
    pub(super) tls: Option<config::ServerTls>,
}
