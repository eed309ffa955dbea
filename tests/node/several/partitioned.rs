//! Row D9: a pod that the operator cannot reach is not dead. No pod is removed while only the operator is cut off, nor
//! one that is slow.

use std::time::Duration;

use serde_json::Value;
use tests::node::steady::now;

use super::clients::Clients;
use super::table::Table;
use super::taken_out::{Before, LOST};
use crate::installed::{DNS_NAMESPACE, DNS_PODS, OPERATORS, SYSTEM};
use crate::site::{Site, is_ready, text};

/// Five times as long as a dead pod takes.
const LONG: Duration = Duration::from_secs(20);
/// A slow pod stands still for most of the time.
const STANDS: Duration = Duration::from_millis(400);
const RUNS: Duration = Duration::from_millis(100);
const SLOW_TURNS: usize = 40;

pub(super) async fn d9_an_operator_that_is_cut_off_removes_nothing(site: &Site, table: &mut Table) {
    let operators = site.pods(SYSTEM, OPERATORS);
    let one = text(&site.pods(DNS_NAMESPACE, DNS_PODS)[0], "/status/podIP").to_owned();
    for (what, from) in [
        ("operators do not hear one pod", format!("{one}/32")),
        ("operators hear no pod", "10.244.0.0/16".to_owned()),
    ] {
        let before = Before::read(site);
        let (clients, began) = (Clients::start(site, site.nodes.iter()), now());
        for pod in &operators {
            firewall(site, pod, "--insert", &from);
        }
        tokio::time::sleep(LONG).await;
        nothing_was_removed(site, &before, what);
        for pod in &operators {
            firewall(site, pod, "--delete", &from);
        }
        let saw = clients.stop();
        saw.report(site, table, what, began);
        saw.lost_nothing_of_ours(what);
    }
}

/// Packets from there to a pod are dropped in the network of that pod: questions get no reply.
fn firewall(site: &Site, pod: &Value, action: &str, from: &str) {
    let network = format!("--net={}", site.network_of(pod).display());
    let mut command = std::process::Command::new("nsenter");
    command.args([&network, "iptables", action, "INPUT", "--source", from, "--jump", "DROP"]);
    let output = command.output().expect("nsenter of util-linux");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(super) async fn d9_a_slow_pod_is_left_alone(site: &Site, table: &mut Table) {
    let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
    let node = site.node_of(&pods[0]);
    let container = text(&pods[0], "/status/containerStatuses/0/containerID");
    let before = Before::read(site);
    let (clients, began) = (Clients::start(site, site.nodes.iter()), now());
    for _ in 0..SLOW_TURNS {
        node.signal(container, "STOP");
        tokio::time::sleep(STANDS).await;
        node.signal(container, "CONT");
        tokio::time::sleep(RUNS).await;
    }
    nothing_was_removed(site, &before, "a slow pod");
    let saw = clients.stop();
    saw.report(site, table, "a pod that stands still for 0.4 s of every 0.5 s", began);
    saw.lost_nothing_of_ours("a slow pod");
}

/// # Panics
/// An operator took a pod out of its Service.
fn nothing_was_removed(site: &Site, before: &Before, what: &str) {
    before.nothing_was_taken_out(site, &site.pods(SYSTEM, OPERATORS), what);
    let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
    assert!(pods.iter().all(is_ready), "{what}\n{}", site.story());
    let dns = site.get("clusterdns default");
    assert!(!dns["status"].to_string().contains(LOST), "{what}\n{dns:#}");
}
