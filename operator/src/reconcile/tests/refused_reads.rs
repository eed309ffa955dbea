//! Reads that the API server refuses: the status says so, and no other namespace is read than those that are managed.

use std::sync::Arc;
use std::time::Instant;

use kube::core::DynamicObject;

use super::*;
use crate::context::Context;
use crate::controller::backoff::Failure;
use crate::controller::failed::{self, Why};
use crate::fixtures::api::Log;

/// What was asked.
struct Seen(Log);

impl Seen {
    /// The last status that was written.
    fn status(&self) -> Value {
        let written = self.0.written("/status").pop().unwrap_or_default();
        written["status"].clone()
    }

    /// Status and reason of a condition.
    fn condition(&self, kind: &str) -> (String, String) {
        let all = self.status()["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|it| it["type"] == kind).cloned().unwrap_or_default();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    fn is(&self, kind: &str, status: &str, reason: &str) {
        let expected = (status.to_owned(), reason.to_owned());
        assert_eq!(self.condition(kind), expected, "{kind} of {:?}", self.status());
    }
}

/// An API server in which there is nothing, and which refuses reads of these paths with this code.
fn refusing(code: u16, is_refused: fn(&str) -> bool, settings: Settings) -> (Context, Seen) {
    let (client, log) = api::logged(move |asked| match is_refused(&asked.path) {
        true if !asked.is_write() => Reply::status(code, &format!("{} is forbidden", asked.path)),
        _ => api::empty(asked),
    });
    (fixtures::context(client, settings), Seen(log))
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
    assert_eq!(seen.status()["replicas"], Value::Null, "it does not know");
    let mut there = seen.0.all();
    there.retain(|asked| is_refused(&asked.path));
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
    let now = Instant::now();
    ctx.backoff.failed("default", None, now, Failure::default());
    let row = ctx.backoff.errored("default", now);
    failed::say(dns, ctx, row, &Why::Error(error)).await;
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
            assert_eq!(seen.status(), Value::Null);
        }
        fail(&dns, &ctx).await;
        seen.is("Ready", "Unknown", "NamespaceUnread");
        seen.is("Degraded", "True", "NamespaceUnread");
        let message = format!("{:?}", seen.status());
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
            assert_eq!(seen.status(), Value::Null);
        }
        fail(&dns, &ctx).await;
        seen.is("Ready", "Unknown", "ReconcileFailed");
        seen.is("Degraded", "True", "ReconcileFailed");
        let message = format!("{:?}", seen.status());
        assert!(message.contains("cannot read Deployment kube-system/clusterdns-default"));
        assert!(!message.contains("helm upgrade"), "no right is missing: {message}");
    }
}
