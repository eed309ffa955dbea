//! O16: a user deletes the Service that every pod asks. It comes back with the addresses it had, or the operator says why
//! it cannot; it never comes back with others.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::{Fault, FaultProxy, Requests};
use tests::kubelet::{FakeNode, Settings};
use tests::netns::inside;
use tests::objects::{create_any, wait_for};
use tests::operator::{NAMESPACE, Operator, Scene, apply, condition, prepare, quiet};

const NAME: &str = "default";
const SERVICE: &str = "kube-dns";
const ADDRESS: &str = "10.96.0.10";

fn spec(adopt: bool) -> Value {
    json!({"service": {"name": SERVICE, "namespace": NAMESPACE, "adopt": adopt}, "drainSeconds": 5,
        "scaling": {"fixed": {"replicas": 2}}})
}

fn services(scene: &Scene) -> Api<Service> {
    Api::namespaced(scene.client.clone(), NAMESPACE)
}

async fn service(scene: &Scene) -> Option<Service> {
    services(scene).get_opt(SERVICE).await.expect("the API server answers")
}

fn addresses(service: &Service) -> Vec<String> {
    service.spec.as_ref().and_then(|spec| spec.cluster_ips.clone()).unwrap_or_default()
}

async fn delete(scene: &Scene, name: &str) {
    services(scene).delete(name, &DeleteParams::default()).await.expect("it can be deleted");
}

/// Waits until there is another Service of that name.
async fn until_back(scene: &Scene, before: &Service) -> Service {
    let back = scene
        .until("the Service again", async || {
            service(scene).await.filter(|service| service.uid() != before.uid())
        })
        .await;
    assert_eq!(addresses(&back), addresses(before));
    scene.until_condition(NAME, "Ready", "True", "Serving").await;
    back
}

#[test]
fn o16_a_deleted_service_of_ours_comes_back_with_its_address_or_not_at_all() {
    inside(async || {
        let nodes = FakeNode::several("node", 2);
        let Some(mut scene) = Scene::start(&nodes, Settings::default()).await else { return };
        apply(&scene.client, NAME, spec(false)).await;
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        let before = service(&scene).await.expect("the Service");
        // The API server chose it, and the operator has seen which.
        scene
            .until("the address is remembered", async || {
                let state = scene.document(NAME, "rollout.json").await?;
                (state["service"]["clusterIPs"] == json!(addresses(&before))).then_some(())
            })
            .await;
        delete(&scene, SERVICE).await;
        until_back(&scene, &before).await;

        // Also while the spec is refused, clients get their Service back.
        let mut refused = spec(false);
        let tls = json!({"serverName": "dns.example", "caBundle": {"name": "no-such-bundle"}});
        refused["stubDomains"] = json!([{"domain": "lab.example",
            "servers": [{"address": "192.0.2.1", "transport": "TLS", "tls": tls}]}]);
        apply(&scene.client, NAME, refused).await;
        scene.until_condition(NAME, "Accepted", "False", "CABundleMissing").await;
        let second = service(&scene).await.expect("the Service");
        delete(&scene, SERVICE).await;
        until_back(&scene, &second).await;
        apply(&scene.client, NAME, spec(false)).await;
        scene.until_condition(NAME, "Accepted", "True", "Valid").await;

        // While no operator runs, another Service takes the address.
        scene.stop_operator().await;
        delete(&scene, SERVICE).await;
        let thief = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "thief", "namespace": NAMESPACE},
            "spec": {"clusterIP": addresses(&before)[0], "ports": [{"port": 80}]}});
        create_any(&scene.client, &thief).await.expect("the address is free");
        scene.start_operator();
        let why = scene.until_condition(NAME, "Degraded", "True", "ServiceGone").await;
        assert!(why.contains(&addresses(&before)[0]) && why.contains("allocated"), "{why}");
        assert!(service(&scene).await.is_none(), "never with another address");
        delete(&scene, "thief").await;
        let back = until_back(&scene, &before).await;
        assert_eq!(back.owner_references().len(), 1, "it is ours");
        scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
    });
}

#[test]
fn o16_a_deleted_adopted_service_comes_back_as_it_was_and_without_an_owner() {
    inside(async || {
        let nodes = FakeNode::several("node", 2);
        let Some(scene) = Scene::start(&nodes, Settings::default()).await else { return };
        apply(&scene.client, NAME, spec(true)).await;
        scene.until_condition(NAME, "Accepted", "False", "NothingToAdopt").await;
        let port = |name: &str, port: u16, protocol: &str| {
            json!({"name": name, "port": port,
            "protocol": protocol, "targetPort": port})
        };
        let old = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": SERVICE, "namespace": NAMESPACE,
                "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "coredns"}},
            "spec": {"clusterIP": ADDRESS, "selector": {"k8s-app": "kube-dns"},
                "ports": [port("dns", 53, "UDP"), port("dns-tcp", 53, "TCP"), port("metrics", 9153, "TCP")]}});
        create_any(&scene.client, &old).await.expect("a Service");
        scene.until_condition(NAME, "Ready", "True", "Serving").await;
        let before = service(&scene).await.expect("the Service");
        scene
            .until("what it is is remembered", async || {
                let state = scene.document(NAME, "rollout.json").await?;
                let selector = &state["service"]["manifest"]["spec"]["selector"];
                (selector["clusterdns.dev/instance"] == NAME).then_some(())
            })
            .await;

        // As `helm uninstall coredns` does.
        delete(&scene, SERVICE).await;
        let back = until_back(&scene, &before).await;
        assert_eq!((&back.spec, back.labels()), (&before.spec, before.labels()));
        assert_eq!(back.annotations(), before.annotations());
        assert!(back.owner_references().is_empty(), "it has no owner, as before");
        scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
    });
}

