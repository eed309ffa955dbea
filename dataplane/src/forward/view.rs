//! Upstreams as people see them: `/upstreams`, what is down, and what to do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::connections::Counted;
use super::server::{Seen, Server, looping, silent_udp};
use super::upstreams::{Group, Upstreams};
use crate::rcode;
use process::histogram::Distribution;

/// The page `/upstreams`, as JSON or text.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// In the order of the configuration.
    pub groups: Vec<GroupView>,
    /// UDP ports that are open or were closed less than 30 s ago (FW10).
    pub ports: usize,
    /// Queries that shared a port, as the bound was reached.
    pub shared_ports: u64,
    /// Warnings for people, with what to do.
    pub warnings: Vec<String>,
}

/// A group of upstreams, as `/upstreams` and metrics show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// `upstreams`, or the stub domain.
    pub name: String,
    /// `policy` of the group, as in the resource.
    pub policy: String,
    /// Its number, by which `/cache` says where an entry was asked. An edited group has another one.
    pub route: u32,
    /// Queries of clients in progress.
    pub in_flight: usize,
    /// `limits.inFlight` of the group.
    pub max_in_flight: usize,
    /// In the order of the resource, default servers or stub domain.
    pub servers: Vec<ServerView>,
}

/// A server of a group, as `/upstreams` and metrics show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerView {
    pub server: String,
    /// `UDP`, `TCP`, `TLS`, `HTTPS` or `QUIC`.
    pub transport: String,
    /// The name that it must prove to have; a group may have an address with several. A hash of its own authorities follows.
    /// Empty over UDP and TCP.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// `healthy`, `failing` (errors only to queries of this group), `down` (silent) or `looping` (leads back to us).
    pub state: &'static str,
    /// For how long, unless it is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Smoothed time to an answer, for `Fastest` (FW22); none before the first reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_microseconds: Option<u64>,
    /// Whether it is sent OPT records (FW25).
    pub edns: bool,
    /// Only there where it is true: its UDP gives no replies and its TCP does, so it is asked over TCP first (FW27).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub udp_is_silent: bool,
    /// Queries in progress whose reply is not overdue.
    pub in_flight: usize,
    /// How many of those it is given at once.
    pub window: usize,
    /// Every send since start, repeats included.
    pub sent: u64,
    /// Valid replies that end a lookup: NOERROR, NXDOMAIN, YXDOMAIN (FW20).
    pub good: u64,
    /// Error Rcodes, and replies that are no answer though their Rcode is none.
    pub errors: u64,
    /// Sends without a valid reply in time.
    pub silent: u64,
    /// Probes without a reply (FW27).
    pub failed_probes: u64,
    /// Absent where there was never a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionsView>,
}

/// The connections to one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionsView {
    /// Those that are open now.
    pub open: usize,
    /// Connections made since start.
    pub opened: u64,
    /// TLS handshakes that succeeded.
    pub handshakes: u64,
    /// Those of them that resumed a session.
    pub resumed: u64,
    /// The failures that happened, with their counts.
    pub failures: BTreeMap<&'static str, u64>,
    /// The message of the latest failure, unless a reply came since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_failure: Option<String>,
    /// How long ago that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_failure_seconds: Option<u64>,
}

/// What is known of the servers at one address.
#[derive(Clone, Debug)]
pub struct OfAddress {
    /// Queries sent.
    pub sent: u64,
    /// Health probes that got no reply.
    pub failed_probes: u64,
    /// How long replies took, by the places of [`rcode::LABELS`].
    pub replies: [Distribution; rcode::LABELS.len()],
}

impl Upstreams {
    pub fn view(&self, now: Instant) -> View {
        let groups = self.groups().map(|group| group_view(group, now));
        let common = &self.registry.common;
        View {
            groups: groups.collect(),
            ports: common.ports().total(),
            shared_ports: common.shared_draws(),
            warnings: self.notes(now),
        }
    }

    /// What is known of the group of a decision.
    pub fn group_view(&self, number: usize, now: Instant) -> Option<GroupView> {
        self.group(number).map(|group| group_view(group, now))
    }

