//! Metrics: events are counted in the right series, the page of docs lists every metric, and queries that people use with
//! CoreDNS find their series.

mod expressions;
mod alerts;
mod promtool;
mod labels;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dataplane::forward::connection_failures;
use dataplane::metrics::Form;
use dataplane::serve::CloseReason;
use dataplane_core::Reason;
use tests::client::{Question, Transport};
use tests::exposition::{Family, families, samples};
use tests::scenario::{Plane, objects_of};

use crate::architecture::{quoted, read, table};
pub(crate) use expressions::{is_shown, metrics_of};

/// Generous: only a test that fails takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A data plane that was asked for names of its own and of upstreams, twice, over UDP and TCP.
fn asked() -> Plane {
    let plane = Plane::start(&objects_of("stub-domains").unwrap()).unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        for name in ["wiki.corp.example", "nothere.corp.example", "no.svc.cluster.local"] {
            for _ in 0..2 {
                ask(&plane, &format!("{name}. A"), transport);
            }
        }
    }
    ask(&plane, "slow.corp.example. AAAA", Transport::Udp);
    ask(&plane, "bad.example.net. TXT", Transport::Udp);
    plane
}

/// A metric of another API, so no page of ours shows it, and a rule that a person writes makes it.
#[test]
fn the_metric_that_autoscalers_ask_for_is_on_the_page_with_the_rule_that_makes_it() {
    let page = read("docs/metrics.md");
    let (_, part) = page.split_once("\n## Scaling by queries\n").expect("the part");
    let name = operator::desired::QUERIES_PER_SECOND;
    assert!(part.contains(&format!("as: {name}}}")), "{part}");
    let (_, series) = part.split_once("seriesQuery: '").expect("a rule");
    let series: String =
        series.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
    assert!(is_shown(&series), "{series}");
    for path in ["crds/clusterdns.yaml", "crds/examples/load-scaled.yaml"] {
        assert!(read(path).contains(name), "{path}");
    }
}

/// Waits until the SERVFAIL of an upstream is counted.
fn expect_upstream_failure(plane: &Plane) {
    let to = plane.twin_of("10.0.0.2".parse().unwrap()).unwrap();
    expect(plane, &format!("coredns_forward_responses_total{{to=\"{to}\",rcode=\"SERVFAIL\"}} 1"));
}

fn ask(plane: &Plane, question: &str, transport: Transport) {
    let question = Question::parse(question).unwrap();
    let reply = plane.ask(&question.packet, transport, false).unwrap().reply;
    assert!(reply.is_some());
}

