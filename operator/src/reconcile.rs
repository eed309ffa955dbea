//! reconcile(): observe (which probes the pods) -> check -> decide -> desired -> apply -> report. Assumes nothing about
//! why it was called.

use std::time::Duration;

use crds::v1alpha1::ManagementState;
use crds::{ClusterDNS, check_resource};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::apply::outcome::{Outcome, PutBack};
use crate::apply::{Newest, apply, restore};
use crate::context::Context;
use crate::decide::{admit, decide};
use crate::desired::{Desired, Kind, not_remembered};
use crate::names;
use crate::observe::observe;
use crate::report::{Unreported, changes, report, status};

/// What one reconcile found and wrote.
#[derive(Clone, Copy, Debug)]
pub struct Reconciled {
    /// When to reconcile again although nothing changed.
    pub again: Option<Duration>,
    /// Everything that had to be written is written.
    pub is_complete: bool,
    /// A canary runs, and whether it answers must be seen soon, also while other stages fail.
    pub is_on_trial: bool,
    /// The `Retry-After` of the API server, if it sent one.
    pub retry_after: Option<Duration>,
}

/// One reconcile of one ClusterDNS, from observation to report. `is_newest`: it was read from the API server just now.
///
/// # Errors
/// When a read that decisions need fails. With [`Stopped::Outdated`](crate::apply::Stopped) when the API server has another spec.
pub async fn reconcile(
    dns: &ClusterDNS,
    ctx: &Context,
    is_newest: bool,
) -> anyhow::Result<Reconciled> {
    let mut newest = Newest::new(ctx, dns, is_newest);
    let observed = observe(ctx, dns).await?;
    let now = Timestamp::now();
    if dns.spec.management_state == ManagementState::Unmanaged {
        ctx.memory.let_go(&dns.name_any());
    }
    let config = match check_resource(dns) {
        Ok(config) => config,
        Err(violations) => {
            let is_managed = dns.spec.management_state == ManagementState::Managed
                && admit::is_free(dns, &observed, &ctx.settings).is_ok();
            let put_back = match is_managed {
                true => restore(ctx, &mut newest, &observed, now).await?,
                false => PutBack::default(),
            };
            let status = status::rejected(dns, &violations, &observed, &put_back, now);
            let reported = report(ctx, dns, status).await;
            ctx.events.publish_changes(dns, &changes::of_put_back(dns, &put_back)).await;
            return with_status(reported, after(&put_back, None));
        }
    };
    let (config, plan) = match decide(dns, &config, &observed, &ctx.settings, now) {
        Ok(decided) => decided,
        Err(refusal) => {
            let is_managed = dns.spec.management_state == ManagementState::Managed;
            let put_back = match is_managed && !refusal.is_of_others() {
                true => restore(ctx, &mut newest, &observed, now).await?,
                false => PutBack::default(),
            };
            let status = status::refused(dns, &refusal, &observed, &put_back, now);
            // Where the status cannot be written, an Event is all that says why nothing happens.
            let reported = report(ctx, dns, status).await;
            ctx.events.publish_changes(dns, &changes::of_put_back(dns, &put_back)).await;
            if is_managed {
                ctx.events.warn(dns, refusal.reason, &refusal.message).await;
            }
            return with_status(reported, after(&put_back, refusal.again_in));
        }
    };
    let outcome = match dns.spec.management_state {
        ManagementState::Managed => {
            let desired = Desired::build(dns, &config, &observed, &plan, &ctx.settings);
            apply(ctx, &mut newest, &desired, (&observed, now), &plan).await?
        }
        ManagementState::Unmanaged => Outcome::default(),
    };
    if !outcome.written.is_empty() || !outcome.pruned.is_empty() {
        let written: Vec<&str> = outcome.written.iter().map(|it| it.what.as_str()).collect();
        tracing::info!(name = dns.name_any(), ?written, pruned = ?outcome.pruned, "applied");
        let has_state = outcome.written.iter().any(|it| it.kind == Kind::ConfigMap);
        let left_out = observed.service.as_ref().filter(|_| has_state).and_then(not_remembered);
        if let Some(what) = left_out {
            let (namespace, service) = names::service(dns);
            tracing::warn!(
                "the Service {namespace}/{service} is so large that the operator does not remember {what}: if it is deleted, \
                 it is created again without that, or not at all. Delete what is not needed of it"
            );
        }
    }
    let status = status::of(dns, &config, &plan, &outcome.applied, &observed, now);
    let mut changes = changes::of(dns.status.as_ref(), &status, &outcome.written, outcome.switched);
    let (namespace, service) = names::service(dns);
    changes.extend(changes::of_addresses(dns.status.as_ref(), &status, (&namespace, &service)));
    changes.extend(changes::of_adopted_service(dns, &observed));
    let reported = report(ctx, dns, status).await;
    ctx.events.publish_changes(dns, &changes).await;
    // Events of a rollout are true only once its state is written; otherwise it is decided again.
    if !outcome.has_failed(Kind::ConfigMap) {
        ctx.events.publish(dns, &plan.rollout.notices).await;
    }
    let reconciled = Reconciled {
        again: plan.rollout.again_in.into_iter().chain(outcome.again_in).min(),
        is_complete: outcome.is_complete(),
        is_on_trial: plan.rollout.canary.is_some(),
        retry_after: outcome.retry_after,
    };
    with_status(reported, reconciled)
}

/// What follows from what was put back while the spec is refused; `again_in`: when the refusal is looked at again.
fn after(put_back: &PutBack, again_in: Option<Duration>) -> Reconciled {
    let outcome = &put_back.outcome;
    Reconciled {
        again: again_in.into_iter().chain(outcome.again_in).min(),
        is_complete: outcome.is_complete(),
        is_on_trial: false,
        retry_after: outcome.retry_after,
    }
}

/// A status that cannot be written now is one more reason to look again.
fn with_status(reported: anyhow::Result<()>, reconciled: Reconciled) -> anyhow::Result<Reconciled> {
    let Err(error) = reported else { return Ok(reconciled) };
    let Unreported { again_in, retry_after, .. } = error.downcast()?;
    Ok(Reconciled {
        again: reconciled.again.into_iter().chain([again_in]).min(),
        is_complete: false,
        retry_after: reconciled.retry_after.max(retry_after),
        ..reconciled
    })
}

#[cfg(test)]
mod tests {
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
                    Method::GET => {
                        (200, json!({"metadata": {"resourceVersion": "7"}, "items": []}))
                    }
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
        let labels =
            written.iter().filter(|it| it["metadata"]["labels"][names::INSTANCE] == "default");
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
}
