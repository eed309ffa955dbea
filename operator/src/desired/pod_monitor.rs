//! Scraping, where the kind exists.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::json;

use super::instance::Instance;
use super::{ports, with_data};

pub(super) fn pod_monitor(of: &Instance<'_>) -> Option<DynamicObject> {
    let is_wanted = of.dns.spec.metrics.as_ref().is_none_or(|metrics| metrics.pod_monitor);
    let mut endpoint = json!({"port": ports::METRICS, "path": "/metrics"});
    let interval = of.dns.spec.metrics.as_ref().and_then(|metrics| metrics.interval_seconds);
    if let Some(seconds) = interval {
        endpoint["interval"] = json!(format!("{seconds}s"));
    }
    // A Prometheus that scrapes native histograms would drop the series `_bucket`, which alerts and dashboards read.
    let spec = json!({
        "selector": of.selector(),
        "podMetricsEndpoints": [endpoint],
        "scrapeClassicHistograms": true,
    });
    (is_wanted && of.observed.offers.pod_monitor)
        .then(|| with_data("monitoring.coreos.com/v1", "PodMonitor", monitored(of), spec))
}

/// Metadata of the PodMonitor, with labels for Prometheus' selectors. Labels from the spec never replace the
/// operator's.
pub(super) fn monitored(of: &Instance<'_>) -> ObjectMeta {
    let mut metadata = of.metadata();
    let added = of.dns.spec.metrics.as_ref().and_then(|metrics| metrics.labels.clone());
    let mut labels = added.unwrap_or_default();
    labels.extend(metadata.labels.take().unwrap_or_default());
    metadata.labels = Some(labels);
    metadata
}
