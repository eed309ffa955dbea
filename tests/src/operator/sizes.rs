//! How many pods a workload should have, at every event of it and of its ReplicaSets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::api::Api;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, ResourceExt};
use operator::names;
use tokio::task::JoinHandle;

/// Watches until it is dropped.
pub struct Sizes {
    deployment: Arc<Mutex<Vec<i32>>>,
    replica_sets: Arc<Mutex<Vec<i32>>>,
    watching: [JoinHandle<()>; 2],
}

impl Sizes {
    /// Of the Deployment of a ClusterDNS in this namespace.
    pub fn start(client: &Client, namespace: &str, name: &str) -> Sizes {
        let of_it = Config::default().labels(&format!("{}={name}", names::INSTANCE));
        let (deployment, replica_sets) = (Arc::default(), Arc::default());
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
        let sets = Api::<ReplicaSet>::namespaced(client.clone(), namespace);
        let replicas_of = |spec: &Deployment| spec.spec.as_ref()?.replicas;
        let replicas_of_set = |spec: &ReplicaSet| spec.spec.as_ref()?.replicas;
        let watching = [
            tokio::spawn(follow(deployments, of_it.clone(), replicas_of, Arc::clone(&deployment))),
            tokio::spawn(follow(sets, of_it, replicas_of_set, Arc::clone(&replica_sets))),
        ];
        Sizes { deployment, replica_sets, watching }
    }

    /// `spec.replicas` of the Deployment, at every event at which it was another than before.
    pub fn of_deployment(&self) -> Vec<i32> {
        changes(&self.deployment)
    }

    /// `spec.replicas` of all its ReplicaSets together.
    pub fn of_replica_sets(&self) -> Vec<i32> {
        changes(&self.replica_sets)
    }
}

fn changes(seen: &Mutex<Vec<i32>>) -> Vec<i32> {
    let mut seen = seen.lock().expect("no panic").clone();
    seen.dedup();
    seen
}

/// A deleted object counts as no pods.
async fn follow<K>(
    objects: Api<K>,
    of_it: Config,
    replicas: fn(&K) -> Option<i32>,
    seen: Arc<Mutex<Vec<i32>>>,
) where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut sizes: BTreeMap<String, i32> = BTreeMap::new();
    let mut events = watcher(objects, of_it).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init | Event::InitDone) => continue,
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                // The API server writes the default, which is 1.
                let count = replicas(&object).unwrap_or(1);
                sizes.insert(object.name_any(), count);
            }
            Ok(Event::Delete(object)) => {
                sizes.remove(&object.name_any());
            }
            Err(error) => panic!("the watch broke, so that events may have been missed: {error}"),
        }
        seen.lock().expect("no panic").push(sizes.values().sum());
    }
}

impl Drop for Sizes {
    fn drop(&mut self) {
        self.watching.iter().for_each(JoinHandle::abort);
    }
}
