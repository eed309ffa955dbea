//! Upstreams that are unusable for most pods: single servers that are down, answer with errors only or lead back to ClusterDNS,
//! and groups in which no server is left, whose names get SERVFAIL.

use std::collections::{BTreeMap, BTreeSet};

use crds::names::DEFAULT_GROUP;

use super::problem::{Problem, named, problem};
use crate::observe::observed::{DownServer, EmptyGroup, Observed, Reported};
use crate::observe::pods;

/// Why a pod has no usable server for the names of a group.
#[derive(Clone, Copy, Debug)]
enum Without<'o> {
    /// All of them are unusable.
    Usable(&'o DownServer),
    /// The group has none that could be asked.
    Any(&'o EmptyGroup),
}

/// Groups in which more than half of the pods have no usable server: clients get SERVFAIL for their names. The servers may be
/// others on each pod: the resolv.conf of a node names those of its zone.
pub(super) fn no_usable_upstream(observed: &Observed) -> Option<Problem> {
    let mut groups: BTreeMap<&str, (usize, Vec<Without<'_>>)> = BTreeMap::new();
    let mut asked = 0;
    for pod in pods::ready(observed).filter_map(|pod| pods::known(observed, pod)) {
        asked += 1;
        for (group, why) in without_usable(pod) {
            let (count, all) = groups.entry(group).or_default();
            *count += 1;
            all.extend(why);
        }
    }
    groups.retain(|_, (count, _)| *count * 2 > asked);
    let texts = groups.into_iter().map(|(group, (_, all))| (group, why(all)));
    // The default upstreams concern most clients.
    let (default, stubs): (Vec<_>, Vec<_>) = texts.partition(|(group, _)| *group == DEFAULT_GROUP);
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
             names, except for what is still cached. Check that the servers run, that pods reach them, that they answer with more \
             than errors, that they do not forward to ClusterDNS, and names and certificates of encrypted ones; or replace \
             them in the spec",
            named(groups)
        ),
    )
}

/// The groups whose names this pod answers with SERVFAIL, and why.
fn without_usable(pod: &Reported) -> BTreeMap<&str, Vec<Without<'_>>> {
    let unusable = pod.upstreams_down.iter().chain(&pod.upstreams_looping);
    let unusable = of_servers(unusable.chain(&pod.upstreams_failing));
    let mut groups: BTreeMap<&str, BTreeMap<[&str; 4], &DownServer>> = BTreeMap::new();
    for (key, server) in unusable {
        groups.entry(&server.group).or_default().insert(key, server);
    }
    groups.retain(|_, servers| {
        servers.values().any(|it| it.group_servers > 0 && servers.len() >= it.group_servers)
    });
    let groups = groups
        .into_iter()
        .map(|(group, servers)| (group, servers.into_values().map(Without::Usable).collect()));
    let empty = pod.upstreams_without_servers.iter();
    groups.chain(empty.map(|it| (&*it.group, vec![Without::Any(it)]))).collect()
}

/// Each server once, however many pods name it.
fn why(all: Vec<Without<'_>>) -> String {
    let servers = all.iter().filter_map(|it| match it {
        Without::Usable(server) => Some(*server),
        Without::Any(_) => None,
    });
    let servers: BTreeMap<_, _> = of_servers(servers).collect();
    let empty: BTreeSet<String> = all
        .iter()
        .filter_map(|it| match it {
            Without::Usable(_) => None,
            Without::Any(group) => Some(format!("no server ({})", group.why)),
        })
        .collect();
    named(servers.into_values().map(text).chain(empty).collect())
}

