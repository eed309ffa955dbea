//! O4 while a spec is refused: the mistake of one person makes no edit of another client permanent. No pod runs here.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::FaultProxy;
use tests::objects::wait_for;
use tests::operator::{Operator, apply, condition, prepare, quiet, wait_until_accepted};

const NAMESPACE: &str = "dns";
const CHILD: &str = "clusterdns-a";

fn spec() -> Value {
    json!({"service": {"name": "dns", "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 3}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_while_a_spec_is_refused_what_others_edit_and_delete_is_put_back() {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let proxy = FaultProxy::start(&plane).await;
    apply(&client, "a", spec()).await;
    let mut operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    wait_until_accepted(&client, "a").await;
    quiet(&proxy).await;

    let mut refused = spec();
    let tls = json!({"serverName": "dns.example", "caBundle": {"name": "no-such-bundle"}});
    refused["stubDomains"] = json!([{"domain": "lab.example",
        "servers": [{"address": "192.0.2.1", "transport": "TLS", "tls": tls}]}]);
    refused["scaling"]["fixed"]["replicas"] = json!(5);
    apply(&client, "a", refused).await;
    let refusal = async || {
        condition(&client, "a", "Accepted").await.filter(|(_, reason)| reason == "CABundleMissing")
    };
    wait_for("a refusal", refusal).await;

    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let roles = Api::<Role>::namespaced(client.clone(), NAMESPACE);
    let deployment = async || deployments.get_opt(CHILD).await.expect("an answer");
    let size = |found: &Deployment| found.spec.as_ref().and_then(|spec| spec.replicas);
    let first = deployment().await.expect("a Deployment");
    let document = async || maps.get(CHILD).await.ok()?.data?.remove("stable.json");
    let before = document().await.expect("a configuration");

    let none = json!({"spec": {"replicas": 0}});
    let params = PatchParams::default();
    deployments.patch(CHILD, &params, &Patch::Merge(&none)).await.expect("it may");
    let has_three = async || deployment().await.filter(|found| size(found) == Some(3));
    wait_for("three pods, as the spec before said", has_three).await;

    let theirs = json!({"data": {"stable.json": "{\"format\":1,\"ttlSeconds\":99}"}});
    maps.patch(CHILD, &params, &Patch::Merge(&theirs)).await.expect("it may");
    let is_back = async || document().await.filter(|text| *text == before);
    wait_for("the configuration before", is_back).await;

    deployments.delete(CHILD, &DeleteParams::default()).await.expect("it may");
    roles.delete(CHILD, &DeleteParams::default()).await.expect("it may");
    let is_another = async || has_three().await.filter(|found| found.uid() != first.uid());
    wait_for("the Deployment again", is_another).await;
    wait_for("the Role again", async || roles.get_opt(CHILD).await.ok()?).await;
    assert!(refusal().await.is_some(), "it is still refused\n{}", operator.log());
    quiet(&proxy).await;

    // An operator that starts now has applied nothing itself.
    operator.stop().await;
    let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    wait_for("a look", async || (operator.reconciles() > 0.0).then_some(())).await;
    let found = deployment().await.expect("a Deployment");
    let template = |found: &Deployment| found.spec.as_ref().map(|spec| spec.template.clone());
    deployments.patch(CHILD, &params, &Patch::Merge(&none)).await.expect("it may");
    wait_for("three pods", has_three).await;
    deployments.delete(CHILD, &DeleteParams::default()).await.expect("it may");
    let is_new = async || has_three().await.filter(|it| it.uid() != found.uid());
    let back = wait_for("the Deployment", is_new).await;
    assert_eq!(template(&back), template(&found), "{}", operator.log());
}
