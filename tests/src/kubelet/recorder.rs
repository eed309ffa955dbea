//! Every EndpointSlice event of one Service, and the endpoints that clients had after each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher::{Config, Event, watcher};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::through::{is_ready, still_serves};

/// What clients had after one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Addresses that are ready.
    pub ready: BTreeSet<String>,
    /// Addresses that end and still serve.
    pub ending: BTreeSet<String>,
}

/// Watches until it is dropped.
pub struct Recorder {
    seen: Arc<Mutex<Seen>>,
    watching: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    slices: BTreeMap<String, EndpointSlice>,
    moments: Vec<Moment>,
    lists: usize,
}

impl Recorder {
    /// Returns when it has read the present state, which is the first moment.
    pub async fn start(client: &Client, namespace: &str, service: &str) -> Recorder {
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let of_it = Config::default().labels(&format!("kubernetes.io/service-name={service}"));
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (ready, is_ready) = oneshot::channel();
        let of_task = seen.clone();
        let watching = tokio::spawn(async move {
            let mut ready = Some(ready);
            let mut events = watcher(slices, of_it).boxed();
            while let Some(event) = events.next().await {
                let Ok(event) = event else {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                };
                let is_listed = matches!(event, Event::InitDone);
                of_task.lock().expect("no panic").take(event);
                if let Some(ready) = ready.take_if(|_| is_listed) {
                    let _ = ready.send(());
                }
            }
        });
        is_ready.await.expect("the watch begins with a list");
        Recorder { seen, watching }
    }

    /// Every moment so far, in order.
    pub fn moments(&self) -> Vec<Moment> {
        self.seen.lock().expect("no panic").moments.clone()
    }

    /// The fewest ready endpoints at any moment since the start.
    ///
    /// # Panics
    /// The watch had to list again, so that moments may have been missed.
    pub fn fewest_ready(&self) -> usize {
        let seen = self.seen.lock().expect("no panic");
        assert_eq!(seen.lists, 1, "the watch broke: moments may have been missed");
        seen.moments.iter().map(|moment| moment.ready.len()).min().unwrap_or(0)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Seen {
    fn take(&mut self, event: Event<EndpointSlice>) {
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Init => self.slices.clear(),
            Event::InitApply(slice) => {
                self.slices.insert(name(&slice), slice);
            }
            Event::InitDone => {
                self.lists += 1;
                self.remember();
            }
            Event::Apply(slice) => {
                self.slices.insert(name(&slice), slice);
                self.remember();
            }
            Event::Delete(slice) => {
                self.slices.remove(&name(&slice));
                self.remember();
            }
        }
    }

    fn remember(&mut self) {
        let endpoints = || self.slices.values().flat_map(|slice| &slice.endpoints);
        let addresses =
            |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| endpoint.addresses.clone();
        let ready = endpoints().filter(|endpoint| is_ready(endpoint)).flat_map(addresses).collect();
        let ending =
            endpoints().filter(|endpoint| still_serves(endpoint)).flat_map(addresses).collect();
        self.moments.push(Moment { ready, ending });
    }
}
