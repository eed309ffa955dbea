//! Pods lose what they need: the API server, room for the snapshot, and IPv4.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tests::node::CLUSTER_DNS_V6;
use tests::node::steady::{Pace, Steady, now};

use super::clients::{self, Clients, Saw};
use super::coredns;
use super::killed::{Processes, Watched, container, restarted, say_all};
use super::moving::{both_are_new, both_are_ready};
use super::table::{Seen, Table};
use crate::installed::{DNS_NAMESPACE, DNS_PODS};
use crate::site::{Site, text};

/// The API server is away this long before processes are killed, and after that.
const AWAY: Duration = Duration::from_secs(3);
const STILL_AWAY: Duration = Duration::from_secs(12);
/// Processes are killed this long before the API server is back, where it comes back soon: it takes a second more or less.
const SOON: Duration = Duration::from_millis(2_700);
/// Time after the last fault, for late effects.
const AFTER: Duration = Duration::from_secs(8);
/// The same where kubelets could not write: they try again every 10 s.
const AFTER_OUTAGE: Duration = Duration::from_secs(15);

/// Twice: the API server comes back long after the processes have started again, and while kubelet does not know yet that they
/// are ready.
pub(super) async fn processes_die_without_the_api_server(site: &mut Site, table: &mut Table) {
    let what = "API server stopped, every DNS process killed, API server back";
    let start = outage(site, table, what, None).await;
    let what = "API server stopped, every DNS process killed, API server back soon";
    outage(site, table, what, Some(start)).await;
}

/// With a start of the API server that takes this long, processes are killed before its end; without one, before it begins.
/// Prints each change of the conditions and endpoints beside the losses. Returns how long the start took.
async fn outage(
    site: &mut Site,
    table: &mut Table,
    what: &str,
    start_takes: Option<Duration>,
) -> Duration {
    both_are_new(site).await;
    let pods = [DNS_PODS, coredns::PODS].map(|label| site.pods(DNS_NAMESPACE, label)).concat();
    let watched = Watched::start(site).await;
    let clients = Clients::start(site, site.nodes.iter());
    tokio::time::sleep(clients::BEFORE).await;
    let Site { nodes, plane, .. } = &mut *site;
    let processes = Processes::of(nodes, &pods);
    let stopped = now();
    plane.stop_api_server();
    tokio::time::sleep(AWAY).await;
    let kill = async {
        tokio::time::sleep(start_takes.unwrap_or_default().saturating_sub(SOON)).await;
        processes.kill()
    };
    let (at, started);
    if start_takes.is_some() {
        started = now();
        (at, _) = tokio::join!(kill, plane.start_api_server());
    } else {
        at = kill.await;
        tokio::time::sleep(STILL_AWAY).await;
        started = now();
        plane.start_api_server().await;
    }
    let back = now();
    both_are_ready(site, 2).await;
    tokio::time::sleep(AFTER_OUTAGE).await;
    let saw = clients.stop();
    saw.report(site, table, what, at);
    site.say(&format!(
        "the API server was stopped at {:.2} s, started at {:.2} s, and ready at {:.2} s",
        stopped - at,
        started - at,
        back - at
    ));
    for (server, tallies) in [("ClusterDNS", &saw.ours), ("CoreDNS", &saw.theirs)] {
        let gaps = Seen { tallies, since: at }.gaps();
        say_all(site, &format!("lost on the first try by {server}"), &gaps);
    }
    watched.say(site, what, at);
    Duration::from_secs_f64(back - started)
}

pub(super) async fn a_full_volume_costs_the_warm_start_only(site: &Site, table: &mut Table) {
    let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
    let node = site.node_of(&pods[0]);
    let uid = text(&pods[0], "/metadata/uid");
    let volume = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/state");
    // The container that runs keeps the old mount; the next one has this.
    let fill = format!(
        "mount -t tmpfs -o size=4k,mode=0777 tmpfs {volume} && {{ head -c 8192 /dev/zero >{volume}/filler || true; }}"
    );
    node.run_inside(&["sh", "-c", &fill]);
    Clients::ours_during(
        site,
        table,
        "a process killed whose snapshot's volume is full",
        async || {
            node.kill(container(&pods[0]));
            site.until("kubelet starts it again", || restarted(site, &pods[0])).await;
            site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
            tokio::time::sleep(AFTER).await;
        },
    )
    .await;
    let name = text(&pods[0], "/metadata/name");
    site.kubectl(&format!("delete pod {name} --namespace {DNS_NAMESPACE} --timeout=120s"));
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
}

pub(super) async fn clients_without_ipv4_are_served(site: &Site, table: &mut Table) {
    let networks: Vec<PathBuf> =
        site.nodes.iter().map(|node| clients::network(site, node)).collect();
    for network in &networks {
        let words = [
            &format!("--net={}", network.display()),
            "ip",
            "-4",
            "address",
            "flush",
            "dev",
            "eth0",
        ];
        let flushed = Command::new("nsenter").args(words).status().expect("nsenter of util-linux");
        assert!(flushed.success(), "{words:?}");
    }
    let server = SocketAddr::new(CLUSTER_DNS_V6.parse().expect("an address"), 53);
    let asking: Vec<Steady> =
        networks.iter().map(|network| clients::start_in(network, server, Pace::OVER_UDP)).collect();
    let at = now();
    let deployment = format!("deployment/clusterdns-default --namespace {DNS_NAMESPACE}");
    site.kubectl(&format!("rollout restart {deployment}"));
    site.kubectl(&format!("rollout status {deployment} --timeout=170s"));
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
    let ours = asking.into_iter().map(Steady::stop).collect();
    let saw = Saw { ours, theirs: Vec::new() };
    saw.report(site, table, "clients with IPv6 only, a rolling restart", at);
    saw.lost_nothing_of_ours("clients with IPv6 only");
    // The next scenarios need IPv4 again.
    for node in &site.nodes {
        let name = clients::name(node);
        site.kubectl(&format!("delete pod {name} --namespace default --timeout=60s"));
        clients::start_pod(site, node);
        site.until_ready("default", &clients::label(node), 1).await;
    }
}
