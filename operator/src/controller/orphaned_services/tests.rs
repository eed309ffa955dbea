//! Whose Services are given back, and when. The API server is a function.

use crds::v1alpha1::ClusterDNSStatus;
use hyper::Method;
use kube::Client;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::time::Instant as Now;

use super::*;
use crate::fixtures;
use crate::fixtures::api::{self, Log, Reply};

fn dns(name: &str, generation: i64) -> Arc<ClusterDNS> {
    let mut dns = fixtures::dns("{}");
    dns.metadata.name = Some(name.to_owned());
    dns.metadata.generation = Some(generation);
    Arc::new(dns)
}

#[test]
fn o3_one_that_was_refused_is_tried_again_when_the_older_one_goes_or_changes() {
    let (old, changed, young) = (dns("old", 1), dns("old", 2), dns("young", 1));
    let both = by_name(&[old.clone(), young.clone()]);
    let alone = [young.clone()];
    assert_eq!(disputed(&both, &by_name(&alone), &alone), ["young"]);
    let all = [changed, young];
    assert_eq!(disputed(&both, &by_name(&all), &all), ["young", "young"]);
    assert_eq!(disputed(&both, &both, &all), [] as [&str; 0]);
    // Deleted in the foreground: it is gone only when its pods are.
    let mut leaving = (*old).clone();
    leaving.metadata.deletion_timestamp = Some(fixtures::from(json!("2026-01-01T00:00:00Z")));
    let leaving = by_name(&[Arc::new(leaving), all[1].clone()]);
    assert_eq!(disputed(&leaving, &by_name(&alone), &alone), ["young"]);
}

fn orphan(name: &str, version: &str) -> Arc<DynamicObject> {
    Arc::new(fixtures::from(
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": version,
        "annotations": {names::ADOPTED_BY: "gone"}}}),
    ))
}

#[test]
fn o15_a_service_that_cannot_be_given_back_is_tried_less_often_until_it_changes() {
    let (mut tries, begin) = (Tries::default(), Instant::now());
    let mut tried = Vec::new();
    for second in 0..1_000 {
        let orphans = vec![orphan("a", "1")];
        if !tries.begin(orphans, begin + EVERY * second).is_empty() {
            tried.push(second);
        }
    }
    assert_eq!(tried, [0, 10, 30, 70, 150, 310, 610, 910]);
    let now = begin + EVERY * 1_000;
    assert_eq!(tries.begin(vec![orphan("a", "1"), orphan("b", "1")], now)[0].name_any(), "b");
    assert_eq!(tries.begin(vec![orphan("a", "2")], now).len(), 1, "it has changed");
    assert!(tries.begin(vec![orphan("a", "2")], now + EVERY).is_empty());
    assert!(tries.begin(Vec::new(), now).is_empty() && tries.0.is_empty(), "nothing is kept");
}

#[test]
fn o15_one_pass_tries_a_few_and_the_next_one_the_others() {
    let (mut tries, now) = (Tries::default(), Instant::now());
    let all: Vec<_> = (0..25).map(|n| orphan(&format!("s{n:02}"), "1")).collect();
    let passes: Vec<usize> =
        (0..4).map(|pass| tries.begin(all.clone(), now + EVERY * pass).len()).collect();
    assert_eq!(passes, [10, 10, 5, 0]);
}

#[test]
fn o15_only_a_service_whose_clusterdns_is_gone_is_an_orphan() {
    let service = orphan("a", "1");
    assert!(is_orphan(&service, &["default".to_owned()]));
    assert!(!is_orphan(&service, &["gone".to_owned()]));
    assert!(!is_orphan(&fixtures::from(json!({"metadata": {"name": "a"}})), &[]));
}

#[test]
fn o10_a_service_from_which_another_client_took_the_annotation_is_an_orphan_too() {
    let with = |operation: &str, fields: Value| -> DynamicObject {
        fixtures::from(json!({"metadata": {"name": "kube-dns", "managedFields": [
                {"manager": names::FIELD_MANAGER, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields}]},
            "spec": {"selector": {"k8s-app": "kube-dns", names::INSTANCE: "gone"}}}))
    };
    let selector = || json!({"f:spec": {"f:selector": {}}});
    let stripped = with("Update", selector());
    assert!(is_orphan(&stripped, &["default".to_owned()]));
    assert!(!is_orphan(&stripped, &["gone".to_owned()]));
    // One of ours; and one of people, who wrote the key themselves.
    assert!(!is_orphan(&with("Apply", selector()), &[]));
    assert!(!is_orphan(&with("Update", json!({"f:spec": {"f:ports": {}}})), &[]));
}

