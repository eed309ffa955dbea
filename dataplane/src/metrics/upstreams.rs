//! What metrics say of each upstream server (E55): its state, the results of queries, its connections.

use std::fmt;

use crate::forward::{ConnectionsView, Forwarder, ServerView, Upstreams};
use process::metrics::Page;

/// One server of one group. One address may be there with several transports.
struct Row<'a> {
    group: &'a str,
    server: &'a ServerView,
}

impl<'a> Row<'a> {
    fn labels(&self) -> [(&'static str, &'a str); 3] {
        let ServerView { server, transport, .. } = self.server;
        [("group", self.group), ("upstream", server), ("transport", transport)]
    }

    fn with(&self, label: &'static str, value: &'static str) -> [(&'static str, &'a str); 4] {
        let [group, upstream, transport] = self.labels();
        [group, upstream, transport, (label, value)]
    }
}

/// State, latency, outcomes and connections of each server (FW22-FW29, FW50, FW54).
pub(super) fn write(
    page: &mut Page<'_>,
    forwarder: &Forwarder,
    upstreams: &Upstreams,
) -> fmt::Result {
    let help = "Lookups in progress: at most one for each question and route";
    page.gauge("lookups_in_progress", help, forwarder.lookups() as f64)?;
    let help = "Queries that joined a lookup in progress";
    page.counter("lookups_joined", help, forwarder.joined())?;
    let view = upstreams.view(std::time::Instant::now());
    let help = "UDP ports towards upstreams, open or closed less than 30 s ago";
    page.gauge("upstream_ports", help, view.ports as f64)?;
    let help = "Queries that shared a source port because the limit of ports was reached";
    page.counter("upstream_ports_shared", help, view.shared_ports)?;
    let groups = view.groups.iter();
    let servers: Vec<Row<'_>> = groups
        .flat_map(|group| group.servers.iter().map(|server| Row { group: &group.name, server }))
        .collect();
    let rows = servers.iter().flat_map(|row| {
        let is = |state| f64::from(u8::from(row.server.state == state));
        ServerView::STATES.map(|state| (row.with("state", state), is(state)))
    });
    let empty = view.groups.iter().filter(|group| group.servers.is_empty());
    let empty = empty.map(|group| {
        let [upstream, transport, state] =
            ["upstream", "transport", "state"].map(|label| (label, ServerView::ABSENT));
        ([("group", &*group.name), upstream, transport, state], 1.0)
    });
    let rows = rows.chain(empty);
    page.gauges("upstream_state", "1 for the state that an upstream is in", rows)?;
    let rows = servers.iter().map(|row| (row.labels(), row.server.in_flight as f64));
    page.gauges("upstream_in_progress", "Queries to an upstream in progress", rows)?;
    let rows = servers.iter().flat_map(|row| {
        let ServerView { good, errors, silent, .. } = *row.server;
        let outcomes = [("good", good), ("error", errors), ("silence", silent)];
        outcomes.map(|(outcome, count)| (row.with("outcome", outcome), count))
    });
    page.counters(
        "upstream_outcomes",
        "Queries to an upstream, by outcome: good, error or silence",
        rows,
    )?;
    connections(page, &servers)?;
    let help = "From a query to the reply of an upstream";
    let rows =
        upstreams.latencies().into_iter().map(|([group, upstream, transport], rcode, of)| {
            let labels = [
                ("group", group),
                ("upstream", upstream),
                ("transport", transport),
                ("rcode", rcode.to_owned()),
            ];
            (labels, of)
        });
    page.histograms("upstream_latency_seconds", help, rows)
}

fn connections(page: &mut Page<'_>, servers: &[Row<'_>]) -> fmt::Result {
    let connected: Vec<(&Row<'_>, &ConnectionsView)> =
        servers.iter().filter_map(|row| Some((row, row.server.connections.as_ref()?))).collect();
    let rows = connected.iter().map(|(row, of)| (row.labels(), of.open as f64));
    page.gauges("upstream_connections", "Open connections to an upstream", rows)?;
    let rows = connected.iter().map(|(row, of)| (row.labels(), of.opened));
    page.counters("upstream_connections_opened", "Connections made to an upstream", rows)?;
    let rows = connected.iter().flat_map(|(row, of)| {
        let kinds = [("full", of.handshakes - of.resumed), ("resumed", of.resumed)];
        kinds.map(|(kind, count)| (row.with("kind", kind), count))
    });
    let help = "TLS handshakes with an upstream: full, or resuming a session";
    page.counters("upstream_handshakes", help, rows)?;
    let rows = connected.iter().flat_map(|(row, of)| {
        of.failures.iter().map(|(reason, count)| (row.with("reason", reason), *count))
    });
    let help = "Failed or broken connections to an upstream, by reason";
    page.counters("upstream_connection_failures", help, rows)
}
