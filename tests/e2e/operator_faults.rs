//! The operator while things break: it is stopped and continued, the API server refuses, another controller undoes its work.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use operator::desired::Kind;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::{Fault, FaultProxy, Requests};
use tests::objects::wait_for;
use tests::operator::{
    Operator, apply, children, condition, prepare, quiet, wait_until_accepted, writes,
};

const NAMESPACE: &str = "dns";
/// Reconciles that may come at once after a quiet time, and one in progress at each end of a measurement.
const BURST: f64 = 17.0;

fn spec(host: &str) -> Value {
    json!({"service": {"name": "dns", "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 2}},
        "rollout": {"canary": false}, "hosts": [{"name": "git.corp.example", "addresses": [host]}]})
}

async fn started() -> Option<(ControlPlane, Client)> {
    let plane = ControlPlane::start(Setup::default()).await?;
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    Some((plane, client))
}

fn to(path: &str) -> Requests {
    Requests::to(path).writes()
}

/// Writes of this kind of the core group.
fn core(plural: &str) -> Requests {
    to(&format!("/api/v1/namespaces/{NAMESPACE}/{plural}"))
}

/// The configuration that pods are given.
async fn stable(client: &Client) -> String {
    let all = children(client, NAMESPACE, "a").await;
    let map = all.get(&(Kind::ConfigMap, "clusterdns-a".to_owned()));
    map.and_then(|map| map["data"]["stable.json"].as_str()).unwrap_or_default().to_owned()
}

async fn wait_until_stable_has(client: &Client, host: &str) {
    wait_for(&format!("a configuration with {host}"), async || {
        stable(client).await.contains(host).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o9_a_leader_that_was_stopped_writes_nothing_and_what_was_on_its_way_is_refused() {
    let Some((plane, client)) = started().await else { return };
    let (first_proxy, second_proxy) =
        (FaultProxy::start(&plane).await, FaultProxy::start(&plane).await);
    let mut first = Operator::start(first_proxy.kubeconfig(), NAMESPACE);
    apply(&client, "a", spec("192.0.2.1")).await;
    wait_until_accepted(&client, "a").await;
    quiet(&first_proxy).await;

    let mut second = Operator::start(second_proxy.kubeconfig(), NAMESPACE);
    wait_for("a standby that looks at the lease", async || {
        (second_proxy.count(&Requests::to("/apis/coordination.k8s.io")) > 2).then_some(())
    })
    .await;
    assert_eq!(second_proxy.count(&writes()), 0, "one leads");

    // Stopped in the middle of a write, which has not arrived yet.
    let configuration = core("configmaps");
    let before = first_proxy.count(&configuration);
    first_proxy.fault(configuration.clone(), Fault::Hang);
    apply(&client, "a", spec("192.0.2.2")).await;
    wait_for("a write on its way", async || {
        (first_proxy.count(&configuration) > before).then_some(())
    })
    .await;
    first.process().signal("STOP");
    wait_until_stable_has(&client, "192.0.2.2").await;
    wait_until_accepted(&client, "a").await;
    apply(&client, "a", spec("192.0.2.3")).await;
    wait_until_stable_has(&client, "192.0.2.3").await;

    // The write arrives now, long after another operator has begun to write: it was made from a state that no longer
    // exists.
    let answers = first_proxy.answered(&configuration).len();
    first_proxy.heal();
    let late = wait_for("the late write", async || {
        first_proxy.answered(&configuration).get(answers).cloned()
    })
    .await;
    assert_eq!(late.status, 409, "{late:?}");
    assert!(stable(&client).await.contains("192.0.2.3"));

    // There is work for it when it continues.
    apply(&client, "a", spec("192.0.2.4")).await;
    let written = first_proxy.count(&writes());
    first.process().signal("CONT");
    assert_eq!(first.ended().await, Some(1), "{}", first.log());
    assert_eq!(first_proxy.count(&writes()), written, "{}", first.log());
    wait_until_stable_has(&client, "192.0.2.4").await;
    wait_until_accepted(&client, "a").await;
    second.process().ensure_running().expect("the second one leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn o13_refusals_are_tried_again_with_patience_until_all_is_as_it_should_be() {
    let Some((plane, client)) = started().await else { return };
    let proxy = FaultProxy::start(&plane).await;
    // Two of each fault, on different objects, and a reply that takes longer than any time limit.
    proxy.fault_times(2, core("serviceaccounts"), Fault::status(429));
    proxy.fault_times(2, core("configmaps"), Fault::status(409));
    proxy.fault_times(1, to("/apis/rbac.authorization.k8s.io"), Fault::status(503));
    proxy.fault_times(1, core("services"), Fault::LoseReply);
    proxy.fault_times(1, to("/apis/clusterdns.dev"), Fault::status(500));
    let mut operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    apply(&client, "a", spec("192.0.2.1")).await;
    wait_for("all children", async || {
        (children(&client, NAMESPACE, "a").await.len() == 9).then_some(())
    })
    .await;
    wait_until_accepted(&client, "a").await;
    quiet(&proxy).await;

    // It waits as long as Retry-After says, which an API server for which it is too much says in the header alone.
    let configuration = core("configmaps");
    let patience = Fault::Overload { status: 429, retry_after_s: 4 };
    proxy.fault_times(1, configuration.clone(), patience);
    let (before, began) = (proxy.count(&configuration), Instant::now());
    apply(&client, "a", spec("192.0.2.8")).await;
    wait_until_stable_has(&client, "192.0.2.8").await;
    assert!(began.elapsed() > Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(proxy.count(&configuration), before + 2);
    quiet(&proxy).await;

    // A fault that stays: the operator does not repeat requests too often, and does all other work.
    proxy.fault(configuration.clone(), Fault::status(503));
    let before = proxy.count(&configuration);
    apply(&client, "a", spec("192.0.2.9")).await;
    let attempts = async |count| {
        wait_for("another attempt", async || {
            (proxy.count(&configuration) >= before + count).then_some(())
        })
        .await;
    };
    // Before the second one: when it is seen, some of the wait for the third one may be over.
    let began = Instant::now();
    attempts(2).await;
    let (others, looks) = (proxy.count(&writes()), operator.reconciles());
    attempts(3).await;
    assert!(began.elapsed() > Duration::from_secs(1), "the third comes after 2 s at least");
    assert!(proxy.count(&writes()) - others <= 4, "{:?}", &proxy.seen(&writes())[others..]);
    assert!(operator.reconciles() - looks <= 2.0, "{looks} before");
    operator.process().ensure_running().expect("the operator runs");
    proxy.heal();
    wait_until_stable_has(&client, "192.0.2.9").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_an_object_that_cannot_be_written_delays_no_urgent_repair() {
    let Some((plane, client)) = started().await else { return };
    let proxy = FaultProxy::start(&plane).await;
    let budgets = to("/apis/policy/v1");
    proxy.fault(budgets.clone(), Fault::status(403));
    let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    apply(&client, "a", spec("192.0.2.1")).await;
    wait_until_stable_has(&client, "192.0.2.1").await;
    // It waits 8 s after the fourth.
    let attempts = async |count| {
        wait_for("an attempt", async || (proxy.count(&budgets) >= count).then_some(())).await;
    };
    attempts(4).await;

    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let theirs = json!({"data": {"stable.json": "{\"format\":1,\"ttlSeconds\":99}"}});
    let params = PatchParams::default();
    maps.patch("clusterdns-a", &params, &Patch::Merge(&theirs)).await.expect("they may");
    wait_until_stable_has(&client, "192.0.2.1").await;
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let none = json!({"spec": {"replicas": 0}});
    deployments.patch("clusterdns-a", &params, &Patch::Merge(&none)).await.expect("they may");
    wait_for("two pods", async || {
        let size = deployments.get("clusterdns-a").await.ok()?.spec?.replicas;
        (size == Some(2)).then_some(())
    })
    .await;
    assert_eq!(proxy.count(&budgets), 4, "before it is tried again\n{}", operator.log());
    proxy.heal();
    wait_for("the last child", async || {
        (children(&client, NAMESPACE, "a").await.len() == 9).then_some(())
    })
    .await;
}

/// A webhook for these requests that takes every connection and never answers.
fn silent_webhook(listener: &TcpListener, group: &str, resource: &str) -> Value {
    let address = listener.local_addr().expect("an address");
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent"}, "webhooks": [{
            "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10, "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://{address}/")},
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
                "operations": ["CREATE", "UPDATE"]}]}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn o13_a_webhook_that_times_out_or_a_rival_controller_causes_no_hot_loop() {
    let Some((plane, client)) = started().await else { return };
    let proxy = FaultProxy::start(&plane).await;
    let hooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let hook = silent_webhook(&listener, "policy", "poddisruptionbudgets");
    let hook = serde_json::from_value(hook).expect("a webhook");
    hooks.create(&PostParams::default(), &hook).await.expect("it is taken");
    let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    apply(&client, "a", spec("192.0.2.1")).await;

    // Everything else is made, and the condition names what is missing.
    let degraded = wait_for("Degraded", async || {
        condition(&client, "a", "Degraded").await.filter(|(status, _)| status == "True")
    })
    .await;
    let made = children(&client, NAMESPACE, "a").await;
    assert_eq!(made.len(), 8, "all but one: {degraded:?}\n{}", operator.log());
    assert!(made.keys().all(|(kind, _)| *kind != Kind::PodDisruptionBudget));
    let (looks, began) = (operator.reconciles(), Instant::now());
    let budgets = to("/apis/policy/v1");
    let attempts = proxy.count(&budgets);
    wait_for("two more attempts", async || (proxy.count(&budgets) >= attempts + 2).then_some(()))
        .await;
    let looks = operator.reconciles() - looks;
    assert!(looks <= began.elapsed().as_secs_f64() + 2.0, "{looks} in {:?}", began.elapsed());
    hooks.delete("silent", &DeleteParams::default()).await.expect("it can be deleted");
    wait_for("the last child", async || {
        (children(&client, NAMESPACE, "a").await.len() == 9).then_some(())
    })
    .await;
    quiet(&proxy).await;

    // Another controller wants another image, and says so whenever ours is there.
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let theirs = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "clusterdns", "image": "example.com/theirs:1"}]}}}});
    let params = PatchParams { field_manager: Some("theirs".into()), ..PatchParams::default() };
    let (looks, began, mut undone) = (operator.reconciles(), Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(12) {
        let patched = deployments.patch("clusterdns-a", &params, &Patch::Strategic(&theirs)).await;
        let version = patched.expect("they may").metadata.resource_version;
        undone += 1;
        wait_for("our answer", async || {
            let now = deployments.get("clusterdns-a").await.ok()?.metadata.resource_version;
            (now != version).then_some(())
        })
        .await;
    }
    let looks = operator.reconciles() - looks;
    assert!(undone > 3, "{undone}");
    let most = began.elapsed().as_secs_f64() + BURST;
    assert!(looks <= most, "{looks} looks in {:?}, {undone} edits undone", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn k22_nothing_is_written_that_follows_from_a_spec_that_is_gone() {
    let Some((plane, client)) = started().await else { return };
    let proxy = FaultProxy::start(&plane).await;
    let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    apply(&client, "a", spec("192.0.2.1")).await;
    wait_until_accepted(&client, "a").await;
    quiet(&proxy).await;

    // As after etcd was restored: the watch of the ClusterDNS is behind that of the ConfigMap.
    proxy.fault(Requests::to("/apis/clusterdns.dev").watches(), Fault::Hang);
    apply(&client, "a", spec("192.0.2.2")).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    maps.delete("clusterdns-a", &DeleteParams::default()).await.expect("it can be deleted");
    let made = wait_for("a configuration", async || {
        Some(stable(&client).await).filter(|text| !text.is_empty())
    })
    .await;
    assert!(made.contains("192.0.2.2"), "{made}\n{}", operator.log());
}
