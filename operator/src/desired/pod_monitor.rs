//! Scraping, where the kind exists.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::json;

use super::instance::Instance;
use super::{ports, with_data};

/// Prometheus operators before 0.78 do not have it, and people rarely upgrade their CRDs.
const CLASSIC_HISTOGRAMS: &str = "scrapeClassicHistograms";

/// The monitor without the field that an older schema lacks, if the API server refused it for that. Such a Prometheus
/// operator configures classic histograms only. The field stays away until this operator starts again, or the monitor changes.
pub fn for_older_schema(monitor: &DynamicObject, refusal: &str) -> Option<DynamicObject> {
    let mut older = monitor.clone();
    let spec = older.data.get_mut("spec")?.as_object_mut()?;
    let is_unknown =
        refusal.contains(CLASSIC_HISTOGRAMS) && spec.remove(CLASSIC_HISTOGRAMS).is_some();
    is_unknown.then_some(older)
}

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
        CLASSIC_HISTOGRAMS: true,
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
