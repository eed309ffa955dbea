//! How many pods run, against the real controllers: pods run nothing, so that many of them cost nothing. Every event of
//! the Deployment and its ReplicaSets is read.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tests::control_plane::is_before;
use tests::kubelet::{FakeNode, Play, Recorder, Settings};
use tests::netns::inside;
use tests::operator::{NAMESPACE, Scene, Sizes, apply, wait_until_accepted};

const NAME: &str = "a";
const CHILD: &str = "clusterdns-a";
const SERVICE: &str = "dns";
/// Requests for fake Nodes in progress.
const SIDE_BY_SIDE: usize = 16;

fn spec(scaling: &Value) -> Value {
    json!({"service": {"name": SERVICE, "namespace": NAMESPACE}, "scaling": scaling, "rollout": {"canary": false}})
}

fn fixed(replicas: u32) -> Value {
    json!({"fixed": {"replicas": replicas}})
}

fn in_proportion(nodes: u32) -> Value {
    json!({"proportional": {"nodesPerReplica": nodes, "minReplicas": 2}})
}

/// Nothing runs but the operator: pods are ready at once.
async fn scene(nodes: usize) -> Option<Scene> {
    let pretend = |_: &_| Play::Pretend { ready_after: Some(Duration::ZERO) };
    let settings = Settings { play: Box::new(pretend), ..Settings::default() };
    Scene::start(&FakeNode::several("node", nodes), settings).await
}

async fn until_ready(scene: &Scene, recorder: &Recorder, count: usize) {
    let what = format!("{count} ready pods behind the Service");
    scene
        .until(&what, async || {
            let moments = recorder.moments();
            (moments.last().expect("it began with one").ready.len() == count).then_some(())
        })
        .await;
}

/// Who owns `spec.replicas` of the Deployment, and how many there are.
async fn replicas(client: &Client) -> (i32, Vec<String>) {
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let deployment = deployments.get(CHILD).await.expect("a Deployment");
    let owners = deployment.metadata.managed_fields.into_iter().flatten().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields.pointer("/f:spec/f:replicas").is_some())
    });
    let owners = owners.filter_map(|entry| entry.manager).collect();
    (deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1), owners)
}

/// As the horizontal autoscaler does: over the scale subresource.
async fn autoscale(client: &Client, to: u32) {
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let params = PatchParams {
        field_manager: Some("kube-controller-manager".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"spec": {"replicas": to}}));
    deployments.patch_scale(CHILD, &params, &patch).await.expect("it can be scaled");
}

/// The operator owns `replicas`, or has handed it over.
async fn until_owned(scene: &Scene, by_us: bool) {
    scene
        .until("replicas change hands", async || {
            let (_, owners) = replicas(&scene.client).await;
            (owners.iter().any(|owner| owner == "clusterdns-operator") == by_us).then_some(())
        })
        .await;
}

