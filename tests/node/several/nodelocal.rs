//! NodeLocal DNSCache on every node, beside a Service that ClusterDNS adopts from CoreDNS: clients ask the cache of their
//! node, which asks the DNS pods over TCP, through its own Service. A second one before the other CoreDNS is for comparison.
//!
//! It is CoreDNS with the Corefile of node-cache, which is CoreDNS too: its own module, `k8s.io/dns`, has no releases, and the
//! Go module proxy did not have it when this was written.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tests::netns::NODE_ADDRESS;
use tests::node::steady::{Names, Pace, Steady, now};
use tests::node::{CLUSTER_DNS, CLUSTER_DNS_V6, COREDNS};
use tests::upstream::{Script, ScriptedUpstream};

use super::clients::{self, Saw};
use super::table::Table;
use super::{coredns, until_none_ends};
use crate::installed::{DNS_NAMESPACE, DNS_PODS, cluster_dns};
use crate::resolving::one_name;
use crate::site::{Site, text};

/// The CoreDNS that the Service is adopted from.
const BEFORE: &str = "k8s-app=kube-dns,!clusterdns.dev/instance";
/// What a quiet cluster does is measured for this long.
const QUIET: Duration = Duration::from_secs(15);
/// After the last fault, for late effects.
const AFTER: Duration = Duration::from_secs(8);
/// 50 questions a second over UDP from each client, four of which are on each node.
const PACE: Pace = Pace { udp_ms: 20, tcp_ms: 200, kept_ms: 200 };

/// A cache on each node, before the DNS pods with this value of the label `k8s-app`.
struct Cache {
    name: &'static str,
    pods: &'static str,
    local: &'static str,
    cluster_ip: &'static str,
    metrics: &'static str,
}

const OURS: Cache = Cache {
    name: "node-local-dns",
    pods: "kube-dns",
    local: "169.254.20.10",
    cluster_ip: CLUSTER_DNS,
    metrics: "9253",
};
const THEIRS: Cache = Cache {
    name: "coredns-local-dns",
    pods: "coredns-beside",
    local: "169.254.20.11",
    cluster_ip: coredns::CLUSTER_IP,
    metrics: "9254",
};

/// The last scenario: the Service stays adopted, and the caches stay.
pub(super) async fn caches_on_nodes_keep_their_dns(site: &Site, table: &mut Table) {
    let _internet = internet();
    coredns_serves_alone(site).await;
    start_caches(site).await;
    answers_everything(site, "CoreDNS behind them").await;

    let saw = Asking::start(site).during(site, table, "the Service is adopted", async || {
        site.tools.apply(&cluster_dns("{adopt: true}")).ok();
        site.until_condition("Ready", "True", "Serving").await;
        site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
        let scale = "scale deployment coredns-before --replicas=0";
        site.kubectl(&format!("{scale} --namespace {DNS_NAMESPACE}"));
        site.until_none(DNS_NAMESPACE, BEFORE).await;
        tokio::time::sleep(AFTER).await;
    });
    saw.await.lost_nothing_of_ours("adopted behind node-local caches");
    answers_everything(site, "ClusterDNS behind them").await;

    let saw = Asking::start(site)
        .during(site, table, "nothing", async || tokio::time::sleep(QUIET).await)
        .await;
    saw.lost_nothing_of_ours("node-local caches in peace");

    let saw = Asking::start(site).during(site, table, "a rolling restart", async || {
        for deployment in ["clusterdns-default", "coredns"] {
            let words = format!("deployment/{deployment} --namespace {DNS_NAMESPACE}");
            site.kubectl(&format!("rollout restart {words}"));
            site.kubectl(&format!("rollout status {words} --timeout=170s"));
        }
        until_none_ends(site).await;
        tokio::time::sleep(AFTER).await;
    });
    saw.await.lost_nothing_of_ours("a rolling restart behind node-local caches");

    let saw = Asking::start(site).during(site, table, "one pod force-deleted", async || {
        for label in [DNS_PODS, coredns::PODS] {
            let pods = site.pods(DNS_NAMESPACE, label);
            let name = text(&pods[0], "/metadata/name");
            let flags = "--grace-period=0 --force";
            site.kubectl(&format!("delete pod {name} --namespace {DNS_NAMESPACE} {flags}"));
        }
        site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
        site.until_ready(DNS_NAMESPACE, coredns::PODS, 2).await;
        tokio::time::sleep(AFTER).await;
    });
    saw.await;
    answers_everything(site, "after all of it").await;
}

/// Names of others, and a reverse name of others, which only ClusterDNS can lead there.
const OUTSIDE: &str = "198.51.100.1";
const OUTSIDE_REVERSE: &str = "1.100.51.198.in-addr.arpa.";

/// The resolver of the nodes.
fn internet() -> ScriptedUpstream {
    let script = format!(
        "www.example.org. A\n    answer @ 300 A {OUTSIDE}\n\
         {OUTSIDE_REVERSE} PTR\n    answer @ 300 PTR www.example.org.\n* *\n    rcode NXDOMAIN\n"
    );
    let resolver = SocketAddr::new(NODE_ADDRESS.parse().expect("an address"), 53);
    let script = Script::one(&script).expect("a script");
    ScriptedUpstream::start_at(resolver, script).expect("its port is free")
}

