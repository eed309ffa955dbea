//! On real nodes: what a stand-in for the kubelet cannot show. `make node` runs it on one, `make cluster` and
//! `make conformance` on three; they need root and what `tests/tools/node-packages` installs. One cluster for everything, for
//! it takes longer to start than to ask.

mod site;
mod installed;
mod resolving;
mod changing;
mod adopting;
mod draining;
mod checking;
mod leaving;
mod several;
mod conformance;

use site::Site;
use tests::netns::inside;

#[test]
#[ignore = "needs root and a container runtime: make node"]
fn on_a_real_node() {
    inside(async || {
        let Some(site) = Site::start().await else { return };
        installed::helm_installs_what_runs_as_restricted(&site).await;
        everything_that_one_node_shows(&site).await;
    });
}

/// After the chart is installed; on one node, or across several (`restarted` of `make cluster`). At the end no ClusterDNS is left,
/// and a CoreDNS serves.
async fn everything_that_one_node_shows(site: &Site) {
    resolving::pods_resolve_through_kube_proxy(site).await;
    checking::check_asks_the_kubelet(site);
    changing::one_pod_tries_an_edit_and_all_have_it(site).await;
    draining::pods_come_and_go(site).await;
    leaving::dns_outlives_the_release(site).await;
    leaving::a_deleted_cluster_dns_leaves_nothing(site).await;
    adopting::coredns_hands_over_and_takes_back(site).await;
}

#[test]
#[ignore = "needs root and a container runtime: make cluster"]
fn d8_d9_d10_three_real_nodes_keep_their_dns() {
    inside(async || {
        let scenarios = several::Scenarios::wanted();
        let Some(mut site) = Site::start_several().await else { return };
        several::run(&mut site, &scenarios).await;
    });
}

#[test]
#[ignore = "needs root and a container runtime: make conformance"]
fn the_dns_tests_of_kubernetes_pass() {
    inside(async || {
        let Some(site) = Site::start_with_suite().await else { return };
        conformance::run(&site).await;
    });
}

/// Only what the tests above start inside the network of a Pod.
#[test]
#[ignore = "part of the tests above"]
fn a_client_that_asks_steadily() {
    tests::node::steady::run_if_client();
}
