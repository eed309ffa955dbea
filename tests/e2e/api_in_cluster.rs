//! A data plane in a pod, with only what a pod is given: the token, namespace and authority of its ServiceAccount,
//! and the API server's address in its environment. No kubeconfig, and only the rights of `dataplane/rbac`.

mod manifests;

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use tests::control_plane::{ControlPlane, Setup};
use tests::helm::Tools;
use tests::kubelet::{FakeNode, Kubelet, Settings, ask};
use tests::netns::inside;
use tests::objects::{create, wait_for};

use manifests::{NAME, deployment, pod_names, surroundings, wait_for_endpoints};

/// What the pod answers about a Service in the namespace `default`.
fn answer(pod: SocketAddr, service: &str) -> String {
    let answered = ask(pod, &format!("{service}.default.svc.cluster.local. A"));
    answered.map_or_else(|error| error.to_string(), |text| text.to_string())
}

async fn create_service(client: &Client, name: &str, address: &str) {
    let spec = json!({"clusterIP": address, "ports": [{"port": 80}]});
    let manifest = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
    let _: Service = create(client, manifest).await;
}

/// The API server no longer accepts tokens from before: they are of another account, also if its name is the same.
async fn replace_account(client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "dns");
    let before = accounts.get(NAME).await.expect("it is there").metadata.uid;
    accounts.delete(NAME, &DeleteParams::default()).await.expect("deleted");
    let again = json!({"metadata": {"name": NAME, "namespace": "dns"}});
    let again: ServiceAccount = serde_json::from_value(again).expect("an account");
    wait_for("another account", async || {
        let _ = accounts.create(&PostParams::default(), &again).await;
        let now = accounts.get_opt(NAME).await.ok()??;
        (now.metadata.uid != before).then_some(())
    })
    .await;
}

#[test]
fn k10_a_pod_answers_by_its_service_account_alone_and_takes_the_next_token() {
    inside(async || {
        let Some(mut plane) = ControlPlane::start(Setup::for_pods()).await else { return };
        let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
        let client = plane.client().await;
        let kubelet = Kubelet::start(&plane, &[FakeNode::new("one")], Settings::default()).await;
        tools.apply(&surroundings()).ok();
        tools.apply(&deployment(1)).ok();
        let address = wait_for_endpoints(&client, 1, &kubelet).await[0];

        let pods: Api<Pod> = Api::namespaced(client.clone(), "dns");
        let pod = &pods.list(&ListParams::default()).await.expect("a list").items[0];
        let container = &pod.spec.as_ref().expect("a spec").containers[0];
        let arguments = container.args.iter().flatten();
        assert!(!arguments.into_iter().any(|argument| argument.contains("kubeconfig")));
        create_service(&client, "first", "10.96.0.51").await;
        let live = async |service: &str, expected: &str| {
            wait_for(service, async || answer(address, service).contains(expected).then_some(()))
                .await;
        };
        live("first", "10.96.0.51").await;

        // The token that it began with is no longer valid; the next one is where kubelet writes it. Its watches end with
        // the API server, and the old one opens no new connection.
        let name = &pod_names(&client).await[0];
        replace_account(&client).await;
        kubelet.renew_volumes("dns", name).await;
        plane.stop_api_server();
        assert!(answer(address, "first").contains("10.96.0.51"), "answers stay meanwhile");
        plane.start_api_server().await;
        create_service(&client, "second", "10.96.0.52").await;
        live("second", "10.96.0.52").await;
        assert_eq!(kubelet.restarts("dns", name), 0, "{}", kubelet.log("dns", name));
    });
}
