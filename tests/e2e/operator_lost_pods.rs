//! O20: a pod whose node died leaves its Service before Kubernetes gives the node up, and comes back with its kubelet. Real
//! data planes on nodes that can be frozen, and operators with the rights of the chart. Which pods are lost is a table
//! beside the module that decides.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tests::helm::Tools;
use tests::kubelet::{FakeNode, Play, Settings};
use tests::netns::inside;
use tests::objects::{create_any, wait_for};
use tests::operator::{NAMESPACE, Operator, Scene, apply};

/// Where the chart is installed.
const OWN: &str = "clusterdns-system";
const NAME: &str = "default";
const REASON: &str = "PodLost";
const LOST: &str = "clusterdns_operator_lost_pods_total";

struct Stage {
    scene: Scene,
    tools: Tools,
}

impl Stage {
    /// Three pods on three nodes, and an operator that leads and was not started to take out lost pods.
    async fn start() -> Option<Stage> {
        let play = |pod: &Pod| match pod.namespace().as_deref() {
            Some(OWN) => Play::Ignore,
            Some(_) | None => Play::by_command(pod),
        };
        let settings = Settings { play: Box::new(play), ..Settings::default() };
        let scene = Scene::start(&FakeNode::several("node", 3), settings).await?;
        let tools = Tools::new(scene.plane.kubeconfig())?;
        let chart = Tools::chart().display().to_string();
        let install = ["install", "clusterdns", &chart, "--namespace", OWN, "--create-namespace"];
        tools.helm(&install).ok();
        let mut stage = Stage { scene, tools };
        // This operator takes the place of one with every right, which ends here.
        stage.scene.operator = stage.operator(&[]);
        let spec = json!({"scaling": {"fixed": {"replicas": 3}}, "drainSeconds": 5});
        apply(&stage.scene.client, NAME, spec).await;
        stage.scene.until_condition(NAME, "Ready", "True", "Serving").await;
        stage.scene.until_condition(NAME, "Progressing", "False", "Complete").await;
        Some(stage)
    }

    /// An operator with the chart's rights and these additional flags.
    fn operator(&self, more: &[&str]) -> Operator {
        let token = ["create", "token", "clusterdns-operator", "--namespace", OWN];
        let token = self.tools.kubectl(&token).ok();
        let kubeconfig = self.scene.proxy.kubeconfig_with_token(token.trim());
        Operator::start_with(OWN, &kubeconfig, NAMESPACE, more)
    }

    /// Status and reason of `Ready` of a pod.
    async fn ready(&self, name: &str) -> Option<(String, String)> {
        let pods = Api::<Pod>::namespaced(self.scene.client.clone(), NAMESPACE);
        let conditions = pods.get(name).await.ok()?.status?.conditions?;
        let ready = conditions.into_iter().find(|it| it.type_ == "Ready")?;
        Some((ready.status, ready.reason.unwrap_or_default()))
    }

    async fn until_lost(&self, name: &str) {
        let lost = ("False".to_owned(), REASON.to_owned());
        let what = format!("{name} is lost");
        self.scene.until(&what, async || (self.ready(name).await? == lost).then_some(())).await;
    }

    /// The pods behind the Service.
    async fn behind_the_service(&self) -> Vec<String> {
        let slices = Api::<EndpointSlice>::namespaced(self.scene.client.clone(), NAMESPACE);
        let its = ListParams::default().labels("kubernetes.io/service-name=kube-dns");
        let slices = slices.list(&its).await.expect("slices can be listed").items;
        let endpoints = slices.into_iter().flat_map(|slice| slice.endpoints);
        let is_ready = |conditions: Option<k8s_openapi::api::discovery::v1::EndpointConditions>| {
            conditions.and_then(|it| it.ready) == Some(true)
        };
        let ready = endpoints.filter(|endpoint| is_ready(endpoint.conditions.clone()));
        let mut pods: Vec<String> =
            ready.filter_map(|endpoint| endpoint.target_ref?.name).collect();
        pods.sort();
        pods.dedup();
        pods
    }

    async fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.scene.pods(NAME).await.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }

    async fn events(&self) -> Vec<String> {
        let events = Api::<Event>::all(self.scene.client.clone());
        let events = events.list(&ListParams::default()).await.expect("events can be listed");
        let ours = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(REASON));
        ours.filter_map(|event| event.note).collect()
    }
}

