//! What is sent to an API server where another client writes, too.

mod cluster;
mod story;
mod held_back;
mod refused;
mod refused_content;
mod older_words;
mod foreign_entries;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use kube::Client;
use serde_json::Value;

use super::*;
use crate::controller::attempts::Attempts;
use crate::decide::plan::RolloutPlan;
use crate::fixtures::api::{self, Reply};
use crate::fixtures::{at, context, dns, from, settings};
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
    let client = api::client(move |it| {
        if !it.path.ends_with("/deployments/clusterdns-default") {
            // Watches of a cluster in which nothing happens.
            return Reply::silence();
        }
        let mut contested = asked.lock().unwrap();
        contested.written += usize::from(it.is_write());
        Reply::ok(contested.shown(it.is_write()))
    });
    let (dns, mut ctx) = (dns("{}"), context(client, settings()));
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
        apply(&ctx, &mut newest, &desired, (&Observed::default(), at(0)), &plan).await.unwrap()
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

/// An API server that has what is applied, and takes nothing of one kind.
#[derive(Default)]
struct Store {
    version: u64,
    objects: BTreeMap<String, Value>,
    /// Paths of all writes.
    written: Vec<String>,
    denied: &'static str,
}

impl Store {
    fn reply(&mut self, path: &str, applied: Option<Value>) -> Reply {
        let Some(mut object) = applied else { return Reply::found(self.objects.get(path)) };
        self.written.push(path.to_owned());
        if !self.denied.is_empty() && path.contains(self.denied) {
            return Reply::status(403, "denied");
        }
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["uid"] = json!("u");
        metadata["managedFields"] = json!([{"manager": names::FIELD_MANAGER, "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
        self.objects.insert(path.to_owned(), object.clone());
        Reply::ok(object)
    }

    /// As `kubectl scale` does.
    fn scale(&mut self, path: &str, replicas: u32) {
        self.version += 1;
        let object = self.objects.get_mut(path).unwrap();
        object["spec"]["replicas"] = json!(replicas);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {}});
    }

    fn count(&self, part: &str) -> usize {
        self.written.iter().filter(|path| path.contains(part)).count()
    }
}

/// A client of it; watches of other objects show nothing.
fn client(store: &Arc<Mutex<Store>>) -> Client {
    let store = store.clone();
    api::client(move |asked| {
        if !asked.path.ends_with("/clusterdns-default") {
            return Reply::silence();
        }
        let applied = asked.is_write().then(|| asked.body.clone());
        store.lock().unwrap().reply(&asked.path, applied)
    })
}

fn ours(api_version: &str, kind: &str, spec: Value) -> DynamicObject {
    let owner = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "default", "uid": "dns-uid"});
    from(json!({"apiVersion": api_version, "kind": kind, "spec": spec,
        "metadata": {"name": "clusterdns-default", "namespace": "kube-system", "labels": names::labels("default"),
            "ownerReferences": [owner]}}))
}

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/kube-system/deployments/clusterdns-default";

fn two_objects() -> Desired {
    let budget = ours("policy/v1", "PodDisruptionBudget", json!({"maxUnavailable": 1}));
    let deployment = ours("apps/v1", "Deployment", json!({"replicas": 2}));
    let objects = vec![(Kind::PodDisruptionBudget, budget), (Kind::Deployment, deployment)];
    Desired { objects }
}

fn plan() -> Plan {
    let rollout = RolloutPlan::default();
    Plan { service: ServicePlan::Own, size: Size::Replicas(2), rollout, budget: true }
}

#[tokio::test]
async fn o13_what_is_denied_for_good_is_tried_with_patience_and_delays_no_other_object() {
    let denied = Store { denied: "poddisruptionbudgets", ..Store::default() };
    let store = Arc::new(Mutex::new(denied));
    let (mut dns, mut ctx) = (dns("{}"), context(client(&store), settings()));
    ctx.attempts = Attempts::by(|| *NOW);
    let count = |part: &str| store.lock().unwrap().count(part);
    let unwanted = Child {
        kind: Kind::NetworkPolicy,
        namespace: "kube-system".to_owned(),
        name: "clusterdns-default".to_owned(),
        uid: "u".to_owned(),
    };
    let observed = Observed { children: vec![unwanted.clone()], ..Observed::default() };
    let apply = async |dns: &ClusterDNS| {
        let mut newest = Newest::new(&ctx, dns, true);
        apply(&ctx, &mut newest, &two_objects(), (&observed, at(0)), &plan()).await.unwrap()
    };
    let first = apply(&dns).await;
    assert_eq!((first.pruned.clone(), count("networkpolicies")), (vec![unwanted], 1));
    for edits in 1..5 {
        store.lock().unwrap().scale(DEPLOYMENT, 0);
        let outcome = apply(&dns).await;
        assert_eq!((count("budgets"), count("deployments")), (1, edits + 1));
        assert_eq!(outcome.applied.failures, first.applied.failures, "it is still reported");
        let is_soon = outcome.again_in.is_some_and(|again| again <= Duration::from_millis(1_250));
        assert!(!outcome.is_complete() && is_soon, "{outcome:?}");
    }
    dns.metadata.generation = Some(2);
    apply(&dns).await;
    assert_eq!(count("budgets"), 2, "another spec is tried at once");
}

