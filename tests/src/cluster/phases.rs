//! Every state that a ClusterDNS was seen in, as tools that wait for it see it.

use std::sync::{Arc, Mutex};

use crds::ClusterDNS;
use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::condition;
use crate::kstatus::{Kstatus, kstatus};
use crate::objects::wait_for;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// `metadata.generation` at this moment.
    pub generation: i64,
    /// What kstatus makes of it.
    pub kstatus: Kstatus,
    /// Status of the condition Ready; empty: there is none.
    pub ready: String,
    pub reason: String,
}

/// Watches one ClusterDNS until it is dropped.
pub struct Phases {
    seen: Arc<Mutex<Vec<Value>>>,
    watching: JoinHandle<()>,
}

impl Phases {
    /// Follows a ClusterDNS from before it is created.
    pub async fn start(client: &Client, name: &str) -> Phases {
        let all: Api<ClusterDNS> = Api::all(client.clone());
        // The API server needs a moment until it serves a new resource.
        let from = wait_for("the resource to be served", async || {
            all.list(&ListParams::default()).await.ok()
        })
        .await;
        let version = from.metadata.resource_version.unwrap_or_default();
        let of_it = WatchParams::default().fields(&format!("metadata.name={name}"));
        let events = all.watch(&of_it, &version).await.expect("it can be watched");
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let of_task = seen.clone();
        let watching = tokio::spawn(async move {
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(dns) | WatchEvent::Modified(dns)) = event else { continue };
                let dns = serde_json::to_value(dns).expect("it is JSON");
                of_task.lock().expect("no panic").push(dns);
            }
        });
        Phases { seen, watching }
    }

    /// The object in each state, in order, as the API server sent it.
    pub fn objects(&self) -> Vec<Value> {
        self.seen.lock().expect("no panic").clone()
    }

    /// All of them in order, each different from the one before.
    pub fn all(&self) -> Vec<Phase> {
        let mut phases: Vec<Phase> = self.objects().iter().map(phase).collect();
        phases.dedup();
        phases
    }

    /// What kstatus said of one generation of the spec, in order, each different from the one before.
    pub fn of_generation(&self, generation: i64) -> Vec<Kstatus> {
        let phases = self.all().into_iter().filter(|phase| phase.generation == generation);
        let mut said: Vec<Kstatus> = phases.map(|phase| phase.kstatus).collect();
        said.dedup();
        said
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn phase(dns: &Value) -> Phase {
    let ready = condition(dns, "Ready");
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    Phase {
        generation: dns["metadata"]["generation"].as_i64().unwrap_or_default(),
        kstatus: kstatus(dns),
        ready: text("status"),
        reason: text("reason"),
    }
}