    /// Warnings: servers that lead back to us, that we cannot trust or whose UDP is silent, and a resolv.conf that cannot be used
    /// (FW2, FW3, FW27, FW50).
    pub fn notes(&self, now: Instant) -> Vec<String> {
        // An address that is asked over two transports, or for two groups, is named once.
        let looping: BTreeSet<SocketAddr> =
            self.groups().flat_map(|group| looping_in(group, now)).collect();
        let looping = looping.into_iter().map(self::looping);
        let silent = self.known().iter().filter(|server| server.seen(now).has_silent_udp);
        let silent: BTreeSet<SocketAddr> = silent.map(|server| server.address()).collect();
        let silent = silent.into_iter().map(silent_udp);
        let file = self.resolv_conf().into_iter().flat_map(|file| file.problems.iter().cloned());
        let refused = self.known().iter().filter_map(|server| refused(server, &server.seen(now)));
        looping.chain(silent).chain(refused).chain(file).collect()
    }

    /// Address, transport, name, response code and latency of each server, for metrics: the codes that it has given, and NOERROR.
    /// Each server once, as groups share it.
    pub fn latencies(&self) -> Vec<([String; 3], &'static str, Distribution)> {
        let rows = self.known().iter().flat_map(|server| {
            let codes = rcode::LABELS.into_iter().zip(server.replies()).enumerate();
            let seen = codes.filter(|(place, (_, replies))| *place == 0 || replies.count() > 0);
            seen.map(move |(_, (rcode, replies))| {
                let name = server.shown_name.clone();
                ([server.address().to_string(), transport(server), name], rcode, replies)
            })
        });
        rows.collect()
    }

    /// What metrics show that name servers by their address alone. Servers at one address share these counts, also with
    /// those of earlier configurations: a sum over the present ones would fall when one of them is removed.
    pub fn by_address(&self) -> BTreeMap<String, OfAddress> {
        let rows = self.known().iter().map(|server| {
            let counts = &server.of_address;
            let of = OfAddress {
                sent: counts.shown.sent.load(Ordering::Relaxed),
                failed_probes: counts.failed_probes(),
                replies: counts.replies.read(),
            };
            (server.address().to_string(), of)
        });
        rows.collect()
    }
}

/// The servers of a group that lead back to us.
fn looping_in(group: &Group, now: Instant) -> impl Iterator<Item = SocketAddr> {
    let members = group.servers.iter().enumerate();
    let is_looping = move |(member, server): &(usize, &Arc<Server>)| {
        group.looping_for(*member, &server.seen(now), now).is_some()
    };
    members.filter(is_looping).map(|(_, server)| server.address())
}

fn group_view(group: &Group, now: Instant) -> GroupView {
    GroupView {
        name: group.name.clone(),
        policy: format!("{:?}", group.policy),
        route: group.route(),
        in_flight: group.in_flight().load(Ordering::Relaxed),
        max_in_flight: group.max_in_flight,
        servers: group
            .named_servers()
            .enumerate()
            .map(|(member, (_, name))| server_view(group, member, name, now))
            .collect(),
    }
}

fn server_view(group: &Group, member: usize, server_name: String, now: Instant) -> ServerView {
    let server = &group.servers[member];
    let seen = server.seen(now);
    let (standing, standing_for) = group.standing(member, &seen, now);
    let [good, errors, silent] = seen.heard;
    let looping_for = group.looping_for(member, &seen, now);
    let state = if looping_for.is_some() { "looping" } else { standing.label() };
    let latency = |latency: Duration| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    ServerView {
        server: server.address().to_string(),
        transport: transport(server),
        server_name,
        state,
        seconds: looping_for.or(standing_for).map(|time| time.as_secs()),
        latency_microseconds: seen.latency.map(latency),
        edns: seen.edns,
        udp_is_silent: seen.has_silent_udp,
        in_flight: seen.in_flight,
        window: seen.places,
        sent: seen.sent,
        good,
        errors,
        silent,
        failed_probes: server.failed_probes(),
        connections: connections_view(&seen.connections),
    }
}

pub(super) fn transport(server: &Server) -> String {
    format!("{:?}", server.identity.transport).to_uppercase()
}

