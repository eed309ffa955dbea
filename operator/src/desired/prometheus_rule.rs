//! Alerts, where the kind exists: the usual ones for cluster DNS, over our own metrics. Each has a page in
//! docs/runbooks, and a test that sees it fire and resolve (`tests/it/metrics/alerts.yaml`).

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::instance::Instance;
use super::pod_monitor::monitored;
use super::with_data;

/// One alert; `{job}` in the expression is replaced by the label that the PodMonitor gives.
struct Alert {
    name: &'static str,
    severity: &'static str,
    expression: &'static str,
    minutes: u32,
    summary: &'static str,
    description: &'static str,
}

const ALERTS: [Alert; 25] = [
    Alert {
        name: "ClusterDNSDown",
        severity: "critical",
        // Prometheus scrapes pods that are not ready too. Pods of an older image do not say whether they are ready: of these one
        // that is scraped is enough, else an upgrade would fire.
        expression: "absent(clusterdns_is_ready{{job}} == 1 or (up{{job}} == 1 unless on (pod) clusterdns_is_ready{{job}}))",
        minutes: 5,
        summary: "No DNS pod is ready, or none is scraped.",
        description: "For 5 minutes Prometheus has seen no DNS pod that is ready: clients have no DNS, or Prometheus does not reach the pods.",
    },
    Alert {
        name: "ClusterDNSRestarting",
        severity: "warning",
        // A pod that starts again is ready within seconds, so no alert on readiness sees it. The time of its start would count
        // corrected clocks too.
        expression: "sum by (pod) (resets(process_cpu_seconds_total{{job}}[1h])) > 2",
        minutes: 0,
        summary: "A DNS pod restarts again and again.",
        description: "{{ $labels.pod }} has restarted at least three times within an hour: kubectl describe pod shows why its container ended last.",
    },
    Alert {
        name: "ClusterDNSErrorsHigh",
        severity: "critical",
        expression: "sum(rate(clusterdns_replies_total{{job}rcode=\"SERVFAIL\"}[5m])) / sum(rate(clusterdns_replies_total{{job}}[5m])) > 0.03",
        minutes: 10,
        summary: "More than 3 % of queries are answered SERVFAIL.",
        description: "clusterdns_replies_total says by origin where they come from: own, cache or failed upstreams.",
    },
    Alert {
        name: "ClusterDNSErrorsHigh",
        severity: "warning",
        expression: "sum(rate(clusterdns_replies_total{{job}rcode=\"SERVFAIL\"}[5m])) / sum(rate(clusterdns_replies_total{{job}}[5m])) > 0.01",
        minutes: 10,
        summary: "More than 1 % of queries are answered SERVFAIL.",
        description: "clusterdns_replies_total says by origin where they come from: own, cache or failed upstreams.",
    },
    Alert {
        name: "ClusterDNSLatencyHigh",
        severity: "warning",
        expression: "histogram_quantile(0.99, sum by (le) (rate(clusterdns_query_duration_seconds_bucket{{job}}[5m]))) > 1",
        minutes: 10,
        summary: "One reply in a hundred takes more than a second.",
        description: "clusterdns_query_duration_seconds says by origin which replies are slow: own, or those of upstreams.",
    },
    Alert {
        name: "ClusterDNSOwnAnswersSlow",
        severity: "warning",
        expression: "histogram_quantile(0.99, sum by (pod, le) (rate(clusterdns_query_duration_seconds_bucket{{job}origin=\"own\"}[5m]))) > 0.01",
        minutes: 10,
        summary: "Answers from the cluster's own records take more than 10 ms.",
        description: "{{ $labels.pod }} waits for a processor: a CPU limit, a busy node, or more queries than it can answer.",
    },
    Alert {
        name: "ClusterDNSUpstreamDown",
        severity: "warning",
        // Here and below: one and the same series in each of five minutes. A maximum over pods would last while they take turns.
        expression: "max by (group, upstream) (sum_over_time(clusterdns_upstream_state{{job}state=\"down\"}[5m:1m])) >= 5",
        minutes: 1,
        summary: "An upstream does not answer.",
        description: "{{ $labels.upstream }} of {{ $labels.group }} has given at least one pod no answer for 5 minutes; others of its group are asked instead, if there are any.",
    },
    Alert {
        name: "ClusterDNSUpstreamLooping",
        severity: "warning",
        expression: "max by (group, upstream) (sum_over_time(clusterdns_upstream_state{{job}state=\"looping\"}[5m:1m])) >= 5",
        minutes: 1,
        summary: "An upstream forwards to ClusterDNS itself.",
        description: "{{ $labels.upstream }} of {{ $labels.group }} has led back to ClusterDNS for 5 minutes, so it is not asked; others of its group are asked instead, if there are any.",
    },
    Alert {
        name: "ClusterDNSUpstreamMissing",
        severity: "critical",
        expression: "max by (group) (sum_over_time(clusterdns_upstream_state{{job}state=\"absent\"}[5m:1m])) >= 5",
        minutes: 1,
        summary: "A group of upstreams has no server that can be asked.",
        description: "{{ $labels.group }} has had no server for 5 minutes: its names get SERVFAIL, except for what is still cached.",
    },
    Alert {
        name: "ClusterDNSUpstreamLatencyHigh",
        severity: "warning",
        expression: "histogram_quantile(0.99, sum by (upstream, le) (rate(clusterdns_upstream_latency_seconds_bucket{{job}}[5m]))) > 1",
        minutes: 10,
        summary: "An upstream is slow.",
        description: "One reply in a hundred of {{ $labels.upstream }} takes more than a second.",
    },
    Alert {
        name: "ClusterDNSPanics",
        severity: "warning",
        // The first value of a counter is no increase: a process that panics before its first scrape begins above 0. A start that
        // is to come is of a node whose clock is ahead, and says nothing of the age of the process.
        expression: "sum by (pod) (increase(clusterdns_panics_total{{job}}[15m])) > 0 or sum by (pod) (clusterdns_panics_total{{job}}) > 0 and abs(time() - max by (pod) (clusterdns_process_start_time_seconds{{job}})) < 900",
        minutes: 0,
        summary: "A part of the program panicked.",
        description: "{{ $labels.pod }} has a defect, which a message, an object, a task in the background or a snapshot brought out; its log says where. Please report it.",
    },
    Alert {
        name: "ClusterDNSUpstreamErrorsHigh",
        severity: "warning",
        expression: "sum by (upstream) (rate(clusterdns_upstream_failures_total{{job}}[5m])) / sum by (upstream) (rate(clusterdns_upstream_queries_total{{job}}[5m])) > 0.05",
        minutes: 10,
        summary: "An upstream fails more than 5 % of its queries.",
        description: "{{ $labels.upstream }} is in spec.upstreams, in spec.stubDomains or in resolv.conf; others of its group are asked instead, if there are any.",
    },
    Alert {
        name: "ClusterDNSForwardingLimited",
        severity: "warning",
        // A rate over 5 minutes stays above 0 for that long after one query.
        expression: "sum by (limit) (rate(clusterdns_limited_total{{job}limit!=\"client\"}[5m])) > 0.5",
        minutes: 10,
        summary: "Queries are turned away at a limit of forwarding.",
        description: "Limit {{ $labels.limit }}: upstreams are slow, clients ask a lot, or spec.limits is too small.",
    },
    Alert {
        name: "ClusterDNSForwardingLimited",
        // The limit does its work: one client asks too much, and the others are answered.
        severity: "info",
        expression: "sum by (limit) (rate(clusterdns_limited_total{{job}limit=\"client\"}[5m])) > 10",
        minutes: 10,
        summary: "A client is turned away because it asks too much.",
        description: "Limit {{ $labels.limit }}: other clients get their answers. kubectl clusterdns top clients shows who it is.",
    },
    Alert {
        name: "ClusterDNSStale",
        severity: "warning",
        // Where the API server is away, all pods are stale: one alert for each pod and resource would be thousands.
        expression: "count by (resource) (max by (pod, resource) (clusterdns_watch_age_seconds{{job}}) > 600)",
        minutes: 5,
        summary: "Pods have not heard from the API server for 10 minutes.",
        description: "Changes of {{ $labels.resource }} are not in the answers of some pods: {{ $value }}. Each answers from its last data, and one whose clusterdns_data_source is none never had any.",
    },
    Alert {
        name: "ClusterDNSFormerCluster",
        severity: "critical",
        // All pods have the same API server.
        expression: "count(max by (pod) (sum_over_time(clusterdns_serves_former_cluster{{job}}[5m:1m])) >= 5)",
        minutes: 1,
        summary: "Pods answer with the data of another cluster.",
        description: "Another cluster is behind the address of the API server. Pods that have not listed all of its objects yet: {{ $value }}. Some of their answers are those of the cluster before.",
    },
    Alert {
        name: "ClusterDNSSnapshotNotWritten",
        severity: "warning",
        // The second half is about a process that failed before its first scrape and then had nothing to try again: the first
        // value of a counter is no increase.
        expression: "sum by (pod) (increase(clusterdns_snapshot_write_failures_total{{job}}[15m])) > 0 unless sum by (pod) (increase(clusterdns_snapshot_writes_total{{job}}[15m])) > 0 or sum by (pod) (clusterdns_snapshot_write_failures_total{{job}}) > 0 unless sum by (pod) (clusterdns_snapshot_writes_total{{job}}) > 0",
        minutes: 10,
        summary: "A pod cannot write its snapshot.",
        description: "{{ $labels.pod }} answers, but if it restarts while the API server is away, it has an old snapshot or none: its log and /readyz say why.",
    },
    Alert {
        name: "ClusterDNSPropagationSlow",
        severity: "warning",
        expression: "histogram_quantile(0.99, sum by (le) (rate(clusterdns_event_to_visible_seconds_bucket{{job}}[5m]))) > 1",
        minutes: 10,
        summary: "Changes take more than a second to be visible.",
        description: "The 99th percentile from an event to its effect in answers: the pods need more CPU, or too much changes.",
    },
    Alert {
        name: "ClusterDNSConfigurationRejected",
        severity: "warning",
        // All pods of a version refuse the same.
        expression: "count(max by (pod) (sum_over_time(clusterdns_config_is_rejected{{job}}[5m:1m])) >= 5 or max by (pod) (sum_over_time(clusterdns_config_is_missing{{job}}[5m:1m])) >= 5)",
        minutes: 1,
        summary: "Pods do not run the configuration they were given.",
        description: "Pods that run an older configuration, or none: {{ $value }}. Each says why at /config.",
    },
    Alert {
        name: "ClusterDNSQueriesDropped",
        severity: "warning",
        expression: "sum by (pod) (rate(clusterdns_udp_dropped_total{{job}}[5m]) + rate(clusterdns_udp_stale_total{{job}}[5m])) > 1",
        minutes: 10,
        summary: "Queries are dropped because they are not read in time.",
        description: "{{ $labels.pod }} has more queries than CPU: more pods, or a larger CPU request.",
    },
    Alert {
        name: "ClusterDNSTurnedAway",
        severity: "warning",
        // Without descriptors a listener tries once a second, and counts no more than that.
        expression: "sum by (pod) (rate(clusterdns_udp_send_failed_total{{job}}[5m]) + rate(clusterdns_udp_receive_failed_total{{job}}[5m]) + rate(clusterdns_tcp_accept_failed_total{{job}}[5m])) + sum by (pod) (rate(clusterdns_tcp_closed_total{{job}reason=~\"backlog|handshake_rate|largest_share|refused\"}[5m])) > 0.5",
        minutes: 10,
        summary: "Connections or replies of clients are lost.",
        description: "{{ $labels.pod }} closes connections at a limit, cannot accept them, or cannot send replies: the page of this alert says which metric shows what.",
    },
    Alert {
        name: "ClusterDNSCertificateExpiring",
        severity: "warning",
        // The same time as the reason `CertificateExpiring` of the condition Degraded.
        expression: "min by (secret) (clusterdns_certificate_expiry_timestamp_seconds{{job}} - time() - clamp_max((clusterdns_certificate_expiry_timestamp_seconds{{job}} - clusterdns_certificate_start_timestamp_seconds{{job}}) / 6, 604800)) < 0",
        minutes: 15,
        summary: "The certificate of a listener expires soon.",
        description: "The certificate of the Secret {{ $labels.secret }} was not renewed: less than 7 days are left, or less than a sixth of its life.",
    },
    Alert {
        name: "ClusterDNSCertificateUnusable",
        severity: "critical",
        expression: "min by (secret) (clusterdns_certificate_expiry_timestamp_seconds{{job}} - time()) < 0 or max by (secret) (clusterdns_certificate_start_timestamp_seconds{{job}} - time()) > 0",
        minutes: 5,
        summary: "The certificate of a listener is not valid now.",
        description: "The certificate of the Secret {{ $labels.secret }} has expired, or is not valid yet: clients that check it refuse the connection.",
    },
    Alert {
        name: "ClusterDNSCertificateUnusable",
        severity: "warning",
        expression: "max by (secret) (clusterdns_certificate_is_bad{{job}}) == 1",
        minutes: 10,
        summary: "A mounted certificate cannot be used.",
        description: "Pods cannot use the files of the Secret {{ $labels.secret }}: the last good certificate stays in use, if there was one. /config of a pod says why.",
    },
    Alert {
        name: "ClusterDNSMemoryHigh",
        severity: "warning",
        expression: "max by (pod) (process_resident_memory_bytes{{job}}) / max by (pod) (process_memory_limit_bytes{{job}}) > 0.85",
        minutes: 2,
        summary: "A pod has used more than 85 % of its memory limit.",
        description: "At the limit the kernel ends {{ $labels.pod }}. All pods hold the same records, so the others may be as close: raise the memory limit in spec.resources.",
    },
];

