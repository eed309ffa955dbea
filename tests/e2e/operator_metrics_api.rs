//! O12, by load: queries per second where a metrics API offers them. The API is one behind the API server, of which most
//! clusters have had a broken one: a broken one, or a broken kind of another operator, does not stop ours.

use std::time::Duration;

use hyper::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};
use tests::fault_proxy::{Fault, Requests, Seen};
use tests::helm::Tools;
use tests::kubelet::{FakeNode, Play, Settings};
use tests::metrics_api::{MetricsApi, Mood};
use tests::netns::inside;
use tests::operator::{MONITORING_KINDS, NAMESPACE, Scene, apply, wait_until_accepted};

const NAME: &str = "a";
const CHILD: &str = "clusterdns-a";
/// The kinds of the Prometheus operator.
const MONITORING: &str = "/apis/monitoring.coreos.com";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// What the operator reads to see whether its own kind is outdated. While it cannot, it looks every few seconds.
const OWN_KIND: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterdnses.clusterdns.dev";

/// At most this many pods, one for each hundred queries a second.
fn by_load(most: u32) -> Value {
    json!({"service": {"name": "dns", "namespace": NAMESPACE}, "rollout": {"canary": false},
        "scaling": {"load": {"minReplicas": 2, "maxReplicas": most, "queriesPerSecondPerReplica": 100}}})
}

async fn autoscaler(scene: &Scene) -> Option<Value> {
    let all = Api::<HorizontalPodAutoscaler>::namespaced(scene.client.clone(), NAMESPACE);
    let found = all.get_opt(CHILD).await.expect("a reply")?;
    Some(serde_json::to_value(found.spec).expect("a spec is JSON"))
}

async fn replicas(scene: &Scene) -> i32 {
    let all = Api::<Deployment>::namespaced(scene.client.clone(), NAMESPACE);
    all.get(CHILD).await.expect("a Deployment").spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Waits until the autoscaler follows these metrics.
async fn until_metrics(scene: &Scene, expected: &[Value]) {
    let expected = json!(expected);
    let what = format!("an autoscaler with {expected}");
    scene
        .until(&what, async || (autoscaler(scene).await?["metrics"] == expected).then_some(()))
        .await;
}

fn cpu() -> Value {
    let target = json!({"type": "AverageValue", "averageValue": "300m"});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn queries() -> Value {
    let target = json!({"type": "AverageValue", "averageValue": "100"});
    let metric = json!({"name": "clusterdns_queries_per_second"});
    json!({"type": "Pods", "pods": {"metric": metric, "target": target}})
}

/// A change of the spec reaches the cluster.
async fn continues(scene: &Scene, most: u32) {
    apply(&scene.client, NAME, by_load(most)).await;
    wait_until_accepted(&scene.client, NAME).await;
    scene
        .until("the new bound", async || {
            (autoscaler(scene).await?["maxReplicas"] == most).then_some(())
        })
        .await;
}

#[test]
fn o12_load_counts_queries_of_a_metrics_api_and_a_broken_one_delays_nothing() {
    inside(async || {
        let pretend = |_: &_| Play::Pretend { ready_after: Some(Duration::ZERO) };
        let settings = Settings { play: Box::new(pretend), ..Settings::default() };
        let Some(mut scene) = Scene::start(&FakeNode::several("node", 4), settings).await else {
            return;
        };
        let Some(tools) = Tools::new(scene.plane.kubeconfig()) else { return };

        // An operator that cannot discover the kinds of others, nor whether its own is outdated.
        scene.stop_operator().await;
        tools.apply(MONITORING_KINDS).ok();
        scene.proxy.fault(Requests::to(OWN_KIND), Fault::status(403));
        scene.proxy.fault(Requests::to(MONITORING), Fault::Hang);
        scene.start_operator();
        apply(&scene.client, NAME, by_load(9)).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        until_metrics(&scene, &[cpu()]).await;

        // A metrics API is there now, while the others still hang: the autoscaler counts queries, and the number of pods
        // follows.
        let api = MetricsApi::start().await;
        tools.apply(&api.manifests()).ok();
        until_metrics(&scene, &[cpu(), queries()]).await;
        scene
            .until("more pods", async || {
                let pods = scene.pods(NAME).await;
                let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
                // Each of them has twice as much as it should: with two of them, four are wanted.
                api.values(names.iter().take(2).map(String::as_str), 200);
                (replicas(&scene).await >= 4).then_some(())
            })
            .await;

        // Broken in every way: the decision stays, and changes of the spec take effect.
        for (mood, most) in [(Mood::Unavailable, 8), (Mood::Silent, 7)] {
            api.is(mood);
            let asked = api.asked();
            let ask = async || (api.asked() > asked).then_some(());
            scene.until("the autoscaler asks it", ask).await;
            continues(&scene, most).await;
            until_metrics(&scene, &[cpu(), queries()]).await;
        }
        // Also for an operator that knows nothing yet, and where the other kinds are there and cannot be read.
        scene.stop_operator().await;
        scene.proxy.heal();
        scene.proxy.fault(Requests::to(OWN_KIND), Fault::status(403));
        let objects = format!("{MONITORING}/v1/namespaces");
        scene.proxy.fault(Requests::to(&objects), Fault::status(500));
        scene.start_operator();
        continues(&scene, 6).await;
        until_metrics(&scene, &[cpu(), queries()]).await;
        let why = scene.until_condition(NAME, "Degraded", "True", "ApplyFailed").await;
        assert!(why.contains("PodMonitor"), "{why}");

        // The metrics API is removed: back to CPU, with the pods that there are.
        let many = replicas(&scene).await;
        delete(&scene, "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.custom.metrics.k8s.io")
            .await;
        until_metrics(&scene, &[cpu()]).await;
        assert!(many >= 4 && replicas(&scene).await == many, "{many}");

        // The other kinds can be read again, and then they are removed too.
        scene.proxy.heal();
        scene.proxy.fault(Requests::to(OWN_KIND), Fault::status(403));
        continues(&scene, 5).await;
        let monitors = "/apis/monitoring.coreos.com/v1/namespaces/kube-system/podmonitors";
        let monitor = format!("{monitors}/{CHILD}");
        scene.until("a PodMonitor", async || get(&scene, &monitor).await).await;
        scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
        for kind in ["podmonitors", "prometheusrules"] {
            let crd = format!("{CRDS}/{kind}.monitoring.coreos.com");
            delete(&scene, &crd).await;
            let is_gone = async || get(&scene, &crd).await.is_none().then_some(());
            scene.until("no such kind", is_gone).await;
        }
        let looks = scene.proxy.seen(&Requests::to("/apis")).iter().filter(is_look).count();
        scene
            .until("a look that finds none of it", async || {
                let seen = scene.proxy.seen(&Requests::to("/apis"));
                (seen.iter().filter(is_look).count() >= looks + 2).then_some(())
            })
            .await;
        continues(&scene, 4).await;
        scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
    });
}

/// Asks which groups there are.
fn is_look(seen: &&Seen) -> bool {
    seen.path == "/apis"
}

async fn get(scene: &Scene, path: &str) -> Option<Value> {
    let request = Request::get(path).body(Vec::new()).expect("a well-formed request");
    scene.client.request::<Value>(request).await.ok()
}

async fn delete(scene: &Scene, path: &str) {
    let request = Request::delete(path).body(Vec::new()).expect("a well-formed request");
    scene.client.request::<Value>(request).await.expect("it can be deleted");
}
