//! A pod on every node whose network clients ask from: 200 queries a second over UDP to each DNS server, and some over TCP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::node::steady::{Names, Pace, Steady, Tallies, now};
use tests::node::{BUSYBOX, CLUSTER_DNS, Node};

use super::coredns;
use super::table::{Seen, Table};
use crate::resolving::{CLIENT, one_name};
use crate::site::Site;

/// What a quiet cluster does is measured for this long.
const QUIET: Duration = Duration::from_secs(15);
/// Clients ask this long before something happens.
pub(super) const BEFORE: Duration = Duration::from_secs(2);
/// Three of these ask 1,000 times a second over UDP.
const FAST: Pace = Pace { udp_ms: 3, ..Pace::OVER_UDP };

pub(super) fn name(node: &Node) -> String {
    format!("client-{}", node.name())
}

pub(super) fn label(node: &Node) -> String {
    format!("app={}", name(node))
}

pub(super) fn start_pods(site: &Site) {
    for node in &site.nodes {
        start_pod(site, node);
    }
}

pub(super) fn start_pod(site: &Site, node: &Node) {
    // Bound to its node, and never taken from it.
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default, labels: {{app: {name}}}}}\n\
         spec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 0\n  tolerations: [{{operator: Exists}}]\n  \
         containers:\n  - {{name: client, image: '{BUSYBOX}'}}\n",
        name = name(node),
        node = node.name(),
    );
    site.tools.apply(&pod).ok();
}

/// Clients of both DNS servers.
pub(super) struct Clients {
    ours: Vec<Steady>,
    theirs: Vec<Steady>,
}

/// What they saw.
pub(super) struct Saw {
    pub(super) ours: Vec<Tallies>,
    pub(super) theirs: Vec<Tallies>,
}

impl Clients {
    /// Begins to ask from these nodes.
    pub(super) fn start<'n>(site: &Site, nodes: impl Iterator<Item = &'n Node> + Clone) -> Clients {
        let theirs = ask(site, nodes.clone(), coredns::CLUSTER_IP, Pace::OVER_UDP);
        Clients { ours: ask(site, nodes, CLUSTER_DNS, Pace::OVER_UDP), theirs }
    }

    /// Of ClusterDNS alone.
    pub(super) fn start_ours<'n>(site: &Site, nodes: impl Iterator<Item = &'n Node>) -> Clients {
        Clients { ours: ask(site, nodes, CLUSTER_DNS, Pace::OVER_UDP), theirs: Vec::new() }
    }

    /// Asks from every node while something happens, and reports what was lost.
    pub(super) async fn during(
        site: &Site,
        table: &mut Table,
        what: &str,
        happens: impl AsyncFnOnce(),
    ) -> Saw {
        Clients::start(site, site.nodes.iter()).while_it(site, table, what, happens).await
    }

    /// The same of ClusterDNS alone.
    pub(super) async fn ours_during(
        site: &Site,
        table: &mut Table,
        what: &str,
        happens: impl AsyncFnOnce(),
    ) -> Saw {
        Clients::start_ours(site, site.nodes.iter()).while_it(site, table, what, happens).await
    }

    /// The same with 1,000 queries a second from three nodes.
    pub(super) async fn fast_during(
        site: &Site,
        table: &mut Table,
        what: &str,
        happens: impl AsyncFnOnce(),
    ) -> Saw {
        let ours = ask(site, site.nodes.iter(), CLUSTER_DNS, FAST);
        Clients { ours, theirs: Vec::new() }.while_it(site, table, what, happens).await
    }

    async fn while_it(
        self,
        site: &Site,
        table: &mut Table,
        what: &str,
        happens: impl AsyncFnOnce(),
    ) -> Saw {
        tokio::time::sleep(BEFORE).await;
        let at = now();
        happens().await;
        let saw = self.stop();
        saw.report(site, table, what, at);
        saw
    }

    pub(super) fn stop(self) -> Saw {
        let stop = |all: Vec<Steady>| all.into_iter().map(Steady::stop).collect();
        Saw { ours: stop(self.ours), theirs: stop(self.theirs) }
    }
}

fn ask<'n>(
    site: &Site,
    nodes: impl Iterator<Item = &'n Node>,
    server: &str,
    pace: Pace,
) -> Vec<Steady> {
    let server = SocketAddr::new(server.parse().expect("an address"), 53);
    nodes.map(|node| start_in(&network(site, node), server, pace)).collect()
}

/// Begins to ask this server from a network.
pub(super) fn start_in(network: &Path, server: SocketAddr, pace: Pace) -> Steady {
    start_with(network, server, one_name(), pace)
}

/// The same with other names.
pub(super) fn start_with(network: &Path, server: SocketAddr, names: Names, pace: Pace) -> Steady {
    Steady::start(network, CLIENT, server, names, pace)
}

/// Of the client on this node.
pub(super) fn network(site: &Site, node: &Node) -> PathBuf {
    site.network_of(&site.get(&format!("pod {} --namespace default", name(node))))
}

impl Saw {
    /// Writes and prints a row for each DNS server that was asked; `at` is when it happened, as [`now`] counts.
    pub(super) fn report(&self, site: &Site, table: &mut Table, what: &str, at: f64) {
        for (server, tallies) in [("ClusterDNS", &self.ours), ("CoreDNS", &self.theirs)] {
            if !tallies.is_empty() {
                site.say(&table.add(what, server, &Seen { tallies, since: at }, ""));
            }
        }
    }

    /// # Panics
    /// ClusterDNS lost a query after the second try.
    #[track_caller]
    pub(super) fn lost_nothing_of_ours(&self, what: &str) {
        for tallies in &self.ours {
            tallies.lost_nothing(what);
        }
    }
}

pub(super) async fn in_peace(site: &Site, table: &mut Table) {
    let (clients, began) = (Clients::start(site, site.nodes.iter()), now());
    tokio::time::sleep(QUIET).await;
    let saw = clients.stop();
    saw.report(site, table, "nothing", began);
    saw.lost_nothing_of_ours("a quiet cluster");
}