pub(super) fn prometheus_rule(of: &Instance<'_>) -> Option<DynamicObject> {
    let metrics = of.dns.spec.metrics.clone().unwrap_or_default();
    // The alerts select the job of the PodMonitor: without one ClusterDNSDown would be true, and no other alert ever.
    let is_wanted =
        metrics.prometheus_rule && metrics.pod_monitor && of.observed.offers.pod_monitor;
    let rules: Vec<Value> = ALERTS.iter().map(|alert| rule(alert, of)).collect();
    let spec = json!({"groups": [{"name": of.child, "rules": rules}]});
    (is_wanted && of.observed.offers.prometheus_rule)
        .then(|| with_data("monitoring.coreos.com/v1", "PrometheusRule", monitored(of), spec))
}

fn rule(alert: &Alert, of: &Instance<'_>) -> Value {
    let Alert { name, severity, expression, minutes, summary, description } = alert;
    // What the PodMonitor of ours is called by Prometheus.
    let job = format!("job=\"{}/{}\"", of.namespace(), of.child);
    let expression = expression
        .replace("{{job}}", &format!("{{{job}}}"))
        .replace("{{job}", &format!("{{{job},"));
    // Where the repository is published only those know who publish it: a path is no link, so it has a name of its own.
    let mut annotations = json!({
        "summary": summary,
        "description": description,
        "runbook": format!("docs/runbooks/{name}.md"),
    });
    if let Some(base) = &of.settings.runbooks {
        annotations["runbook_url"] = format!("{base}/{name}.md").into();
    }
    json!({
        "alert": name,
        "expr": expression,
        "for": format!("{minutes}m"),
        "labels": {"severity": severity, "clusterdns": of.name},
        "annotations": annotations,
    })
}
