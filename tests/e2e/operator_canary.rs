//! O7: a changed configuration goes to one pod first, and to the others only when that one answers as well as they do.
//! Three real data planes; every pod is asked all the time what it runs.

mod deleted;
mod edited;
mod listeners;
mod outlives;
mod unreachable;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::kubelet::{FakeNode, Settings};
use tests::netns::{NODE_ADDRESS, inside};
use tests::operator::{NAMESPACE, Scene, apply, config_of, revisions_in};
use tests::upstream::{Script, ScriptedUpstream};
use tokio::task::JoinHandle;

const NAME: &str = "a";
/// A question that the operator asks an upstream through a pod.
const GOOD: &str = "example.com. A\n  answer @ 60 A 192.0.2.80";
const BAD: &str = "* *\n  silent";
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A spec with an extra record at this address, an upstream on this port, and this many seconds of trial.
fn spec(host: &str, upstream: SocketAddr, seconds: u32) -> Value {
    json!({"service": {"name": "dns", "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 3}},
        "drainSeconds": 5, "rollout": {"observeSeconds": seconds},
        "hosts": [{"name": "git.corp.example", "addresses": [host]}],
        "upstreams": {"servers": [{"address": upstream.ip(), "port": upstream.port()}]}})
}

struct Stage {
    scene: Scene,
    good: ScriptedUpstream,
    bad: ScriptedUpstream,
    watch: Watch,
}

impl Stage {
    /// Three pods that run one configuration.
    async fn start() -> Option<Stage> {
        let scene = Scene::start(&FakeNode::several("node", 3), Settings::default()).await?;
        let upstream = |script| {
            let at = SocketAddr::new(NODE_ADDRESS.parse().expect("an address"), 0);
            ScriptedUpstream::start_at(at, Script::one(script).expect("a script")).expect("a port")
        };
        let (good, bad) = (upstream(GOOD), upstream(BAD));
        apply(&scene.client, NAME, spec("192.0.2.1", good.address(), 5)).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        scene.until_condition(NAME, "Progressing", "False", "Complete").await;
        let first = stable(&scene).await;
        let stage = Stage { watch: Watch::start(&scene.client, first), scene, good, bad };
        stage.all_run_stable().await;
        Some(stage)
    }

    async fn apply(&self, host: &str, upstream: &ScriptedUpstream, seconds: u32) {
        apply(&self.scene.client, NAME, spec(host, upstream.address(), seconds)).await;
    }

    /// Waits until a pod other than these tries something; returns the pod and what it tries.
    async fn until_tried_by(&self, none_of: &[&String]) -> (String, String) {
        self.scene
            .until("a canary", async || {
                let state = self.state().await;
                let pod = state["canaryPod"]["name"].as_str()?.to_owned();
                let revision = state["canary"].as_str()?.to_owned();
                (!none_of.contains(&&pod)).then_some((pod, revision))
            })
            .await
    }

    /// Waits until a pod that tries this says that it runs it.
    async fn until_run_by(&self, canary: &str, revision: &str) {
        self.scene
            .until("the canary runs it", async || {
                self.ever_ran(revision).await.contains(canary).then_some(())
            })
            .await;
    }

    async fn state(&self) -> Value {
        self.scene.document(NAME, "rollout.json").await.unwrap_or_default()
    }

    async fn pods(&self) -> Vec<Pod> {
        self.scene.pods(NAME).await
    }

    /// Waits until every pod says that it runs what is stable now.
    async fn all_run_stable(&self) {
        self.scene
            .until("one revision on all pods", async || {
                let stable = stable(&self.scene).await;
                let runs = |pod: &Pod| {
                    config_of(pod).is_ok_and(|said| said["revision"] == stable.as_str())
                };
                let pods = self.pods().await;
                (pods.len() == 3 && pods.iter().all(runs)).then_some(())
            })
            .await;
    }

    /// Waits until all pods run another revision than this; returns it.
    async fn until_promoted(&self, other_than: &str) -> String {
        let promoted = async || Some(stable(&self.scene).await).filter(|it| it != other_than);
        let revision = self.scene.until("a promotion", promoted).await;
        self.all_run_stable().await;
        assert!(self.scene.document(NAME, "canary.json").await.is_none());
        revision
    }

    /// The pods whose logs say that they ever ran this.
    async fn ever_ran(&self, revision: &str) -> BTreeSet<String> {
        let names = self.scene.kubelet.pods(NAMESPACE).into_keys();
        let ran = |name: &String| {
            revisions_in(&self.scene.kubelet.log(NAMESPACE, name)).iter().any(|it| it == revision)
        };
        names.filter(ran).collect()
    }

    async fn events(&self, reason: &str) -> Vec<String> {
        let events = Api::<Event>::namespaced(self.scene.client.clone(), "default");
        let events = events.list(&ListParams::default()).await.expect("Events can be listed");
        let about = events.items.into_iter().filter(|event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(NAME)
        });
        about.filter_map(|event| event.note).collect()
    }
}

