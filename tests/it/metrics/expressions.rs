//! Expressions of Prometheus find their series. Names are compared with a real page always; where promtool is built, the
//! engine of Prometheus evaluates each expression over series with the names and labels of that page.

use std::collections::BTreeSet;
use std::fmt::Write;

use dataplane::metrics::Form;
use tests::exposition::{Sample, samples};
use tests::scratch::Scratch;

use super::labels::operator_page;
use super::promtool::promtool;
use crate::architecture::read;

/// The counter of which autoscalers get the rate.
const QUERIES: &str = "clusterdns_queries_total";

/// The labels that Prometheus gives to what it scrapes.
const TARGET: &str =
    r#"job="kube-dns",instance="10.244.0.9:9153",pod="clusterdns-a",namespace="kube-system""#;

/// The metrics that an expression names, of those that programs of ours could show.
pub(crate) fn metrics_of(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = ["clusterdns_", "coredns_", "process_"];
    words.filter(|word| ours.iter().any(|prefix| word.starts_with(prefix))).collect()
}

/// Whether the page on metrics, which other tests compare with what is shown, has this metric or this part of a histogram.
pub(crate) fn is_shown(metric: &str) -> bool {
    let headings = ["## Ours", "## The process", "## CoreDNS", "## The operator"];
    super::documented(&headings).iter().any(|family| {
        let is_part = ["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| metric.strip_suffix(end) == Some(family.name.as_str()));
        metric == family.name || (family.kind == "histogram" && is_part)
    })
}

/// The begin of a test of rules for promtool.
const BEGIN: &str = "evaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n";

/// The series that Prometheus makes of rows of a target, with these values.
fn series(rows: &[Sample], target: &str, values: &str) -> String {
    let mut text = String::new();
    for row in rows {
        let labels: Vec<String> =
            row.labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let labels = [labels.join(","), target.to_owned()];
        let labels: Vec<&str> =
            labels.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  - {{series: '{}{{{}}}', values: '{values}'}}",
            row.name,
            labels.join(",")
        );
    }
    text
}

/// A test of rules for promtool: every expression gives a series.
fn rule_test(rows: &[Sample], expressions: &[&str]) -> String {
    let mut text = String::from(BEGIN);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  - {{series: 'up{{{TARGET}}}', values: '1+0x20'}}");
    text.push_str(&series(rows, TARGET, "1+1x20"));
    text.push_str("  promql_expr_test:\n");
    for expression in expressions {
        let _ = writeln!(
            text,
            "  - expr: 'count({expression}) > bool 0'\n    eval_time: 15m\n    exp_samples: [{{labels: '{{}}', value: 1}}]"
        );
    }
    text
}

/// Fails where an expression names no series of the page.
pub(super) fn evaluate(page: &str, expressions: &[&str]) {
    let rows = samples(page);
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    for expression in expressions {
        for metric in metrics_of(expression) {
            assert!(names.contains(metric), "{expression}: nothing shows {metric}");
        }
    }
    let folder = Scratch::new("expressions").unwrap();
    folder.write("test.yaml", rule_test(&rows, expressions)).unwrap();
    let Some(result) = promtool(folder.path(), &["test", "rules", "test.yaml"], "") else { return };
    result.unwrap_or_else(|complaint| panic!("{complaint}"));
}

