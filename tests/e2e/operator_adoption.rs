//! O15: taking over the Service of another DNS server, and giving it back. Every EndpointSlice event is read, and a client
//! asks the Service all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use crds::ClusterDNS;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::fault_proxy::Requests;
use tests::kubelet::{FakeNode, Recorder, Settings, endpoints};
use tests::netns::inside;
use tests::operator::{Asking, NAMESPACE, Scene, apply, children, quiet, writes};
use tests::upstream::{Script, ScriptedUpstream};

const NAME: &str = "default";
const SERVICE: &str = "kube-dns";
const KEY: &str = "clusterdns.dev/instance";
/// The field manager of the old DNS server and its Service.
const ADDON_MANAGER: &str = "addon-manager";
/// A question that both DNS servers answer in the same way.
const QUESTION: &str = "kubernetes.default.svc.cluster.local. A";
const ANSWER: &str = "10.96.0.1";

fn spec(adopt: bool) -> Value {
    json!({"service": {"name": SERVICE, "namespace": NAMESPACE, "adopt": adopt}, "drainSeconds": 5,
        "scaling": {"fixed": {"replicas": 2}}, "rollout": {"canary": false}})
}

/// The Service of the cluster's DNS as every installer creates it: one family, numbered target ports.
fn old_service(name: &str, address: &str, target: u16) -> Value {
    let port = |name: &str, port: u16, protocol: &str, target: u16| {
        json!({"name": name, "port": port,
        "protocol": protocol, "targetPort": target})
    };
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE,
        "labels": {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true"}},
        "spec": {"clusterIP": address, "selector": {"k8s-app": "kube-dns"}, "ports": [
            port("dns", 53, "UDP", target), port("dns-tcp", 53, "TCP", target), port("metrics", 9153, "TCP", 9153)]}})
}

/// The DNS server that is there already. Its pods run nothing; an upstream on their port answers for them.
fn old_deployment(replicas: u32) -> Value {
    let labels = json!({"k8s-app": "kube-dns"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "coredns", "image": "example.com/coredns:1"}]}}}})
}

fn old_budget() -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "coredns", "namespace": NAMESPACE},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}}})
}

/// Applies with force, as the addon manager and Argo CD do.
async fn manage(client: &Client, manifest: &Value) {
    let object: DynamicObject = serde_json::from_value(manifest.clone()).expect("an object");
    let name = object.name_any();
    let params = PatchParams::apply(ADDON_MANAGER).force();
    let patch = Patch::Apply(&object);
    let applied = match manifest["kind"].as_str() {
        Some("Service") => of::<Service>(client).patch(&name, &params, &patch).await.map(drop),
        Some("Deployment") => {
            of::<Deployment>(client).patch(&name, &params, &patch).await.map(drop)
        }
        Some("PodDisruptionBudget") => {
            of::<PodDisruptionBudget>(client).patch(&name, &params, &patch).await.map(drop)
        }
        other => panic!("{other:?} is not managed here"),
    };
    applied.unwrap_or_else(|error| panic!("the API server takes {manifest}: {error}"));
}

fn of<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn service(client: &Client) -> Service {
    of::<Service>(client).get(SERVICE).await.expect("the Service is never deleted")
}

async fn selector(client: &Client) -> BTreeMap<String, String> {
    service(client).await.spec.and_then(|spec| spec.selector).unwrap_or_default()
}

/// With our key in its selector, or without.
async fn until_selected(scene: &Scene, by_us: bool) {
    let what = if by_us { "the switch" } else { "the switch back" };
    scene
        .until(what, async || {
            let selector = selector(&scene.client).await;
            assert_eq!(selector.get("k8s-app").map(String::as_str), Some("kube-dns"));
            (selector.get(KEY).is_some_and(|name| name == NAME) == by_us).then_some(())
        })
        .await;
}

/// Addresses of the pods of the other DNS server that run now.
async fn old_pods(scene: &Scene) -> BTreeSet<String> {
    let running =
        scene.kubelet.pods(NAMESPACE).into_keys().filter(|name| name.starts_with("coredns"));
    running
        .flat_map(|name| scene.kubelet.addresses(NAMESPACE, &name))
        .map(|address: IpAddr| address.to_string())
        .collect()
}

/// Waits until exactly these addresses are behind the Service and ready.
async fn until_ready(scene: &Scene, recorder: &Recorder, what: &str, expected: &BTreeSet<String>) {
    scene
        .until(what, async || {
            let moments = recorder.moments();
            (&moments.last().expect("it began with one").ready == expected).then_some(())
        })
        .await;
}

async fn our_pods(scene: &Scene) -> BTreeSet<String> {
    let pods = scene.pods(NAME).await.into_iter();
    pods.filter_map(|pod| pod.status?.pod_ip).collect()
}

/// Everything of the spec but the selector.
fn without_selector(service: &Service) -> ServiceSpec {
    ServiceSpec { selector: None, ..service.spec.clone().expect("a spec") }
}

fn writes_to_services() -> Requests {
    Requests::to(&format!("/api/v1/namespaces/{NAMESPACE}/services")).writes()
}

