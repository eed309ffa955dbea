//! Row D8: a node dies, with a pod of each DNS server on it. Its cable is out and its processes are stopped, so that only
//! their silence shows that they are dead.

use std::time::Duration;

use serde_json::Value;
use tests::node::steady::now;
use tests::node::{CLUSTER_DNS, Node};

use super::clients::{Clients, Saw};
use super::phases::{self, Dead, Phases};
use super::table::{Seen, Table};
use super::taken_out::{Before, LOST};
use super::{cluster_dns, connections, coredns};
use crate::installed::{self, DNS_NAMESPACE, DNS_PODS, OPERATORS, SYSTEM};
use crate::site::{Site, is_ready, text};

/// Before the fault, for what is usual.
const QUIET: Duration = Duration::from_secs(3);
/// An operator that does not lead leaves pods alone that became ready within the last minute.
const SETTLED: Duration = Duration::from_secs(65);
/// Longer than Kubernetes takes to give a node up.
const PATIENCE: Duration = Duration::from_secs(90);
/// After the last part of the cluster has learned it.
const AFTER: Duration = Duration::from_secs(5);
/// A dead node may cost nothing later than this.
const WITHIN_S: f64 = 4.0;

/// What a dead node cost.
struct Death {
    saw: Saw,
    at: f64,
    ours: Phases,
    theirs: Phases,
}

impl Death {
    fn report(&self, site: &Site, table: &mut Table, what: &str) {
        let servers = [
            ("ClusterDNS", &self.saw.ours, &self.ours),
            ("CoreDNS", &self.saw.theirs, &self.theirs),
        ];
        for (server, tallies, phases) in servers {
            let seen = Seen { tallies, since: self.at };
            let late = format!(
                "{}; due after {WITHIN_S} s: slowest {}; none took 1 s from {:.1} s on, over UDP from {:.1} s on",
                phases.in_words(),
                seen.slowest_after(WITHIN_S),
                seen.quick_from(),
                seen.quick_over_udp_from()
            );
            site.say(&table.add(what, server, &seen, &late));
        }
    }
}

pub(super) async fn d8_a_node_without_the_leader_dies(site: &Site, table: &mut Table) {
    // With two pods each there may be one node only that has both: then another operator must lead.
    let victim = loop {
        let leader = leader(site).await;
        let of_leader = text(&leader, "/spec/nodeName");
        if let Some(victim) = victim(site, |name| name != of_leader) {
            break victim;
        }
        let name = text(&leader, "/metadata/name");
        site.kubectl(&format!("delete pod {name} --namespace {SYSTEM} --timeout=120s"));
        site.until_ready(SYSTEM, OPERATORS, 2).await;
    };
    let death = dies(site, victim, Operators::TakeItOut).await;
    death.report(site, table, "a node dies, the leading operator elsewhere");
    nothing_is_lost_after(&death, "without the leader");
}

pub(super) async fn d8_the_leaders_node_dies(site: &Site, table: &mut Table) {
    // One pod on every node.
    site.tools.apply(&cluster_dns(3)).ok();
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 3).await;
    site.kubectl(&format!("scale deployment coredns --namespace {DNS_NAMESPACE} --replicas=3"));
    site.until_ready(DNS_NAMESPACE, coredns::PODS, 3).await;
    tokio::time::sleep(SETTLED).await;
    let leader = leader(site).await;
    let of_leader = text(&leader, "/spec/nodeName");
    let victim = victim(site, |name| name == of_leader).expect("pods of both on every node");
    let death = dies(site, victim, Operators::TakeItOut).await;
    death.report(site, table, "a node of three with three pods dies, the leading operator on it");
    nothing_is_lost_after(&death, "with the leader");
    site.tools.apply(&cluster_dns(2)).ok();
    site.kubectl(&format!("scale deployment coredns --namespace {DNS_NAMESPACE} --replicas=2"));
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
    site.until_ready(DNS_NAMESPACE, coredns::PODS, 2).await;
}

pub(super) async fn without_the_feature(site: &Site, table: &mut Table) {
    installed::release(site, "upgrade", &["lostPods.enabled=false"]);
    site.kubectl(&format!("rollout status deployment --namespace {SYSTEM} --timeout=120s"));
    site.until_ready(SYSTEM, OPERATORS, 2).await;
    let victim = victim(site, |_| true).expect("two of three nodes have a pod of each");
    let death = dies(site, victim, Operators::LeaveIt).await;
    death.report(site, table, "a node dies, `lostPods.enabled: false`");
    installed::release(site, "upgrade", &[]);
    site.until_ready(SYSTEM, OPERATORS, 2).await;
}

/// A node that has a pod of each DNS server.
struct Victim<'s> {
    node: &'s Node,
    dead: [Dead; 2],
}

