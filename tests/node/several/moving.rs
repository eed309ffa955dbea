//! Pods move between nodes on purpose: a node is drained and comes back, pods become more and fewer, and the operator is
//! upgraded and rolled back (row D10).

use std::collections::BTreeSet;

use tests::node::{OURS_NAME, OURS_TAG};

use super::clients::{Clients, name};
use super::table::Table;
use super::{cluster_dns, coredns};
use crate::installed::{self, DNS_NAMESPACE, DNS_PODS, OPERATORS, SYSTEM};
use crate::site::{Site, text};

/// Another name of the same image, so that every pod must be replaced.
const NEXT_TAG: &str = "next";

pub(super) async fn a_drained_node_loses_nothing(site: &Site, table: &mut Table) {
    let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
    let node = site.node_of(&pods[0]);
    let saw = Clients::during(site, table, "a node drained, and uncordoned", async || {
        // Except the client, which must see it.
        site.kubectl(&format!(
            "drain {} --ignore-daemonsets --delete-emptydir-data --force --timeout=170s --pod-selector=app!={}",
            node.name(),
            name(node)
        ));
        both_are_ready(site, 2).await;
        site.kubectl(&format!("uncordon {}", node.name()));
    })
    .await;
    site.until_ready(SYSTEM, OPERATORS, 2).await;
    saw.lost_nothing_of_ours("a drained node");
}

pub(super) async fn more_and_fewer_pods_lose_nothing(site: &Site, table: &mut Table) {
    let saw = Clients::during(site, table, "2 pods become 6, and 2 again", async || {
        for replicas in [6, 2] {
            site.tools.apply(&cluster_dns(replicas)).ok();
            site.kubectl(&format!(
                "scale deployment coredns --namespace {DNS_NAMESPACE} --replicas={replicas}"
            ));
            both_are_ready(site, replicas).await;
        }
        until_none_ends(site).await;
    })
    .await;
    saw.lost_nothing_of_ours("more and fewer pods");
}

pub(super) async fn d10_upgrades_and_rollbacks_lose_nothing(site: &Site, table: &mut Table) {
    for node in &site.nodes {
        let image = |tag: &str| format!("{OURS_NAME}:{tag}");
        let (now, next) = (image(OURS_TAG), image(NEXT_TAG));
        node.run_inside(&["ctr", "--namespace", "k8s.io", "images", "tag", &now, &next]);
    }
    let before = uids(site);
    let saw = Clients::fast_during(
        site,
        table,
        "helm upgrade of the operator alone, 1,000 q/s",
        async || {
            installed::release(site, "upgrade", &["logging.format=text"]);
            rolled_out(site).await;
        },
    )
    .await;
    assert_eq!(uids(site), before, "no pod had to restart");
    saw.lost_nothing_of_ours("the operator alone");

    let saw =
        Clients::fast_during(site, table, "helm upgrade to another image, 1,000 q/s", async || {
            installed::release(site, "upgrade", &[&format!("image.tag={NEXT_TAG}")]);
            rolled_out(site).await;
            until_image(site, NEXT_TAG).await;
        })
        .await;
    saw.lost_nothing_of_ours("another image");

    let saw = Clients::fast_during(site, table, "helm rollback, 1,000 q/s", async || {
        site.tools.helm(&["rollback", "clusterdns", "--namespace", SYSTEM, "--wait"]).ok();
        rolled_out(site).await;
        until_image(site, OURS_TAG).await;
    })
    .await;
    saw.lost_nothing_of_ours("a rollback");
}

/// Every pod runs this image, and no other pod is left.
pub(super) async fn until_image(site: &Site, tag: &str) {
    let image = format!("{OURS_NAME}:{tag}");
    site.until(&format!("every pod runs {image}"), || {
        let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
        let of_it = pods.iter().filter(|pod| text(pod, "/spec/containers/0/image") == image);
        (of_it.count() == pods.len() && !pods.is_empty()).then_some(())
    })
    .await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
    until_none_ends(site).await;
}

pub(super) async fn rolled_out(site: &Site) {
    site.kubectl(&format!("rollout status deployment --namespace {SYSTEM} --timeout=170s"));
    site.until_ready(SYSTEM, OPERATORS, 2).await;
}

pub(super) async fn both_are_ready(site: &Site, replicas: usize) {
    site.until_ready(DNS_NAMESPACE, DNS_PODS, replicas).await;
    site.until_ready(DNS_NAMESPACE, coredns::PODS, replicas).await;
}

/// New pods of both DNS servers, which kubelet starts without a pause when their processes end.
pub(super) async fn both_are_new(site: &Site) {
    for label in [DNS_PODS, coredns::PODS] {
        let of = format!("--namespace {DNS_NAMESPACE} --selector {label}");
        site.kubectl(&format!("delete pod {of} --wait=false"));
    }
    both_are_ready(site, 2).await;
    until_none_ends(site).await;
}

/// Pods that end still answer, and may lose something until the end.
pub(super) async fn until_none_ends(site: &Site) {
    site.until("the end of pods", || {
        let pods = site.all_pods(DNS_NAMESPACE);
        pods.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null()).then_some(())
    })
    .await;
}

fn uids(site: &Site) -> BTreeSet<String> {
    let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
    pods.iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect()
}
