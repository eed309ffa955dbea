//! What our own alerts and dashboards ask for: each selector of theirs finds series in a real Prometheus that scrapes real
//! programs, and Prometheus takes each expression.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;
use tests::promql::{Expression, Selector};
use tests::usage::Usage;

use super::{Prometheus, until};

/// The job that Prometheus makes of the PodMonitor of the rules below.
pub(super) const JOB: &str = "kube-system/clusterdns-default";
/// The rules that the operator writes for a ClusterDNS `default`, and those of the chart.
const RULES: [&str; 2] = [
    include_str!("../../golden/desired/minimal.yaml"),
    include_str!("../../golden/chart/everything.yaml"),
];
const DASHBOARDS: [&str; 4] = [
    include_str!("../../../charts/clusterdns/dashboards/operator.json"),
    include_str!("../../../charts/clusterdns/dashboards/overview.json"),
    include_str!("../../../charts/clusterdns/dashboards/pod.json"),
    include_str!("../../../charts/clusterdns/dashboards/upstreams.json"),
];

/// Of a group without servers, which no program here has (`dataplane/src/metrics/upstreams.rs` tests that row), of a memory
/// limit, which only a container has, and of certificates and snapshots (process tests of the data plane have them).
const NOT_HERE: [&str; 4] = [
    r#"state="absent""#,
    "process_memory_limit_bytes",
    "clusterdns_certificate_",
    "clusterdns_snapshot_",
];

/// The expressions of all alerts.
fn of_alerts() -> Vec<String> {
    let documents = RULES.iter().flat_map(|text| text.split("\n---"));
    let rules = documents.filter(|text| text.contains("kind: PrometheusRule"));
    let rules = rules.map(|text| serde_saphyr::from_str::<Value>(text).expect("YAML"));
    let rules = rules.flat_map(|rule| rule["spec"]["groups"][0]["rules"].as_array().cloned());
    rules.flatten().map(|rule| rule["expr"].as_str().expect("an expression").to_owned()).collect()
}

/// Those of all panels, with all that a reader may choose.
fn of_dashboards() -> Vec<String> {
    let mut all = Vec::new();
    for text in DASHBOARDS {
        let document: Value = serde_json::from_str(text).expect("JSON");
        let mut variables = vec![("$__rate_interval".to_owned(), "1m")];
        for variable in document["templating"]["list"].as_array().expect("a list") {
            variables.push((format!("${}", variable["name"].as_str().expect("a name")), ".*"));
        }
        for panel in document["panels"].as_array().expect("panels") {
            for target in panel["targets"].as_array().expect("targets") {
                let expression = target["expr"].as_str().expect("an expression").to_owned();
                let write =
                    |text: String, (name, value): &(String, &str)| text.replace(name, value);
                all.push(variables.iter().fold(expression, write));
            }
        }
    }
    all
}

/// Waits until each selector has series.
pub(super) fn find_their_series(prometheus: &Prometheus) {
    let (alerts, dashboards) = (of_alerts(), of_dashboards());
    assert!(alerts.len() > 15 && dashboards.len() > 50, "{} {}", alerts.len(), dashboards.len());
    let mut selectors: BTreeSet<Selector> = BTreeSet::new();
    for expression in alerts.iter().chain(&dashboards) {
        // It panics where Prometheus refuses it. A count has few octets: longer replies come in chunks, which are not read.
        prometheus.query(&format!("count({expression})"));
        let parsed = Expression::parse(expression).expect("an expression");
        selectors.extend(parsed.selectors().into_iter().cloned());
    }
    for selector in
        selectors.iter().filter(|it| !NOT_HERE.iter().any(|part| it.to_string().contains(part)))
    {
        let counted = format!("count({selector})");
        until(&format!("a series of {selector}"), || prometheus.query(&counted));
    }
}

/// The panels about processor and memory in the dashboard of the operator: with the pods that the dashboard finds, they show the
/// process at this address, which two jobs scrape, and no other one; with the numbers that the system has of it.
pub(super) fn show_what_the_operator_uses(
    prometheus: &Prometheus,
    at: SocketAddr,
    operator: Usage,
) {
    let document: Value = serde_json::from_str(DASHBOARDS[0]).expect("JSON");
    let variables = document["templating"]["list"].as_array().expect("a list");
    let of_pod = variables.iter().find(|it| it["name"] == "pod").expect("a variable");
    // label_values(METRIC, LABEL): Grafana takes all values that the label has.
    let query = of_pod["query"]["query"].as_str().expect("a query");
    let inner = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
    let (metric, label) = inner.and_then(|it| it.split_once(", ")).expect("both");
    let found = until(query, || prometheus.query(&format!("count by ({label}) ({metric})")));
    let pods: Vec<&str> = found.iter().filter_map(|(labels, _)| labels[label].as_str()).collect();
    let pods = pods.join("|");
    let panels = document["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let shown: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    let panel = |metric: &str| {
        let found = shown.iter().find(|it| it.contains(metric)).expect("a panel");
        found.replace("$pod", &pods).replace("$__rate_interval", "1m")
    };

    let (cpu, memory) = ("process_cpu_seconds_total", "process_resident_memory_bytes");
    let (used_before, processor) = (operator.cpu().as_secs_f64(), panel(cpu));
    // Of one query, so both sides are of the same scrapes.
    for (panel, of_it) in [
        (processor.clone(), format!("rate({cpu}{{instance=\"{at}\"}}[1m])")),
        (panel(memory), format!("{memory}{{instance=\"{at}\"}}")),
    ] {
        prometheus.expect(&format!("count({panel})"), 2.0);
        prometheus.expect(&format!("count({panel} == on (job) {of_it})"), 2.0);
    }

    let parsed = Expression::parse(&processor).expect("an expression");
    let counted = parsed.selectors()[0].to_string();
    let used = until("a scrape after now", || {
        let rows = prometheus.query(&counted)?;
        rows.iter().all(|(_, seconds)| *seconds >= used_before).then_some(rows)
    });
    let most = operator.cpu().as_secs_f64();
    assert!(used.iter().all(|(_, seconds)| *seconds <= most), "{used:?}, {most} s");
    let resident = until(memory, || prometheus.query(&panel(memory)));
    // Linux counts memory in batches of some pages for each thread.
    let most = operator.peak_mib() + 8.0;
    let mib = |octets: f64| octets / f64::from(1 << 20);
    assert!(
        resident.iter().all(|(_, octets)| (1.0..=most).contains(&mib(*octets))),
        "{resident:?}, at most {most} MiB"
    );
}
