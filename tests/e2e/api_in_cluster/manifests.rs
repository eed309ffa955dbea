//! A data plane as the operator deploys it, with what it needs around it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tests::kubelet::{Kubelet, endpoints};

/// In the namespace `dns` everything has this name.
pub(super) const NAME: &str = "clusterdns";

fn manifest(value: &Value) -> String {
    format!("---\n{value}\n")
}

/// What a data plane needs besides its workload: the rights of `dataplane/rbac`, a Service, a configuration.
pub(super) fn surroundings() -> String {
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
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 1},
                "livenessProbe": {"httpGet": {"path": "/livez", "port": "metrics"}},
                "volumeMounts": [{"name": "state", "mountPath": "/var/lib/clusterdns"},
                    {"name": "config", "mountPath": "/etc/clusterdns", "readOnly": true}],
            }],
        },
    })
}

pub(super) fn deployment(replicas: u32) -> String {
    manifest(
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": "dns"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": NAME}}, "template": template(),
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}}),
    )
}

pub(super) async fn wait_for_endpoints(
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

pub(super) async fn pod_names(client: &Client) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "dns");
    let pods = pods.list(&ListParams::default()).await.expect("a list").items;
    pods.into_iter().filter_map(|pod| pod.metadata.name).collect()
}
