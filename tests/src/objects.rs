//! Creating objects in a real cluster the way its users and kubelets would: manifests in, a Pod that runs without a
//! node out.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::is_before;

/// Generous: a busy machine may run several control planes at once.
const APPEARS_WITHIN: Duration = Duration::from_secs(180);
/// Between the first two questions, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Creates a namespaced object from its manifest, which names its namespace.
pub async fn create<K>(client: &Client, manifest: Value) -> K
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let object: K = serde_json::from_value(manifest).expect("the manifest has this kind's form");
    let namespace = object.meta().namespace.clone().expect("the manifest names its namespace");
    let api: Api<K> = Api::namespaced(client.clone(), &namespace);
    api.create(&PostParams::default(), &object).await.expect("the API server takes the manifest")
}

/// Whether the Kubernetes that the tests run with takes an object: before 1.36 the name of a Service may not begin with a
/// digit (RFC 1035 labels).
pub fn is_taken(manifest: &Value) -> bool {
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    let is_digit = name.starts_with(|first: char| first.is_ascii_digit());
    !(manifest["kind"] == "Service" && is_digit && is_before(36))
}

/// Creates what a manifest of any kind that DNS reads says, a Pod with its status. One that is there already is left
/// as it is.
///
/// # Errors
/// The API server refuses it, and why.
pub async fn create_any(client: &Client, manifest: &Value) -> Result<(), String> {
    let (kind, namespace) = (manifest["kind"].as_str(), manifest["metadata"]["namespace"].as_str());
    let namespace = namespace.unwrap_or("default");
    let path = match kind {
        Some("Namespace") => "/api/v1/namespaces".to_owned(),
        Some("Service") => format!("/api/v1/namespaces/{namespace}/services"),
        Some("Pod") => format!("/api/v1/namespaces/{namespace}/pods"),
        Some("ConfigMap") => format!("/api/v1/namespaces/{namespace}/configmaps"),
        Some("EndpointSlice") => {
            format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
        }
        other => return Err(format!("a manifest of kind {other:?}")),
    };
    let request = hyper::Request::post(path).body(manifest.to_string().into_bytes());
    let created = client.request::<Value>(request.expect("a well-formed request")).await;
    match created {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", manifest["metadata"])),
    }
    if kind == Some("Pod") && !manifest["status"].is_null() {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let status = json!({"status": manifest["status"]});
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        patched.map_err(|error| format!("status of {name}: {error}"))?;
    }
    Ok(())
}

/// Says for the kubelet that this Pod runs, is ready, and has these addresses.
pub async fn run_pod(client: &Client, pod: &Pod, addresses: &[IpAddr]) {
    let namespace = pod.metadata.namespace.as_deref().expect("a Pod has a namespace");
    let name = pod.metadata.name.as_deref().expect("a Pod has a name");
    let status = json!({"status": {
        "phase": "Running",
        "podIP": addresses[0],
        "podIPs": addresses.iter().map(|address| json!({"ip": address})).collect::<Vec<_>>(),
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}],
    }});
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patched = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
    patched.expect("the API server takes a Pod's status");
}

/// Pauses between questions, each half as long again as the one before: what is waited for needs the processor more
/// than the questions do.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST_PAUSE)
    }
}

impl Pauses {
    /// Waits before the next question.
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Asks again and again until there is an answer.
pub async fn wait_for<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + APPEARS_WITHIN;
    let mut pauses = Pauses::default();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {APPEARS_WITHIN:?}");
        pauses.pause().await;
    }
}
