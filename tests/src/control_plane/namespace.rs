//! A namespace of a test's own, so that many tests can use one cluster at the same time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::{ControlPlane, client};
use crate::objects::wait_for;

/// Deleted when dropped, where the cluster outlives the test.
#[derive(Debug)]
pub struct TestNamespace {
    name: String,
    uid: String,
    /// Of the cluster to delete it from.
    delete_with: Option<PathBuf>,
}

impl TestNamespace {
    /// Its name, unique to this test.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates a Node of this name, which is deleted with the namespace. It is an object only: Pods bound to it run
    /// when [`crate::objects::run_pod`] says so, and cannot end in order, so give them no grace period.
    pub async fn create_node(&self, client: &kube::Client, name: &str) {
        let owner =
            json!({"apiVersion": "v1", "kind": "Namespace", "name": self.name, "uid": self.uid});
        let node = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
        let node: Node = serde_json::from_value(node).expect("a Node");
        let created = Api::all(client.clone()).create(&PostParams::default(), &node).await;
        created.expect("the API server takes a Node");
    }
}

impl ControlPlane {
    /// Creates a namespace whose name starts with `prefix`; returns when Pods can be created in it.
    pub async fn namespace(&self, prefix: &str) -> TestNamespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}", std::process::id());
        let client = self.client().await;
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).expect("a Namespace");
        let created = Api::all(client.clone()).create(&PostParams::default(), &object).await;
        let uid = created
            .expect("the API server takes a Namespace")
            .metadata
            .uid
            .expect("objects have a uid");
        if self.has_controllers() {
            let accounts: Api<ServiceAccount> = Api::namespaced(client, &name);
            wait_for("the default ServiceAccount", async || {
                accounts.get_opt("default").await.ok().flatten()
            })
            .await;
        }
        let delete_with = self.is_given().then(|| self.kubeconfig().to_owned());
        TestNamespace { name, uid, delete_with }
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let Some(kubeconfig) = self.delete_with.take() else { return };
        let name = std::mem::take(&mut self.name);
        // A drop cannot await, and the test's runtime may be ending: a thread with its own.
        let deleting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let namespaces: Api<Namespace> = Api::all(client(&kubeconfig).await);
                // One that is left behind is a nuisance, not a failure of the test.
                let _ = namespaces.delete(&name, &DeleteParams::background()).await;
            });
        });
        let _ = deleting.join();
    }
}
