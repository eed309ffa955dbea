//! The dashboards for Grafana: written from one source, installed by the chart, and about metrics that are shown.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tests::promql::Expression;

use super::{GOLDEN, expect, objects, read};
use crate::metrics::{is_shown, metrics_of};

/// Panels beside each other, and their height in Grafana's grid of 24 columns.
const COLUMNS: usize = 3;
const HEIGHT: usize = 8;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    file: String,
    title: String,
    description: String,
    variables: Vec<Variable>,
    panels: Vec<Panel>,
}

/// What a reader chooses: the values that a label of a metric has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    of: String,
    label: String,
    choice: Choice,
}

/// How many values a reader may choose.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Choice {
    One,
    Many,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    unit: String,
    queries: BTreeMap<String, String>,
}

fn dashboards() -> Vec<Dashboard> {
    serde_saphyr::from_str(&read("charts/dashboards.yaml")).expect("dashboards")
}

impl Dashboard {
    /// The document that Grafana imports.
    fn document(&self) -> Value {
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        // No `allValue`: "All" is then all values that were found, and `up` and `process_*` of other programs are not shown.
        let mut variables = vec![json!({
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        })];
        variables.extend(self.variables.iter().map(|Variable { name, of, label, choice }| {
            let is_many = *choice == Choice::Many;
            let mut variable = json!({
                "name": name, "label": name, "type": "query", "datasource": source, "refresh": 2,
                "query": {"query": format!("label_values({of}, {label})"), "refId": name},
                "includeAll": is_many, "multi": is_many, "sort": 1,
            });
            // Grafana begins with the first value of one that has no current value.
            if is_many {
                variable["current"] = json!({"text": "All", "value": "$__all"});
            }
            variable
        }));
        let panels = self.panels.iter().enumerate();
        let panels: Vec<Value> =
            panels.map(|(place, panel)| panel.document(place, &source)).collect();
        json!({
            "uid": format!("clusterdns-{}", self.file),
            "title": self.title,
            "description": self.description,
            "tags": ["clusterdns", "dns"],
            "schemaVersion": 39,
            "editable": true,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": variables},
            "panels": panels,
        })
    }
}

impl Panel {
    fn document(&self, place: usize, source: &Value) -> Value {
        let width = 24 / COLUMNS;
        let targets = self.queries.iter().enumerate().map(|(place, (legend, expression))| {
            let letter = char::from(b'A' + u8::try_from(place).expect("a few queries"));
            json!({"refId": letter.to_string(), "datasource": source, "expr": expression, "legendFormat": legend})
        });
        json!({
            "id": place + 1,
            "type": "timeseries",
            "title": self.title,
            "datasource": source,
            "gridPos": {"x": place % COLUMNS * width, "y": place / COLUMNS * HEIGHT, "w": width, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}

#[test]
fn the_dashboards_are_what_their_source_says() {
    for dashboard in dashboards() {
        let text = serde_json::to_string_pretty(&dashboard.document()).expect("JSON");
        expect(&format!("charts/clusterdns/dashboards/{}.json", dashboard.file), &(text + "\n"));
    }
}

#[test]
fn the_dashboards_ask_for_metrics_that_are_shown() {
    for dashboard in dashboards() {
        let expressions = dashboard.panels.iter().flat_map(|panel| panel.queries.values());
        for expression in expressions.chain(dashboard.variables.iter().map(|it| &it.of)) {
            for metric in metrics_of(expression) {
                assert!(is_shown(metric), "{}: {metric} in {expression}", dashboard.title);
            }
        }
    }
}

/// Where kube-prometheus-stack scrapes CoreDNS, pods with the label of kube-dns are scraped by its job and by that of our
/// PodMonitor: a sum over both is twice the truth.
#[test]
fn panels_about_the_data_plane_read_one_job() {
    for dashboard in dashboards().iter().filter(|it| it.file != "operator") {
        let (job, others): (Vec<&Variable>, Vec<&Variable>) =
            dashboard.variables.iter().partition(|it| it.name == "job");
        assert!(matches!(&job[..], [it] if it.choice == Choice::One), "{}", dashboard.file);
        let expressions = dashboard.panels.iter().flat_map(|panel| panel.queries.values());
        for expression in expressions.chain(others.iter().map(|it| &it.of)) {
            let parsed = Expression::parse(expression).expect("an expression");
            for selector in parsed.selectors() {
                let mut matchers = selector.matchers.iter();
                let reads_it = matchers.any(|it| it.label == "job" && it.value == "$job");
                assert!(reads_it, "{}: {selector:?} in {expression}", dashboard.file);
            }
        }
    }
}

/// What a pod of either program uses is beside what it does.
#[test]
fn processor_and_memory_of_both_programs_are_shown() {
    for file in ["pod", "operator"] {
        let dashboards = dashboards();
        let dashboard = dashboards.iter().find(|it| it.file == file).expect("a dashboard");
        for metric in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
            let mut expressions = dashboard.panels.iter().flat_map(|it| it.queries.values());
            assert!(expressions.any(|it| metrics_of(it).contains(metric)), "{file}: {metric}");
        }
    }
}

#[test]
fn the_chart_installs_each_dashboard_where_grafana_looks() {
    let objects = objects(&read(&format!("{GOLDEN}/everything.yaml")));
    for dashboard in dashboards() {
        let name = format!("clusterdns-dashboard-{}", dashboard.file);
        let map = super::object(&objects, "ConfigMap", &name);
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        let text = map["data"][format!("{name}.json")].as_str().expect("a document");
        let document: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(document, dashboard.document());
    }
}
