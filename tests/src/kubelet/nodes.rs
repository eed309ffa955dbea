//! Nodes that are objects only, as kubelets register them.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct FakeNode {
    name: String,
    cores: u32,
    labels: Vec<(String, String)>,
}

impl FakeNode {
    /// With four cores, in no zone.
    pub fn new(name: &str) -> FakeNode {
        FakeNode { name: name.to_owned(), cores: 4, labels: Vec::new() }
    }

    /// Several of them, called `PREFIX-0` and so on.
    pub fn several(prefix: &str, count: usize) -> Vec<FakeNode> {
        (0..count).map(|number| FakeNode::new(&format!("{prefix}-{number}"))).collect()
    }

    pub fn cores(mut self, cores: u32) -> FakeNode {
        self.cores = cores;
        self
    }

    /// With a label, such as `type: virtual-kubelet`.
    pub fn label(mut self, key: &str, value: &str) -> FakeNode {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    pub fn zone(self, zone: &str) -> FakeNode {
        self.label("topology.kubernetes.io/zone", zone)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn create(&self, client: &Client) {
        let nodes: Api<Node> = Api::all(client.clone());
        let node: Node = serde_json::from_value(self.manifest()).expect("a Node");
        let created = nodes.create(&PostParams::default(), &node).await;
        created.expect("the API server takes a Node");
        // New Nodes are tainted until their kubelet says that they are ready; no kubelet removes the taint here.
        let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
        let patched = nodes.patch(&self.name, &PatchParams::default(), &untainted).await;
        patched.expect("the API server takes a Node");
    }

    fn manifest(&self) -> Value {
        let mut labels = json!({
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        });
        for (key, value) in &self.labels {
            labels[key] = value.as_str().into();
        }
        let room = json!({"cpu": self.cores.to_string(), "memory": "16Gi", "pods": "110"});
        json!({
            "metadata": {"name": self.name, "labels": labels},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "addresses": [{"type": "InternalIP", "address": crate::netns::NODE_ADDRESS}],
            },
        })
    }
}

pub(super) async fn delete(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete(name, &DeleteParams::default()).await.expect("the API server deletes a Node");
}

/// The Node that a DaemonSet made this Pod for.
pub(super) fn named_by(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields =
        required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    names.next()?.values.as_ref()?.first().cloned()
}
