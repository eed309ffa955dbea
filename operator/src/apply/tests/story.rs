//! A ClusterDNS with two pods on `cluster`, look by look.

use std::sync::{Arc, Mutex};

use super::cluster::{Cluster, Shared, client, lock, selector};
use super::*;
use crate::apply::outcome::PutBack;
use crate::decide::{config_map, decide};
use crate::desired::Desired;
use crate::fixtures::{config, deploy, says};

pub(super) const STABLE: &str = "/data/stable.json";
const CANARY: &str = "/data/canary.json";

/// What a ClusterDNS has with two pods, after all that it asks for was applied.
pub(super) struct Story {
    pub(super) cluster: Shared,
    pub(super) ctx: Context,
    pub(super) dns: ClusterDNS,
    pub(super) observed: Observed,
    /// The document that every pod must run.
    stable: Value,
    seconds: i64,
}

impl Story {
    pub(super) async fn begun(spec: &str) -> Story {
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        let ctx = patient(&cluster, false);
        let (dns, observed) = (dns(spec), Observed::default());
        let mut story = Story { cluster, ctx, dns, observed, stable: Value::Null, seconds: 0 };
        let outcome = story.reconciled().await;
        assert!(outcome.is_complete(), "{outcome:?}");
        let mut deployed = Observed::default();
        deploy(&mut deployed, 2);
        story.stable = lock(&story.cluster).get(Kind::ConfigMap, STABLE);
        story.observed.pods = deployed.pods;
        story.observed.deployment = deployed.deployment;
        story.pods_follow();
        let outcome = story.reconciled().await;
        assert!(outcome.is_complete(), "{outcome:?}");
        story
    }

    /// Another process leads: it remembers nothing, and its caches have what there is.
    pub(super) async fn with_another_leader(&mut self, image: &str) {
        self.ctx = patient(&self.cluster, true);
        self.ctx.settings.dataplane.image = image.to_owned();
        self.ctx.caches.wait_until_read("kube-system").await;
    }

    /// What decisions read; pods say what they ran before an edit.
    pub(super) fn observe(&mut self) {
        let cluster = lock(&self.cluster);
        cluster.shown_in(&mut self.observed);
        let is_edited = || cluster.get(Kind::ConfigMap, STABLE) != self.stable;
        let is_lost = !self.stable.is_null() && is_edited();
        let document = self.stable.as_str().filter(|_| is_lost);
        self.observed.lost_document = document.map(str::to_owned);
    }

    pub(super) async fn reconciled(&mut self) -> Outcome {
        self.seconds += 10;
        self.observe();
        let now = at(self.seconds);
        let settings = &self.ctx.settings;
        let config = config(&self.dns);
        let (config, plan) = decide(&self.dns, &config, &self.observed, settings, now).unwrap();
        let desired = Desired::build(&self.dns, &config, &self.observed, &plan, settings);
        let mut newest = Newest::new(&self.ctx, &self.dns, true);
        apply(&self.ctx, &mut newest, &desired, (&self.observed, now), &plan).await.unwrap()
    }

    pub(super) async fn restored(&mut self) -> PutBack {
        self.observe();
        let mut newest = Newest::new(&self.ctx, &self.dns, true);
        restore(&self.ctx, &mut newest, &self.observed, at(self.seconds)).await.unwrap()
    }

    pub(super) fn pods_follow(&mut self) {
        lock(&self.cluster).shown_in(&mut self.observed);
        let state = config_map::state(&self.observed);
        for pod in ["dns-0", "dns-1"] {
            let is_canary = state.canary_pod.as_ref().is_some_and(|canary| canary.name == pod);
            says(&mut self.observed, pod, if is_canary { &state.canary } else { &state.stable });
        }
    }

    pub(super) fn becomes(&mut self, spec: &str) {
        let generation = self.dns.metadata.generation.map(|generation| generation + 1);
        self.dns = dns(spec);
        self.dns.metadata.generation = generation;
    }

    /// Other clients break all that clients of DNS depend on.
    pub(super) fn break_all(&self) {
        let mut cluster = lock(&self.cluster);
        cluster.edit(Kind::Service, "/spec/selector", Some(json!({"app": "theirs"})));
        cluster.edit(Kind::ConfigMap, STABLE, Some(json!("{}")));
        cluster.edit(Kind::Deployment, "/spec/replicas", Some(json!(0)));
    }

    pub(super) fn is_whole(&self) -> bool {
        let cluster = lock(&self.cluster);
        cluster.get(Kind::Service, "/spec/selector") == selector()
            && cluster.get(Kind::ConfigMap, STABLE) == self.stable
            && cluster.get(Kind::Deployment, "/spec/replicas") == 2
    }

    pub(super) fn stable(&self) -> Value {
        self.stable.clone()
    }

    pub(super) fn canary(&self) -> Value {
        lock(&self.cluster).get(Kind::ConfigMap, CANARY)
    }

    /// A right is gone, and nothing of its kind is written.
    pub(super) fn deny(&self, kind: Kind, plural: &'static str) {
        let mut cluster = lock(&self.cluster);
        cluster.delete(kind);
        cluster.denied.insert(plural);
    }
}

/// An operator whose pauses never end.
fn patient(cluster: &Shared, with_lists: bool) -> Context {
    let mut ctx = context(client(cluster, with_lists), settings());
    ctx.attempts = Attempts::by(|| *NOW);
    ctx
}
