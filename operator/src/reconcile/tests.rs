//! What one reconcile sends to the API server, which is a function.

use hyper::Method;
use serde_json::{Value, json};

use super::*;
use crate::fixtures;
use crate::fixtures::api::{self, Reply};
use crate::settings::Settings;

mod refused_reads;

/// The Events that a reconcile sends in a cluster in which nothing happens, and there are only these Services; no status can be
/// written.
async fn events(settings: Settings, services: Value) -> Vec<String> {
    let (client, log) = api::logged(move |asked| match asked.last() {
        _ if asked.is_watch() => Reply::silence(),
        // The list of pods of another DNS server.
        "pods" if asked.query.contains("k8s-app") => Reply::status(500, "too long"),
        "services" => Reply::list(&services),
        _ if asked.method == Method::PATCH => Reply::status(422, "too long"),
        _ => api::empty(asked),
    });
    let ctx = fixtures::context(client, settings);
    ctx.caches.wait_until_read("kube-system").await;
    let reconciled = reconcile(&fixtures::dns("{}"), &ctx, true).await.unwrap();
    assert!(!reconciled.is_complete && reconciled.again.is_some(), "{reconciled:?}");
    let posted = log.all().into_iter().filter(|it| it.method == Method::POST);
    posted.map(|it| it.body.to_string()).collect()
}

/// An autoscaled Deployment from which another client took the label by which it is watched, so that no list shows it.
fn unlabelled_deployment() -> Value {
    let owner = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "default", "uid": "dns-uid"});
    let of_autoscaler = json!({"f:spec": {"f:replicas": {}}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "clusterdns-default", "namespace": "kube-system", "uid": "d", "resourceVersion": "9",
            "ownerReferences": [owner], "managedFields": [{"manager": "kube-controller-manager", "operation": "Update",
                "subresource": "scale", "fieldsV1": of_autoscaler}]},
        "spec": {"replicas": 20, "selector": {}, "template": {}}})
}

#[tokio::test]
async fn o12_an_autoscaled_deployment_that_lost_its_label_keeps_its_pods() {
    const DEPLOYMENT: &str = "/deployments/clusterdns-default";
    let (client, log) = api::logged(|asked| match asked.path.ends_with(DEPLOYMENT) {
        true => Reply::ok(unlabelled_deployment()),
        false => api::empty(asked),
    });
    let ctx = fixtures::context(client, fixtures::settings());
    ctx.caches.wait_until_read("kube-system").await;
    let dns = fixtures::dns("{scaling: {load: {minReplicas: 2, maxReplicas: 50}}}");
    reconcile(&dns, &ctx, true).await.unwrap();
    let written = log.written(DEPLOYMENT);
    let labels = written.iter().filter(|it| it["metadata"]["labels"][names::INSTANCE] == "default");
    assert_eq!(labels.count(), 1, "the label is put back: {written:?}");
    for write in &written {
        assert!(write["spec"]["replicas"].as_i64().is_none_or(|pods| pods >= 20), "{write}");
    }
}

#[tokio::test]
async fn o14_an_event_says_why_a_spec_is_refused_also_where_the_status_cannot_be_written() {
    // An operator that manages another ClusterDNS only.
    let settings = Settings { instances: vec!["other".to_owned()], ..fixtures::settings() };
    let events = events(settings, json!([])).await;
    assert!(events.iter().any(|it| it.contains("NameNotManaged")), "{events:?}");
}

#[tokio::test]
async fn o15_where_pods_of_the_other_server_cannot_be_listed_only_giving_back_waits() {
    let mut service = fixtures::kube_dns();
    let selector = service.spec.as_mut().and_then(|spec| spec.selector.as_mut()).unwrap();
    selector.insert(names::INSTANCE.to_owned(), "default".to_owned());
    let events = events(fixtures::settings(), json!([service])).await;
    assert!(events.iter().any(|it| it.contains("OtherServerUnknown")), "{events:?}");
}
