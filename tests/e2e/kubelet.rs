//! The stand-in kubelet does what a node does: the tests of the operator stand on it.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::helm::Tools;
use tests::kubelet::{
    FakeNode, Kubelet, Play, Recorder, Settings, ask_through, endpoints, through_service,
};
use tests::netns::inside;
use tests::objects::wait_for;

/// In the namespace `dns` everything has this name.
pub(crate) const NAME: &str = "clusterdns";

pub(crate) fn manifest(value: &Value) -> String {
    format!("---\n{value}\n")
}

/// What a data plane needs besides its workload: the rights of `dataplane/rbac`, a Service, a configuration.
pub(crate) fn surroundings() -> String {
    let subjects = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": "dns"}]);
    let binding = |kind: &str, name: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": {"name": name, "namespace": (kind == "Role").then_some("dns")}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    };
    let mut text = String::new();
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dns"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": "dns"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "dns"},
            "data": {"stable.json": json!({"format": 1, "hosts": [
                {"name": "git.corp.example", "addresses": ["192.0.2.7"]}]}).to_string()}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": "dns"},
            "spec": {"clusterIP": "10.96.0.10", "selector": {"app": NAME}, "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": "dns-tcp"}]}}),
        binding("ClusterRole", "clusterdns-dataplane"),
        binding("Role", "clusterdns-dataplane"),
    ] {
        text += &manifest(&object);
    }
    let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/rbac");
    let read = |file: &str| std::fs::read_to_string(rbac.join(file)).expect("the role's file");
    let role = read("role.yaml")
        .replace("{name: clusterdns-dataplane}", "{name: clusterdns-dataplane, namespace: dns}");
    format!("{text}---\n{}---\n{role}", read("clusterrole.yaml"))
}

/// As the operator makes them: port 53 for a user who is not root, a read-only root, a token, an emptyDir.
fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": NAME}},
        "spec": {
            "serviceAccountName": NAME, "dnsPolicy": "Default", "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 12,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532,
                "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "53"}]},
            "volumes": [{"name": "state", "emptyDir": {}},
                {"name": "config", "configMap": {"name": NAME, "optional": true}}],
            "containers": [{
                "name": "dataplane", "image": "example.com/clusterdns:1", "command": ["/clusterdns-dataplane"],
                "args": ["--config-map=$(NAMESPACE)/clusterdns", "--config-dir=/etc/clusterdns",
                    "--state-dir=/var/lib/clusterdns", "--drain-seconds=2"],
                "env": [
                    {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                    {"name": "CLUSTERDNS_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "CLUSTERDNS_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
                "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
                    {"name": "metrics", "containerPort": 9153, "protocol": "TCP"}],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 2},
                "livenessProbe": {"httpGet": {"path": "/livez", "port": "metrics"}},
                "volumeMounts": [{"name": "state", "mountPath": "/var/lib/clusterdns"},
                    {"name": "config", "mountPath": "/etc/clusterdns", "readOnly": true}],
            }],
        },
    })
}

pub(crate) fn deployment(replicas: u32) -> String {
    manifest(
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": "dns"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": NAME}}, "template": template(),
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}}),
    )
}