/// Servers that lead back to ClusterDNS for any pod, which does not ask them (FW50). Only a ClusterDNS answers the probe
/// that shows it, so one pod is enough: the resolv.conf of its node may name another server than those of other nodes.
pub(super) fn upstream_looping(observed: &Observed) -> Option<Problem> {
    let (looping, pods) = counted(observed, |pod| of_servers(pod.upstreams_looping.iter()));
    if looping.is_empty() {
        return None;
    }
    let text = |found: Counted<'_, DownServer>| {
        let whose = match found.count * 2 > pods {
            true => "more than half of the pods".to_owned(),
            false => format!("some pods, such as {}", found.first),
        };
        format!("{} {} ({whose})", found.report.group, server(found.report))
    };
    problem(
        "UpstreamLooping",
        format!(
            "these servers forward to ClusterDNS itself, so pods do not ask them: {}. Point them at other servers, or write \
             other servers into the spec; where some pods say so, look at resolv.conf of their nodes, too",
            named(looping.into_iter().map(text).collect())
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

/// Servers that answer more than half of the pods with errors only: they run, but an access list of theirs may have changed.
/// Pods report a server after 60 s.
pub(super) fn upstream_failing(observed: &Observed) -> Option<Problem> {
    let failing = servers_of_most(observed, |pod| pod.upstreams_failing.iter());
    if failing.is_empty() {
        return None;
    }
    let failing = failing.into_iter().map(|it| format!("{} {}", it.group, server(it))).collect();
    problem(
        "UpstreamFailing",
        format!(
            "more than half of the pods got only errors, such as REFUSED or SERVFAIL, from these servers for 60 s: {}. Check that \
             they allow queries from pods, and the servers that they ask themselves, or replace them in the spec",
            named(failing)
        ),
    )
}

/// Those of the servers that more than half of the pods report, each once.
fn servers_of_most<'o, I: Iterator<Item = &'o DownServer>>(
    observed: &'o Observed,
    reports: impl Fn(&'o Reported) -> I,
) -> Vec<&'o DownServer> {
    of_most(observed, |pod| of_servers(reports(pod)))
}

/// Servers with what distinguishes them.
fn of_servers<'o>(
    servers: impl Iterator<Item = &'o DownServer>,
) -> impl Iterator<Item = ([&'o str; 4], &'o DownServer)> {
    servers.map(|it| ([&*it.group, &*it.server, &*it.transport, &*it.server_name], it))
}

/// What more than half of the pods report, in the order of its keys.
fn of_most<'o, K: Ord + Clone, T, I: Iterator<Item = (K, &'o T)>>(
    observed: &'o Observed,
    reports: impl Fn(&'o Reported) -> I,
) -> Vec<&'o T> {
    let (counted, pods) = counted(observed, reports);
    counted.into_iter().filter(|it| it.count * 2 > pods).map(|it| it.report).collect()
}

/// What pods report.
struct Counted<'o, T> {
    report: &'o T,
    /// How many pods report it.
    count: usize,
    /// The first of them by name.
    first: &'o str,
}

/// What pods report, in the order of its keys, and how many pods were asked. What one pod reports twice counts once.
fn counted<'o, K: Ord + Clone, T, I: Iterator<Item = (K, &'o T)>>(
    observed: &'o Observed,
    reports: impl Fn(&'o Reported) -> I,
) -> (Vec<Counted<'o, T>>, usize) {
    let asked: Vec<(&str, &Reported)> = pods::ready(observed)
        .filter_map(|pod| Some((pods::name(pod), pods::known(observed, pod)?)))
        .collect();
    let mut all: BTreeMap<K, Counted<'o, T>> = BTreeMap::new();
    for (name, pod) in &asked {
        let mut seen = BTreeSet::new();
        for (key, report) in reports(pod) {
            if seen.insert(key.clone()) {
                let none = Counted { report, count: 0, first: name };
                let counted = all.entry(key).or_insert(none);
                counted.count += 1;
                counted.first = counted.first.min(name);
            }
        }
    }
    (all.into_values().collect(), asked.len())
}

/// The server, and what a person should do.
fn text(down: &DownServer) -> String {
    let server = server(down);
    down.remedy.as_ref().map_or(server.clone(), |remedy| format!("{server} ({remedy})"))
}

/// The address, and how and by which name it is asked where that is not the usual way.
fn server(down: &DownServer) -> String {
    match (&*down.transport, &*down.server_name) {
        ("" | "UDP", _) => down.server.clone(),
        (transport, "") => format!("{} over {transport}", down.server),
        (transport, name) => format!("{} over {transport} as {name}", down.server),
    }
}
