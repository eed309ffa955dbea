//! Labels of alerts and dashboards: each that an expression, an annotation or a legend names is one that the page of a
//! data plane or of an operator has on that metric, with a value that it has there. An alert on a label that nothing has
//! never fires.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dataplane::metrics::Form;
use operator::report::status::CONDITIONS;
use serde_json::{Value, json};
use tests::exposition::{Sample, samples};
use tests::promql::{Expression, Selector};
use tests::scenario::Plane;

use super::alerts::rules;
use super::{OF_A_LIMIT, asked, expect_upstream_failure};
use crate::architecture::{read, root};

/// The labels that Prometheus itself gives to what a PodMonitor selects.
const TARGET: [&str; 4] = ["job", "instance", "pod", "namespace"];
/// The folder of the dashboards that the chart installs.
const DASHBOARDS: &str = "charts/clusterdns/dashboards";

/// An expression, and a text that shows labels of its result.
struct Shown {
    place: String,
    expression: String,
    text: String,
}

/// An operator that did everything that it counts, once.
pub(super) fn operator_page() -> String {
    let metrics = operator::runtime::metrics::Metrics::default();
    metrics.reconciled("applied", Duration::from_millis(20));
    metrics.wrote("Service", "applied");
    metrics.watch_failed();
    metrics.cached((1, 1));
    metrics.not_kept("services");
    metrics.pod_lost();
    metrics.leads(true);
    let mut dns = crds::ClusterDNS::default();
    dns.metadata.name = Some("a".to_owned());
    let condition = |kind: &&str| {
        json!({"type": kind, "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions: Vec<Value> = CONDITIONS.iter().map(condition).collect();
    let status = serde_json::from_value(json!({"conditions": conditions}));
    metrics.reported(&dns, &status.expect("a status"));
    String::from_utf8(metrics.page(Form::Text)).expect("text")
}

/// Every row of both programs.
fn rows() -> Vec<Sample> {
    let plane = asked();
    expect_upstream_failure(&plane);
    let mut rows = samples(&plane.metrics(Form::Text));
    rows.extend(samples(&operator_page()));
    // It has no resolv.conf, so its group of upstreams has no server.
    let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
        "metadata": {"name": "a"}, "spec": {}});
    rows.extend(samples(&Plane::start(&[dns]).expect("it starts").metrics(Form::Text)));
    // Only a pod with a listener, or with a folder for snapshots, shows these: tests of the program see them there.
    let of_more = super::documented(&["## Ours"]).into_iter().filter(|family| {
        ["clusterdns_certificate_", "clusterdns_snapshot_"]
            .iter()
            .any(|prefix| family.name.starts_with(prefix))
    });
    rows.extend(of_more.map(|family| Sample {
        name: family.name,
        labels: family.labels.into_iter().map(|label| (label, String::new())).collect(),
    }));
    // Prometheus writes it itself.
    rows.push(Sample { name: "up".to_owned(), labels: BTreeMap::new() });
    rows.push(Sample { name: OF_A_LIMIT.to_owned(), labels: BTreeMap::new() });
    rows
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn of_alerts() -> Vec<Shown> {
    let shown = rules().into_iter().map(|rule| {
        let annotations = rule["annotations"].as_object().expect("annotations").values();
        let texts: Vec<&str> = annotations.map(text).collect();
        Shown {
            place: text(&rule["alert"]).to_owned(),
            expression: text(&rule["expr"]).to_owned(),
            text: texts.join("\n").replace("$labels.", "").replace("{{ $value }}", ""),
        }
    });
    shown.collect()
}

/// The dashboards with their names, as the chart installs them.
fn dashboards() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(root().join(DASHBOARDS)).expect("dashboards");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
    let mut all: Vec<(String, Value)> = names
        .map(|name| {
            let text = read(&format!("{DASHBOARDS}/{name}"));
            (name, serde_json::from_str(&text).expect("JSON"))
        })
        .collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn of_dashboards() -> Vec<Shown> {
    let mut all = Vec::new();
    for (name, document) in dashboards() {
        for panel in list(&document["panels"]) {
            for target in list(&panel["targets"]) {
                all.push(Shown {
                    place: format!("{name}, {}", panel["title"]),
                    expression: text(&target["expr"]).to_owned(),
                    text: text(&target["legendFormat"]).to_owned(),
                });
            }
        }
        for variable in list(&document["templating"]["list"]) {
            // label_values(METRIC, LABEL)
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let inner = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
            let (expression, label) = inner.and_then(|it| it.split_once(", ")).expect("both");
            all.push(Shown {
                place: format!("{name}, variable {}", variable["name"]),
                expression: expression.to_owned(),
                text: format!("{{{{{label}}}}}"),
            });
        }
    }
    all
}

/// The names between `{{` and `}}`.
fn placeholders(text: &str) -> BTreeSet<&str> {
    let parts = text.split("{{").skip(1);
    parts.filter_map(|part| part.split("}}").next()).map(str::trim).collect()
}

/// The rows that a selector finds; labels of the target and variables of Grafana are not compared.
fn found<'r>(rows: &'r [Sample], selector: &Selector) -> Vec<&'r Sample> {
    let is_compared =
        |label: &str, value: &str| !TARGET.contains(&label) && !value.starts_with('$');
    let is_found = |row: &&Sample| {
        row.name == selector.name
            && selector.matchers.iter().all(|matcher| {
                let value = row.labels.get(&matcher.label);
                !is_compared(&matcher.label, &matcher.value)
                    || value.is_some_and(|value| matcher.passes(value))
            })
    };
    rows.iter().filter(is_found).collect()
}

