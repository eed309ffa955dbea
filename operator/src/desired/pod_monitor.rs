//! Scraping, where the kind exists.

use kube::core::DynamicObject;
use serde_json::json;

use super::instance::Instance;
use super::{ports, with_data};

pub(super) fn pod_monitor(of: &Instance<'_>) -> Option<DynamicObject> {
    let is_wanted = of.dns.spec.metrics.as_ref().is_none_or(|metrics| metrics.pod_monitor);
    let spec = json!({
        "selector": of.selector(),
        "podMetricsEndpoints": [{"port": ports::METRICS, "path": "/metrics"}],
    });
    (is_wanted && of.observed.offers.pod_monitor)
        .then(|| with_data("monitoring.coreos.com/v1", "PodMonitor", of.metadata(), spec))
}
