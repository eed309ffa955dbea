//! S8: the Pod Security admission of a real API server, in a namespace that enforces `restricted`, takes every pod that
//! we desire: those of the data plane for each example, and those of the chart.

use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::Request;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tests::control_plane::ControlPlane;
use tests::kubelet::program;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The YAML files right in a folder.
fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join(folder)).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.retain(|path| !path.to_string_lossy().ends_with(".values.yaml"));
    files.sort();
    files
}

/// The pods that these objects are or bring about, and where each is from.
fn pods(origin: &str, yaml: &str) -> Vec<(String, Value)> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    let pod = |object: Value| {
        let name = format!("{origin}: {} {}", object["kind"], object["metadata"]["name"]);
        match object["kind"].as_str() {
            Some("Deployment" | "DaemonSet") => Some((name, object["spec"]["template"].clone())),
            Some("Pod") => Some((name, object)),
            _ => None,
        }
    };
    documents.into_iter().filter_map(pod).collect()
}

/// What `clusterdns-operator render` prints.
fn rendered(file: &Path) -> String {
    let output = Command::new(program("clusterdns-operator"))
        .args(["render", "--file"])
        .arg(file)
        .output()
        .expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", file.display());
    String::from_utf8(output.stdout).expect("text")
}

struct Admission {
    client: Client,
    namespace: String,
}

impl Admission {
    /// What the API server says about a pod, which is not created.
    async fn of(&self, template: &Value) -> Result<(), String> {
        let mut pod = template.clone();
        (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
        pod["metadata"]["name"] = json!("asked-for");
        pod["metadata"]["namespace"] = json!(self.namespace);
        // No pod is admitted without an account that exists.
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default").to_owned();
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        let object =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}});
        let params = PatchParams::apply("tests");
        accounts.patch(&account, &params, &Patch::Apply(&object)).await.expect("an account");
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", self.namespace);
        let request = Request::post(path).body(pod.to_string().into_bytes()).expect("a request");
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message.clone()),
            Err(error) => panic!("the API server does not answer: {error}"),
        }
    }
}

#[tokio::test]
async fn s8_every_pod_we_desire_is_admitted_where_restricted_is_enforced() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let (client, namespace) = (plane.client().await, plane.namespace("restricted").await);
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest"}}});
    let namespaces = Api::<Namespace>::all(client.clone());
    let (params, body) = (PatchParams::default(), Patch::Merge(&labels));
    namespaces.patch(namespace.name(), &params, &body).await.expect("labels");
    let admission = Admission { client, namespace: namespace.name().to_owned() };

    let mut all = Vec::new();
    let examples = yaml_files("crds/examples");
    for file in &examples {
        let found = pods(&file.display().to_string(), &rendered(file));
        assert!(!found.is_empty(), "{} brings about no pod", file.display());
        all.extend(found);
    }
    for folder in ["tests/golden/chart", "charts/manifests"] {
        for file in yaml_files(folder) {
            let text = std::fs::read_to_string(&file).expect("a file");
            all.extend(pods(&file.display().to_string(), &text));
        }
    }
    assert!(all.len() > examples.len() + 4, "the chart's are among them");
    for (name, pod) in &all {
        assert_eq!(admission.of(pod).await, Ok(()), "{name}");
    }

    // The admission works: it refuses each of these, which one of our fields avoids.
    let ours = &all[0].1;
    for (pointer, value) in [
        ("/spec/securityContext/runAsNonRoot", json!(false)),
        ("/spec/securityContext/seccompProfile", json!({"type": "Unconfined"})),
        ("/spec/securityContext/sysctls", json!([{"name": "kernel.msgmax", "value": "65536"}])),
        ("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/spec/containers/0/securityContext/capabilities", json!({"drop": ["NET_RAW"]})),
        (
            "/spec/volumes",
            json!([{"name": "state", "hostPath": {"path": "/"}},
            {"name": "config", "emptyDir": {}}]),
        ),
    ] {
        let mut worse = ours.clone();
        *worse.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is there: {ours:#}")) =
            value;
        let refused = admission.of(&worse).await.expect_err(pointer);
        assert!(refused.contains("violates PodSecurity \"restricted:"), "{pointer}: {refused}");
    }
    let mut worse = ours.clone();
    worse["spec"]["hostNetwork"] = json!(true);
    assert!(admission.of(&worse).await.is_err(), "the node's own network");
}