/// What is wrong with the labels of one expression and of what is shown of it.
fn complaints(shown: &Shown, rows: &[Sample]) -> Vec<String> {
    let expression = Expression::parse(&shown.expression).expect("an expression");
    let mut complaints = Vec::new();
    let labels = |selector: &Selector| {
        let of_rows = found(rows, selector).into_iter().flat_map(|row| row.labels.keys().cloned());
        of_rows.chain(TARGET.map(str::to_owned)).collect::<BTreeSet<String>>()
    };
    for selector in expression.selectors() {
        if found(rows, selector).is_empty() {
            complaints.push(format!("no page has a row for {selector:?}"));
        }
        let there = labels(selector);
        let unknown = selector.matchers.iter().filter(|it| !there.contains(&it.label));
        complaints.extend(unknown.map(|it| format!("{} has no label {}", selector.name, it.label)));
        for alternative in selector.matchers.iter().filter(|it| it.operator == "=~") {
            for value in alternative.value.split('|').filter(|value| !value.starts_with('$')) {
                let one = tests::promql::Matcher { value: value.to_owned(), ..alternative.clone() };
                let one = Selector { name: selector.name.clone(), matchers: vec![one] };
                if found(rows, &one).is_empty() {
                    complaints.push(format!("no page has a row for {one:?}"));
                }
            }
        }
    }
    let mut missing = Vec::new();
    let left = expression.labels(&labels, &mut |label| missing.push(label.to_owned()));
    complaints.extend(missing.iter().map(|label| format!("nothing has the label {label} to keep")));
    let unknown = placeholders(&shown.text).into_iter().filter(|label| !left.contains(*label));
    complaints.extend(unknown.map(|label| format!("the result has no label {label} to show")));
    complaints
}

/// All complaints, with their places.
fn all_complaints(of: &[Shown]) -> Vec<String> {
    let rows = rows();
    let complain = |shown: &Shown| {
        let place = format!("{}: {}", shown.place, shown.expression);
        complaints(shown, &rows).into_iter().map(move |it| format!("{place}\n  {it}")).collect()
    };
    of.iter().flat_map(|shown| -> Vec<String> { complain(shown) }).collect()
}

#[test]
fn alerts_name_labels_that_the_pages_have() {
    let alerts = of_alerts();
    assert!(alerts.len() > 15, "{}", alerts.len());
    let complaints = all_complaints(&alerts);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn dashboards_name_labels_that_the_pages_have() {
    let dashboards = of_dashboards();
    assert!(dashboards.len() > 50, "{}", dashboards.len());
    let complaints = all_complaints(&dashboards);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Each kind of mistake is found: the tests above would pass over an empty set otherwise.
#[test]
fn a_label_that_nothing_has_is_found_wherever_it_stands() {
    let rows = rows();
    let said = |expression: &str, text: &str| {
        let shown = Shown {
            place: String::new(),
            expression: expression.to_owned(),
            text: text.to_owned(),
        };
        complaints(&shown, &rows).join("\n")
    };
    let good = "sum by (origin) (rate(clusterdns_replies_total{job=\"x\",rcode=\"SERVFAIL\"}[5m]))";
    assert_eq!(said(good, "{{ origin }}"), "");
    for (expression, text, says) in [
        (good.replace("rcode", "code"), "", "no label code"),
        (good.replace("SERVFAIL", "Servfail"), "", "no page has a row"),
        (good.replace("replies_total", "replies"), "", "no page has a row"),
        (good.replace("by (origin)", "by (source)"), "", "the label source to keep"),
        (good.to_owned(), "{{ rcode }}", "no label rcode to show"),
        ("clusterdns_cache_lookups_total{outcome=~\"hit|hits\"}".to_owned(), "", "\"hits\""),
    ] {
        let found = said(&expression, text);
        assert!(found.contains(says), "{expression}: {found}");
    }
}

/// Series that differ by the pod alone have one name otherwise.
#[test]
fn series_of_several_pods_have_the_pod_in_their_legend() {
    for (name, document) in dashboards() {
        let mut variables = list(&document["templating"]["list"]).iter();
        let is_of_one_pod = variables.any(|it| it["name"] == "pod" && it["multi"] == false);
        for panel in list(&document["panels"]) {
            for target in list(&panel["targets"]) {
                let expression = Expression::parse(text(&target["expr"])).expect("an expression");
                let of_target = |_: &Selector| TARGET.map(str::to_owned).into();
                let left = expression.labels(&of_target, &mut |_| {});
                let shown = placeholders(text(&target["legendFormat"]));
                let is_named = is_of_one_pod || !left.contains("pod") || shown.contains("pod");
                assert!(is_named, "{name}, {}: {}", panel["title"], target["expr"]);
            }
        }
    }
}

/// The names `up` and `process_*` are those of every program of a cluster.
#[test]
fn all_in_a_dashboard_means_all_that_is_ours() {
    for (name, document) in dashboards() {
        for variable in list(&document["templating"]["list"]) {
            // Without a value for it, Grafana puts together the values that the variable found.
            assert!(variable["allValue"].is_null(), "{name}: {variable}");
        }
        for panel in list(&document["panels"]) {
            for target in list(&panel["targets"]) {
                let expression = Expression::parse(text(&target["expr"])).expect("an expression");
                for selector in expression.selectors() {
                    let is_ours = selector.name.starts_with("clusterdns_");
                    let is_chosen = selector.matchers.iter().any(|it| it.value.starts_with('$'));
                    assert!(is_ours || is_chosen, "{name}: {selector:?}");
                }
            }
        }
    }
}
