//! The control plane of the tests behaves like a cluster's: objects, controllers, identities, restarts.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use serde_json::json;
use tests::control_plane::{ControlPlane, Setup, client};
use tests::fault_proxy::FaultProxy;
use tests::objects::{create, run_pod, wait_for};

#[tokio::test]
async fn a_service_and_a_pod_on_a_fake_node_become_an_endpoint_slice() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("slices").await;
    let client = plane.client().await;

    namespace.create_node(&client, namespace.name()).await;
    let service: Service = create(
        &client,
        json!({
            "metadata": {"name": "web", "namespace": namespace.name()},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }),
    )
    .await;
    let pod: Pod = create(
        &client,
        json!({
            "metadata": {"name": "web-0", "namespace": namespace.name(), "labels": {"app": "web"}},
            "spec": {
                "nodeName": namespace.name(),
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "web", "image": "example.com/web"}],
            },
        }),
    )
    .await;
    run_pod(&client, &pod, &["10.244.0.7".parse().expect("an address")]).await;

    let slices: Api<EndpointSlice> = Api::namespaced(client, namespace.name());
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    let ready = wait_for("a ready endpoint of web", async || {
        let slice = slices.list(&of_web).await.ok()?.items.pop()?;
        slice
            .endpoints
            .into_iter()
            .find(|endpoint| endpoint.conditions.as_ref().is_some_and(|c| c.ready == Some(true)))
    })
    .await;
    assert_eq!(ready.addresses, ["10.244.0.7"]);
    assert_eq!(ready.target_ref.and_then(|target| target.name).as_deref(), Some("web-0"));
    assert!(service.spec.and_then(|spec| spec.cluster_ip).is_some_and(|ip| ip != "None"));
}

#[tokio::test]
async fn several_control_planes_run_at_once_and_know_nothing_of_each_other() {
    let (first, second) = tokio::join!(without_controllers(), without_controllers());
    let (Some(first), Some(second)) = (first, second) else { return };

    create_service(&first.client().await, "only-here").await;

    assert_eq!(services(&first.client().await).await, ["kubernetes", "only-here"]);
    assert_eq!(services(&second.client().await).await, ["kubernetes"]);
}

#[tokio::test]
async fn an_api_server_comes_back_with_its_address_data_and_version() {
    let Some(mut plane) = without_controllers().await else { return };
    create_service(&plane.client().await, "kept").await;

    plane.stop_api_server();
    let refused = plane.client().await.apiserver_version().await;
    plane.start_api_server().await;

    assert!(refused.is_err());
    assert_eq!(services(&plane.client().await).await, ["kept", "kubernetes"]);
    let version = plane.client().await.apiserver_version().await.expect("a version");
    assert_eq!((version.git_version.as_str(), version.minor.as_str()), ("v1.36.3", "36"));
}

#[tokio::test]
async fn a_token_has_its_own_rights_only_also_through_the_proxy() {
    let Some(plane) = ControlPlane::start(Setup { controllers: false, ..Setup::default() }).await
    else {
        return;
    };
    let proxy = FaultProxy::start(&plane).await;

    // The scheduler may not read ServiceAccounts; nobody knows the other token.
    for (token, status) in [("scheduler-token", 403), ("no-such-token", 401)] {
        for kubeconfig in [plane.kubeconfig_with_token(token), proxy.kubeconfig_with_token(token)] {
            let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
                Api::all(client(&kubeconfig).await);
            let refusal = accounts.list(&ListParams::default()).await.expect_err("a refusal");
            assert!(
                matches!(&refusal, kube::Error::Api(refusal) if refusal.code == status),
                "{token}: {refusal}"
            );
        }
    }
    assert_eq!(services(&client(proxy.kubeconfig()).await).await, ["kubernetes"]);
}

async fn without_controllers() -> Option<ControlPlane> {
    ControlPlane::start(Setup { controllers: false, ..Setup::default() }).await
}

async fn create_service(client: &kube::Client, name: &str) -> Service {
    let spec = json!({"type": "ExternalName", "externalName": "example.com"});
    create(client, json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).await
}

async fn services(client: &kube::Client) -> Vec<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let list = services.list(&ListParams::default()).await.expect("a list");
    list.items.into_iter().filter_map(|object| object.metadata.name).collect()
}
