//! The DNS tests of Kubernetes' own e2e suite on three real nodes: first with CoreDNS as kubeadm installs it, then with
//! ClusterDNS, which is installed by its chart and takes over from it. `make conformance` compares the outcome of every test
//! with docs/conformance.md.

mod importer;
mod page;
mod suite;

use std::net::SocketAddr;

use tests::netns::NODE_ADDRESS;
use tests::node::{CLUSTER_DNS, CLUSTER_DNS_V6, COREDNS};
use tests::upstream::{Script, ScriptedUpstream};

use crate::installed::{self, DNS_NAMESPACE, DNS_PODS, OPERATORS, REPLICAS, SYSTEM};
use crate::site::Site;
use importer::Importer;
use page::Page;
use suite::Suite;

const COREDNS_PODS: &str = "k8s-app=kube-dns,!clusterdns.dev/instance";
/// The tests ask for these names of the internet. There is none here: this is what the resolver of the nodes knows.
const INTERNET: &str = "\
dns.google. A
    answer @ 300 A 8.8.8.8
    answer @ 300 A 8.8.4.4
8.8.8.8.in-addr.arpa. PTR
    answer @ 300 PTR dns.google.
* *
    rcode NXDOMAIN
";

pub(crate) async fn run(site: &Site) {
    let suite = Suite::new(site);
    suite.wants_our_images();
    let _internet = internet();

    coredns_serves(site).await;
    let coredns = suite.run("CoreDNS", || {}).await;
    suite::report(site, "CoreDNS", &coredns);

    let mut importer = clusterdns_takes_over(site).await;
    let ours = suite.run("ClusterDNS", || importer.follow()).await;
    suite::report(site, "ClusterDNS", &ours);

    let page = Page::of(&ours, &coredns);
    site.print(page.table());
    page.all_of_ours_passed();
    if suite.is_whole() {
        page.is_published();
    }
}

fn internet() -> ScriptedUpstream {
    let script = Script::one(INTERNET).expect("a script");
    let resolver = SocketAddr::new(NODE_ADDRESS.parse().expect("an address"), 53);
    ScriptedUpstream::start_at(resolver, script).expect("its port is free")
}

/// As kubeadm installs it, on the addresses that kubelet gives pods.
async fn coredns_serves(site: &Site) {
    let both = format!(
        "clusterIP: {CLUSTER_DNS}\n  clusterIPs: [{CLUSTER_DNS}, '{CLUSTER_DNS_V6}']\n  ipFamilyPolicy: RequireDualStack"
    );
    let manifest = include_str!("coredns.yaml")
        .replace("{image}", COREDNS)
        .replace("clusterIP: {cluster_dns}", &both)
        .replace("        cache 30\n", "        forward . /etc/resolv.conf\n        cache 30\n");
    site.tools.apply(&manifest).ok();
    site.until_ready(DNS_NAMESPACE, COREDNS_PODS, 2).await;
    site.say("CoreDNS serves");
}

/// As docs/switching.md says: import, adopt, and CoreDNS is scaled to 0.
async fn clusterdns_takes_over(site: &Site) -> Importer<'_> {
    site.kubectl(&format!("create namespace {SYSTEM}"));
    installed::install(site);
    site.until_ready(SYSTEM, OPERATORS, 2).await;
    let importer = Importer::of_the_cluster(site);
    site.until_condition("Ready", "True", "Serving").await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    site.kubectl(&format!("scale deployment coredns --namespace {DNS_NAMESPACE} --replicas=0"));
    site.until_none(DNS_NAMESPACE, COREDNS_PODS).await;
    site.say("ClusterDNS serves behind the Service of CoreDNS, alone");
    importer
}
