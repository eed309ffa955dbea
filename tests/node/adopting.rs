//! A cluster that runs CoreDNS as kubeadm installs it: its Service is adopted and given back while a client asks through
//! kube-proxy, whose rules and conntrack entries must follow the selector.

use tests::node::{CLUSTER_DNS, CLUSTER_DNS_V6, COREDNS};

use crate::installed::{DNS_NAMESPACE, DNS_PODS, REPLICAS, cluster_dns};
use crate::resolving::{A_WHILE, ask_steadily, until_rules_lead_there};
use crate::site::Site;

const OLD_PODS: &str = "k8s-app=kube-dns,!clusterdns.dev/instance";
/// Several nodes have a CoreDNS of the usual name beside it.
const OLD: &str = "coredns-before";

pub(crate) async fn coredns_hands_over_and_takes_back(site: &Site) {
    coredns_serves(site).await;

    let asking = ask_steadily(site);
    adopt(site, true);
    site.until_condition("Ready", "True", "Serving").await;
    until_selected(site, true).await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    let tallies = asking.stop();
    site.say(&format!("adopted: {}", tallies.summary()));
    tallies.lost_nothing("adopted");

    let asking = ask_steadily(site);
    scale_coredns(site, 0);
    site.until_none(DNS_NAMESPACE, OLD_PODS).await;
    let tallies = asking.stop();
    site.say(&format!("CoreDNS scaled to 0: {}", tallies.summary()));
    tallies.lost_nothing("CoreDNS scaled to 0");

    let asking = ask_steadily(site);
    scale_coredns(site, 2);
    site.until_ready(DNS_NAMESPACE, OLD_PODS, 2).await;
    adopt(site, false);
    until_selected(site, false).await;
    site.until_condition("Ready", "True", "Released").await;
    site.until("our pods leave the Service", || {
        let behind = site.pods(DNS_NAMESPACE, "k8s-app=kube-dns").len();
        (behind == 2).then_some(())
    })
    .await;
    site.kubectl("delete clusterdns default --timeout=120s");
    site.until_none(DNS_NAMESPACE, DNS_PODS).await;
    let tallies = asking.stop();
    site.say(&format!("given back, and our pods gone: {}", tallies.summary()));
    tallies.lost_nothing("given back");
}

async fn coredns_serves(site: &Site) {
    // CoreDNS as it is installed does not run as `restricted`.
    let label = "pod-security.kubernetes.io/enforce-";
    site.kubectl(&format!("label namespace {DNS_NAMESPACE} {label}"));
    let mut addresses = format!("clusterIP: {CLUSTER_DNS}");
    if site.is_dual_stack() {
        addresses += &format!("\n  clusterIPs: [{CLUSTER_DNS}, '{CLUSTER_DNS_V6}']");
        addresses += "\n  ipFamilyPolicy: RequireDualStack";
    }
    let manifest = include_str!("coredns.yaml")
        .replace("coredns", OLD)
        .replace("{image}", COREDNS)
        .replace("clusterIP: {cluster_dns}", &addresses);
    site.tools.apply(&manifest).ok();
    site.until_ready(DNS_NAMESPACE, OLD_PODS, 2).await;
    site.say("two CoreDNS pods are ready");
    until_rules_lead_there(site, "client").await;
    let asking = ask_steadily(site);
    tokio::time::sleep(A_WHILE).await;
    let tallies = asking.stop();
    site.say(&format!("CoreDNS in peace: {}", tallies.summary()));
    tallies.lost_nothing("CoreDNS in peace");
}

/// Leaves nothing of that CoreDNS that serves.
pub(crate) async fn coredns_goes(site: &Site) {
    let of = format!("--namespace {DNS_NAMESPACE} --timeout=120s");
    site.kubectl(&format!("delete deployment {OLD} {of}"));
    site.kubectl(&format!("delete service kube-dns {of}"));
    site.until_none(DNS_NAMESPACE, OLD_PODS).await;
}

fn adopt(site: &Site, adopt: bool) {
    site.tools.apply(&cluster_dns(&format!("{{adopt: {adopt}}}"))).ok();
}

fn scale_coredns(site: &Site, replicas: usize) {
    site.kubectl(&format!(
        "scale deployment {OLD} --namespace {DNS_NAMESPACE} --replicas={replicas}"
    ));
}

/// With our key in its selector, or without.
async fn until_selected(site: &Site, by_us: bool) {
    site.until(if by_us { "the switch" } else { "the switch back" }, || {
        let service = site.get(&format!("service kube-dns --namespace {DNS_NAMESPACE}"));
        let key = &service["spec"]["selector"]["clusterdns.dev/instance"];
        (key.is_null() != by_us).then_some(())
    })
    .await;
}