#[test]
fn o20_a_pod_of_a_frozen_node_leaves_its_service_and_comes_back_with_its_kubelet() {
    inside(async || {
        let Some(mut stage) = Stage::start().await else { return };
        let names = stage.names().await;
        let [first, others @ ..] = names.as_slice() else { panic!("there are pods") };
        // A busy machine may have pods that are not ready yet.
        wait_for("it says what is off", async || {
            let at_rest = stage.scene.condition(NAME, "Degraded").await.expect("a condition").2;
            at_rest.contains("lostPods.enabled").then_some(())
        })
        .await;

        // The leader was not started to do this; the standby does it.
        let standby = stage.operator(&["--lost-pods"]);
        stage.scene.kubelet.freeze(NAMESPACE, first);
        stage.until_lost(first).await;
        stage
            .scene
            .until("the others are behind the Service", async || {
                (stage.behind_the_service().await == others).then_some(())
            })
            .await;
        assert_eq!(standby.metric(LOST), 1.0, "{}", standby.log());
        assert_eq!(standby.metric("clusterdns_operator_is_leader"), 0.0);
        let message = stage.scene.until_condition(NAME, "Degraded", "True", REASON).await;
        assert!(message.contains(first.as_str()) && message.contains("node"), "{message}");
        stage
            .scene
            .until("an Event", async || {
                stage.events().await.iter().any(|note| note.contains(first.as_str())).then_some(())
            })
            .await;

        // The node is back, and its kubelet says so.
        stage.scene.kubelet.thaw(NAMESPACE, first);
        stage
            .scene
            .until("all are behind the Service", async || {
                (stage.behind_the_service().await == names).then_some(())
            })
            .await;
        stage.scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;

        // It leads, and the node of another pod dies.
        stage.scene.stop_operator().await;
        stage.scene.operator = standby;
        stage
            .scene
            .until("it leads", async || {
                (stage.scene.operator.metric("clusterdns_operator_is_leader") == 1.0).then_some(())
            })
            .await;
        let second = &others[0];
        stage.scene.kubelet.freeze(NAMESPACE, second);
        stage.until_lost(second).await;
        for other in names.iter().filter(|name| *name != second) {
            let ready = stage.ready(other).await.expect("a condition");
            assert_eq!(ready.0, "True", "{other}");
        }
        stage.scene.until_condition(NAME, "Degraded", "True", REASON).await;
        the_policy_refuses_all_else(&stage, first).await;
    });
}

/// S7: with the right to patch `pods/status` the operator can do this, and nothing else.
async fn the_policy_refuses_all_else(stage: &Stage, ours: &str) {
    let other = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "theirs", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "c", "image": "theirs"}]}});
    create_any(&stage.scene.client, &other).await.expect("a pod");
    let patch = async |name: &str, body: &Value| {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status?dryRun=All");
        let request = hyper::Request::patch(path)
            .header("content-type", "application/strategic-merge-patch+json")
            .header("impersonate-user", format!("system:serviceaccount:{OWN}:clusterdns-operator"))
            .body(body.to_string().into_bytes())
            .expect("a request");
        match stage.scene.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message.clone()),
            Err(error) => panic!("the API server does not answer: {error}"),
        }
    };
    let condition = |kind: &str, status: &str, reason: &str| json!({"status": {"conditions": [{"type": kind, "status": status, "reason": reason}]}});
    let lost = condition("Ready", "False", REASON);
    assert_eq!(patch(ours, &lost).await, Ok(()));
    let mut labelled = lost.clone();
    labelled["metadata"] = json!({"labels": {"app": "other"}});
    let mut annotated = lost.clone();
    annotated["metadata"] = json!({"annotations": {"note": "x"}});
    let mut moved = lost.clone();
    moved["status"]["podIP"] = json!("192.0.2.1");
    let mut failed = lost.clone();
    failed["status"]["phase"] = json!("Failed");
    let deleted = json!({"status": {"conditions": [{"$patch": "delete", "type": "PodScheduled"}]}});
    for (what, name, body) in [
        ("a pod of others", "theirs", lost),
        ("another condition", ours, condition("ContainersReady", "False", REASON)),
        ("a new condition", ours, condition("example.com/mine", "True", REASON)),
        ("ready", ours, condition("Ready", "True", "Mine")),
        ("another reason", ours, condition("Ready", "False", "Other")),
        ("a condition less", ours, deleted),
        ("its address", ours, moved),
        ("its phase", ours, failed),
        ("its labels", ours, labelled),
        ("its annotations", ours, annotated),
    ] {
        let refused = patch(name, &body).await.expect_err(what);
        assert!(refused.contains("clusterdns-operator-pods"), "{what}: {refused}");
    }
}
