//! What metrics say of each upstream server (E55): its state, the results of queries, its connections.

use std::collections::BTreeSet;
use std::fmt;

use crate::forward::{ConnectionsView, Forwarder, ServerView, Upstreams, View};
use process::metrics::Page;

/// The labels of one server. One address may be there with several transports and names.
fn labels(server: &ServerView) -> [(&'static str, &str); 3] {
    let ServerView { server, transport, server_name, .. } = server;
    [("upstream", server), ("transport", transport), ("server_name", server_name)]
}

fn with<'a>(
    server: &'a ServerView,
    label: &'static str,
    value: &'a str,
) -> [(&'static str, &'a str); 4] {
    let [upstream, transport, server_name] = labels(server);
    [upstream, transport, server_name, (label, value)]
}

/// Each server once. Groups share it, and all but its state is the same in each of them: a sum over groups would be too much.
fn distinct(view: &View) -> Vec<&ServerView> {
    let mut seen = BTreeSet::new();
    let servers = view.groups.iter().flat_map(|group| &group.servers);
    servers.filter(|server| seen.insert(labels(server))).collect()
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
    let help = "Queries that left from a source port that was open already";
    page.counter("upstream_ports_shared", help, view.shared_ports)?;
    let rows = view.groups.iter().map(|group| ([("group", &*group.name)], group.in_flight as f64));
    page.gauges("group_in_progress", "Queries of clients that wait for a group's servers", rows)?;
    let limits =
        view.groups.iter().map(|group| ([("group", &*group.name)], group.max_in_flight as f64));
    page.gauges("group_limit", "How many may wait for them at once (limits.inFlight)", limits)?;
    let members = view
        .groups
        .iter()
        .flat_map(|group| group.servers.iter().map(|server| (&*group.name, server)));
    let rows = members.flat_map(|(group, server)| {
        let is = |state| f64::from(u8::from(server.state == state));
        let [upstream, transport, server_name] = labels(server);
        ServerView::STATES.map(|state| {
            let group = ("group", group);
            ([group, upstream, transport, server_name, ("state", state)], is(state))
        })
    });
    let empty = view.groups.iter().filter(|group| group.servers.is_empty());
    let empty = empty.map(|group| {
        let [upstream, transport, state] =
            ["upstream", "transport", "state"].map(|label| (label, ServerView::ABSENT));
        ([("group", &*group.name), upstream, transport, ("server_name", ""), state], 1.0)
    });
    let rows = rows.chain(empty);
    page.gauges("upstream_state", "1 for the state that an upstream is in", rows)?;
    let servers = distinct(&view);
    let rows = servers.iter().map(|server| (labels(server), server.in_flight as f64));
    page.gauges("upstream_in_progress", "Queries to an upstream in progress", rows)?;
    let rows = servers.iter().map(|server| (labels(server), server.window as f64));
    let help = "How many queries an upstream is given at once";
    page.gauges("upstream_window", help, rows)?;
    let rows = servers.iter().map(|server| (labels(server), f64::from(u8::from(server.edns))));
    page.gauges("upstream_edns", "1 while an upstream is sent OPT records", rows)?;
    let rows = servers.iter().map(|server| (labels(server), server.failed_probes));
    page.counters("upstream_failed_probes", "Probes of an upstream without a reply", rows)?;
    let rows = servers.iter().flat_map(|server| {
        let ServerView { good, errors, silent, .. } = **server;
        let outcomes = [("good", good), ("error", errors), ("silence", silent)];
        outcomes.map(|(outcome, count)| (with(server, "outcome", outcome), count))
    });
    page.counters(
        "upstream_outcomes",
        "Queries to an upstream, by outcome: good, error or silence",
        rows,
    )?;
    connections(page, &servers)?;
    let help = "From a query to the reply of an upstream";
    let rows = upstreams.latencies().into_iter().map(|([upstream, transport, name], rcode, of)| {
        let labels = [
            ("upstream", upstream),
            ("transport", transport),
            ("server_name", name),
            ("rcode", rcode.to_owned()),
        ];
        (labels, of)
    });
    page.histograms("upstream_latency_seconds", help, rows)
}

