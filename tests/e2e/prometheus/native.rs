//! Native histograms: a Prometheus that asks for them gets them, and they say what the classic ones say.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::data_plane::DataPlane;
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream};

use super::{Job, Prometheus, ROUNDS, UPSTREAM, ask, manifests, until};

/// Scrapes native histograms and classic ones.
pub(super) const NATIVE: &str =
    "scrape_native_histograms: true, always_scrape_classic_histograms: true";
/// Some that have native buckets, and the lowest bound of their classic ones.
const HISTOGRAMS: [(&str, f64); 4] = [
    ("clusterdns_query_duration_seconds", 0.000_001),
    ("clusterdns_upstream_latency_seconds", 0.000_001),
    ("coredns_dns_request_duration_seconds", 0.000_25),
    ("coredns_proxy_request_duration_seconds", 0.000_25),
];
/// All that a data plane shows.
const OURS: &str = r#"__name__=~"(clusterdns|coredns|process)_.+""#;
/// How far the median of one kind of buckets may be from that of the other: a classic bucket ends at twice its
/// beginning, and the native one in which a classic bound lies ends 9 % behind it.
const MOST: f64 = 2.2;

#[test]
fn native_histograms_are_scraped_where_asked_for_and_agree_with_classic_ones() {
    let upstream = ScriptedUpstream::start(Script::one(UPSTREAM).unwrap()).unwrap();
    let folder = Scratch::new("prometheus-manifests").unwrap();
    folder.write("objects.yaml", manifests(upstream.address())).unwrap();
    let planes = [DataPlane::of_manifests(folder.path())];
    let targets = || planes.iter().map(DataPlane::http).collect();
    let jobs = [Job { more: NATIVE, ..Job::new("native", targets()) }, Job::new("text", targets())];
    let Some(prometheus) = Prometheus::start(&jobs) else { return };
    let heard = ask(&planes);
    let all: f64 = heard.values().sum();
    for job in ["native", "text"] {
        prometheus
            .expect(&format!("sum(clusterdns_query_duration_seconds_count{{job=\"{job}\"}})"), all);
    }
    let own = "transport=\"udp\",origin=\"own\"";
    let count =
        format!("histogram_count(clusterdns_query_duration_seconds{{job=\"native\",{own}}})");
    prometheus.expect(&count, (ROUNDS * 3) as f64);

    for (name, lowest) in HISTOGRAMS {
        // Of the same scrape, so count and sum are the same numbers.
        for part in ["count", "sum"] {
            let classic = format!("{name}_{part}{{job=\"native\"}}");
            let native = format!("histogram_{part}({name}{{job=\"native\"}})");
            prometheus
                .expect(&format!("count({native} == {classic}) == bool count({classic})"), 1.0);
        }
        // Below its lowest bound a classic histogram guesses. From one half on, Prometheus counts the buckets of a native
        // histogram from above: of two samples it would take the larger one, and the smaller one of a classic histogram.
        let quantile = |of: String| format!("clamp_min(histogram_quantile(0.45, {of}), {lowest})");
        let classic = quantile(format!("sum by (le) ({name}_bucket{{job=\"native\"}})"));
        let native = quantile(format!("sum({name}{{job=\"native\"}})"));
        // One expression, so that both are of the same scrape.
        let expression = format!("{native} / {classic}");
        let ratio = until(&expression, || prometheus.query(&expression))[0].1;
        assert!(ratio > 1.0 / MOST && ratio < MOST, "{name}: {ratio}");
    }
    prometheus.expect("count(histogram_count({job=\"text\"})) or vector(0)", 0.0);

    // The same series in both forms, besides the native ones.
    let names = |job: &str| format!("count by (__name__) ({{job=\"{job}\",{OURS}}})");
    let (native, text) = (names("native"), names("text"));
    // A scrape that took too long leaves nothing until the next one: these are asked until they are so.
    for difference in ["!=", "unless"] {
        let expression = format!("{text} {difference} on (__name__) {native}");
        prometheus.expect(&format!("count({expression}) or vector(0)"), 0.0);
    }
    let more = format!("{native} unless on (__name__) {text}");
    let name = |labels: &Value| labels["__name__"].as_str().unwrap_or_default().to_owned();
    let more = until(&more, || {
        let rows = prometheus.query(&more)?;
        let names: BTreeSet<String> = rows.iter().map(|(labels, _)| name(labels)).collect();
        HISTOGRAMS.iter().all(|(name, _)| names.contains(*name)).then_some(names)
    });
    assert!(more.iter().all(|name| name.ends_with("_seconds")), "{more:?}");
}