#[test]
fn o12_five_pods_stay_five_through_every_change_of_who_counts_them() {
    inside(async || {
        let Some(scene) = scene(5).await else { return };
        let load = json!({"load": {"minReplicas": 2, "maxReplicas": 9}});
        apply(&scene.client, NAME, spec(&fixed(5))).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        let recorder = Recorder::start(&scene.client, NAMESPACE, SERVICE).await;
        until_ready(&scene, &recorder, 5).await;
        let recorder = Recorder::start(&scene.client, NAMESPACE, SERVICE).await;
        let sizes = Sizes::start(&scene.client, NAMESPACE, NAME);

        // To an autoscaler and back, twice: the number that the autoscaler chose is kept, too.
        apply(&scene.client, NAME, spec(&load)).await;
        until_owned(&scene, false).await;
        let autoscalers =
            Api::<HorizontalPodAutoscaler>::namespaced(scene.client.clone(), NAMESPACE);
        let of_it = async || autoscalers.get_opt(CHILD).await.expect("a reply");
        let autoscaler = scene.until("an autoscaler", of_it).await.spec.expect("a spec");
        assert_eq!((autoscaler.min_replicas, autoscaler.max_replicas), (Some(2), 9));
        autoscale(&scene.client, 7).await;
        until_ready(&scene, &recorder, 7).await;
        wait_until_accepted(&scene.client, NAME).await;
        apply(&scene.client, NAME, spec(&json!({"load": {"minReplicas": 3, "maxReplicas": 9}})))
            .await;
        scene
            .until("the autoscaler's new bounds", async || {
                (of_it().await?.spec?.min_replicas == Some(3)).then_some(())
            })
            .await;
        assert_eq!(replicas(&scene.client).await.0, 7);

        apply(&scene.client, NAME, spec(&in_proportion(1))).await;
        until_owned(&scene, true).await;
        scene.until("no autoscaler", async || of_it().await.is_none().then_some(())).await;
        // One more than the formula says: a cluster with one node more would have it.
        until_ready(&scene, &recorder, 6).await;
        apply(&scene.client, NAME, spec(&load)).await;
        until_owned(&scene, false).await;
        apply(&scene.client, NAME, spec(&fixed(5))).await;
        until_owned(&scene, true).await;

        // To a pod on every node and back.
        apply(&scene.client, NAME, spec(&json!({"perNode": {}}))).await;
        one_pod_per_node(&scene, 5).await;
        until_ready(&scene, &recorder, 5).await;
        // The Deployment is gone by now: its sizes from here on are those of another one.
        assert_eq!(distinct_but_last(&sizes_until(&scene, &sizes, 0).await), [5, 7, 6, 5]);
        assert!(sizes.of_replica_sets().iter().all(|size| *size >= 5 || *size == 0));
        apply(&scene.client, NAME, spec(&fixed(5))).await;
        let sets = Api::<DaemonSet>::namespaced(scene.client.clone(), NAMESPACE);
        scene
            .until("no DaemonSet", async || sets.get_opt(CHILD).await.ok()?.is_none().then_some(()))
            .await;
        until_ready(&scene, &recorder, 5).await;
        assert!(recorder.fewest_ready() >= 5, "{:#?}", recorder.moments());
    });
}

/// The numbers without the zero of its deletion.
fn distinct_but_last(sizes: &[i32]) -> Vec<i32> {
    let mut sizes = sizes.to_vec();
    assert_eq!(sizes.pop(), Some(0), "it was deleted");
    sizes
}

async fn one_pod_per_node(scene: &Scene, nodes: i32) {
    let sets = Api::<DaemonSet>::namespaced(scene.client.clone(), NAMESPACE);
    scene
        .until("a pod on every node", async || {
            let status = sets.get_opt(CHILD).await.ok()??.status?;
            (status.number_ready == nodes).then_some(())
        })
        .await;
    let deployments = Api::<Deployment>::namespaced(scene.client.clone(), NAMESPACE);
    scene
        .until("no Deployment", async || {
            deployments.get_opt(CHILD).await.ok()?.is_none().then_some(())
        })
        .await;
    let pods = scene.pods(NAME).await;
    let mut on: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_of_daemon_set(pod)) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        *on.entry(node).or_default() += 1;
    }
    assert!(on.len() == nodes as usize && on.values().all(|count| *count == 1), "{on:?}");
    let services = Api::<Service>::namespaced(scene.client.clone(), NAMESPACE);
    let service = services.get(SERVICE).await.expect("a Service").spec.expect("a spec");
    let wanted = if is_before(34) { "PreferClose" } else { "PreferSameNode" };
    assert_eq!(service.traffic_distribution.as_deref(), Some(wanted));
    assert_eq!(service.internal_traffic_policy.as_deref(), Some("Cluster"));
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet")
}