/// An adopted Service of `default`, as our patch left it.
fn adopted() -> Value {
    json!({"metadata": {"name": "kube-dns", "namespace": "kube-system", "uid": "s", "resourceVersion": "100",
            "annotations": {names::ADOPTED_BY: "default"}},
        "spec": {"clusterIP": "10.96.0.10", "selector": {"k8s-app": "kube-dns", names::INSTANCE: "default"}}})
}

/// An API server with that Service and these ClusterDNS, none: it does not know the kind; and what was asked.
fn api_server(all: Option<Value>, has_definition: bool) -> (Client, Log) {
    api::logged(move |asked| match asked.last() {
        _ if asked.is_watch() => Reply::silence(),
        _ if asked.method == Method::PATCH => Reply::ok(adopted()),
        "clusterdnses" => Reply::found(all.as_ref().map(api::list)),
        "default" => Reply::found(all.as_ref().and_then(|all| all.get(0))),
        name @ "clusterdnses.clusterdns.dev" => {
            Reply::found(has_definition.then(|| json!({"metadata": {"name": name}})))
        }
        "services" => Reply::list_at(100, [adopted()]),
        _ => Reply::list(json!([])),
    })
}

/// A store of ClusterDNS that were listed once.
fn listed(
    all: &[ClusterDNS],
) -> (reflector::Store<ClusterDNS>, reflector::store::Writer<ClusterDNS>) {
    let (resources, mut writer) = reflector::store();
    let objects = all.iter().cloned().map(Event::InitApply);
    for event in [Event::Init].into_iter().chain(objects).chain([Event::InitDone]) {
        writer.apply_watcher_event(&event);
    }
    (resources, writer)
}

/// The patch that gives the Service back, and when it comes; none: it does not within 5 minutes.
async fn given_back(
    all: Option<Value>,
    has_definition: bool,
    (resources, writer): (reflector::Store<ClusterDNS>, reflector::store::Writer<ClusterDNS>),
) -> Option<(Duration, Value)> {
    let (client, log) = api_server(all, has_definition);
    let patches = || log.written("/services/kube-dns");
    let ctx = fixtures::context_with(client, fixtures::settings(), resources);
    let (definition, triggers) = (Arc::new(Definition::default()), Triggers::default());
    ctx.caches.keep_resources(writer, definition.clone());
    let began = Now::now();
    let patched = async {
        while patches().is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = follow(&ctx, &triggers, &definition) => unreachable!("it has no end"),
        () = patched => {}
        () = tokio::time::sleep(Duration::from_secs(300)) => return None,
    }
    Some((began.elapsed(), patches().remove(0)))
}

#[tokio::test(start_paused = true)]
async fn o10_a_service_is_given_back_where_the_definition_is_gone_and_no_event_said_so() {
    // The operator started without the definition; or its watch was down when the definition was deleted.
    for before in [reflector::store(), listed(&[fixtures::dns("{}")])] {
        let (after, patch) = given_back(None, false, before).await.expect("a patch");
        assert!((30..40).contains(&after.as_secs()), "{after:?}");
        assert_eq!(patch["spec"]["selector"], json!({names::INSTANCE: null}));
        assert_eq!(patch["metadata"]["annotations"], json!({names::ADOPTED_BY: null}));
    }
}

#[tokio::test(start_paused = true)]
async fn o10_a_service_stays_with_us_where_only_the_lists_say_that_the_definition_is_gone() {
    let before = listed(&[fixtures::dns("{}")]);
    assert_eq!(given_back(None, true, before).await, None);
    // Its watch is behind: it shows none.
    let all = json!([serde_json::to_value(fixtures::dns("{}")).unwrap()]);
    assert_eq!(given_back(Some(all), true, listed(&[])).await, None);
}

