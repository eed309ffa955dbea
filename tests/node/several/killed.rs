//! Processes and pods of both DNS servers end at the same moment, while the same clients ask both: what is lost, and how long
//! each part of the way back takes.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tests::node::Node;
use tests::node::steady::now;

use super::answers::Answers;
use super::clients::{self, Clients};
use super::coredns;
use super::moving::{both_are_ready, until_none_ends};
use super::table::{Seen, Table};
use super::timeline::Timeline;
use crate::installed::{DNS_NAMESPACE, DNS_PODS};
use crate::site::{Site, text};

/// Time after the last pod is ready, for late effects.
const AFTER: Duration = Duration::from_secs(6);
const REPLICAS: usize = 2;

/// How pods end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// They drain.
    Deleted,
    ForceDeleted,
    /// The processes of this many pods of each server.
    Killed(usize),
}

/// Each process is killed in a pod that is new: kubelet lets the second start of a container wait.
const ENDS: [(&str, End); 4] = [
    ("every pod deleted", End::Deleted),
    ("one process of two killed", End::Killed(1)),
    ("every pod force-deleted", End::ForceDeleted),
    ("every process killed", End::Killed(REPLICAS)),
];

pub(super) async fn what_ends_comes_back(site: &Site, table: &mut Table) {
    for (what, end) in ENDS {
        let servers = [("ClusterDNS", DNS_PODS), ("CoreDNS", coredns::PODS)];
        let before = servers.map(|(_, label)| site.pods(DNS_NAMESPACE, label));
        let ending: Vec<Value> = match end {
            End::Killed(count) => before.iter().flat_map(|pods| &pods[..count]).cloned().collect(),
            End::Deleted | End::ForceDeleted => before.concat(),
        };
        let watched = Watched::start(site).await;
        let clients = Clients::start(site, site.nodes.iter());
        tokio::time::sleep(clients::BEFORE).await;
        let at = end.happens(site, &ending);
        if let End::Killed(_) = end {
            for pod in &ending {
                site.until("kubelet starts it again", || restarted(site, pod)).await;
            }
        }
        both_are_ready(site, REPLICAS).await;
        until_none_ends(site).await;
        tokio::time::sleep(AFTER).await;
        let saw = clients.stop();
        for ((server, label), tallies) in servers.into_iter().zip([&saw.ours, &saw.theirs]) {
            let seen = Seen { tallies, since: at };
            let mut pods = site.pods(DNS_NAMESPACE, label);
            if let End::Killed(_) = end {
                pods.retain(|pod| {
                    ending.iter().any(|it| it["metadata"]["uid"] == pod["metadata"]["uid"])
                });
            }
            let back: Vec<String> =
                pods.iter().map(|pod| watched.way_back(site, pod, at)).collect();
            site.say(&table.add(what, server, &seen, &back.join("; ")));
            say_all(site, &format!("{what}: lost on the first try by {server}"), &seen.gaps());
        }
        watched.say(site, what, at);
    }
}

impl End {
    /// Returns when it began, as [`now`] counts.
    fn happens(self, site: &Site, pods: &[Value]) -> f64 {
        let flags = match self {
            End::Killed(_) => return Processes::of(&site.nodes, pods).kill(),
            End::Deleted => "",
            End::ForceDeleted => "--grace-period=0 --force",
        };
        let names: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
        let names = names.join(" ");
        let at = now();
        site.kubectl(&format!(
            "delete pod {names} --namespace {DNS_NAMESPACE} --wait=false {flags}"
        ));
        at
    }
}

/// The first processes of pods, ready to be killed.
pub(super) struct Processes<'n>(Vec<(&'n Node, String)>);

impl Processes<'_> {
    pub(super) fn of<'n>(nodes: &'n [Node], pods: &[Value]) -> Processes<'n> {
        let process = |pod: &Value| {
            let name = text(pod, "/spec/nodeName");
            let node = nodes.iter().find(|node| node.name() == name).expect("the node of a pod");
            (node, node.process_of(container(pod)))
        };
        Processes(pods.iter().map(process).collect())
    }

    /// Within milliseconds; returns when it began, as [`now`] counts.
    pub(super) fn kill(&self) -> f64 {
        let at = now();
        std::thread::scope(|scope| {
            for (node, process) in &self.0 {
                scope.spawn(move || node.run_inside(&["kill", "-s", "KILL", process]));
            }
        });
        at
    }
}