pub(crate) async fn wait_for_endpoints(
    client: &Client,
    count: usize,
    kubelet: &Kubelet,
) -> Vec<std::net::SocketAddr> {
    let deadline = std::time::Instant::now() + Duration::from_secs(90);
    loop {
        let now = endpoints(client, "dns", NAME).await.unwrap_or_default();
        if now.len() == count {
            return now;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), "dns");
        let late = std::time::Instant::now() >= deadline;
        assert!(
            !late,
            "{now:?}, not {count}\n{}\n{:#?}",
            kubelet.logs(),
            pods.list(&ListParams::default()).await
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn pod_names(client: &Client) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "dns");
    let pods = pods.list(&ListParams::default()).await.expect("a list").items;
    pods.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

#[test]
fn two_data_planes_are_ready_answer_through_the_service_and_are_replaced() {
    inside(async || {
        let Some(plane) = ControlPlane::start(Setup::for_pods()).await else { return };
        let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
        let client = plane.client().await;
        // Both families where this machine has them; the Service has one.
        let dual_stack = Path::new("/proc/net/if_inet6").exists();
        let settings = Settings { dual_stack, ..Settings::default() };
        let kubelet = Kubelet::start(&plane, &FakeNode::several("node", 2), settings).await;
        tools.apply(&surroundings()).ok();
        tools.apply(&deployment(2)).ok();
        wait_for_endpoints(&client, 2, &kubelet).await;
        let recorder = Recorder::start(&client, "dns", NAME).await;

        let answers =
            through_service(&client, "dns", NAME, "clusterdns.dns.svc.cluster.local. A").await;
        for (server, text) in answers.expect("replies") {
            assert!(text.to_string().contains("10.96.0.10"), "{server}: {text}");
        }
        let text = ask_through(&client, "dns", NAME, "git.corp.example. A").await.expect("a reply");
        assert!(text.to_string().contains("192.0.2.7"), "{text}");

        // Killed: the same Pod and address, a new process.
        let names = pod_names(&client).await;
        let address = kubelet.addresses("dns", &names[0]);
        assert_eq!(address.len(), if dual_stack { 2 } else { 1 });
        kubelet.kill("dns", &names[0]);
        wait_for("a restart", async || (kubelet.restarts("dns", &names[0]) == 1).then_some(()))
            .await;
        wait_for("the loss", async || {
            recorder.moments().iter().any(|moment| moment.ready.len() == 1).then_some(())
        })
        .await;
        wait_for_endpoints(&client, 2, &kubelet).await;
        assert_eq!(kubelet.addresses("dns", &names[0]), address);
        assert_eq!(kubelet.restarts("dns", &names[1]), 0);

        // Deleted: drained, gone, and another one in its place.
        let pods: Api<Pod> = Api::namespaced(client.clone(), "dns");
        pods.delete(&names[1], &DeleteParams::default()).await.expect("deleted");
        wait_for("another pod", async || {
            let now = pod_names(&client).await;
            (now.len() == 2 && !now.contains(&names[1])).then_some(())
        })
        .await;
        wait_for_endpoints(&client, 2, &kubelet).await;
        assert!(recorder.fewest_ready() >= 1, "{:#?}", recorder.moments());
        let was_ending = recorder.moments().iter().any(|moment| !moment.ending.is_empty());
        assert!(was_ending, "it still served while it drained: {:#?}", recorder.moments());
    });
}

#[test]
fn pods_of_a_daemon_set_run_on_their_node_and_others_pretend() {
    inside(async || {
        let Some(plane) = ControlPlane::start(Setup::for_pods()).await else { return };
        let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
        let client = plane.client().await;
        let nodes = [FakeNode::new("one").zone("a"), FakeNode::new("two").zone("b").cores(8)];
        let never_ready =
            |pod: &Pod| match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                Some("one") => Play::Pretend { ready_after: None },
                _ => Play::Pretend { ready_after: Some(Duration::ZERO) },
            };
        let settings = Settings { play: Box::new(never_ready), ..Settings::default() };
        let kubelet = Kubelet::start(&plane, &nodes, settings).await;
        tools.apply(&surroundings()).ok();
        tools
            .apply(&manifest(&json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": NAME, "namespace": "dns"},
            "spec": {"selector": {"matchLabels": {"app": NAME}}, "template": template()}})))
            .ok();

        let ready = wait_for_endpoints(&client, 1, &kubelet).await;
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "dns");
        wait_for("one of two ready", async || {
            let status = sets.get(NAME).await.ok()?.status?;
            (status.number_ready == 1 && status.current_number_scheduled == 2).then_some(())
        })
        .await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), "dns");
        let pods = pods.list(&ListParams::default()).await.expect("a list").items;
        let node_of = |address: IpAddr| {
            let has = |pod: &&Pod| {
                pod.status.as_ref().and_then(|s| s.pod_ip.clone()) == Some(address.to_string())
            };
            pods.iter().find(has).and_then(|pod| pod.spec.as_ref()?.node_name.clone())
        };
        assert_eq!(node_of(ready[0].ip()).as_deref(), Some("two"));

        kubelet.add_node(&FakeNode::new("three")).await;
        wait_for_endpoints(&client, 2, &kubelet).await;
        assert_eq!(kubelet.pods("dns").len(), 3);

        tools.kubectl(&["delete", "--namespace=dns", "daemonset", NAME]).ok();
        wait_for("all to end", async || kubelet.pods("dns").is_empty().then_some(())).await;
    });
}

#[test]
fn a_program_that_cannot_start_is_started_again_and_never_ready() {
    inside(async || {
        let Some(plane) = ControlPlane::start(Setup::for_pods()).await else { return };
        let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
        let kubelet = Kubelet::start(&plane, &[FakeNode::new("one")], Settings::default()).await;
        tools.apply(&surroundings()).ok();
        tools.apply(&deployment(1).replace("--drain-seconds=2", "--no-such-flag")).ok();
        let client = plane.client().await;
        wait_for("restarts", async || {
            kubelet.pods("dns").values().any(|restarts| *restarts >= 2).then_some(())
        })
        .await;
        let names = pod_names(&client).await;
        assert!(kubelet.log("dns", &names[0]).contains("--no-such-flag"));
        let deployments: Api<Deployment> = Api::namespaced(client, "dns");
        let status = deployments.get(NAME).await.expect("it is there").status;
        assert_eq!(status.and_then(|status| status.ready_replicas), None);
    });
}

#[test]
fn helm_and_kubectl_see_this_cluster_and_nothing_of_the_machine() {
    let Some(tools) = Tools::offline() else { return };
    assert!(tools.helm(&["version"]).ok().contains("v4"));
    let refusal = tools.kubectl(&["get", "namespaces", "--request-timeout=2s"]).refused();
    assert!(!refusal.is_empty());
    let listed = tools.helm(&["repo", "list"]);
    assert!(!listed.success || !listed.stdout.contains("http"), "{listed:?}");
}
