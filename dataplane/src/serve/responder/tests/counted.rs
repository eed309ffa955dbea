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

const BEGUN: &str = "coredns_cache_prefetch_total{";
const SOON: &str = "clusterdns_cache_lookups_total{outcome=\"prefetch\"}";
const LIMITED: &str = "clusterdns_prefetches_limited_total{limit=\"total\"}";

#[tokio::test]
async fn ca30_equal_hits_of_one_batch_count_one_prefetch() {
    let upstream = Upstream::start().await;
    let mut config = upstream.config();
    config.limits.in_flight = 1_000;
    let responder = responder(&config);
    let metrics = metrics(&responder, &config, &Arc::default(), &Arc::default());
    for _ in 0..3 {
        responder.ask().await;
    }
    responder.later(545_000);
    let published = responder.state.published.load_full();
    let packet = question("www.example.org", 1, true);
    let mut buffer = [0; 1232];
    // As in a batch: every reply is written before an upstream is asked again.
    let refreshes: Vec<_> = (0..32)
        .map(|_| {
            let client = SocketAddr::from(([127, 0, 0, 1], 5353));
            let transport = Transport::Udp;
            let query = Query { packet: &packet, client, transport, now_s: 0, seed: 1 };
            match responder.decide((&published, None), 0, &query, Room::Now, &mut buffer) {
                ServeAction::Reply(_, _, Some(refresh)) => refresh,
                _ => panic!("each reply comes from the cache"),
            }
        })
        .collect();
    for refresh in &refreshes {
        responder.refresh(&published.upstreams, refresh);
    }
    responder.until_no_lookup().await;
    assert_eq!(upstream.asked(), 2);
    assert_eq!((value(&metrics, BEGUN), value(&metrics, SOON)), (1.0, 32.0));
}

#[tokio::test]
async fn ca30_a_prefetch_that_finds_no_place_is_not_counted_as_one() {
    let upstream = Upstream::start().await;
    let config = upstream.config();
    let responder = responder(&config);
    let metrics = metrics(&responder, &config, &Arc::default(), &Arc::default());
    for _ in 0..3 {
        responder.ask().await;
    }
    responder.later(545_000);
    let place = responder.place();
    assert!(place.is_some());
    for _ in 0..3 {
        responder.ask().await;
    }
    responder.until_no_lookup().await;
    assert_eq!((value(&metrics, BEGUN), value(&metrics, LIMITED)), (0.0, 3.0));
}
