//! What is sent to an API server where another client writes, too.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;

use super::*;
use crate::decide::plan::RolloutPlan;
use crate::fixtures::{context, dns, from, settings};
use contention::Contention;

static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A Deployment that another client sets to be paused after each write of ours, and how often we wrote it.
#[derive(Default)]
struct Contested {
    version: u64,
    written: usize,
}

impl Contested {
    fn shown(&mut self, is_ours: bool) -> Value {
        self.version += 1;
        let (ours, theirs) = match is_ours {
            true => (json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}), json!({})),
            false => (json!({"f:spec": {"f:replicas": {}}}), json!({"f:spec": {"f:paused": {}}})),
        };
        let owner = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "default", "uid": "dns-uid"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"paused": !is_ours, "replicas": 2},
            "metadata": {"name": "clusterdns-default", "namespace": "kube-system", "uid": "d", "ownerReferences": [owner],
                "resourceVersion": self.version.to_string(), "managedFields": [
                    {"manager": names::FIELD_MANAGER, "operation": "Apply", "fieldsV1": ours},
                    {"manager": "argocd", "operation": "Update", "fieldsV1": theirs}]}})
    }
}

#[tokio::test]
async fn o4_a_field_that_another_client_always_sets_back_is_not_written_each_time() {
    let contested = Arc::<Mutex<Contested>>::default();
    let asked = contested.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let (asked, is_write) = (asked.clone(), request.method() != Method::GET);
        let is_it = request.uri().path().ends_with("/deployments/clusterdns-default");
        async move {
            if !is_it {
                // Watches of a cluster in which nothing happens.
                pending::<()>().await;
            }
            let shown = {
                let mut contested = asked.lock().unwrap();
                contested.written += usize::from(is_write);
                contested.shown(is_write)
            };
            Ok::<_, Infallible>(Response::new(Body::from(shown.to_string().into_bytes())))
        }
    });
    let (dns, mut ctx) = (dns("{}"), context(Client::new(server, "default"), settings()));
    ctx.memory.contention = Contention::by(|| *NOW);
    let wanted: DynamicObject = from(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "clusterdns-default", "namespace": "kube-system"}, "spec": {"paused": false, "replicas": 2}}));
    let plan = Plan {
        service: ServicePlan::Own,
        size: Size::Replicas(2),
        rollout: RolloutPlan::default(),
        budget: false,
    };
    let apply = async |wanted: &DynamicObject| {
        let desired = Desired { objects: vec![(Kind::Deployment, wanted.clone())] };
        let mut newest = Newest::new(&ctx, &dns, true);
        apply(&ctx, &mut newest, &desired, &Observed::default(), &plan).await.unwrap()
    };
    let written = || contested.lock().unwrap().written;
    for n in 1..=4 {
        let outcome = apply(&wanted).await;
        assert_eq!((written(), outcome.again_in), (n, None), "an edit is put back at once");
        assert_eq!(outcome.applied.contested.len(), usize::from(n == 4));
    }
    for _ in 0..10 {
        let outcome = apply(&wanted).await;
        assert_eq!((written(), outcome.again_in), (4, Some(Duration::from_secs(2))));
        let contested = &outcome.applied.contested[0];
        assert_eq!(contested.what, "Deployment kube-system/clusterdns-default");
        assert_eq!(
            (&contested.managers[..], &contested.fields[..]),
            (&["argocd".to_owned()][..], &["spec.paused".to_owned()][..])
        );
    }
    let mut edited = wanted.clone();
    edited.data["spec"]["replicas"] = json!(3);
    apply(&edited).await;
    assert_eq!(written(), 5, "another spec is written at once");
}