/// As kubeadm installs it, instead of the ClusterDNS, behind the Service that pods ask.
async fn coredns_serves_alone(site: &Site) {
    site.kubectl("delete clusterdns default --timeout=120s");
    site.until_none(DNS_NAMESPACE, DNS_PODS).await;
    site.until("the end of the Service", || {
        let get = format!("get service kube-dns --namespace {DNS_NAMESPACE}");
        site.does(&get).is_none().then_some(())
    })
    .await;
    let both = format!(
        "clusterIP: {CLUSTER_DNS}\n  clusterIPs: [{CLUSTER_DNS}, '{CLUSTER_DNS_V6}']\n  ipFamilyPolicy: RequireDualStack"
    );
    let manifest = include_str!("../coredns.yaml")
        .replace("coredns", "coredns-before")
        .replace("{image}", COREDNS)
        .replace("clusterIP: {cluster_dns}", &both)
        .replace("        cache 30\n", "        forward . /etc/resolv.conf\n        cache 30\n");
    site.tools.apply(&manifest).ok();
    site.until_ready(DNS_NAMESPACE, BEFORE, 2).await;
}

async fn start_caches(site: &Site) {
    let script = include_str!("nodelocal.sh");
    for node in &site.nodes {
        let addresses = [OURS.local, OURS.cluster_ip, THEIRS.local, THEIRS.cluster_ip];
        node.run_inside(&[&["sh", "-c", script, "nodelocal.sh"], &addresses[..]].concat());
    }
    for cache in [OURS, THEIRS] {
        cache.start(site);
    }
    for cache in [OURS, THEIRS] {
        let label = format!("k8s-app={}", cache.name);
        site.until_ready(DNS_NAMESPACE, &label, site.nodes.len()).await;
    }
    site.say("two node-local caches run on every node");
}

impl Cache {
    fn start(&self, site: &Site) {
        let upstream = format!("{}-upstream", self.pods);
        let filled = |upstream_ip: &str| {
            include_str!("nodelocal.yaml")
                .replace("{name}", self.name)
                .replace("{pods}", self.pods)
                .replace("{local}", self.local)
                .replace("{cluster_ip}", self.cluster_ip)
                .replace("{metrics}", self.metrics)
                .replace("{image}", COREDNS)
                .replace("{upstream}", &upstream)
                .replace("{upstream_ip}", upstream_ip)
        };
        let manifest = filled("");
        // Its address is in the environment of pods that start after it.
        let (service, _) = manifest.split_once("---").expect("the Service is the first");
        site.tools.apply(service).ok();
        let service = site.get(&format!("service {upstream} --namespace {DNS_NAMESPACE}"));
        site.tools.apply(&filled(text(&service, "/spec/clusterIP"))).ok();
    }
}

/// Names of the cluster, of others, and the reverse names of both, from a pod on each node.
async fn answers_everything(site: &Site, when: &str) {
    for node in &site.nodes {
        let client = clients::name(node);
        for server in [OURS.local, OURS.cluster_ip] {
            for (kind, name, says) in [
                ("a", "kubernetes.default.svc.cluster.local.", "10.96.0.1"),
                ("ptr", "1.0.96.10.in-addr.arpa.", "kubernetes.default.svc.cluster.local"),
                ("a", "www.example.org.", OUTSIDE),
                ("ptr", OUTSIDE_REVERSE, "www.example.org"),
            ] {
                site.until(&format!("{name} of {server} on {}, {when}", node.name()), || {
                    let ask = format!("exec {client} -- nslookup -type={kind} {name} {server}");
                    site.does(&ask)?.contains(says).then_some(())
                })
                .await;
            }
        }
    }
    site.say(&format!("every cache answers names of both kinds, {when}"));
}

/// Clients on every node: one that always asks the same name, which the caches have, and one whose every question passes them.
struct Asking {
    each: [Vec<Steady>; 2],
    one: [Vec<Steady>; 2],
}

impl Asking {
    fn start(site: &Site) -> Asking {
        let all = |server: &str, names: &Names| -> Vec<Steady> {
            let server: Ipv4Addr = server.parse().expect("an address");
            let start = |node| {
                let network = clients::network(site, node);
                clients::start_with(&network, (server, 53).into(), names.clone(), PACE)
            };
            site.nodes.iter().map(start).collect()
        };
        let each = [OURS, THEIRS].map(|cache| all(cache.local, &Names::Pods));
        let one = [OURS, THEIRS].map(|cache| all(cache.cluster_ip, &one_name()));
        Asking { each, one }
    }

    /// What both saw while something happened; the rows of the table say which.
    async fn during(
        self,
        site: &Site,
        table: &mut Table,
        what: &str,
        happens: impl AsyncFnOnce(),
    ) -> Saw {
        tokio::time::sleep(clients::BEFORE).await;
        let at = now();
        happens().await;
        let stop = |all: Vec<Steady>| all.into_iter().map(Steady::stop).collect();
        let [mut each, one] = [self.each, self.one]
            .map(|[ours, theirs]| Saw { ours: stop(ours), theirs: stop(theirs) });
        each.report(site, table, &format!("node-local caches, {what}: each name once"), at);
        one.report(site, table, &format!("node-local caches, {what}: one name"), at);
        each.ours.extend(one.ours);
        each
    }
}
