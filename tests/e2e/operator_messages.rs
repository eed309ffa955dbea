//! O14, O19: what the operator says of a definition that is gone, of edits by others, and of pods that do not start.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::crd::install;
use tests::fault_proxy::FaultProxy;
use tests::objects::wait_for;
use tests::operator::{Operator, apply, condition, prepare, wait_until_accepted};

const NAMESPACE: &str = "dns";
const DEFINITION: &str = "clusterdnses.clusterdns.dev";

fn spec() -> Value {
    json!({"service": {"name": "dns-a", "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 2}}})
}

/// What runs for the time of a test; it ends when dropped.
struct Around(
    #[expect(dead_code, reason = "held only")] ControlPlane,
    #[expect(dead_code, reason = "held only")] FaultProxy,
);

async fn start() -> Option<(Around, Client, Operator)> {
    let plane = ControlPlane::start(Setup::default()).await?;
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let proxy = FaultProxy::start(&plane).await;
    let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    apply(&client, "a", spec()).await;
    wait_until_accepted(&client, "a").await;
    Some((Around(plane, proxy), client, operator))
}

/// Waits for an Event of this reason whose text has this in it.
async fn event(client: &Client, reason: &str, text: &str) {
    let events = Api::<Event>::all(client.clone());
    wait_for(reason, async || {
        let listed = events.list(&ListParams::default()).await.ok()?;
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.note.as_ref().is_some_and(|note| note.contains(text))
        };
        listed.iter().any(is_it).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o14_a_definition_that_is_gone_is_said_and_its_return_is_noticed() {
    let Some((_around, client, operator)) = start().await else { return };
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.delete(DEFINITION, &DeleteParams::default()).await.expect("it can be deleted");
    wait_for("/readyz to name the definition", async || {
        operator.page("/readyz").contains(DEFINITION).then_some(())
    })
    .await;
    assert!(operator.log().contains("does not exist"), "{}", operator.log());
    install(&client).await;
    apply(&client, "a", spec()).await;
    wait_until_accepted(&client, "a").await;
    wait_for("/readyz to say nothing more", async || {
        (operator.page("/readyz") == "ok\n").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o19_edits_by_others_and_pods_that_do_not_start_are_degraded_or_events() {
    let Some((_around, client, operator)) = start().await else { return };
    event(&client, "Created", "Deployment dns/clusterdns-a").await;
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let edit = json!({"spec": {"replicas": 7}});
    let params = PatchParams { field_manager: Some("a-user".to_owned()), ..PatchParams::default() };
    deployments.patch("clusterdns-a", &params, &Patch::Merge(&edit)).await.expect("an edit");
    event(&client, "ForeignEditUndone", "a-user changed fields of Deployment dns/clusterdns-a")
        .await;

    // The edit may have made pods, which go again.
    wait_for("the pods of the edit to be gone", async || {
        let held = deployments.get("clusterdns-a").await.ok()?;
        let (wanted, status) = (held.spec?.replicas?, held.status?);
        let is_seen = status.observed_generation >= held.metadata.generation;
        (wanted != 7 && is_seen && status.replicas == Some(wanted)).then_some(())
    })
    .await;
    // There is no kubelet: what one writes about a pod is written here.
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let waiting = json!({"status": {"containerStatuses": [{"name": "dataplane", "ready": false, "restartCount": 0,
        "image": "registry.example/dns:9", "imageID": "",
        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}});
    // On a busy machine the first of these pods may still be one that goes.
    let name = wait_for("Degraded", async || {
        let listed = pods.list(&ListParams::default()).await.ok()?;
        let pod = listed.items.iter().find(|pod| pod.metadata.deletion_timestamp.is_none())?;
        let (name, params) = (pod.name_any(), PatchParams::default());
        pods.patch_status(&name, &params, &Patch::Merge(&waiting)).await.ok()?;
        let degraded = condition(&client, "a", "Degraded").await?;
        (degraded == ("True".to_owned(), "ImagePullFailed".to_owned())).then_some(name)
    })
    .await;
    event(&client, "ImagePullFailed", &format!("{name} cannot pull the image")).await;
    assert!(
        operator.metric(r#"clusterdns_operator_condition{name="a",condition="Degraded"}"#) > 0.0
    );
}
