//! What our own alerts and dashboards ask for: each selector of theirs finds series in a real Prometheus that scrapes real
//! programs, and Prometheus takes each expression.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::promql::{Expression, Selector};

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

/// Of a group without servers, which no program here has; `dataplane/src/metrics/upstreams.rs` tests that row.
const NOT_HERE: &str = r#"state="absent""#;

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
    for selector in selectors.iter().filter(|it| !it.to_string().contains(NOT_HERE)) {
        let counted = format!("count({selector})");
        until(&format!("a series of {selector}"), || prometheus.query(&counted));
    }
}