/// Waits until the page has this line: what is counted after a reply was sent may come after the reply.
fn expect(plane: &Plane, line: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        let page = plane.metrics(Form::Text);
        if page.lines().any(|found| found == line) {
            return;
        }
        let name = line.split('{').next().unwrap();
        let near: Vec<&str> = page.lines().filter(|found| found.starts_with(name)).collect();
        assert!(Instant::now() < until, "no line\n{line}\nbut\n{}", near.join("\n"));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn each_query_is_counted_by_transport_type_origin_and_response_code() {
    let plane = asked();
    for (series, value) in [
        ("clusterdns_questions_total{transport=\"udp\",family=\"ipv4\",type=\"A\"}", 6),
        ("clusterdns_questions_total{transport=\"udp\",family=\"ipv4\",type=\"AAAA\"}", 1),
        ("clusterdns_questions_total{transport=\"tcp\",family=\"ipv4\",type=\"A\"}", 6),
        ("clusterdns_replies_total{transport=\"udp\",origin=\"own\",rcode=\"NXDOMAIN\"}", 2),
        ("clusterdns_replies_total{transport=\"udp\",origin=\"upstream\",rcode=\"NOERROR\"}", 1),
        ("clusterdns_replies_total{transport=\"udp\",origin=\"upstream\",rcode=\"NXDOMAIN\"}", 1),
        ("clusterdns_replies_total{transport=\"udp\",origin=\"cache\",rcode=\"NXDOMAIN\"}", 1),
        ("clusterdns_replies_total{transport=\"udp\",origin=\"failed\",rcode=\"SERVFAIL\"}", 2),
        ("clusterdns_replies_total{transport=\"tcp\",origin=\"cache\",rcode=\"NOERROR\"}", 2),
        ("clusterdns_query_duration_seconds_count{transport=\"udp\",origin=\"own\"}", 2),
        ("clusterdns_query_duration_seconds_count{transport=\"udp\",origin=\"upstream\"}", 2),
        ("clusterdns_query_duration_seconds_count{transport=\"tcp\",origin=\"own\"}", 2),
        ("clusterdns_query_size_bytes_count{transport=\"udp\"}", 8),
        ("clusterdns_reply_size_bytes_count{transport=\"udp\"}", 8),
        ("clusterdns_reply_size_bytes_count{transport=\"tcp\"}", 6),
    ] {
        expect(&plane, &format!("{series} {value}"));
    }
}

#[test]
fn the_same_queries_are_counted_under_the_names_of_coredns() {
    let plane = asked();
    let server = "server=\"dns://:53\",zone=\".\",view=\"\"";
    let cache = "server=\"dns://:53\",zones=\".\",view=\"\"";
    let to = plane.twin_of("10.20.0.53".parse().unwrap()).unwrap();
    for (series, value) in [
        (
            format!("coredns_dns_requests_total{{{server},proto=\"udp\",family=\"1\",type=\"A\"}}"),
            6,
        ),
        (
            format!(
                "coredns_dns_responses_total{{{server},rcode=\"NXDOMAIN\",plugin=\"kubernetes\"}}"
            ),
            4,
        ),
        (
            format!(
                "coredns_dns_responses_total{{{server},rcode=\"NXDOMAIN\",plugin=\"forward\"}}"
            ),
            1,
        ),
        (
            format!(
                "coredns_dns_responses_total{{{server},rcode=\"SERVFAIL\",plugin=\"forward\"}}"
            ),
            2,
        ),
        (format!("coredns_dns_responses_total{{{server},rcode=\"NOERROR\",plugin=\"cache\"}}"), 3),
        (format!("coredns_dns_request_duration_seconds_count{{{server}}}"), 14),
        (format!("coredns_dns_request_size_bytes_count{{{server},proto=\"tcp\"}}"), 6),
        (format!("coredns_cache_requests_total{{{cache}}}"), 10),
        (format!("coredns_cache_misses_total{{{cache}}}"), 4),
        (
            "coredns_cache_hits_total{server=\"dns://:53\",type=\"success\",zones=\".\",view=\"\"}"
                .to_owned(),
            3,
        ),
        (
            "coredns_cache_hits_total{server=\"dns://:53\",type=\"denial\",zones=\".\",view=\"\"}"
                .to_owned(),
            3,
        ),
        (
            "coredns_cache_entries{server=\"dns://:53\",type=\"success\",zones=\".\",view=\"\"}"
                .to_owned(),
            1,
        ),
        (format!("coredns_forward_responses_total{{to=\"{to}\",rcode=\"NXDOMAIN\"}}"), 1),
        (
            format!(
                "coredns_proxy_request_duration_seconds_count{{proxy_name=\"forward\",to=\"{to}\",rcode=\"NOERROR\"}}"
            ),
            1,
        ),
    ] {
        let value = if series.starts_with("coredns_cache_entries") {
            format!("{value}.0")
        } else {
            value.to_string()
        };
        expect(&plane, &format!("{series} {value}"));
    }
}

/// Shown only where the process has a memory limit, which these tests need not have.
const OF_A_LIMIT: &str = "process_memory_limit_bytes";

/// The rows of the tables below these headings of the page.
fn documented(headings: &[&str]) -> BTreeSet<Family> {
    let rows = headings.iter().flat_map(|heading| table("docs/metrics.md", heading));
    let rows = rows.map(|row| Family {
        name: quoted(&row[0])[0].to_owned(),
        kind: row[1].clone(),
        labels: quoted(&row[2]).into_iter().map(str::to_owned).collect(),
    });
    rows.collect()
}

fn compare(shown: &BTreeSet<Family>, documented: &BTreeSet<Family>) {
    let names = |of: &BTreeSet<Family>| -> BTreeSet<String> {
        let names = of.iter().map(|family| family.name.clone());
        names.filter(|name| name != OF_A_LIMIT).collect()
    };
    assert_eq!(names(shown), names(documented), "docs/metrics.md names what is shown");
    for family in shown {
        let row = documented.iter().find(|row| row.name == family.name).unwrap();
        assert_eq!(row.kind, family.kind, "{}", family.name);
        // A metric without a row on the page cannot be compared.
        if !family.labels.is_empty() {
            assert_eq!(row.labels, family.labels, "{}", family.name);
        }
    }
}

#[test]
fn the_page_on_metrics_says_what_a_data_plane_shows() {
    let plane = asked();
    let page = plane.metrics(Form::Text);
    let mut documented = documented(&["## Ours", "## The process", "## CoreDNS"]);
    // These are shown only with a folder for snapshots.
    documented.retain(|row| !row.name.starts_with("clusterdns_snapshot_"));
    compare(&families(&page), &documented);
    let text = |value: f64| format!("{value}");
    assert!(page.contains(&format!("le=\"{}\"", text(0.000_25))), "a bound of CoreDNS");
}

/// The values that the code has for some labels, which the page explains in tables of their own.
#[test]
fn the_page_on_metrics_explains_each_reason() {
    for (heading, mut labels) in [
        ("### Reasons of queries", Reason::ALL.map(Reason::label).to_vec()),
        ("### Reasons of closed connections", CloseReason::ALL.map(CloseReason::label).to_vec()),
        ("### Reasons of failed connections", connection_failures().to_vec()),
    ] {
        let rows = table("docs/metrics.md", heading);
        let mut explained: Vec<&str> = rows.iter().map(|row| quoted(&row[0])[0]).collect();
        explained.sort_unstable();
        labels.sort_unstable();
        assert_eq!(explained, labels, "{heading}");
    }
}

/// Labels whose values are the code's own.
const CLOSED: [&str; 9] =
    ["reason", "outcome", "limit", "state", "source", "code", "kind", "origin", "rcode"];

#[test]
fn the_page_on_metrics_names_each_value_of_a_label() {
    let text = read("docs/metrics.md");
    let introduction =
        text.split("## Ours\n").nth(1).and_then(|it| it.split("\n|").next()).unwrap();
    let rows = table("docs/metrics.md", "## Ours");
    let mut compared = 0;
    for sample in samples(&asked().metrics(Form::Text)) {
        let Some(place) = rows.iter().position(|row| quoted(&row[0])[0] == sample.name) else {
            continue;
        };
        let row = &rows[place][3];
        // One that has a table of its own, and one that has the values of the metric before.
        let has_table = row.contains("(#reasons-of-");
        let row = if row.contains("with the same values") { &rows[place - 1][3] } else { row };
        let labels = sample.labels.iter().filter(|(key, _)| CLOSED.contains(&key.as_str()));
        for (key, value) in labels.filter(|_| !has_table) {
            let is_named = [row, introduction].into_iter().any(|it| quoted(it).contains(&&**value));
            assert!(is_named, "{} does not name {key} {value}", sample.name);
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared}");
}

#[test]
fn the_page_on_metrics_says_what_is_shown_under_the_names_of_kube_dns() {
    let mut objects = objects_of("stub-domains").unwrap();
    for object in objects.iter_mut().filter(|object| object["kind"] == "ClusterDNS") {
        object["spec"]["metrics"] = serde_json::json!({"compatibility": ["KubeDNS"]});
    }
    let plane = Plane::start(&objects).unwrap();
    for name in ["wiki.corp.example", "wiki.corp.example", "no.svc.cluster.local"] {
        ask(&plane, &format!("{name}. A"), Transport::Udp);
    }
    for (series, value) in [
        ("skydns_skydns_dns_request_count_total{system=\"auth\"}", "1"),
        ("skydns_skydns_dns_request_count_total{system=\"cache\"}", "1"),
        ("skydns_skydns_dns_request_count_total{system=\"recursive\"}", "1"),
        ("skydns_skydns_dns_error_count_total{system=\"auth\",cause=\"nxdomain\"}", "1"),
        ("skydns_skydns_dns_cachemiss_count_total{cache=\"response\"}", "1"),
        ("kubedns_dnsmasq_hits", "2.0"),
        ("kubedns_dnsmasq_misses", "1.0"),
        ("kubedns_dnsmasq_insertions", "1.0"),
    ] {
        expect(&plane, &format!("{series} {value}"));
    }
    let mut shown = families(&plane.metrics(Form::Text));
    shown
        .retain(|family| family.name.starts_with("skydns_") || family.name.starts_with("kubedns_"));
    compare(&shown, &documented(&["## kube-dns"]));
}

#[test]
fn the_page_on_metrics_says_what_the_operator_shows() {
    let page = labels::operator_page();
    compare(&families(&page), &documented(&["## The operator", "## The process"]));
}

#[test]
fn o18_metrics_have_the_names_that_the_configuration_asks_for() {
    let with = |metrics: &str| {
        let dns = serde_json::json!({
            "apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "a"},
            "spec": serde_saphyr::from_str::<serde_json::Value>(metrics).unwrap(),
        });
        Plane::start(&[dns]).unwrap().metrics(Form::OpenMetrics)
    };
    for (spec, is_shown) in [
        ("{}", true),
        ("{metrics: {podMonitor: false}}", true),
        ("{metrics: {compatibility: [CoreDNS]}}", true),
        ("{metrics: {compatibility: [CoreDNS, KubeDNS]}}", true),
        ("{metrics: {compatibility: [KubeDNS]}}", false),
        ("{metrics: {compatibility: []}}", false),
    ] {
        let page = with(spec);
        assert_eq!(page.contains("coredns_dns_requests"), is_shown, "{spec}");
        assert!(page.contains("clusterdns_questions_total{"), "{spec}");
        assert_eq!(page.contains("kubedns_dnsmasq_hits"), spec.contains("KubeDNS"), "{spec}");
        assert!(page.ends_with("# EOF\n"), "{spec}");
    }
}
