//! Upstreams that are down for most pods: single servers, and groups in which no server is left, whose names get SERVFAIL.

use std::collections::BTreeMap;

use super::problem::{Problem, named, problem};
use crate::observe::observed::{DownServer, Observed, Reported};
use crate::observe::pods;

/// The group of all names that no stub domain has, as pods call it.
const DEFAULT_GROUP: &str = "upstreams";

/// Groups in which every server is down for more than half of the pods: clients get SERVFAIL for their names.
pub(super) fn no_usable_upstream(observed: &Observed) -> Option<Problem> {
    let down = down_for_most(observed);
    let mut groups: BTreeMap<&str, Vec<&DownServer>> = BTreeMap::new();
    for server in &down {
        groups.entry(&server.group).or_default().push(server);
    }
    let is_empty = |(_, down): &(&str, Vec<&DownServer>)| {
        down.iter().any(|it| it.group_servers > 0 && down.len() >= it.group_servers)
    };
    let of_group = |(group, down): (&str, Vec<&DownServer>)| {
        let what = match group {
            DEFAULT_GROUP => "spec.upstreams (all names outside of the cluster)".to_owned(),
            domain => format!("the stub domain {domain}"),
        };
        format!("{what}: {}", named(down.into_iter().map(text).collect()))
    };
    // The default upstreams concern most clients.
    let (default, stubs): (Vec<_>, Vec<_>) =
        groups.into_iter().filter(is_empty).partition(|(group, _)| *group == DEFAULT_GROUP);
    let groups: Vec<String> = default.into_iter().chain(stubs).map(of_group).collect();
    if groups.is_empty() {
        return None;
    }
    problem(
        "NoUsableUpstream",
        format!(
            "more than half of the pods got no usable reply for 60 s from any server of {}: clients get SERVFAIL for these \
             names, except for what is still cached. Check that the servers run, that pods reach them, and names and \
             certificates of encrypted ones; or replace them in the spec",
            named(groups)
        ),
    )
}

/// Servers that are down for more than half of the pods. If only a few pods report it, their node is the cause.
/// Pods report a server after 60 s.
pub(super) fn upstream_down(observed: &Observed) -> Option<Problem> {
    let down = down_for_most(observed);
    if down.is_empty() {
        return None;
    }
    let down = down.iter().map(|it| format!("{} {}", it.group, text(it))).collect();
    problem(
        "UpstreamDown",
        format!(
            "more than half of the pods got no reply from these servers for 60 s: {}. Check that they run and that pods reach \
             them, or replace them in the spec",
            named(down)
        ),
    )
}

fn down_for_most(observed: &Observed) -> Vec<DownServer> {
    let asked: Vec<&Reported> =
        pods::ready(observed).filter_map(|pod| pods::reported(observed, pod)).collect();
    let mut counts: BTreeMap<(&str, &str), (usize, &DownServer)> = BTreeMap::new();
    for server in asked.iter().flat_map(|reported| &reported.upstreams_down) {
        counts.entry((&server.group, &server.server)).or_insert((0, server)).0 += 1;
    }
    let down = counts.into_values().filter(|(count, _)| count * 2 > asked.len());
    down.map(|(_, server)| server.clone()).collect()
}

/// The server, and what a person should do.
fn text(down: &DownServer) -> String {
    let DownServer { group: _, server, group_servers: _, remedy } = down;
    remedy.as_ref().map_or(server.clone(), |remedy| format!("{server} ({remedy})"))
}