/// A cluster with another DNS server.
async fn old_cluster() -> Option<(Scene, ScriptedUpstream)> {
    let scene = Scene::start(&FakeNode::several("node", 2), Settings::default()).await?;
    // On every address of this namespace, also those that pods will pretend to have.
    let script = Script::one(&format!("{QUESTION}\n  answer @ 5 A {ANSWER}")).expect("a script");
    let old = ScriptedUpstream::start_at((Ipv4Addr::UNSPECIFIED, 53).into(), script);
    manage(&scene.client, &old_deployment(2)).await;
    manage(&scene.client, &old_budget()).await;
    manage(&scene.client, &old_service(SERVICE, "10.96.0.10", 53)).await;
    scene
        .until("the old pods behind the Service", async || {
            let ready = endpoints(&scene.client, NAMESPACE, SERVICE).await.ok()?;
            (ready.len() == 2).then_some(())
        })
        .await;
    Some((scene, old.expect("port 53 is free in a network of our own")))
}

#[test]
fn o15_a_service_is_adopted_reset_and_given_back_without_a_gap() {
    inside(async || {
        let Some((mut scene, _old)) = old_cluster().await else { return };
        let before = service(&scene.client).await;
        let recorder = Recorder::start(&scene.client, NAMESPACE, SERVICE).await;
        let asking = Asking::start(&scene.client, (NAMESPACE, SERVICE), QUESTION, ANSWER);

        what_cannot_be_adopted_is_refused(&scene).await;
        switch(&scene, &recorder, &before).await;
        resets_are_reported_and_not_fought(&mut scene, &recorder).await;
        give_back(&scene, &recorder, &before).await;

        assert!(recorder.fewest_ready() >= 2, "{:#?}", recorder.moments());
        asking.lost_nothing();
    });
}

async fn what_cannot_be_adopted_is_refused(scene: &Scene) {
    apply(&scene.client, NAME, spec(false)).await;
    scene.until_condition(NAME, "Accepted", "False", "ServiceExists").await;

    manage(&scene.client, &old_service("other-dns", "10.96.0.11", 10_053)).await;
    let other = json!({"service": {"name": "other-dns", "namespace": NAMESPACE, "adopt": true}});
    apply(&scene.client, "other", other).await;
    let why = scene.until_condition("other", "Accepted", "False", "ServicePortsUnserved").await;
    assert!(why.contains("10053/UDP"), "{why}");
    assert_eq!(children(&scene.client, NAMESPACE, "other").await.len(), 0);
    assert_eq!(scene.proxy.count(&writes_to_services()), 0);
    let all = Api::<ClusterDNS>::all(scene.client.clone());
    all.delete("other", &DeleteParams::default()).await.expect("it can be deleted");
}

/// Our pods serve beside the old ones; then the selector gets our key, and nothing else of the Service changes.
async fn switch(scene: &Scene, recorder: &Recorder, before: &Service) {
    let old = old_pods(scene).await;
    apply(&scene.client, NAME, spec(true)).await;
    scene.until_condition(NAME, "Ready", "True", "Serving").await;
    until_selected(scene, true).await;
    let ours = our_pods(scene).await;
    until_ready(scene, recorder, "our pods alone", &ours).await;
    let both: BTreeSet<String> = old.union(&ours).cloned().collect();
    assert!(
        recorder.moments().iter().any(|moment| moment.ready == both),
        "{:#?}",
        recorder.moments()
    );

    let adopted = service(&scene.client).await;
    assert_eq!(without_selector(&adopted), without_selector(before));
    assert_eq!(adopted.labels(), before.labels());
    assert_eq!(adopted.annotations()["clusterdns.dev/adopted-by"], NAME);
    assert!(adopted.owner_references().is_empty(), "{adopted:?}");
    assert_eq!(scene.proxy.count(&writes_to_services()), 1, "one patch is the switch");
    let budgets = of::<PodDisruptionBudget>(&scene.client).list(&Default::default()).await;
    let budgets: Vec<String> =
        budgets.expect("a list").items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(budgets, ["coredns"], "two that select one pod would forbid every eviction");
}

/// The addon manager writes its selector again. The operator reports it by name, and waits before it changes the
/// selector.
async fn resets_are_reported_and_not_fought(scene: &mut Scene, recorder: &Recorder) {
    let both: BTreeSet<String> =
        old_pods(scene).await.union(&our_pods(scene).await).cloned().collect();
    // Number of resets so far; the second at which it is too early, and the one at which it is time.
    for (resets, early, due) in [(1, 1, 61), (2, 61, 121)] {
        manage(&scene.client, &old_service(SERVICE, "10.96.0.10", 53)).await;
        let why = scene.until_condition(NAME, "Degraded", "True", "SelectorReset").await;
        assert!(why.contains(ADDON_MANAGER), "{why}");
        until_ready(scene, recorder, "old and new pods together", &both).await;
        let why = scene.until_condition(NAME, "Ready", "True", "Shared").await;
        assert!(why.contains("it moves after"), "{why}");
        let version = service(&scene.client).await.resource_version();

        // Neither this operator nor the next one changes it before its time.
        let written = scene.proxy.count(&writes());
        scene.stop_operator().await;
        scene.start_operator();
        scene
            .until("a new leader", async || (scene.proxy.count(&writes()) > written).then_some(()))
            .await;
        quiet(&scene.proxy).await;
        assert_eq!(service(&scene.client).await.resource_version(), version);
        let state = scene.document(NAME, "rollout.json").await.expect("rollout.json");
        assert_eq!(state["switch"]["resets"], resets, "{state}");

        // Not before its time, and after it.
        the_reset_was(scene, early, &state).await;
        quiet(&scene.proxy).await;
        assert_eq!(service(&scene.client).await.resource_version(), version);
        the_reset_was(scene, due, &state).await;
        until_selected(scene, true).await;
        until_ready(scene, recorder, "our pods alone again", &our_pods(scene).await).await;
        scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
    }
}

