//! Who asks our pods, as far as the cluster shows it.

use std::net::IpAddr;

use ipnet::IpNet;

/// Addresses from which clients ask, besides those of our own pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownClients {
    /// Ranges from which nodes give addresses to pods, as far as nodes say.
    pub pod_ranges: Vec<IpNet>,
    /// Addresses of nodes. NodeLocal DNSCache asks from them, and so do pods on the network of their node. Some networks write
    /// addresses of the ranges of pods into what such clients send.
    pub nodes: Vec<IpAddr>,
    /// The Service of NodeLocal DNSCache leads to pods of ours: the cache asks them for the other pods of its node.
    pub has_node_local: bool,
}
