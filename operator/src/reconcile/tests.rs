//! What one reconcile sends to the API server, which is a function.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::fixtures;
use crate::settings::Settings;

mod refused_reads;

/// The Events that a reconcile sends in a cluster in which nothing happens, and there are only these Services; no status can be
/// written.
async fn events(settings: Settings, services: serde_json::Value) -> Vec<String> {
    let events = Arc::<Mutex<Vec<String>>>::default();
    let sent = events.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let (sent, services) = (sent.clone(), services.clone());
        async move {
            let path = request.uri().path().to_owned();
            let query = request.uri().query().unwrap_or_default().to_owned();
            let asks = |text: &str| query.contains(text);
            let code = match *request.method() {
                Method::GET if asks("watch") => pending().await,
                // The list of pods of another DNS server.
                Method::GET if path.ends_with("/pods") && asks("k8s-app") => 500,
                Method::GET => 200,
                Method::PATCH => 422,
                _ => {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    sent.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
                    201
                }
            };
            let reply = match code {
                200 if path.ends_with("/services") => {
                    json!({"metadata": {"resourceVersion": "7"}, "items": services})
                }
                200 => json!({"metadata": {"resourceVersion": "7"}, "items": []}),
                201 => json!({"metadata": {"name": "event"}}),
                _ => {
                    json!({"kind": "Status", "code": code, "message": "too long", "reason": "Invalid",
                    "status": "Failure"})
                }
            };
            let body = Body::from(reply.to_string().into_bytes());
            let reply = Response::builder().status(code).body(body).unwrap();
            Ok::<_, Infallible>(reply)
        }
    });
    let ctx = fixtures::context(Client::new(server, "default"), settings);
    ctx.caches.wait_until_read("kube-system").await;
    let reconciled = reconcile(&fixtures::dns("{}"), &ctx, true).await.unwrap();
    assert!(!reconciled.is_complete && reconciled.again.is_some(), "{reconciled:?}");
    events.lock().unwrap().clone()
}

/// An autoscaled Deployment from which another client took the label by which it is watched, so that no list shows it.
fn unlabelled_deployment() -> serde_json::Value {
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
    let written = Arc::<Mutex<Vec<serde_json::Value>>>::default();
    let sent = written.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let sent = sent.clone();
        async move {
            let path = request.uri().path().to_owned();
            let is_watch = request.uri().query().is_some_and(|it| it.contains("watch"));
            let is_deployment = path.ends_with("/deployments/clusterdns-default");
            let is_object = path.ends_with("default") || path.ends_with("/kube-dns");
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, reply) = match method {
                Method::GET if is_watch => pending().await,
                Method::GET if is_deployment => (200, unlabelled_deployment()),
                Method::GET if is_object => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound", "status": "Failure"}),
                ),
                Method::GET => (200, json!({"metadata": {"resourceVersion": "7"}, "items": []})),
                _ if is_deployment => {
                    sent.lock().unwrap().push(body);
                    (200, unlabelled_deployment())
                }
                _ => (200, body),
            };
            let reply = Body::from(reply.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(reply).unwrap())
        }
    });
    let ctx = fixtures::context(Client::new(server, "default"), fixtures::settings());
    ctx.caches.wait_until_read("kube-system").await;
    let dns = fixtures::dns("{scaling: {load: {minReplicas: 2, maxReplicas: 50}}}");
    reconcile(&dns, &ctx, true).await.unwrap();
    let written = written.lock().unwrap();
    let labels = written.iter().filter(|it| it["metadata"]["labels"][names::INSTANCE] == "default");
    assert_eq!(labels.count(), 1, "the label is put back: {written:?}");
    for write in &*written {
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
