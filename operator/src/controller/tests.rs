//! What the whole controller does. The API server is a function.

use std::future::pending;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;
use crate::fixtures::api::{self, Asked, Log, Reply};
use crate::fixtures::{self, settings};
use crate::runtime::lease::Leadership;

fn dns() -> ClusterDNS {
    let mut dns = fixtures::dns("{}");
    dns.metadata.resource_version = Some("1".to_owned());
    dns
}

/// A cluster with one ClusterDNS and nothing else.
fn reply(asked: &Asked) -> Reply {
    match asked.path.as_str() {
        "/version" => Reply::ok(json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})),
        "/apis" => Reply::ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        path if path.ends_with("/clusterdnses") && !asked.is_watch() => Reply::list([dns()]),
        path if path.ends_with("/clusterdnses/default") && !asked.is_write() => Reply::ok(dns()),
        _ => api::empty(asked),
    }
}

static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Runs a controller that leads until this is so; false: it did not become so.
async fn run_until((client, metrics): (Client, &Arc<Metrics>), is_so: impl Fn() -> bool) -> bool {
    let leadership = Arc::new(Leadership::new(|| *NOW));
    leadership.renewed(*NOW);
    let writes = Writes::new(leadership, metrics.clone());
    let events = Events::new(client.clone(), "operator", writes.clone());
    let (definition, lost_pods) = (Arc::default(), Arc::default());
    let resets = Resets::new(metrics.clone());
    let (metrics, stop) = (metrics.clone(), pending());
    let running =
        run(client, settings(), writes, events, metrics, definition, lost_pods, resets, stop);
    let becomes = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        ended = running => panic!("{ended:?}"),
        seen = tokio::time::timeout(Duration::from_secs(300), becomes) => seen.is_ok(),
    }
}

fn conditions(log: &Log) -> Option<String> {
    log.written("/clusterdnses/default/status")
        .pop()
        .map(|it| it["status"]["conditions"].to_string())
}

#[tokio::test(start_paused = true)]
async fn k23_an_operator_that_may_not_list_nodes_when_it_starts_says_so() {
    let is_refused = Arc::new(AtomicBool::new(true));
    let refuses = is_refused.clone();
    let (client, log) = api::logged(move |asked| match asked.path.as_str() {
        "/api/v1/nodes" if refuses.load(Ordering::Relaxed) => Reply::status(403, "no such right"),
        _ => reply(asked),
    });
    let metrics = Arc::<Metrics>::default();
    let is_written = |kind: &str| log.writes().iter().any(|it| it.path.contains(kind));
    let has_continued = run_until((client, &metrics), || match conditions(&log) {
        Some(said) if is_refused.load(Ordering::Relaxed) => {
            assert!(said.contains("cannot list nodes, so it changes nothing"), "{said}");
            assert!(said.contains("no such right") && said.contains("ClusterRole"), "{said}");
            let row = "condition{name=\"default\",condition=\"Degraded\"} 1.0";
            assert!(metrics.text().contains(row), "{}", metrics.text());
            assert!(metrics.text().contains("clusterdns_operator_is_reconciling 1.0"));
            assert!(!is_written("/namespaces/kube-system/"), "{:?}", log.writes());
            is_refused.store(false, Ordering::Relaxed);
            false
        }
        // It continues by itself.
        Some(_) => is_written("/namespaces/kube-system/"),
        None => false,
    })
    .await;
    assert!(has_continued, "{:?}: {:?}", conditions(&log), log.writes());
}

#[tokio::test(start_paused = true)]
async fn k23_an_operator_that_may_not_list_clusterdns_does_not_say_that_it_reconciles() {
    let (client, log) = api::logged(|asked| match asked.path.ends_with("/clusterdnses") {
        true => Reply::status(403, "no such right"),
        false => reply(asked),
    });
    let metrics = Arc::<Metrics>::default();
    let tries = || log.all().iter().filter(|it| it.path.ends_with("/clusterdnses")).count();
    assert!(run_until((client, &metrics), || tries() > 9).await);
    assert!(metrics.text().contains("clusterdns_operator_is_reconciling 0.0"));
}
