//! Upstreams that are unusable for most pods: single servers that are down or lead back to ClusterDNS, and groups in which no
//! server is left, whose names get SERVFAIL.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::{Problem, named, problem};
use crate::observe::observed::{DownServer, Observed, Reported};
use crate::observe::pods;

/// The group of all names that no stub domain has, as pods call it.
const DEFAULT_GROUP: &str = "upstreams";

/// Groups in which more than half of the pods have no usable server: clients get SERVFAIL for their names.
pub(super) fn no_usable_upstream(observed: &Observed) -> Option<Problem> {
    let unusable =
        servers_of_most(observed, |pod| pod.upstreams_down.iter().chain(&pod.upstreams_looping));
    let mut groups: BTreeMap<&str, Vec<&DownServer>> = BTreeMap::new();
    for server in unusable {
        groups.entry(&server.group).or_default().push(server);
    }
    groups.retain(|_, servers| {
        servers.iter().any(|it| it.group_servers > 0 && servers.len() >= it.group_servers)
    });
    let texts = groups
        .into_iter()
        .map(|(group, servers)| (group, named(servers.into_iter().map(text).collect())));
    let empty = of_most(observed, |pod| {
        pod.upstreams_without_servers.iter().map(|group| (&*group.group, group))
    });
    let empty =
        empty.into_iter().map(|group| (&*group.group, format!("no server ({})", group.why)));
    // The default upstreams concern most clients.
    let (default, stubs): (Vec<_>, Vec<_>) =
        texts.chain(empty).partition(|(group, _)| *group == DEFAULT_GROUP);
    let of_group = |(group, why): (&str, String)| match group {
        DEFAULT_GROUP => format!("spec.upstreams (all names outside of the cluster): {why}"),
        domain => format!("the stub domain {domain}: {why}"),
    };
    let groups: Vec<String> = default.into_iter().chain(stubs).map(of_group).collect();
    if groups.is_empty() {
        return None;
    }
    problem(
        "NoUsableUpstream",
        format!(
            "more than half of the pods got no usable reply for 60 s from any server of {}: clients get SERVFAIL for these \
             names, except for what is still cached. Check that the servers run, that pods reach them, that they do not \
             forward to ClusterDNS, and names and certificates of encrypted ones; or replace them in the spec",
            named(groups)
        ),
    )
}

/// Servers that lead back to ClusterDNS for more than half of the pods, which do not ask them (FW50).
pub(super) fn upstream_looping(observed: &Observed) -> Option<Problem> {
    let looping = servers_of_most(observed, |pod| pod.upstreams_looping.iter());
    if looping.is_empty() {
        return None;
    }
    let looping = looping.into_iter().map(|it| format!("{} {}", it.group, server(it))).collect();
    problem(
        "UpstreamLooping",
        format!(
            "these servers forward to ClusterDNS itself, and more than half of the pods do not ask them for that: {}. Point \
             them at other servers, or write other servers into the spec",
            named(looping)
        ),
    )
}

/// Servers that are down for more than half of the pods. If only a few pods report it, their node is the cause.
/// Pods report a server after 60 s.
pub(super) fn upstream_down(observed: &Observed) -> Option<Problem> {
    let down = servers_of_most(observed, |pod| pod.upstreams_down.iter());
    if down.is_empty() {
        return None;
    }
    let down = down.into_iter().map(|it| format!("{} {}", it.group, text(it))).collect();
    problem(
        "UpstreamDown",
        format!(
            "more than half of the pods got no reply from these servers for 60 s: {}. Check that they run and that pods reach \
             them, or replace them in the spec",
            named(down)
        ),
    )
}

/// Those of the servers that more than half of the pods report, each once.
fn servers_of_most<'o, I: Iterator<Item = &'o DownServer>>(
    observed: &'o Observed,
    reports: impl Fn(&'o Reported) -> I,
) -> Vec<&'o DownServer> {
    of_most(observed, |pod| {
        reports(pod).map(|server| ((&*server.group, &*server.server, &*server.transport), server))
    })
}

/// What more than half of the pods report, in the order of its keys. What one pod reports twice counts once.
fn of_most<'o, K: Ord + Clone, T, I: Iterator<Item = (K, &'o T)>>(
    observed: &'o Observed,
    reports: impl Fn(&'o Reported) -> I,
) -> Vec<&'o T> {
    let asked: Vec<&Reported> =
        pods::ready(observed).filter_map(|pod| pods::reported(observed, pod)).collect();
    let mut counts: BTreeMap<K, (usize, &T)> = BTreeMap::new();
    for pod in &asked {
        let mut seen = BTreeSet::new();
        for (key, report) in reports(pod) {
            if seen.insert(key.clone()) {
                counts.entry(key).or_insert((0, report)).0 += 1;
            }
        }
    }
    let of_most = counts.into_values().filter(|(count, _)| count * 2 > asked.len());
    of_most.map(|(_, report)| report).collect()
}

/// The server, and what a person should do.
fn text(down: &DownServer) -> String {
    let server = server(down);
    down.remedy.as_ref().map_or(server.clone(), |remedy| format!("{server} ({remedy})"))
}

/// The address, and how it is asked where that is not the usual way.
fn server(down: &DownServer) -> String {
    match &*down.transport {
        "" | "UDP" => down.server.clone(),
        transport => format!("{} over {transport}", down.server),
    }
}