#[tokio::test(start_paused = true)]
async fn o10_a_service_is_given_back_while_an_unreadable_clusterdns_is_being_deleted() {
    let unreadable = |deleted: Value| {
        json!([{"metadata": {"name": "default", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": deleted, "finalizers": ["foregroundDeletion"]}, "spec": 7}])
    };
    let deleted = unreadable(json!("2026-01-01T00:00:00Z"));
    let (after, _) = given_back(Some(deleted), true, listed(&[])).await.expect("a patch");
    assert!(after < Duration::from_secs(5), "{after:?}");
    assert_eq!(given_back(Some(unreadable(Value::Null)), true, listed(&[])).await, None);
}

#[tokio::test(start_paused = true)]
async fn o14_a_service_that_cannot_be_given_back_is_counted_until_it_is() {
    let gauge = |ctx: &Context| -> f64 {
        let text = ctx.metrics.text();
        let row = text.lines().find(|row| row.starts_with("clusterdns_operator_services_not"));
        row.expect("a row").rsplit_once(' ').expect("a value").1.parse().expect("a number")
    };
    let (triggers, definition) = (Triggers::default(), Arc::new(Definition::default()));
    let is_refused = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let refuses = is_refused.clone();
    let (client, log) = api::logged(move |asked| match asked.last() {
        _ if asked.is_watch() => Reply::silence(),
        _ if asked.method == Method::PATCH
            && refuses.load(std::sync::atomic::Ordering::Relaxed) =>
        {
            Reply::status(403, "a webhook denied it")
        }
        _ if asked.method == Method::PATCH => Reply::ok(adopted()),
        "default" => Reply::found(None::<&Value>),
        "services" => Reply::list_at(100, [adopted()]),
        _ => Reply::list(json!([])),
    });
    let patches = || log.written("/services/kube-dns").len();
    let (resources, writer) = listed(&[]);
    let ctx = fixtures::context_with(client, fixtures::settings(), resources);
    ctx.caches.keep_resources(writer, definition.clone());
    assert_eq!(gauge(&ctx), 0.0);
    let test = async {
        let until = async |count: usize, value: f64| {
            while patches() < count || gauge(&ctx) != value {
                tokio::time::sleep(EVERY).await;
            }
        };
        for tries in 1..4 {
            until(tries, 1.0).await;
        }
        is_refused.store(false, std::sync::atomic::Ordering::Relaxed);
        until(4, 0.0).await;
    };
    let bound = tokio::time::sleep(Duration::from_secs(600));
    tokio::select! {
        () = follow(&ctx, &triggers, &definition) => unreachable!("it has no end"),
        () = test => {}
        () = bound => panic!("{} patches, {} counted", patches(), gauge(&ctx)),
    }
}

#[tokio::test]
async fn o14_a_reconcile_in_progress_leaves_nothing_of_a_clusterdns_that_is_gone() {
    let (triggers, definition) = (Triggers::default(), Definition::default());
    let dns = fixtures::dns("{}");
    let status: ClusterDNSStatus =
        fixtures::from(json!({"conditions": [{"type": "Ready", "status": "False",
        "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}));
    let series = r#"clusterdns_operator_condition{name="default",condition="Ready"}"#;
    let mut leaving = dns.clone();
    leaving.metadata.deletion_timestamp = Some(fixtures::from(json!("2026-01-01T00:00:00Z")));
    for (there, stays) in [(vec![dns.clone()], true), (vec![leaving], false), (Vec::new(), false)] {
        let (client, _) = api_server(Some(json!([])), true);
        let (resources, _writer) = listed(&there);
        let ctx = fixtures::context_with(client, fixtures::settings(), resources);
        let mut known = by_name(&[Arc::new(dns.clone())]);
        for _ in 0..2 {
            // As its reconcile does that began before.
            ctx.metrics.reported(&dns, &status);
            let now = Instant::now();
            let wait = ctx.backoff.failed("default", Some(1), now, Default::default());
            pass(&ctx, &triggers, &definition, (&mut known, &mut Tries::default())).await;
            assert_eq!(ctx.metrics.text().contains(series), stays);
            let again = ctx.backoff.begin("default", Some(1), false, now);
            assert_eq!(again, if stays { Err(wait) } else { Ok(()) });
        }
    }
}