/// Waits until the operator has written down the addresses that it has seen.
async fn is_remembered(client: &Client, service: &Service) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    wait_for("the address is remembered", async || {
        let map = maps.get_opt("clusterdns-default").await.ok()??;
        let state: Value = serde_json::from_str(map.data?.get("rollout.json")?).ok()?;
        (state["service"]["clusterIPs"] == json!(addresses(service))).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o16_a_service_deleted_between_read_and_write_gets_no_other_address() {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return };
    let client = plane.client().await;
    prepare(&client, "pods").await;
    let proxy = FaultProxy::start(&plane).await;
    let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    let mut spec = json!({"service": {"name": SERVICE, "namespace": NAMESPACE}});
    apply(&client, NAME, spec.clone()).await;
    let all = Api::<Service>::namespaced(client.clone(), NAMESPACE);
    let get = async || all.get_opt(SERVICE).await.expect("the API server answers");
    let before = wait_for("the Service", get).await;
    is_remembered(&client, &before).await;
    quiet(&proxy).await;

    // The operator has decided from the Service, and its write is on the way, when a user deletes the Service.
    let writes =
        Requests::to(&format!("/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}")).writes();
    let (count, answered) = (proxy.count(&writes), proxy.answered(&writes).len());
    proxy.fault(writes.clone(), Fault::Hang);
    spec["service"]["trafficDistribution"] = json!("PreferSameNode");
    apply(&client, NAME, spec).await;
    wait_for("a write on its way", async || (proxy.count(&writes) > count).then_some(())).await;
    all.delete(SERVICE, &DeleteParams::default()).await.expect("it can be deleted");
    proxy.heal();
    // That write carries the uid of the deleted Service, so that the API server creates nothing.
    wait_for("an answer to that write", async || {
        (proxy.answered(&writes).len() > answered).then_some(())
    })
    .await;
    let back = wait_for("the Service again", async || {
        get().await.filter(|service| service.uid() != before.uid())
    })
    .await;
    assert_eq!(addresses(&back), addresses(&before), "{}", operator.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn o16_a_service_of_ours_that_is_replaced_is_put_back_and_another_object_is_refused() {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return };
    let client = plane.client().await;
    prepare(&client, "pods").await;
    let mut operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    apply(&client, NAME, json!({"service": {"name": SERVICE, "namespace": NAMESPACE}})).await;
    let all = Api::<Service>::namespaced(client.clone(), NAMESPACE);
    let get = async || all.get_opt(SERVICE).await.expect("the API server answers");
    let before = wait_for("the Service", get).await;
    is_remembered(&client, &before).await;

    // As `kubectl replace` does, and Argo CD with Replace=true.
    let theirs = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {"selector": {"app": "x"}, "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}});
    let parsed: Service = serde_json::from_value(theirs.clone()).expect("a Service");
    let replaced = all.replace(SERVICE, &PostParams::default(), &parsed).await.expect("it may");
    assert_eq!((replaced.uid(), replaced.owner_references().len()), (before.uid(), 0));
    let selector = |service: &Service| service.spec.clone().and_then(|spec| spec.selector);
    let back = wait_for("our Service", async || {
        get().await.filter(|service| selector(service) == selector(&before))
    })
    .await;
    assert_eq!((back.uid(), addresses(&back)), (before.uid(), addresses(&before)));
    assert_eq!(
        (back.owner_references(), back.labels()),
        (before.owner_references(), before.labels())
    );

    // Another object of its name is not ours, and was never adopted.
    operator.stop().await;
    all.delete(SERVICE, &DeleteParams::default()).await.expect("it can be deleted");
    create_any(&client, &theirs).await.expect("a Service");
    let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    wait_for("a refusal", async || {
        let (status, reason) = condition(&client, NAME, "Accepted").await?;
        (status == "False" && reason == "ServiceReplaced").then_some(())
    })
    .await;
    let other = get().await.expect("the Service of others");
    assert_eq!(selector(&other), Some([("app".to_owned(), "x".to_owned())].into()));
    is_remembered(&client, &before).await;
    all.delete(SERVICE, &DeleteParams::default()).await.expect("it can be deleted");
    let back = wait_for("our Service again", async || {
        get().await.filter(|service| service.uid() != other.uid())
    })
    .await;
    assert_eq!(addresses(&back), addresses(&before), "{}", operator.log());
}