#[test]
fn o12_while_a_daemon_set_takes_over_the_pods_of_the_deployment_can_be_evicted() {
    inside(async || {
        // Its pods never become ready, so the Deployment stays beside it.
        let pretend = |pod: &Pod| Play::Pretend {
            ready_after: (!is_of_daemon_set(pod)).then_some(Duration::ZERO),
        };
        let settings = Settings { play: Box::new(pretend), ..Settings::default() };
        let nodes = FakeNode::several("node", 3);
        let Some(scene) = Scene::start(&nodes, settings).await else { return };
        let budgets = Api::<PodDisruptionBudget>::namespaced(scene.client.clone(), NAMESPACE);
        let has_budget = async || budgets.get_opt(CHILD).await.expect("a reply").is_some();
        apply(&scene.client, NAME, spec(&fixed(2))).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        scene.until("a budget", async || has_budget().await.then_some(())).await;

        apply(&scene.client, NAME, spec(&json!({"perNode": {}}))).await;
        let on_nodes =
            async || scene.pods(NAME).await.iter().filter(|it| is_of_daemon_set(it)).count();
        scene.until("a pod on every node", async || (on_nodes().await == 3).then_some(())).await;
        scene.until("no budget", async || (!has_budget().await).then_some(())).await;
        let of_deployment = scene.pods(NAME).await.into_iter().find(|pod| !is_of_daemon_set(pod));
        evict(&scene, of_deployment.expect("a pod of the Deployment")).await;

        apply(&scene.client, NAME, spec(&fixed(2))).await;
        scene.until("a budget again", async || has_budget().await.then_some(())).await;
        assert_eq!(on_nodes().await, 0, "with one of its pods the budget would allow no eviction");
    });
}

#[test]
fn o12_a_deployment_that_another_client_scaled_to_zero_gets_its_pods_back() {
    inside(async || {
        let Some(scene) = scene(3).await else { return };
        let load = json!({"load": {"minReplicas": 2, "maxReplicas": 9}});
        apply(&scene.client, NAME, spec(&load)).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        until_owned(&scene, false).await;
        let recorder = Recorder::start(&scene.client, NAMESPACE, SERVICE).await;
        until_ready(&scene, &recorder, 2).await;
        // The autoscaler leaves a Deployment of 0 alone.
        autoscale(&scene.client, 0).await;
        until_replicas(&scene, 2).await;
        until_owned(&scene, false).await;
        assert_eq!(replicas(&scene.client).await.0, 2, "handed over without a change");
        until_ready(&scene, &recorder, 2).await;
    });
}

/// Nodes that are objects only, on which nothing will run.
async fn add_nodes(client: &Client, names: impl Iterator<Item = String>, labels: &Value) {
    let nodes = &Api::<Node>::all(client.clone());
    let create = |name: String| async move {
        let room = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room}}))
            .expect("a Node");
        nodes.create(&PostParams::default(), &node).await.expect("the API server takes a Node");
    };
    stream::iter(names).for_each_concurrent(SIDE_BY_SIDE, create).await;
}

async fn until_replicas(scene: &Scene, count: i32) {
    let what = format!("{count} replicas");
    scene.until(&what, async || (replicas(&scene.client).await.0 == count).then_some(())).await;
}

/// The sizes of the Deployment up to this one. A watch may be behind what a request has read.
async fn sizes_until(scene: &Scene, sizes: &Sizes, last: i32) -> Vec<i32> {
    let what = format!("the size {last}, after which nothing came yet");
    scene
        .until(&what, async || {
            let seen = sizes.of_deployment();
            (seen.last() == Some(&last)).then_some(seen)
        })
        .await
}

