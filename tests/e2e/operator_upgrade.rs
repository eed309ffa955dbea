//! The CustomResourceDefinition is newer or older than the operator: upgrades go one step at a time, and back.

use crds::ClusterDNS;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tests::cluster::condition;
use tests::control_plane::{ControlPlane, Setup};
use tests::crd::FIELD_MANAGER;
use tests::objects::wait_for;
use tests::operator::{Operator, apply, prepare};

const NAMESPACE: &str = "dns";
const NEWER: &str = "fromTheFuture";

fn spec(address: &str) -> Value {
    json!({"service": {"name": "dns", "namespace": NAMESPACE}, "rollout": {"canary": false},
        "hosts": [{"name": "git.corp.example", "addresses": [address]}]})
}

/// Lets the API server serve the schema as `change` leaves the fields of the spec and of the status.
async fn serve(client: &Client, change: impl Fn(&str, &mut serde_json::Map<String, Value>)) {
    let mut crd = serde_json::to_value(crds::v1alpha1::crd()).expect("JSON");
    for part in ["spec", "status"] {
        let schema =
            format!("/spec/versions/0/schema/openAPIV3Schema/properties/{part}/properties");
        change(part, crd.pointer_mut(&schema).and_then(Value::as_object_mut).expect("fields"));
    }
    let all = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let name = "clusterdnses.clusterdns.dev";
    all.patch(name, &params, &Patch::Apply(&crd)).await.expect("the API server takes it");
}

/// The object with every field that the API server has, known to us or not.
async fn whole(client: &Client) -> Value {
    let kind = GroupVersionKind::gvk("clusterdns.dev", "v1alpha1", "ClusterDNS");
    let resource = ApiResource::from_gvk_with_plural(&kind, "clusterdnses");
    let all = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let read = async || serde_json::to_value(all.get("a").await.ok()?).ok();
    wait_for("the object", read).await
}

/// Waits until the operator has acted on the present spec and this holds.
async fn wait_until(client: &Client, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for(what, async || {
        let dns = whole(client).await;
        let is_seen = dns["status"]["observedGeneration"] == dns["metadata"]["generation"];
        (is_seen && condition(&dns, "Accepted")["status"] == "True" && is_so(&dns)).then_some(dns)
    })
    .await
}

/// Field managers that have written anything but status.
fn writers_of_spec(dns: &Value) -> Vec<&str> {
    let entries = dns["metadata"]["managedFields"].as_array().into_iter().flatten();
    let of_spec = entries.filter(|entry| entry["subresource"] != "status");
    of_spec.filter_map(|entry| entry["manager"].as_str()).collect()
}

fn is_outdated(dns: &Value) -> bool {
    condition(dns, "Degraded")["reason"] == "CRDOutdated"
}

#[tokio::test(flavor = "multi_thread")]
async fn o11_other_schemas_keep_objects_readable_and_the_operator_never_writes_spec() {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let text = json!({"type": "string"});

    // A schema with a field that this operator does not know, and a user of it.
    serve(&client, |part, fields| {
        if part == "spec" {
            fields.insert(NEWER.to_owned(), text.clone());
        }
    })
    .await;
    let mut newer = spec("192.0.2.7");
    newer[NEWER] = json!("kept");
    let newer = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "a"}, "spec": newer});
    let all = Api::<ClusterDNS>::all(client.clone());
    // Refused, or without the field, until the API server serves the newer schema.
    wait_for("the newer schema", async || {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        all.patch("a", &params, &Patch::Apply(&newer)).await.ok()?;
        (whole(&client).await["spec"][NEWER] == "kept").then_some(())
    })
    .await;
    let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    let dns = wait_until(&client, "a status", |_| true).await;
    assert_eq!(dns["spec"][NEWER], "kept");
    assert!(!is_outdated(&dns), "{dns:#}");
    assert_eq!(writers_of_spec(&dns), [FIELD_MANAGER], "{dns:#}");
    let first = dns["status"]["revision"]["desired"].clone();

    // And back: the object is read without the field, and changed as before.
    serve(&client, |_, _| {}).await;
    wait_for("the schema of before", async || {
        whole(&client).await["spec"][NEWER].is_null().then_some(())
    })
    .await;
    apply(&client, "a", spec("192.0.2.8")).await;
    let is_another = |dns: &Value| dns["status"]["revision"]["desired"] != first;
    let dns = wait_until(&client, "another revision", is_another).await;
    assert!(!is_outdated(&dns), "{dns:#}");
    assert_eq!(writers_of_spec(&dns), [FIELD_MANAGER], "{dns:#}");

    // A schema older than the operator is reported, until it is replaced; also where it lacks what the status has.
    drop(operator);
    serve(&client, |part, fields| {
        let newer = if part == "spec" { "networkPolicy" } else { "domain" };
        fields.remove(newer).expect("a field of ours");
    })
    .await;
    let _operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    let dns = wait_until(&client, "CRDOutdated", is_outdated).await;
    assert!(
        condition(&dns, "Degraded")["message"]
            .as_str()
            .unwrap_or_default()
            .contains("kubectl apply"),
        "{dns:#}"
    );
    serve(&client, |_, _| {}).await;
    let dns = wait_until(&client, "no CRDOutdated", |dns| !is_outdated(dns)).await;
    assert_eq!(writers_of_spec(&dns), [FIELD_MANAGER], "{dns:#}");
    let typed = all.get("a").await.expect("it is readable");
    assert_eq!(typed.spec.hosts.expect("hosts")[0].addresses, ["192.0.2.8"]);
}