fn victim(site: &Site, may_die: impl Fn(&str) -> bool) -> Option<Victim<'_>> {
    let ours = site.pods(DNS_NAMESPACE, DNS_PODS);
    let theirs = site.pods(DNS_NAMESPACE, coredns::PODS);
    let on = |pods: &[Value], node: &str| {
        pods.iter().find(|pod| text(pod, "/spec/nodeName") == node).cloned()
    };
    site.nodes.iter().filter(|node| may_die(&node.name())).find_map(|node| {
        let (ours, theirs) = (on(&ours, &node.name())?, on(&theirs, &node.name())?);
        let dead = [
            Dead::of(&ours, "kube-dns", CLUSTER_DNS),
            Dead::of(&theirs, "coredns-beside", coredns::CLUSTER_IP),
        ];
        Some(Victim { node, dead })
    })
}

/// What operators do with the pod of a dead node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operators {
    TakeItOut,
    LeaveIt,
}

async fn dies(site: &Site, Victim { node, dead }: Victim<'_>, expected: Operators) -> Death {
    let ours = site.pods(DNS_NAMESPACE, DNS_PODS).len();
    let theirs = site.pods(DNS_NAMESPACE, coredns::PODS).len();
    let living: Vec<&Node> = site.nodes.iter().filter(|it| it.name() != node.name()).collect();
    let before = Before::read(site);
    let clients = Clients::start(site, living.iter().copied());
    tokio::time::sleep(QUIET).await;
    site.say(&format!("{} dies", node.name()));
    node.freeze();
    let at = now();
    let phases = phases::follow(site, &dead, &living, at, PATIENCE).await;
    tokio::time::sleep(AFTER).await;
    dead.iter().for_each(|dead| connections::say_remembered(site, &living, dead));
    let saw = clients.stop();
    // While it is dead: kubelet sets back what operators wrote.
    let mut operators = site.pods(SYSTEM, OPERATORS);
    operators.retain(|pod| is_ready(pod) && text(pod, "/spec/nodeName") != node.name());
    did(site, expected, (&before, &operators), (&phases[0], &dead[0].pod)).await;
    node.thaw();
    recovers(site, ours, theirs).await;
    let [ours, theirs] = phases.try_into().expect("of two pods");
    Death { saw, at, ours, theirs }
}

/// # Panics
/// The operators did something else with the pod of the dead node, or did not say it. Kubernetes gives such a pod up itself
/// some time later, so it is not enough that nothing leads to it any more.
async fn did(
    site: &Site,
    expected: Operators,
    (before, operators): (&Before, &[Value]),
    (phases, pod): (&Phases, &str),
) {
    match expected {
        Operators::TakeItOut => {
            let what = "the operators take the pod out";
            assert_eq!(phases.reason, LOST, "{what}: {phases:?}\n{}", site.story());
            assert!(phases.said.is_some(), "{what}, and no status says so: {phases:?}");
            before.one_was_taken_out(site, operators, (pod, what)).await;
        }
        Operators::LeaveIt => {
            let what = "the operators leave the pod";
            assert_ne!(phases.reason, LOST, "{what}: {phases:?}\n{}", site.story());
            assert!(phases.said.is_none(), "{what}: {phases:?}");
            before.nothing_was_taken_out(site, operators, what);
        }
    }
}

/// The node is back, with all that was on it.
async fn recovers(site: &Site, ours: usize, theirs: usize) {
    site.until("every node is ready again", || {
        let nodes = site.get("nodes");
        nodes["items"].as_array()?.iter().all(is_ready).then_some(())
    })
    .await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, ours).await;
    site.until_ready(DNS_NAMESPACE, coredns::PODS, theirs).await;
    site.until_ready(SYSTEM, OPERATORS, 2).await;
    site.say("everything is ready again");
}

/// The operator that has the lease.
async fn leader(site: &Site) -> Value {
    site.until("an operator that has the lease", || {
        let leases = site.get(&format!("leases --namespace {SYSTEM}"));
        let holder = text(&leases, "/items/0/spec/holderIdentity").to_owned();
        let mut operators = site.pods(SYSTEM, OPERATORS).into_iter();
        operators.find(|pod| holder.starts_with(text(pod, "/metadata/name")))
    })
    .await
}

/// # Panics
/// A query was lost after nothing led to the dead pod any more.
fn nothing_is_lost_after(death: &Death, what: &str) {
    let seen = Seen { tallies: &death.saw.ours, since: death.at };
    let over = death.ours.over_at().unwrap_or_else(|| panic!("{what}: it was not noticed"));
    let last = seen.last_loss().unwrap_or(0.0);
    assert!(last < over + 1.0, "{what}: still lost at {last:.1} s");
}