/// Makes the reset look as if it had been noticed this many seconds ago.
async fn the_reset_was(scene: &Scene, seconds_ago: i64, state: &Value) {
    let mut state = state.clone();
    let then = time_before(seconds_ago);
    state["switch"]["resetAt"] = then.into();
    let patch = json!({"data": {"rollout.json": state.to_string()}});
    let maps = of::<ConfigMap>(&scene.client);
    let name = format!("clusterdns-{NAME}");
    maps.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a ConfigMap");
}

fn time_before(seconds: i64) -> String {
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    (Timestamp::now() - SignedDuration::from_secs(seconds)).to_string()
}

/// The Service goes back only to a server that answers: while no other pod behind it is ready, it stays with ours.
async fn give_back(scene: &Scene, recorder: &Recorder, before: &Service) {
    manage(&scene.client, &old_deployment(0)).await;
    scene.until("no old pod", async || old_pods(scene).await.is_empty().then_some(())).await;
    apply(&scene.client, NAME, spec(false)).await;
    let why = scene.until_condition(NAME, "Accepted", "False", "NoOtherServer").await;
    assert!(why.contains("no pod of the other DNS server is ready"), "{why}");
    assert_eq!(selector(&scene.client).await.get(KEY).map(String::as_str), Some(NAME));

    manage(&scene.client, &old_deployment(2)).await;
    until_selected(scene, false).await;
    scene.until_condition(NAME, "Ready", "True", "Released").await;
    scene.until("the old pods", async || (old_pods(scene).await.len() == 2).then_some(())).await;
    until_ready(scene, recorder, "the old pods alone", &old_pods(scene).await).await;
    let back = service(&scene.client).await;
    assert_eq!(back.spec, before.spec);
    assert_eq!(back.annotations(), before.annotations());
    scene
        .until("pods without the label", async || {
            let pods = scene.pods(NAME).await;
            let carry =
                |label: &str| pods.iter().filter(|pod| pod.labels().contains_key(label)).count();
            (carry("k8s-app") == 0 && carry(KEY) == 2).then_some(())
        })
        .await;
}

/// Everything of it is gone, and so are its pods.
async fn until_gone(scene: &Scene) {
    scene
        .until("the garbage collector", async || {
            let left = children(&scene.client, NAMESPACE, NAME).await;
            let pods = scene.kubelet.pods(NAMESPACE).into_keys();
            let ours = pods.filter(|name| name.starts_with("clusterdns-")).count();
            (left.is_empty() && ours == 0).then_some(())
        })
        .await;
}

#[test]
fn o10_an_adopted_service_outlives_its_clusterdns_and_is_given_back_without_a_gap() {
    inside(async || {
        let Some((mut scene, _old)) = old_cluster().await else { return };
        let before = service(&scene.client).await;
        let adopted = json!({"service": {"name": SERVICE, "namespace": NAMESPACE, "adopt": true},
            "scaling": {"fixed": {"replicas": 2}}, "rollout": {"canary": false}, "drainSeconds": 5});
        let all = Api::<ClusterDNS>::all(scene.client.clone());
        let delete = async || all.delete(NAME, &DeleteParams::default()).await.expect("deleted");

        // While an operator runs: it is given back while our pods still drain.
        let asking = Asking::start(&scene.client, (NAMESPACE, SERVICE), QUESTION, ANSWER);
        apply(&scene.client, NAME, adopted.clone()).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        delete().await;
        until_selected(&scene, false).await;
        until_gone(&scene).await;
        asking.lost_nothing();
        drop(asking);
        assert_eq!(service(&scene.client).await.spec, before.spec);

        // Deleted while no operator runs: the next one finds the Service by its annotation.
        apply(&scene.client, NAME, adopted).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        scene.stop_operator().await;
        delete().await;
        until_gone(&scene).await;
        assert_eq!(selector(&scene.client).await.get(KEY).map(String::as_str), Some(NAME));
        scene.start_operator();
        until_selected(&scene, false).await;
        let back = service(&scene.client).await;
        assert_eq!((&back.spec, back.annotations()), (&before.spec, before.annotations()));
        assert_eq!(back.uid(), before.uid());
        let asking = Asking::start(&scene.client, (NAMESPACE, SERVICE), QUESTION, ANSWER);
        scene.until("an answer", async || (asking.heard().answered > 0).then_some(())).await;
    });
}
