//! What the API server says of the DNS pods and of their EndpointSlices, each change with the time at which a watch saw it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tests::node::steady::now;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::coredns;
use crate::installed::{DNS_NAMESPACE, DNS_PODS};
use crate::site::Site;

/// Between two tries while the API server is away.
const AGAIN: Duration = Duration::from_millis(50);

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// As [`now`] counts.
    pub(super) at: f64,
    /// A pod by its name, or an endpoint by its address.
    pub(super) of: String,
    pub(super) is_ready: bool,
    /// All that is said of it.
    pub(super) says: String,
}

/// Watches until it is dropped.
pub(super) struct Timeline {
    changes: Arc<Mutex<Vec<Change>>>,
    watching: Vec<JoinHandle<()>>,
}

/// What is said of a pod or of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    is_ready: bool,
    says: String,
}

type States = BTreeMap<String, State>;

impl Timeline {
    /// Of the pods and Services of both DNS servers; returns when it has read what is there.
    pub(super) async fn start(site: &Site) -> Timeline {
        let client = site.plane.client().await;
        let (changes, listed) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let mut watching = Vec::new();
        for (pods, service) in [(DNS_PODS, "kube-dns"), (coredns::PODS, "coredns-beside")] {
            let seen = Seen { changes: Arc::clone(&changes), listed: listed.clone() };
            let pods = Config::default().labels(pods);
            let api = Api::namespaced(client.clone(), DNS_NAMESPACE);
            watching.push(tokio::spawn(follow(api, pods, of_pod, seen.clone())));
            let slices = format!("kubernetes.io/service-name={service}");
            let slices = Config::default().labels(&slices);
            let api = Api::namespaced(client.clone(), DNS_NAMESPACE);
            watching.push(tokio::spawn(follow(api, slices, of_slice, seen)));
        }
        let all = u32::try_from(watching.len()).expect("few");
        let _ = listed.acquire_many(all).await.expect("it is never closed");
        Timeline { changes, watching }
    }

    /// Every change so far, in order.
    pub(super) fn changes(&self) -> Vec<Change> {
        self.changes.lock().expect("no panic").clone()
    }

    /// The same as lines, in seconds after this time.
    pub(super) fn in_words(&self, since: f64) -> Vec<String> {
        let line = |it: Change| format!("{:6.2} s: {}: {}", it.at - since, it.of, it.says);
        self.changes().into_iter().map(line).collect()
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.watching.iter().for_each(JoinHandle::abort);
    }
}

/// The objects that a watch has seen.
#[derive(Default)]
struct Known {
    objects: BTreeMap<String, States>,
    /// Names in the list that is being read.
    list: BTreeSet<String>,
    is_listed: bool,
}

/// Where a watch puts what it sees, and says that it has read what is there.
#[derive(Clone)]
struct Seen {
    changes: Arc<Mutex<Vec<Change>>>,
    listed: Arc<Semaphore>,
}

async fn follow<K>(api: Api<K>, its: Config, states: fn(&K) -> States, seen: Seen)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut known = Known::default();
    let mut events = watcher(api, its).boxed();
    while let Some(event) = events.next().await {
        let was_listed = known.is_listed;
        let new = match event {
            // It asks again, from the version that it has seen last.
            Err(_) => {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            Ok(event) => known.take(event, states),
        };
        if was_listed {
            seen.changes.lock().expect("no panic").extend(new);
        } else if known.is_listed {
            seen.listed.add_permits(1);
        }
    }
}

impl Known {
    fn take<K: Resource<DynamicType = ()>>(
        &mut self,
        event: Event<K>,
        states: fn(&K) -> States,
    ) -> Vec<Change> {
        match event {
            Event::Init => {
                self.list.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.list.insert(object.name_any());
                self.put(object.name_any(), states(&object))
            }
            Event::InitDone => {
                self.is_listed = true;
                let gone = self.objects.keys().filter(|name| !self.list.contains(*name));
                let gone: Vec<String> = gone.cloned().collect();
                gone.into_iter().flat_map(|name| self.put(name, States::new())).collect()
            }
            Event::Apply(object) => self.put(object.name_any(), states(&object)),
            Event::Delete(object) => self.put(object.name_any(), States::new()),
        }
    }

    /// What has changed with this object.
    fn put(&mut self, name: String, new: States) -> Vec<Change> {
        let old = self.objects.insert(name, new.clone()).unwrap_or_default();
        let at = now();
        let gone = old.keys().filter(|of| !new.contains_key(*of)).map(|of| Change {
            at,
            of: of.clone(),
            is_ready: false,
            says: "gone".to_owned(),
        });
        let changed = new.iter().filter(|(of, state)| old.get(*of) != Some(*state));
        let changed = changed.map(|(of, State { is_ready, says })| Change {
            at,
            of: of.clone(),
            is_ready: *is_ready,
            says: says.clone(),
        });
        gone.chain(changed).collect()
    }
}

/// Its condition `Ready`, who wrote that, and whether it ends or started again.
fn of_pod(pod: &Pod) -> States {
    let status = pod.status.clone().unwrap_or_default();
    let ready = status.conditions.into_iter().flatten().find(|it| it.type_ == "Ready");
    let is_ready = ready.as_ref().is_some_and(|it| it.status == "True");
    let mut says = match &ready {
        None => "no condition Ready".to_owned(),
        Some(ready) => {
            let reason = ready.reason.as_deref().unwrap_or("no reason");
            format!("Ready={}, {reason}, by {}", ready.status, writer(pod))
        }
    };
    let restarts: i32 =
        status.container_statuses.iter().flatten().map(|container| container.restart_count).sum();
    if restarts > 0 {
        says += &format!(", started again {restarts} times");
    }
    if pod.metadata.deletion_timestamp.is_some() {
        says += ", ends";
    }
    [(pod.name_any(), State { is_ready, says })].into()
}

/// Who has the status of its condition `Ready`.
fn writer(pod: &Pod) -> String {
    let ready = r#"/f:status/f:conditions/k:{"type":"Ready"}/f:status"#;
    let mut all = pod.metadata.managed_fields.iter().flatten();
    let has = all.find(|it| it.fields_v1.as_ref().is_some_and(|it| it.0.pointer(ready).is_some()));
    has.and_then(|it| it.manager.clone()).unwrap_or_else(|| "unknown".to_owned())
}

/// Each address of it.
fn of_slice(slice: &EndpointSlice) -> States {
    let mut states = States::new();
    for endpoint in &slice.endpoints {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let is_ready = conditions.ready == Some(true);
        let says = match (is_ready, conditions.serving, conditions.terminating) {
            (true, _, _) => "endpoint ready",
            (false, Some(true), Some(true)) => "endpoint ends, and serves",
            (false, _, Some(true)) => "endpoint ends",
            (false, _, _) => "endpoint not ready",
        };
        for address in &endpoint.addresses {
            states.insert(address.clone(), State { is_ready, says: says.to_owned() });
        }
    }
    states
}