#[tokio::test]
async fn o4_what_another_client_always_deletes_is_not_created_each_time() {
    let store = Arc::<Mutex<Store>>::default();
    let (dns, mut ctx) = (dns("{}"), context(client(&store), settings()));
    ctx.memory.contention = Contention::by(|| *NOW);
    let mut newest = Newest::new(&ctx, &dns, true);
    for looks in 1..8 {
        let observed = (&Observed::default(), at(0));
        let outcome = apply(&ctx, &mut newest, &two_objects(), observed, &plan()).await.unwrap();
        let count = |part: &str| store.lock().unwrap().count(part);
        // Clients depend on the pods.
        assert_eq!((count("budgets"), count("deployments")), (looks.min(4), looks));
        let is_contested = looks >= 4;
        let pause = Some(Duration::from_secs(2)).filter(|_| looks > 4);
        assert_eq!(outcome.again_in, pause);
        assert_eq!(outcome.applied.contested.len(), if is_contested { 2 } else { 0 });
        store.lock().unwrap().objects.clear();
    }
}

#[tokio::test]
async fn o4_a_clusterdns_that_is_created_again_and_again_is_no_contest() {
    let store = Arc::<Mutex<Store>>::default();
    let (mut dns, mut ctx) = (dns("{}"), context(client(&store), settings()));
    ctx.memory.contention = Contention::by(|| *NOW);
    for n in 0..8 {
        // The garbage collector has deleted the objects of the one before.
        store.lock().unwrap().objects.clear();
        let uid = format!("dns-{n}");
        let mut desired = two_objects();
        for (_, object) in &mut desired.objects {
            object.owner_references_mut()[0].uid = uid.clone();
        }
        dns.metadata.uid = Some(uid);
        let mut newest = Newest::new(&ctx, &dns, true);
        let observed = (&Observed::default(), at(0));
        let outcome = apply(&ctx, &mut newest, &desired, observed, &plan()).await.unwrap();
        assert_eq!(outcome.applied.contested, [], "{n}");
        assert_eq!(outcome.again_in, None, "{n}");
    }
}

#[tokio::test]
async fn o4_while_a_spec_is_refused_what_was_applied_last_is_put_back() {
    let store = Arc::<Mutex<Store>>::default();
    let (dns, ctx) = (dns("{}"), context(client(&store), settings()));
    let mut newest = Newest::new(&ctx, &dns, true);
    let nothing = Observed::default();
    let restore = async |newest: &mut Newest<'_>| {
        let put_back = restore(&ctx, newest, &nothing, at(0)).await.unwrap();
        let written = put_back.outcome.written.into_iter();
        written.map(|it| (it.kind, it.why)).collect::<Vec<_>>()
    };
    assert_eq!(restore(&mut newest).await, [], "nothing was applied");
    apply(&ctx, &mut newest, &two_objects(), (&nothing, at(0)), &plan()).await.unwrap();
    assert_eq!(restore(&mut newest).await, [], "all is as it was");
    store.lock().unwrap().scale(DEPLOYMENT, 0);
    assert_eq!(restore(&mut newest).await, [(Kind::Deployment, Why::Edited)]);
    store.lock().unwrap().objects.clear();
    assert_eq!(restore(&mut newest).await, [(Kind::Deployment, Why::Missing)]);
    let back = store.lock().unwrap().objects[DEPLOYMENT]["spec"]["replicas"].clone();
    assert_eq!(back, 2);
    // People write the objects themselves.
    ctx.memory.let_go("default");
    store.lock().unwrap().objects.clear();
    assert_eq!(restore(&mut newest).await, []);
}