fn connections(page: &mut Page<'_>, servers: &[&ServerView]) -> fmt::Result {
    let connected: Vec<(&ServerView, &ConnectionsView)> =
        servers.iter().filter_map(|server| Some((*server, server.connections.as_ref()?))).collect();
    let rows = connected.iter().map(|(server, of)| (labels(server), of.open as f64));
    page.gauges("upstream_connections", "Open connections to an upstream", rows)?;
    let rows = connected.iter().map(|(server, of)| (labels(server), of.opened));
    page.counters("upstream_connections_opened", "Connections made to an upstream", rows)?;
    let rows = connected.iter().flat_map(|(server, of)| {
        let kinds = [("full", of.handshakes - of.resumed), ("resumed", of.resumed)];
        kinds.map(|(kind, count)| (with(server, "kind", kind), count))
    });
    let help = "TLS handshakes with an upstream: full, or resuming a session";
    page.counters("upstream_handshakes", help, rows)?;
    let rows = connected.iter().flat_map(|(server, of)| {
        of.failures.iter().map(|(reason, count)| (with(server, "reason", reason), *count))
    });
    let help = "Failed or broken connections to an upstream, by reason";
    page.counters("upstream_connection_failures", help, rows)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crds::config::{self, Config, Group, GroupOptions, StubDomain, Transport};
    use process::metrics::{Form, Part, Section};

    use super::*;

    #[derive(Debug)]
    struct Shown(Arc<Forwarder>, Upstreams);

    impl Part for Shown {
        fn write(&self, page: &mut Page<'_>) -> fmt::Result {
            write(page, &self.0, &self.1)
        }
    }

    fn server(transport: Transport, name: Option<&str>, authority: Option<&str>) -> config::Server {
        let ca_bundle = authority.map(|pem| config::CaBundle::Pem(pem.to_owned()));
        let tls = name.map(|name| config::ServerTls { server_name: name.to_owned(), ca_bundle });
        config::Server { ip: [192, 0, 2, 1].into(), port: 853, transport, tls }
    }

    fn group(servers: Vec<config::Server>) -> Group {
        Group { servers, options: GroupOptions::default() }
    }

    /// The rows of a page about these servers, without their values.
    fn series(default: Vec<config::Server>, stub: Vec<config::Server>) -> Vec<String> {
        series_of(default, vec![("corp.example".to_owned(), stub)])
    }

    fn series_of(
        default: Vec<config::Server>,
        stubs: Vec<(String, Vec<config::Server>)>,
    ) -> Vec<String> {
        let stubs = stubs.into_iter();
        let config = Config {
            upstreams: config::Upstreams::Servers(group(default)),
            stub_domains: stubs
                .map(|(domain, stub)| StubDomain { domain, group: group(stub) })
                .collect(),
            ..Config::default()
        };
        let upstreams = Upstreams::of(&config, Path::new(""));
        let section = Section::of("clusterdns", Shown(Forwarder::new(), upstreams));
        let page = String::from_utf8(Section::page(&[&section], Form::Text)).unwrap();
        let rows = page.lines().filter(|line| !line.starts_with('#'));
        rows.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    }

    /// A page with two values for one series is refused as a whole, or half of it is lost.
    #[test]
    fn e55_servers_of_a_group_at_one_address_have_series_of_their_own() {
        let authority = rcgen::generate_simple_self_signed(["ca.example".to_owned()]).unwrap();
        let authority = authority.cert.pem();
        let all = series(
            vec![
                server(Transport::Tls, Some("one.example"), None),
                server(Transport::Tls, Some("two.example"), None),
                server(Transport::Https, Some("one.example"), None),
                server(Transport::Tls, Some("one.example"), Some(&authority)),
                server(Transport::Tcp, None, None),
            ],
            Vec::new(),
        );
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:#?}");
        for labels in [
            r#"transport="TLS",server_name="one.example",state="down""#,
            r#"transport="TLS",server_name="two.example",state="down""#,
            r#"transport="TCP",server_name="",state="down""#,
        ] {
            let row = format!(
                r#"clusterdns_upstream_state{{group="upstreams",upstream="192.0.2.1:853",{labels}}}"#
            );
            assert!(all.contains(&row), "{row} is not in {all:#?}");
        }
    }

    /// Their counts belong to the server: with a row for each group, a sum of rows is as many times the truth.
    #[test]
    fn e55_a_server_of_many_groups_has_one_row_beside_its_states() {
        let two = || {
            vec![
                server(Transport::Udp, None, None),
                server(Transport::Tls, Some("one.example"), None),
            ]
        };
        let alone = config::Server { ip: [192, 0, 2, 9].into(), ..two().remove(0) };
        let mut stubs: Vec<_> = (0..100).map(|stub| (format!("{stub}.example"), two())).collect();
        stubs[99].1.push(alone);
        let all = series_of(two(), stubs);
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        let of = |name: &str| {
            let name = format!("clusterdns_upstream_{name}{{");
            all.iter().filter(|row| row.starts_with(&name)).count()
        };
        assert_eq!(of("state"), (101 * 2 + 1) * ServerView::STATES.len());
        for one_row in ["in_progress", "window", "edns", "failed_probes_total"] {
            assert_eq!(of(one_row), 3, "{one_row}");
        }
        assert_eq!((of("outcomes_total"), of("latency_seconds_count")), (9, 3));
        let has_group = |row: &&String| {
            row.contains("group=") && !row.starts_with("clusterdns_upstream_state{")
        };
        let of_groups: Vec<&String> = all.iter().filter(has_group).collect();
        let is_of_group = |row: &&String| row.starts_with("clusterdns_group_");
        assert!(of_groups.iter().all(is_of_group), "{of_groups:#?}");
    }

    /// A rotation of authorities: the old and the new one side by side, then the new one alone. A series that became that of
    /// another server would show the counts of both as one.
    #[test]
    fn e55_a_server_keeps_its_series_when_its_twin_is_removed() {
        let pems = ["old.example", "new.example"].map(|name| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            made.cert.pem()
        });
        let [old, new] =
            pems.each_ref().map(|pem| server(Transport::Tls, Some("one.example"), Some(pem)));
        let of = |servers| {
            let rows = series(servers, Vec::new());
            let is_up = |row: &String| row.contains("one.example") && row.contains("healthy");
            rows.into_iter().filter(is_up).collect::<Vec<String>>()
        };
        let both = of(vec![old.clone(), new.clone()]);
        assert_eq!(both.len(), 2);
        assert_eq!(of(vec![old]), both[..1]);
        assert_eq!(of(vec![new]), both[1..]);
        let (_, name) = both[1].split_once("one.example#").unwrap();
        let (hash, _) = name.split_once('"').unwrap();
        assert!(hash.len() == 12 && hash.chars().all(|digit| digit.is_ascii_hexdigit()), "{hash}");
    }

    #[test]
    fn e55_a_group_without_a_server_that_can_be_asked_has_one_row() {
        let unusable = server(Transport::Tls, Some("one.example"), Some("no certificate"));
        let all = series(vec![server(Transport::Udp, None, None)], vec![unusable]);
        let is_of_stub = |row: &&String| row.contains("upstream") && row.contains("corp.example");
        let of_stub: Vec<&String> = all.iter().filter(is_of_stub).collect();
        let row = r#"clusterdns_upstream_state{group="corp.example",upstream="absent",transport="absent",server_name="",state="absent"}"#;
        assert_eq!(of_stub, [row]);
    }
}
