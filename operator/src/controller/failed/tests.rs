//! What is said of a ClusterDNS whose reconciles fail, by an API server that is a function.

use anyhow::Context as _;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::on_a_task;
use super::*;
use crate::desired::Kind;
use crate::fixtures;
use crate::fixtures::api::{self, Log, Reply};
use crate::observe::stubs::stub_of_resource;
use crate::runtime::patience::patient;
use crate::runtime::time_limit::within;

/// A cluster in which there is nothing, and no ClusterDNS can be read. To read this Deployment is a defect.
fn cluster() -> (Arc<Context>, Log) {
    let (client, log) = api::logged(|asked| match asked.path.as_str() {
        _ if asked.is_write() => api::empty(asked),
        path if path.ends_with("/deployments/clusterdns-default") => panic!("the defect of a test"),
        path if path.ends_with("/clusterdnses/default") => Reply::status(500, "no"),
        _ => api::empty(asked),
    });
    (Arc::new(fixtures::context(client, fixtures::settings())), log)
}

/// As if this many reconciles had failed in the second before, and none of them had to wait.
fn have_failed(ctx: &Context, dns: &ClusterDNS, reconciles: u32) {
    failed_ago(ctx, dns, reconciles, 0);
}

/// The same, some seconds ago.
fn failed_ago(ctx: &Context, dns: &ClusterDNS, reconciles: u32, seconds: u64) {
    let long_ago = Instant::now() - Duration::from_secs(200);
    let ended = Instant::now() - Duration::from_secs(seconds);
    for _ in 0..reconciles {
        ctx.backoff.failed("default", dns.metadata.generation, long_ago, Failure::default());
        ctx.backoff.errored("default", ended);
    }
}

const DEGRADED: &str =
    "clusterdns_operator_condition{name=\"default\",condition=\"Degraded\"} 1.0\n";

#[tokio::test]
async fn o14_an_operator_that_panics_each_time_does_not_look_healthy() {
    for (before, is_said) in [(0, false), (6, true)] {
        let (ctx, log) = cluster();
        ctx.caches.wait_until_read("kube-system").await;
        // So that it is read.
        let deployment: DynamicObject =
            fixtures::from(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "clusterdns-default", "namespace": "kube-system", "uid": "d"}}));
        ctx.memory.applied(Kind::Deployment, &deployment, &deployment);
        let dns = Arc::new(fixtures::dns("{}"));
        have_failed(&ctx, &dns, before);
        on_a_task(dns, ctx.clone()).await.unwrap();
        let next = ctx.backoff.errored("default", Instant::now());
        assert_eq!(next.errors, before + 2, "this is one, too");
        assert_eq!(ctx.metrics.text().contains(DEGRADED), is_said, "{}", ctx.metrics.text());
        let written = log.written("");
        let status = written.iter().find(|it| it["status"].is_object());
        let conditions = status.map(|it| it["status"]["conditions"].to_string());
        let says = |words: &str| conditions.as_ref().is_some_and(|it| it.contains(words));
        assert_eq!(says("ReconcileFailed") && says("the defect of a test"), is_said, "{written:?}");
        assert!(!says("task "), "the same words each time: {conditions:?}");
        let is_event = |it: &&Value| it["reason"] == "ReconcileFailed";
        assert_eq!(written.iter().any(|it| is_event(&it)), is_said, "{written:?}");
    }
}

#[tokio::test]
async fn o14_a_reconcile_that_waits_for_lists_ends_a_row_of_failures() {
    let (ctx, _) = cluster();
    let dns = Arc::new(fixtures::dns("{}"));
    failed_ago(&ctx, &dns, 5, 100);
    on_a_task(dns, ctx.clone()).await.unwrap();
    let row = ctx.backoff.errored("default", Instant::now());
    assert_eq!((row.errors, row.lasts), (1, Duration::ZERO));
}

#[tokio::test]
async fn k23_one_that_is_kept_as_a_stub_and_cannot_be_read_keeps_its_status() {
    let (ctx, log) = cluster();
    ctx.caches.wait_until_read("kube-system").await;
    let mut stub = fixtures::dns("{}");
    stub_of_resource(&mut stub);
    have_failed(&ctx, &stub, 6);
    on_a_task(Arc::new(stub), ctx.clone()).await.unwrap();
    assert!(ctx.metrics.text().contains(DEGRADED), "{}", ctx.metrics.text());
    let written = log.written("");
    assert!(written.iter().any(|it| it["reason"] == "ReconcileFailed"), "an Event: {written:?}");
    assert!(written.iter().all(|it| it["status"].is_null()), "{written:?}");
}

#[tokio::test]
async fn o14_failures_with_minutes_between_them_are_said_at_the_second() {
    for (what, before, seconds, is_said) in [
        ("the first", 0, 120, false),
        ("the second, 120 s later", 1, 120, true),
        ("the second, soon", 1, 30, false),
    ] {
        let (ctx, _) = cluster();
        let dns = Arc::new(fixtures::dns("{}"));
        failed_ago(&ctx, &dns, before, seconds);
        let why = Why::Error(anyhow::anyhow!("the API server asks for 120 s"));
        let (_, row) = count(&dns, &ctx, (Instant::now(), &why));
        say(&dns, &ctx, row, &why).await;
        assert_eq!(ctx.metrics.text().contains(DEGRADED), is_said, "{what}: {row:?}");
    }
}

#[tokio::test]
async fn a_defect_has_the_same_words_each_time() {
    for _ in 0..2 {
        let panics = async { assert!(std::hint::black_box(false), "words") };
        assert_eq!(caught(panics).await, Err("words".to_owned()));
        let formatted = async { assert!(std::hint::black_box(false), "words of {}", 7) };
        assert_eq!(caught(formatted).await, Err("words of 7".to_owned()));
    }
    assert_eq!(caught(async { 7 }).await, Ok(7));
}

#[tokio::test]
async fn o13_a_reconcile_whose_read_was_too_much_waits_as_long_as_the_api_server_asks() {
    let client = patient(api::client(|_| Reply::overloaded(429, 40)));
    let (ctx, _) = cluster();
    let dns = fixtures::dns("{}");
    let read = within(client.apiserver_version()).await.context("it cannot be read");
    let why = Why::Error(read.unwrap_err());
    let (again, row) = count(&dns, &ctx, (Instant::now(), &why));
    assert!((40..=50).contains(&again.as_secs()) && row.errors == 1, "{again:?}");
    let other = Why::Error(anyhow::anyhow!("another error"));
    let (again, _) = count(&dns, &ctx, (Instant::now(), &other));
    assert!((2..=3).contains(&again.as_secs()), "{again:?}");
}
