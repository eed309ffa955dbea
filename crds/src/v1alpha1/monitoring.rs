//! Metrics: under which names pods show them, and what is created for Prometheus.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{maps, rules};
use crate::bounds;
use crate::config::{MetricNames, ProbeType};
use crate::defaults::{self, flag, number};
use crate::names::{PROBE_LABEL_PATTERN, TARGET_PATTERN};

/// Metrics: under which names pods show them, and what is created for Prometheus where its kinds exist.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Other servers under whose names and labels the pods show their metrics as well, so that dashboards and alerts
    /// keep working: CoreDNS, KubeDNS. With KubeDNS its ports 8081, 10054 and 10055 are open too; adding or removing it rolls
    /// the pods. Our own metrics (clusterdns_*) are always there; docs/metrics.md says what each name means.
    /// [] is none. Default [CoreDNS].
    #[serde(default = "compatibility")]
    #[schemars(length(max = bounds::METRIC_NAMES))]
    // No set: server-side apply would merge what is written later with the stored default, and `[]` would do nothing.
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = [rules::each_once()]))]
    pub compatibility: Vec<MetricNames>,

    /// Questions that each pod asks itself again and again, as --probe of the sidecar of kube-dns did, at most 8; shown at
    /// /healthcheck/<label> and in kubedns_probe_<label>_* on port 10054. They have no effect where compatibility lacks
    /// KubeDNS. A list-map by label. [] is the same as no list. Default: kubedns and dnsmasq, kubernetes.default.svc.<domain>,
    /// every 5 seconds, type SRV.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::PROBES))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["label"]))]
    pub probes: Option<Vec<Probe>>,

    /// Creates a PodMonitor, if the cluster has that kind. Default true.
    #[serde(default = "flag::<true>")]
    pub pod_monitor: bool,

    /// Creates a PrometheusRule, if the cluster has that kind: alerts on what Prometheus gets by the PodMonitor. It needs
    /// podMonitor. Default true.
    #[serde(default = "flag::<true>")]
    pub prometheus_rule: bool,

    /// Labels of both objects, at most 32, besides ours; not of clusterdns.dev. A Prometheus of kube-prometheus-stack takes those
    /// with the name of its release. Example: {release: monitoring}. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = bounds::SELECTOR_ENTRIES), transform = maps::bounded_values)]
    #[schemars(extend("x-kubernetes-validations" = [rules::labels_are_not_ours()]))]
    pub labels: Option<BTreeMap<String, String>>,

    /// Seconds between two scrapes of a pod, 1-3600. The alerts of prometheusRule need 120 or less: they look at the last 5
    /// minutes. Default: that of Prometheus. Example: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SCRAPE_SECONDS))]
    pub interval_seconds: Option<u32>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            compatibility: compatibility(),
            probes: None,
            pod_monitor: true,
            prometheus_rule: true,
            labels: None,
            interval_seconds: None,
        }
    }
}

fn compatibility() -> Vec<MetricNames> {
    crate::config::Metrics::default().compatibility
}

/// A question that a pod asks itself, as --probe=<label>,<server>,<name>,<seconds>,<type> of the sidecar of kube-dns; the
/// server is always the pod itself.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Its label: letters, digits and underscores. Example: kubedns.
    #[schemars(length(min = 1, max = bounds::LABEL), regex(pattern = PROBE_LABEL_PATTERN))]
    pub label: String,

    /// The name that is asked. Example: kubernetes.default.svc.cluster.local.
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = TARGET_PATTERN))]
    pub name: String,

    /// The type that is asked: A, AAAA, SRV or ANY. Default A.
    #[serde(default, rename = "type")]
    pub qtype: ProbeType,

    /// Seconds between two questions, 1-3600. Default 5.
    #[serde(default = "number::<{ defaults::PROBE_SECONDS }>")]
    #[schemars(range(min = 1, max = bounds::SCRAPE_SECONDS))]
    pub interval_seconds: u32,
}
