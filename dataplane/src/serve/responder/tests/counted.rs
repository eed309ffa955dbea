//! What the page of metrics says of readiness, and of entries that are asked for again before they expire.

use std::sync::Arc;

use tokio::sync::watch;

use super::*;
use crate::metrics::{Form, Metrics, Sources};
use crate::readiness::{Health, why_not_ready};
use crate::status::Status;

/// The metrics of this responder, with the names of CoreDNS.
pub(super) fn metrics(
    responder: &Responder,
    config: &Config,
    health: &Arc<Health>,
    status: &Arc<Status>,
) -> Metrics {
    let mut config = config.clone();
    config.metrics.compatibility = vec![config::MetricNames::CoreDNS];
    // The last value stays readable without its sender.
    let (_, configs) = watch::channel(Arc::new(config));
    Metrics::new(Sources {
        state: Arc::clone(&responder.state),
        serving: Arc::clone(&responder.counters),
        forwarder: Arc::clone(&responder.forwarder),
        status: Arc::clone(status),
        health: Arc::clone(health),
        configs,
    })
}

/// The value of the one series that begins like this.
fn value(metrics: &Metrics, series: &str) -> f64 {
    let page = String::from_utf8(metrics.page(Form::Text)).expect("text");
    let found: Vec<&str> = page.lines().filter(|line| line.starts_with(series)).collect();
    let [line] = found[..] else { panic!("{series}: {found:?}") };
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[tokio::test]
async fn e43_the_metric_of_readiness_is_what_readyz_says() {
    let config = Upstream::start().await.config();
    let (health, status) = (Arc::<Health>::default(), Arc::<Status>::default());
    let metrics = metrics(&responder(&config), &config, &health, &status);
    let shown = || {
        let is_ready = why_not_ready(&health, &status).is_empty();
        (is_ready, value(&metrics, "clusterdns_is_ready "))
    };
    assert_eq!(shown(), (false, 0.0), "no sockets and no data");
    health.serving();
    assert_eq!(shown(), (false, 0.0), "no data");
    status.contact();
    assert_eq!(shown(), (true, 1.0));
    health.leaving();
    assert_eq!(shown(), (false, 0.0), "it drains");
}