pub(super) fn container(pod: &Value) -> &str {
    text(pod, "/status/containerStatuses/0/containerID")
}

pub(super) fn restarted(site: &Site, pod: &Value) -> Option<()> {
    let now = site.get(&format!("pod {} --namespace {DNS_NAMESPACE}", text(pod, "/metadata/name")));
    let count = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
    (count(&now) > count(pod)).then_some(())
}

/// What the API server says of the pods of both servers, and when they answer.
pub(super) struct Watched {
    timeline: Timeline,
    answers: Answers,
}

impl Watched {
    pub(super) async fn start(site: &Site) -> Watched {
        let pods = [DNS_PODS, coredns::PODS].map(|label| site.pods(DNS_NAMESPACE, label)).concat();
        let addresses: Vec<IpAddr> = pods.iter().map(address).collect();
        let answers = Answers::start(site, &addresses);
        Watched { timeline: Timeline::start(site).await, answers }
    }

    /// Prints everything that was seen, in seconds after this time.
    pub(super) fn say(&self, site: &Site, what: &str, since: f64) {
        say_all(site, &format!("{what}: what the API server said"), &self.timeline.in_words(since));
        say_all(site, &format!("{what}: each pod, asked directly"), &self.answers.in_words(since));
    }

    /// From the fault to the start of the process is the time of kubelet and runtime; the next steps are counted from that start.
    fn way_back(&self, site: &Site, pod: &Value, since: f64) -> String {
        let (name, address) = (text(pod, "/metadata/name"), address(pod));
        let started = site.node_of(pod).process_started(container(pod));
        let changes = self.timeline.changes();
        let ready = |of: &str| {
            let mut its = changes.iter().filter(|it| it.of == of && it.at > started);
            its.find(|it| it.is_ready).map(|it| it.at)
        };
        let steps = [
            ("first line of its log", first_line(site, name)),
            ("first answer", self.answers.first_after(address, started)),
            ("Ready", ready(name)),
            ("endpoint ready", ready(&address.to_string())),
        ];
        let steps = steps.map(|(step, at)| match at {
            Some(at) => format!("{step} +{:.2} s", at - started),
            None => format!("{step}: not seen"),
        });
        let kubelet = seconds_of_kubelet(pod).map_or(String::new(), |seconds| {
            format!(" (by kubelet's whole seconds, Ready {seconds} s after the start)")
        });
        format!(
            "{name}: process started at {:.2} s, {}{kubelet}",
            started - since,
            steps.join(", ")
        )
    }
}

/// From the start of its container to its condition `Ready`, as kubelet writes both.
fn seconds_of_kubelet(pod: &Value) -> Option<i64> {
    let started = text(pod, "/status/containerStatuses/0/state/running/startedAt");
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    let ready = text(conditions.find(|it| it["type"] == "Ready")?, "/lastTransitionTime");
    let [started, ready] = [started, ready].map(|at| at.parse::<Timestamp>().ok());
    Some(ready?.as_second() - started?.as_second())
}

fn address(pod: &Value) -> IpAddr {
    text(pod, "/status/podIP").parse().expect("an address")
}

/// When a pod wrote the first line of the log of its present container, as [`now`] counts.
fn first_line(site: &Site, pod: &str) -> Option<f64> {
    let log = site.does(&format!("logs {pod} --namespace {DNS_NAMESPACE} --timestamps"))?;
    let at: Timestamp = log.lines().next()?.split_whitespace().next()?.parse().ok()?;
    let age = SystemTime::now().duration_since(SystemTime::from(at)).ok()?;
    Some(now() - age.as_secs_f64())
}

/// Prints lines below a title.
pub(super) fn say_all(site: &Site, title: &str, lines: &[String]) {
    site.say(&format!("{title}: {}", if lines.is_empty() { "nothing" } else { "" }));
    lines.iter().for_each(|line| site.print(&format!("    {line}")));
}