fn connections_view(counted: &Counted) -> Option<ConnectionsView> {
    let failures: BTreeMap<_, _> = counted.failures().filter(|(_, count)| *count > 0).collect();
    (counted.opened > 0 || !failures.is_empty()).then(|| ConnectionsView {
        open: counted.open,
        opened: counted.opened,
        handshakes: counted.full + counted.resumed,
        resumed: counted.resumed,
        failures,
        latest_failure: counted.latest.as_ref().map(|(_, failure)| failure.text.to_string()),
        latest_failure_seconds: counted.latest.as_ref().map(|(ago, _)| ago.as_secs()),
    })
}

/// A server that does not prove who it is, or does not speak our transport: what a person should do. An error now and
/// then it leaves out healthy servers.
fn refused(server: &Server, seen: &Seen) -> Option<String> {
    let (ago, failure) = seen.connections.latest.as_ref()?;
    let [good, _, _] = seen.heard;
    if good > 0 && seen.down_for.is_none() {
        return None;
    }
    let advice = failure.reason.advice()?;
    let gets =
        if failure.reason.is_of_handshake() { "gets no queries" } else { "gives no replies" };
    let (address, transport) = (server.address(), transport(server));
    let name = server.identity.tls.as_ref().map_or("", |tls| &tls.server_name);
    let seconds = ago.as_secs();
    Some(format!(
        "upstream {address} ({transport}, {name}) {gets}: {advice} (latest error, {seconds} s ago: {})",
        failure.text
    ))
}

impl ConnectionsView {
    fn text(&self) -> String {
        let ConnectionsView { open, opened, handshakes, resumed, failures, .. } = self;
        let mut text = format!("connections {open} open, {opened} so far");
        // Writing to a String cannot fail.
        if *handshakes > 0 {
            let _ = write!(text, "; handshakes {handshakes}, {resumed} of them resumed");
        }
        for (reason, count) in failures {
            let _ = write!(text, "; failed {count} times: {reason}");
        }
        if let (Some(latest), Some(s)) = (&self.latest_failure, self.latest_failure_seconds) {
            let _ = write!(text, "; latest error, {s} s ago: {latest}");
        }
        text
    }
}

impl ServerView {
    /// What metrics show in place of address, transport and state for a group that has no server.
    pub const ABSENT: &str = "absent";
    /// Every state that a server can be in.
    pub const STATES: [&str; 4] = ["healthy", "failing", "down", "looping"];

    /// What people read: each server of a group has another name.
    pub fn full_name(&self) -> String {
        full_name(&self.server, &self.transport, &self.server_name)
    }
}

/// Address, transport, and the name if there is one.
pub(crate) fn full_name(server: &str, transport: &str, server_name: &str) -> String {
    let space = if server_name.is_empty() { "" } else { " " };
    format!("{server} {transport}{space}{server_name}")
}

impl GroupView {
    /// Lines for a terminal.
    pub fn text(&self) -> String {
        let GroupView { name, policy, route: _, in_flight, max_in_flight, servers } = self;
        let mut text = format!("{name}  {policy}, {in_flight} of {max_in_flight} in flight\n");
        for server in servers {
            let seconds = server.seconds.map(|s| format!(" for {s} s")).unwrap_or_default();
            let latency = server
                .latency_microseconds
                .map_or("-".to_owned(), |us| format!("{}.{:03} ms", us / 1000, us % 1000));
            let edns = if server.edns { "" } else { ", without EDNS" };
            let tcp = if server.udp_is_silent { ", over TCP, as its UDP is silent" } else { "" };
            let _ = writeln!(
                text,
                "  {}  {}{seconds}{edns}{tcp}, latency {latency}, {} of {} in flight; sent {}, good {}, errors {}, \
                 silent {}, failed probes {}",
                server.full_name(),
                server.state,
                server.in_flight,
                server.window,
                server.sent,
                server.good,
                server.errors,
                server.silent,
                server.failed_probes
            );
            if let Some(connections) = &server.connections {
                let _ = writeln!(text, "    {}", connections.text());
            }
        }
        text
    }
}

impl View {
    /// A table for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for group in &self.groups {
            text.push_str(&group.text());
        }
        let _ = writeln!(
            text,
            "UDP ports in use or at rest: {}; queries that shared a port: {}",
            self.ports, self.shared_ports
        );
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    }
}
