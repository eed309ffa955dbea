//! Reads that the API server refuses: the status says so, and no other namespace is read than those that are managed.

use std::time::Instant;

use kube::core::DynamicObject;
use serde_json::Value;

use super::*;
use crate::context::Context;
use crate::controller::backoff::Failure;
use crate::controller::failed::{self, Why};

/// What was asked for, and the last status that was written.
#[derive(Clone, Default)]
struct Seen {
    paths: Arc<Mutex<Vec<String>>>,
    status: Arc<Mutex<Value>>,
}

impl Seen {
    /// Status and reason of a condition.
    fn condition(&self, kind: &str) -> (String, String) {
        let status = self.status.lock().unwrap();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|it| it["type"] == kind).cloned().unwrap_or_default();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    fn is(&self, kind: &str, status: &str, reason: &str) {
        let expected = (status.to_owned(), reason.to_owned());
        assert_eq!(self.condition(kind), expected, "{kind} of {:?}", self.status.lock().unwrap());
    }
}

/// An API server in which there is nothing, and which refuses reads of these paths with this code.
fn refusing(code: u16, is_refused: fn(&str) -> bool, settings: Settings) -> (Context, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let noted = noted.clone();
        async move {
            let path = request.uri().path().to_owned();
            noted.paths.lock().unwrap().push(path.clone());
            let is_watch = request.uri().query().is_some_and(|it| it.contains("watch"));
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (code, reply) = match method {
                Method::GET if is_refused(&path) => (
                    code,
                    json!({"kind": "Status", "code": code, "reason": "r", "status": "Failure",
                        "message": format!("{path} is forbidden")}),
                ),
                Method::GET if is_watch => pending().await,
                Method::GET => (200, json!({"metadata": {"resourceVersion": "7"}, "items": []})),
                _ => {
                    if path.ends_with("/status") {
                        *noted.status.lock().unwrap() = body["status"].clone();
                    }
                    (200, body)
                }
            };
            let reply = Body::from(reply.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(reply).unwrap())
        }
    });
    (fixtures::context(Client::new(server, "default"), settings), seen)
}

#[tokio::test]
async fn o14_a_namespace_that_is_not_managed_is_not_read_and_the_status_says_why() {
    let is_refused = |path: &str| path.contains("/namespaces/team-dns/");
    let (ctx, seen) = refusing(403, is_refused, fixtures::settings());
    ctx.caches.wait_until_read("kube-system").await;
    let mut dns = fixtures::dns("{service: {namespace: team-dns}}");
    // It was managed, and was taken out of workloadNamespaces: its pods serve.
    let before = json!({"conditions": [], "replicas":
        {"desired": 2, "ready": 2, "onStableRevision": 2, "summary": "2/2"}});
    dns.status = Some(fixtures::from(before));
    reconcile(&dns, &ctx, true).await.unwrap();
    seen.is("Accepted", "False", "NamespaceNotManaged");
    seen.is("Ready", "Unknown", "NamespaceNotManaged");
    assert_eq!(seen.status.lock().unwrap()["replicas"], Value::Null, "it does not know");
    let paths = seen.paths.lock().unwrap();
    let there: Vec<_> = paths.iter().filter(|path| is_refused(path)).collect();
    assert!(there.is_empty(), "{there:?}");
}

/// Lists were complete, and watches go on: reads of single objects of this namespace fail.
fn is_object(path: &str) -> bool {
    let within = path.split_once("/namespaces/kube-system/").map(|(_, within)| within);
    within.is_some_and(|within| within.contains('/'))
}

/// A ClusterDNS that was ready.
fn was_ready() -> Arc<crds::ClusterDNS> {
    let mut dns = fixtures::dns("{}");
    let ready = json!({"type": "Ready", "status": "True", "reason": "Serving", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    dns.status = Some(fixtures::from(json!({"conditions": [ready]})));
    Arc::new(dns)
}

/// One reconcile that fails, as the controller has it.
async fn fail(dns: &Arc<crds::ClusterDNS>, ctx: &Context) {
    let error = reconcile(dns, ctx, true).await.unwrap_err();
    assert!(format!("{error:#}").contains("is forbidden"), "{error:#}");
    ctx.backoff.failed("default", None, Instant::now(), Failure::default());
    let in_a_row = ctx.backoff.errored("default");
    failed::say(dns, ctx, in_a_row, &Why::Error(error)).await;
}

#[tokio::test]
async fn k23_a_refused_read_of_an_object_is_said_in_the_status() {
    for was_applied in [false, true] {
        let (ctx, seen) = refusing(403, is_object, fixtures::settings());
        ctx.caches.wait_until_read("kube-system").await;
        if was_applied {
            let deployment: DynamicObject = fixtures::from(
                json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "clusterdns-default", "namespace": "kube-system", "uid": "d"}}),
            );
            ctx.memory.applied(Kind::Deployment, &deployment, &deployment);
        }
        let dns = was_ready();
        for _ in 0..6 {
            fail(&dns, &ctx).await;
            // An API server that has just started refuses what it has not read the rights of.
            assert_eq!(*seen.status.lock().unwrap(), Value::Null);
        }
        fail(&dns, &ctx).await;
        seen.is("Ready", "Unknown", "NamespaceUnread");
        seen.is("Degraded", "True", "NamespaceUnread");
        let message = format!("{:?}", seen.status.lock().unwrap());
        assert!(message.contains("cannot read Deployment kube-system/clusterdns-default"));
        assert!(message.contains("helm upgrade"), "{message}");
    }
}

#[tokio::test]
async fn o14_a_clusterdns_whose_reads_fail_again_and_again_says_so() {
    for code in [429, 500] {
        let (ctx, seen) = refusing(code, is_object, fixtures::settings());
        ctx.caches.wait_until_read("kube-system").await;
        let dns = was_ready();
        for _ in 0..6 {
            fail(&dns, &ctx).await;
            assert_eq!(*seen.status.lock().unwrap(), Value::Null);
        }
        fail(&dns, &ctx).await;
        seen.is("Ready", "Unknown", "ReconcileFailed");
        seen.is("Degraded", "True", "ReconcileFailed");
        let message = format!("{:?}", seen.status.lock().unwrap());
        assert!(message.contains("cannot read Deployment kube-system/clusterdns-default"));
        assert!(!message.contains("helm upgrade"), "no right is missing: {message}");
    }
}
