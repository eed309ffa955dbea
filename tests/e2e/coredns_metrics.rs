//! The metrics with names of CoreDNS beside those of the real CoreDNS: both watch one API server and are asked the same
//! questions. Names, types, labels and bounds are the same, except for the rows of the table in docs/metrics.md.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tests::client::{Question, ask_tcp, ask_udp};
use tests::data_plane::DataPlane;
use tests::exposition::{Family, bounds, families, samples};
use tests::objects::create_any;
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream};

use crate::coredns::{self, CoreDns, Plugins, free_port};

/// Generous: only a test that fails takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// Both keep a record for one second, and serve it when it has expired.
const UPSTREAM: &str = "
www.example.org. A
    answer @ 1 A 192.0.2.80
bad.example.org. *
    rcode SERVFAIL
* *
    rcode NXDOMAIN
    authority . 60 SOA a.root.example. hostmaster.example. 1 7200 1800 86400 60
";
/// What both are asked in one round.
const QUESTIONS: [&str; 6] = [
    "cart.shop.svc.cluster.local. A",
    "cart.shop.svc.cluster.local. AAAA +tcp",
    "nothere.shop.svc.cluster.local. A +dnssec",
    "www.example.org. A",
    "bad.example.org. A",
    "nothere.example.org. A",
];
/// Names that are asked once, more than the cache of CoreDNS has places for.
const MANY: usize = 2_500;
/// The heading of the table of differences.
const TABLE: &str = "## Where the names of CoreDNS differ";

/// Who shows a name that the other does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    CoreDns,
    Here,
}

/// The table: names, of which one may end in `*`, and who shows them.
fn table() -> Vec<(String, Only)> {
    let page = include_str!("../../docs/metrics.md");
    let table = page.split(TABLE).nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = table.expect("the table").lines().filter(|line| line.starts_with("| `"));
    let of = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let only = match cells[2] {
            "CoreDNS" => Only::CoreDns,
            "here" => Only::Here,
            other => panic!("{other}: neither CoreDNS nor here: {row}"),
        };
        let names = cells[1].split('`').skip(1).step_by(2);
        names.map(move |name| (name.to_owned(), only)).collect::<Vec<_>>()
    };
    rows.flat_map(of).collect()
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// A metric with all that must be the same.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<f64>,
}

/// What a page shows under names of CoreDNS; a metric without a row shows neither labels nor bounds.
fn shown(page: &str) -> BTreeMap<String, Shown> {
    let rows = samples(page);
    let has_row = |name: &str| {
        let is_of =
            |row: &str| row.strip_prefix(name).is_some_and(|end| ["", "_count"].contains(&end));
        rows.iter().any(|row| is_of(&row.name))
    };
    let all = families(page).into_iter().filter(|it| it.name.starts_with("coredns_"));
    let all = all.filter(|family| has_row(&family.name));
    all.map(|Family { name, kind, labels }| {
        let bounds = bounds(&rows, &name);
        (name, Shown { kind, labels, bounds })
    })
    .collect()
}

/// What differs and is not in the table, and rows of the table that are wrong.
fn differences(theirs: &str, ours: &str) -> Vec<String> {
    let (theirs, ours) = (shown(theirs), shown(ours));
    let table = table();
    let is_in_table = |name: &str, whose: Only| {
        table.iter().any(|(pattern, only)| *only == whose && fits(pattern, name))
    };
    let mut found = Vec::new();
    for (name, there) in &theirs {
        match ours.get(name) {
            Some(here) if here == there => {}
            Some(here) => {
                found.push(format!("{name}: CoreDNS has {there:?}, and here is {here:?}"))
            }
            None if is_in_table(name, Only::CoreDns) => {}
            None => found.push(format!("{name}: only CoreDNS shows it")),
        }
    }
    for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
        if !is_in_table(name, Only::Here) {
            found.push(format!("{name}: CoreDNS does not show it"));
        }
    }
    for (pattern, only) in &table {
        let (one, other) = match only {
            Only::CoreDns => ("here", &ours),
            Only::Here => ("CoreDNS", &theirs),
        };
        let shown = other.keys().find(|name| fits(pattern, name));
        found.extend(
            shown.map(|name| format!("{name}: the table says that {one} does not show it")),
        );
    }
    found
}

/// Asks both; no reply of either counts.
fn ask(servers: [SocketAddr; 2], question: &str) {
    let is_stream = question.ends_with("+tcp");
    let packet = Question::parse(question).expect("a question").packet;
    for server in servers {
        let _ = match is_stream {
            true => ask_tcp(server, &packet),
            false => ask_udp(server, &packet, false),
        };
    }
}

/// A change of the endpoints of a headless Service, at this time.
fn slice(name: &str, changed: Timestamp) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "data", "labels": {"kubernetes.io/service-name": "db"},
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": changed.to_string()}},
        "endpoints": [{"addresses": ["10.244.9.9"], "conditions": {"ready": true}}],
        "ports": [{"name": "pg", "protocol": "TCP", "port": 5432}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn names_labels_and_bounds_are_those_of_the_real_coredns() {
    let Some((plane, _)) = coredns::shop().await else { return };
    let client = plane.client().await;

    let upstream = ScriptedUpstream::start(Script::one(UPSTREAM).unwrap()).unwrap();
    // Nothing listens there: its health is looked at.
    let closed = free_port().expect("a free port");
    let plugins = Plugins {
        forward: format!(
            "{closed} {} {{\n    policy sequential\n    max_concurrent 1000\n  }}",
            upstream.address()
        ),
        cache: "{\n    success 1024 5 0\n    denial 1024 5 0\n    prefetch 1 1m 90%\n    serve_stale 1h immediate\n  }",
        more: "hosts {\n    192.0.2.1 a.example\n    fallthrough\n  }",
    };
    let Some(theirs) = CoreDns::start(plane.kubeconfig(), &plugins) else { return };
    let servers: Vec<Value> = [closed, upstream.address()]
        .iter()
        .map(|at| json!({"address": at.ip().to_string(), "port": at.port()}))
        .collect();
    let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "a"},
        "spec": {"upstreams": {"servers": servers, "policy": "Sequential"},
            "hosts": [{"name": "a.example", "addresses": ["192.0.2.1"]}]}});
    let folder = Scratch::new("metrics").unwrap();
    let config = folder.write("dns.yaml", dns.to_string()).unwrap().display().to_string();
    let ours = DataPlane::start(plane.kubeconfig(), &["--config", &config]);
    ours.wait_until_ready();

    let both = [theirs.address(), ours.address()];
    for number in 0..MANY {
        ask(both, &format!("n{number}.example.org. A"));
    }
    let mut changes = 0;
    let until = Instant::now() + PATIENCE;
    let found = loop {
        QUESTIONS.iter().for_each(|question| ask(both, question));
        if changes < 5 {
            let slice = slice(&format!("db-late-{changes}"), Timestamp::now());
            create_any(&client, &slice).await.expect("a slice");
            changes += 1;
        }
        let found = differences(&theirs.metrics(), &ours.get("/metrics").1);
        if found.is_empty() || Instant::now() > until {
            break found;
        }
        tokio::time::sleep(POLL).await;
    };
    assert!(found.is_empty(), "{}", found.join("\n"));
}
