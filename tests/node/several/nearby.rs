//! Clients whose queries prefer pods near them, and what happens to them when these are gone.

use super::clients::{self, Clients};
use super::table::Table;
use super::{cluster_dns, cluster_dns_with};
use crate::installed::{DNS_NAMESPACE, DNS_PODS};
use crate::site::{Site, text};

const DRAINS: &str = "deleted";
/// How a pod ends, and the flags of `kubectl delete` for it. One that is killed answers nothing while rules still lead to it.
const DELETIONS: [(&str, &str); 2] =
    [(DRAINS, "--timeout=120s"), ("force-deleted", "--grace-period=0 --force")];

pub(super) async fn the_pod_of_a_node_is_gone(site: &Site, table: &mut Table) {
    let nodes = site.nodes.len();
    let saw = Clients::during(
        site,
        table,
        "a Deployment becomes a DaemonSet, PreferSameNode",
        async || {
            site.tools.apply(&cluster_dns_with("PreferSameNode", "{perNode: {}}")).ok();
            site.until("a pod on every node", || {
                let set = site
                    .does(&format!("get daemonset clusterdns-default --namespace {DNS_NAMESPACE}"));
                set.map(drop)
            })
            .await;
            site.until_ready(DNS_NAMESPACE, DNS_PODS, nodes).await;
        },
    )
    .await;
    saw.lost_nothing_of_ours("a DaemonSet");

    for (how, flags) in DELETIONS {
        let what = format!("perNode, PreferSameNode: a node's pod {how}");
        let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
        let pod = text(&pods[0], "/metadata/name");
        let saw = Clients::ours_during(site, table, &what, async || {
            site.kubectl(&format!("delete pod {pod} --namespace {DNS_NAMESPACE} {flags}"));
            site.until_ready(DNS_NAMESPACE, DNS_PODS, nodes).await;
        })
        .await;
        if how == DRAINS {
            saw.lost_nothing_of_ours(&what);
        }
    }
}

/// With the DaemonSet of [`the_pod_of_a_node_is_gone`].
pub(super) async fn a_node_is_added(site: &mut Site, table: &mut Table) {
    let clients = Clients::start_ours(site, site.nodes.iter());
    let at = tests::node::steady::now();
    site.add_node("zone-b").await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, site.nodes.len()).await;
    let saw = clients.stop();
    saw.report(site, table, "perNode: a node is added", at);
    saw.lost_nothing_of_ours("a node is added");
    let node = site.nodes.last().expect("the new one");
    clients::start_pod(site, node);
    site.until_ready("default", &clients::label(node), 1).await;
}

pub(super) async fn the_pods_of_a_zone_are_gone(site: &Site, table: &mut Table) {
    site.tools.apply(&cluster_dns_with("PreferSameZone", "{fixed: {replicas: 2}}")).ok();
    site.until("a Deployment", || {
        site.does(&format!("get deployment clusterdns-default --namespace {DNS_NAMESPACE}"))
            .map(drop)
    })
    .await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
    for (how, flags) in DELETIONS {
        let what = format!("PreferSameZone: a zone's only pod {how}");
        let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
        let pod = text(&pods[0], "/metadata/name");
        let saw = Clients::ours_during(site, table, &what, async || {
            site.kubectl(&format!("delete pod {pod} --namespace {DNS_NAMESPACE} {flags}"));
            site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
        })
        .await;
        if how == DRAINS {
            saw.lost_nothing_of_ours(&what);
        }
    }
    site.tools.apply(&cluster_dns(2)).ok();
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
}