#[test]
fn o12_pods_follow_the_nodes_that_count_and_not_those_that_flap() {
    inside(async || {
        let Some(scene) = scene(7).await else { return };
        apply(&scene.client, NAME, spec(&in_proportion(2))).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        until_replicas(&scene, 4).await;
        every_pod_is_evicted_and_three_of_four_stay_ready(&scene).await;
        let sizes = Sizes::start(&scene.client, NAMESPACE, NAME);

        // A node that comes and goes: each time the operator looks at what there is.
        for round in 0..3 {
            scene.kubelet.remove_node("node-6").await;
            look(&scene, round * 2).await;
            scene.kubelet.add_node(&FakeNode::new("node-6")).await;
            look(&scene, round * 2 + 1).await;
        }
        // Virtual nodes, which are there before one more real one.
        let is_virtual = json!({"type": "virtual-kubelet", "kubernetes.io/os": "linux"});
        add_nodes(&scene.client, (0..20).map(|n| format!("virtual-{n}")), &is_virtual).await;
        let is_linux = json!({"kubernetes.io/os": "linux"});
        add_nodes(&scene.client, (0..3).map(|n| format!("more-{n}")), &is_linux).await;
        until_replicas(&scene, 5).await;

        // Many: as many pods as the bound allows, and no pod for each of them.
        add_nodes(&scene.client, (0..491).map(|n| format!("many-{n}")), &is_linux).await;
        until_replicas(&scene, 32).await;
        apply(&scene.client, NAME, spec(&json!({"perNode": {}}))).await;
        let why = scene.until_condition(NAME, "Accepted", "False", "PerNodeTooLarge").await;
        assert!(why.contains("501 nodes"), "{why}");
        let sets = Api::<DaemonSet>::namespaced(scene.client.clone(), NAMESPACE);
        assert!(sets.get_opt(CHILD).await.expect("a reply").is_none());
        assert_eq!(replicas(&scene.client).await.0, 32, "what runs is left as it is");

        // Back to seven: fewer pods at once, as nodes that are gone for good are no flapping.
        apply(&scene.client, NAME, spec(&in_proportion(2))).await;
        let nodes = Api::<Node>::all(scene.client.clone());
        let fake = ListParams::default().labels("!kubernetes.io/arch");
        nodes
            .delete_collection(&DeleteParams::default(), &fake)
            .await
            .expect("they can be deleted");
        until_replicas(&scene, 4).await;
        let sizes = sizes_until(&scene, &sizes, 4).await;
        assert!(sizes.starts_with(&[4, 5]), "{sizes:?}");
        assert!(sizes.iter().all(|size| *size >= 4), "{sizes:?}");
    });
}

/// Refused with 429 for as long as the budget allows none.
async fn evict(scene: &Scene, pod: Pod) {
    let pods = Api::<Pod>::namespaced(scene.client.clone(), NAMESPACE);
    let name = pod.metadata.name.expect("a pod has a name");
    scene
        .until("an eviction", async || {
            pods.evict(&name, &EvictParams::default()).await.is_ok().then_some(())
        })
        .await;
}

/// As `kubectl drain` does it, on all nodes at once.
async fn every_pod_is_evicted_and_three_of_four_stay_ready(scene: &Scene) {
    let recorder = Recorder::start(&scene.client, NAMESPACE, SERVICE).await;
    until_ready(scene, &recorder, 4).await;
    let recorder = Recorder::start(&scene.client, NAMESPACE, SERVICE).await;
    let evicted = |pod: Pod| evict(scene, pod);
    stream::iter(scene.pods(NAME).await).for_each_concurrent(SIDE_BY_SIDE, evicted).await;
    until_ready(scene, &recorder, 4).await;
    assert!(recorder.fewest_ready() >= 3, "{:#?}", recorder.moments());
    assert!(recorder.moments().len() > 4, "they were replaced one by one");
}

/// A change of the spec, which the operator acts on with the nodes that there are.
async fn look(scene: &Scene, number: u8) {
    let mut spec = spec(&in_proportion(2));
    spec["hosts"] = json!([{"name": "a.example", "addresses": [format!("192.0.2.{number}")]}]);
    apply(&scene.client, NAME, spec).await;
    wait_until_accepted(&scene.client, NAME).await;
}
