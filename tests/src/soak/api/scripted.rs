//! The scripted API server of a soak: it says and forgets what no real one does when it is asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;

use dataplane_core::{Key, Object, Resource};
use serde_json::{Value, json};

use super::State;
use crate::mutate::Random;
use crate::scripted_api::{ScriptedApi, Store};
use crate::soak::churn::{Change, change};
use crate::soak::history::History;
use crate::soak::objects::{
    CONFIG_NAME, CONFIG_NAMESPACE, Configuration, config_map, kind, manifest,
};
use crate::soak::schedule::Kind;

/// States that may be restored.
const SAVED: usize = 12;
/// How many versions a restored state must be older: more than are written before every watch was opened again, or a
/// watch could continue at a version that means something else.
const MIN_DEPTH: u64 = 150;
/// Changes that are tried for events that come late.
const LATE: usize = 24;

#[derive(Debug)]
pub struct Scripted {
    api: ScriptedApi,
    saved: VecDeque<Saved>,
}

/// A state that can be shown again, as from a backup.
#[derive(Debug)]
struct Saved {
    store: Store,
    version: u64,
    state: State,
}

impl Scripted {
    pub(super) fn start(configuration: Configuration, upstreams: &[SocketAddr]) -> Scripted {
        let api = ScriptedApi::start(&[config_map(&configuration.document(upstreams))]);
        Scripted { api, saved: VecDeque::new() }
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        self.api.kubeconfig()
    }

    pub(super) fn put(&self, object: Object) -> Change {
        self.api.put(manifest(&object));
        Change::Put(object)
    }

    pub(super) fn delete(&self, resource: Resource, key: &Key) {
        self.api.delete(kind(resource), &key.namespace, &key.name);
    }

    pub(super) fn configure(&self, configuration: Configuration, upstreams: &[SocketAddr]) {
        self.api.put(config_map(&configuration.document(upstreams)));
    }

    pub(super) fn save(&mut self, state: State) {
        if self.saved.len() == SAVED {
            self.saved.pop_front();
        }
        let (store, version) = (self.api.state(), self.api.version());
        self.saved.push_back(Saved { store, version, state });
    }

    pub(super) fn restore(&mut self) -> Option<State> {
        let version = self.api.version();
        let is_old = |saved: &&Saved| saved.version + MIN_DEPTH <= version;
        let saved = self.saved.iter().rev().find(is_old)?;
        self.api.show(saved.store.clone());
        let (version, state) = (saved.version, saved.state.clone());
        // States that are newer than the truth are of another time.
        self.saved.retain(|saved| saved.version <= version);
        Some(state)
    }

    pub(super) fn begin(&self, kind: Kind, history: &mut History, random: &mut Random) -> bool {
        match kind {
            Kind::EventsTwice => self.say_everything(history),
            Kind::EventsLate => self.say_old_events(history, random),
            Kind::Compacted => {
                self.api.compact();
                self.api.end_watches();
            }
            Kind::Lagging => match self.saved.front() {
                Some(saved) => self.api.lag(saved.store.clone()),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    pub(super) fn end(&self, kind: Kind) {
        if kind == Kind::Lagging {
            self.api.catch_up();
        }
    }

    fn say_everything(&self, history: &History) {
        for (resource, key) in history.now().into_keys() {
            let object = self.api.get(kind(resource), &key.namespace, &key.name);
            self.api.say(kind(resource), &event("MODIFIED", object));
        }
        let map = self.api.get("ConfigMap", CONFIG_NAMESPACE, CONFIG_NAME);
        self.api.say("ConfigMap", &event("MODIFIED", map));
    }

    /// Changes objects, and sends their former versions after it; and deletes what never was.
    fn say_old_events(&self, history: &mut History, random: &mut Random) {
        for _ in 0..LATE {
            let Change::Put(object) = change(random, 0) else { continue };
            let (resource, key) = (object.resource(), object.key());
            if !history.holds(&(resource, key.clone())) {
                continue;
            }
            let old = self.api.get(kind(resource), &key.namespace, &key.name);
            self.api.put(manifest(&object));
            history.put(object);
            self.api.say(kind(resource), &event("MODIFIED", old));
        }
        let version = self.api.version().to_string();
        let never = json!({"apiVersion": "v1", "kind": "Service", "metadata": {
            "namespace": "shop", "name": "never", "resourceVersion": version,
            "uid": "00000000-0000-4000-8000-0000000000ff"}});
        self.api.say("Service", &event("DELETED", never));
    }
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}