async fn stable(scene: &Scene) -> String {
    let state = scene.document(NAME, "rollout.json").await.unwrap_or_default();
    state["stable"].as_str().unwrap_or_default().to_owned()
}

/// What pods ran while a revision was on trial: revision to the pods that were seen to run it before it was stable.
type Tried = BTreeMap<String, BTreeSet<String>>;

/// Asks every pod all the time what it runs.
struct Watch {
    tried: Arc<Mutex<Tried>>,
    most_at_once: Arc<Mutex<usize>>,
    watching: JoinHandle<()>,
}

impl Watch {
    fn start(client: &Client, first: String) -> Watch {
        let (tried, most_at_once) =
            (Arc::<Mutex<Tried>>::default(), Arc::<Mutex<usize>>::default());
        let (client, of_task, most) = (client.clone(), tried.clone(), most_at_once.clone());
        let watching = tokio::spawn(async move {
            let mut stable_before = first;
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
                let of_it =
                    ListParams::default().labels(&format!("clusterdns.dev/instance={NAME}"));
                let Ok(pods) = pods.list(&of_it).await else { continue };
                // Pods are asked one after the other, so one may have stopped before the next one starts: what both
                // passes saw of all pods, they ran at the same time.
                let (mut running, again) = (asked(&pods.items), asked(&pods.items));
                let mut at_once = running.clone();
                for (revision, names) in &mut at_once {
                    names.retain(|name| again.get(revision).is_some_and(|it| it.contains(name)));
                }
                // Read after the pods were asked: if it is not stable now, no pod ran it as stable.
                let Some(stable) = stable_of(&client).await else { continue };
                for seen in [&mut running, &mut at_once] {
                    seen.retain(|revision, _| *revision != stable && *revision != stable_before);
                }
                let count = at_once.values().map(BTreeSet::len).sum();
                let mut most = most.lock().expect("no panic");
                *most = (*most).max(count);
                for (revision, pods) in running {
                    of_task.lock().expect("no panic").entry(revision).or_default().extend(pods);
                }
                stable_before = stable;
            }
        });
        Watch { tried, most_at_once, watching }
    }

    /// The pods that ran it while it was on trial.
    fn tried(&self, revision: &str) -> BTreeSet<String> {
        self.tried.lock().expect("no panic").get(revision).cloned().unwrap_or_default()
    }

    fn most_at_once(&self) -> usize {
        *self.most_at_once.lock().expect("no panic")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// What each pod says that it runs, asked one after the other.
fn asked(pods: &[Pod]) -> Tried {
    let mut running = Tried::new();
    for pod in pods {
        let Ok(said) = config_of(pod) else { continue };
        let revision = said["revision"].as_str().unwrap_or_default().to_owned();
        running.entry(revision).or_default().insert(pod.name_any());
    }
    running
}

async fn stable_of(client: &Client) -> Option<String> {
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let map = maps.get(&format!("clusterdns-{NAME}")).await.ok()?;
    let state: Value = serde_json::from_str(map.data?.get("rollout.json")?).ok()?;
    state["stable"].as_str().map(str::to_owned)
}

#[test]
fn o7_a_change_is_tried_by_one_pod_and_reaches_the_others_only_when_it_is_good() {
    inside(async || {
        let Some(stage) = Stage::start().await else { return };
        let first = stable(&stage.scene).await;

        // Good: one pod, then all.
        stage.apply("192.0.2.2", &stage.good, 5).await;
        let revision = stage.until_promoted(&first).await;
        assert_eq!(stage.watch.tried(&revision).len(), 1, "{:?}", stage.watch.tried);
        assert_eq!(stage.ever_ran(&revision).await.len(), 3);

        // Bad: one pod, then none.
        stage.apply("192.0.2.3", &stage.bad, 60).await;
        let why = stage.scene.until_condition(NAME, "Degraded", "True", "CanaryFailed").await;
        let bad = stage.state().await["failed"].as_str().expect("what failed").to_owned();
        assert!(why.contains(&bad) && why.contains("no server of the default upstreams"), "{why}");
        assert!(why.contains("next trial is at"), "{why}");
        assert!(stage.scene.document(NAME, "canary.json").await.is_none());
        stage.all_run_stable().await;
        assert_eq!(stable(&stage.scene).await, revision);
        let canary = stage.ever_ran(&bad).await;
        assert_eq!(canary.len(), 1, "{canary:?}");
        stage.scene.until("an Event", async || stage.events("CanaryFailed").await.pop()).await;

        // It is not tried again within minutes, also by another leader, until the spec changes.
        let mut stage = stage;
        stage.scene.stop_operator().await;
        stage.scene.start_operator();
        stage
            .scene
            .until("a new leader", async || {
                (stage.scene.operator.log().contains("reconciling")).then_some(())
            })
            .await;
        tests::operator::quiet(&stage.scene.proxy).await;
        assert!(stage.scene.document(NAME, "canary.json").await.is_none());
        assert_eq!(stage.events("CanaryFailed").await.len(), 1);

        // The correction is tried in its turn.
        stage.apply("192.0.2.3", &stage.good, 5).await;
        let corrected = stage.until_promoted(&revision).await;
        stage.scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
        assert!(stage.watch.most_at_once() <= 1, "{:?}", stage.watch.tried);
        assert_eq!(stage.ever_ran(&bad).await, canary, "no other pod has ever run it");

        // A dead upstream does not prevent the change that repairs it.
        stage.good.play(Script::one(BAD).expect("a script"));
        stage.bad.play(Script::one(GOOD).expect("a script"));
        stage.apply("192.0.2.3", &stage.bad, 5).await;
        stage.until_promoted(&corrected).await;
    });
}

/// The same with these fields added.
fn with(mut spec: Value, more: Value) -> Value {
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    spec
}

#[test]
fn o17_a_canary_fails_for_what_clients_would_lose_and_not_for_refusals() {
    inside(async || {
        let Some(stage) = Stage::start().await else { return };
        let first = stable(&stage.scene).await;
        let (client, good) = (stage.scene.client.clone(), stage.good.address());
        let apply_with = async |more: Value| {
            apply(&client, NAME, with(spec("192.0.2.1", good, 5), more)).await;
        };
        let failed = async |words: &str| {
            let why = stage.scene.until_condition(NAME, "Degraded", "True", "CanaryFailed").await;
            assert!(why.contains(words), "{why}");
            assert_eq!(stable(&stage.scene).await, first);
        };
        apply_with(json!({"exposure": {"namespaces": ["kube-sytem"]}})).await;
        failed("kubernetes.default.svc.cluster.local. A: NXDOMAIN").await;
        apply_with(json!({"access": {"clients": ["198.51.100.0/24"]}})).await;
        failed("access.clients: the list refuses").await;

        // A stub domain on a server that refuses what it does not have.
        let server = json!({"address": good.ip(), "port": good.port()});
        let corp = json!([{"domain": "corp.example", "servers": [server]}]);
        apply_with(json!({"stubDomains": corp})).await;
        let with_stub = stage.until_promoted(&first).await;

        // Its servers die: silence fails it. They come back: a person has it tried again at once.
        let dead = json!({"address": stage.bad.address().ip(), "port": stage.bad.address().port()});
        let moved = json!([{"domain": "corp.example", "servers": [dead]}]);
        apply_with(json!({"stubDomains": moved})).await;
        let why = stage.scene.until_condition(NAME, "Degraded", "True", "CanaryFailed").await;
        assert!(why.contains("no server of stub domain corp.example replies"), "{why}");
        stage.bad.play(Script::one(GOOD).expect("a script"));
        let annotation = json!({"metadata": {"annotations": {"clusterdns.dev/retry": "1"}}});
        let all = Api::<crds::ClusterDNS>::all(client.clone());
        let annotated = all.patch(NAME, &PatchParams::default(), &Patch::Merge(&annotation)).await;
        annotated.expect("an annotation");
        stage.until_promoted(&with_stub).await;
        stage.scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
    });
}
