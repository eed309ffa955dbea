//! Metrics: under which names pods show them, and what is created for Prometheus.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{maps, rules};
use crate::bounds;
use crate::config::MetricNames;
use crate::defaults::flag;

/// Metrics: under which names pods show them, and what is created for Prometheus where its kinds exist.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Other servers under whose names and labels the pods show their metrics as well, so that dashboards and alerts
    /// keep working: CoreDNS, KubeDNS. Our own metrics (clusterdns_*) are always there; docs/metrics.md says what each name means.
    /// [] is none. Default [CoreDNS].
    #[serde(default = "compatibility")]
    #[schemars(length(max = bounds::METRIC_NAMES))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub compatibility: Vec<MetricNames>,

    /// A PodMonitor. Default true.
    #[serde(default = "flag::<true>")]
    pub pod_monitor: bool,

    /// A PrometheusRule with alerts. Default true.
    #[serde(default = "flag::<true>")]
    pub prometheus_rule: bool,

    /// Labels of both, at most 32, besides ours; not of clusterdns.dev. A Prometheus of kube-prometheus-stack takes those
    /// with the name of its release. Example: {release: monitoring}. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = bounds::SELECTOR_ENTRIES), transform = maps::bounded_values)]
    #[schemars(extend("x-kubernetes-validations" = [rules::labels_are_not_ours()]))]
    pub labels: Option<BTreeMap<String, String>>,

    /// Seconds between two scrapes of a pod, 1-3600. Default: as Prometheus does by itself. Example: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SCRAPE_SECONDS))]
    pub interval_seconds: Option<u32>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            compatibility: compatibility(),
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