#[test]
fn what_people_ask_of_coredns_finds_its_series() {
    let plane = super::asked();
    let expressions: Vec<&str> = include_str!("coredns.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').expect("a source and an expression").1)
        .collect();
    assert!(expressions.len() > 50, "{}", expressions.len());
    super::expect_upstream_failure(&plane);
    evaluate(&plane.metrics(Form::Text), &expressions);
}

/// kube-prometheus-stack scrapes all pods with the label of kube-dns, and our PodMonitor scrapes them too. An autoscaler that
/// read the sum of both would want twice the pods.
#[test]
fn what_autoscalers_read_is_the_same_where_two_jobs_scrape_a_pod() {
    let page = read("docs/metrics.md");
    let (_, query) = page.split_once("metricsQuery: '").expect("a rule");
    // As prometheus-adapter writes it for the pods of a HorizontalPodAutoscaler.
    let query = query.split('\'').next().expect("its end").replace("<<.Series>>", QUERIES);
    let query = query.replace("<<.LabelMatchers>>", r#"namespace="kube-system",pod=~"a|b""#);
    let query = query.replace("<<.GroupBy>>", "pod");
    assert!(!query.contains("<<"), "{query}");
    let page = super::asked().metrics(Form::Text);
    let rows: Vec<Sample> = samples(&page).into_iter().filter(|it| it.name == QUERIES).collect();
    assert!(rows.len() > 2, "{}", rows.len());

    let folder = Scratch::new("two-jobs").unwrap();
    for jobs in [&["coredns"][..], &["coredns", "kube-system/clusterdns-default"]] {
        let mut text = String::from(BEGIN);
        for (pod, job) in
            ["a", "b"].into_iter().flat_map(|pod| jobs.iter().map(move |it| (pod, it)))
        {
            let target =
                format!(r#"job="{job}",endpoint="of {job}",pod="{pod}",namespace="kube-system""#);
            // Each row counts one query a second.
            text.push_str(&series(&rows, &target, "1+60x20"));
        }
        let of_pod = |pod: &str| format!("{{labels: '{{pod=\"{pod}\"}}', value: {}}}", rows.len());
        let _ = writeln!(
            text,
            "  promql_expr_test:\n  - expr: 'round({query})'\n    eval_time: 15m\n    exp_samples: [{}, {}]",
            of_pod("a"),
            of_pod("b")
        );
        folder.write("test.yaml", text).unwrap();
        let Some(result) = promtool(folder.path(), &["test", "rules", "test.yaml"], "") else {
            return;
        };
        result.unwrap_or_else(|complaint| panic!("{jobs:?}: {complaint}"));
    }
}

/// What dashboards of CoreDNS use of Go: the metrics of coredns-mixin, of kube-prometheus and of the usual Go dashboards.
const OF_GO: [&str; 22] = [
    "go_goroutines",
    "go_threads",
    "go_info",
    "go_gc_duration_seconds",
    "go_gc_gogc_percent",
    "go_gc_gomemlimit_bytes",
    "go_sched_gomaxprocs_threads",
    "go_memstats_alloc_bytes",
    "go_memstats_alloc_bytes_total",
    "go_memstats_frees_total",
    "go_memstats_gc_cpu_fraction",
    "go_memstats_heap_alloc_bytes",
    "go_memstats_heap_idle_bytes",
    "go_memstats_heap_inuse_bytes",
    "go_memstats_heap_objects",
    "go_memstats_heap_released_bytes",
    "go_memstats_heap_sys_bytes",
    "go_memstats_last_gc_time_seconds",
    "go_memstats_mallocs_total",
    "go_memstats_next_gc_bytes",
    "go_memstats_stack_inuse_bytes",
    "go_memstats_sys_bytes",
];

#[test]
fn each_metric_of_go_has_on_the_page_what_to_use_in_its_place() {
    let page = include_str!("../../../docs/metrics.md");
    let table = page.split("## In place of the metrics of Go").nth(1);
    let table = table.and_then(|rest| rest.split("\n## ").next()).expect("the section");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    for metric in OF_GO {
        let names = |row: &&&str| {
            let cell = row.split('|').nth(1).unwrap_or_default();
            cell.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == metric)
        };
        assert_eq!(rows.iter().filter(names).count(), 1, "{metric}");
    }
    // The expressions of the page are those that Prometheus is asked.
    for line in include_str!("coredns.txt").lines() {
        let Some(expression) = line.strip_prefix("in-place-of-go ") else { continue };
        assert!(table.contains(&format!("`{expression}`")), "{expression}");
    }
}

#[test]
fn each_name_of_coredns_before_1_7_has_todays_name_on_the_page() {
    let page = include_str!("../../../docs/metrics.md");
    let table = page.split("## Names of CoreDNS before 1.7").nth(1);
    let table = table.and_then(|rest| rest.split("\n## ").next()).expect("the section");
    let shown = super::asked().metrics(Form::Text);
    let is_shown = |name: &str| shown.contains(&format!("# TYPE {name} "));
    let names = |cell: &str| -> Vec<String> {
        let quoted = cell.split('`').skip(1).step_by(2).filter(|text| text.contains('_'));
        quoted.map(|text| text.split('{').next().unwrap_or_default().to_owned()).collect()
    };
    let mut renamed = 0;
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').collect();
        let (old, new) = (names(cells[1]), names(cells[2]));
        assert!(!old.is_empty() && (!new.is_empty() || cells[2].starts_with(" none: ")), "{row}");
        for name in &old {
            assert!(!is_shown(name), "{name} is shown");
        }
        for name in &new {
            assert!(is_shown(name), "{name} is not shown");
        }
        renamed += new.len();
    }
    assert!(renamed > 15, "{renamed}");
}

#[test]
fn promtool_finds_nothing_to_complain_about_in_the_pages() {
    let plane = super::asked();
    let pages = [("data plane", plane.metrics(Form::Text)), ("operator", operator_page())];
    for (program, page) in pages {
        let folder = Scratch::new("page").unwrap();
        let Some(result) = promtool(folder.path(), &["check", "metrics"], &page) else { return };
        // Names of CoreDNS and of the process are as they are.
        let is_ours = |line: &&str| line.starts_with("clusterdns_") || line.starts_with("error");
        let complaints = match &result {
            Ok(_) => Vec::new(),
            Err(complaints) => complaints.lines().filter(is_ours).collect::<Vec<_>>(),
        };
        assert!(complaints.is_empty(), "{program}: {complaints:#?}");
    }
}
