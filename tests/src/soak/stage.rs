//! The scene of a soak: a scripted API server, upstreams and pods; changes and faults are made here, and what is true is
//! written down.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::process::Command;

use dataplane_core::{Key, Object, Resource, Settings};
use serde_json::{Value, json};

use super::churn::{Change, change};
use super::history::{History, Place};
use super::objects::{
    CONFIG_NAME, CONFIG_NAMESPACE, Configuration, config_map, fixed, is_namespace_mark, kind,
    manifest, marks,
};
use super::pod::Pod;
use super::schedule::{Fault, Kind, PODS};
use super::upstreams::script;
use crate::fault_proxy::{self, Link, Requests};
use crate::mutate::Random;
use crate::scripted_api::{ScriptedApi, Store};
use crate::upstream::ScriptedUpstream;

/// Upstreams of the configuration.
const UPSTREAMS: usize = 2;
/// States that may be restored.
const SAVED: usize = 12;
/// How many versions a restored state must be older: more than are written before every watch was opened again, or a
/// watch could continue at a version that means something else.
const MIN_DEPTH: u64 = 150;
/// Streams of one pod: four resources and the ConfigMap.
const STREAMS: usize = 5;
/// Changes that are tried for events that come late.
const LATE: usize = 24;
/// Most changes that a pod may lack before the objects wait for it.
const MAX_UNSEEN: u64 = 48;
/// Most changes that are remembered for a process that starts with an old snapshot.
const MAX_REMEMBERED: u64 = 600;
/// Datagrams that are lost, in percent.
const LOST: &str = "15";

/// A state that can be shown again, as from a backup.
#[derive(Debug)]
struct Saved {
    store: Store,
    version: u64,
    objects: BTreeMap<Place, Object>,
    configuration: Configuration,
}

/// Everything that runs, and what is true.
#[derive(Debug)]
pub struct Stage {
    pub pods: Vec<Pod>,
    pub history: History,
    api: ScriptedApi,
    upstreams: Vec<ScriptedUpstream>,
    configuration: Configuration,
    /// The highest mark of a configuration.
    config_marks: u64,
    mark: u64,
    saved: VecDeque<Saved>,
    active: Vec<Fault>,
}

impl Stage {
    /// Starts everything, in the network namespace of the test.
    pub async fn start() -> Stage {
        let upstreams: Vec<ScriptedUpstream> = (0..UPSTREAMS)
            .map(|_| ScriptedUpstream::start(script(None)).expect("an upstream"))
            .collect();
        let addresses: Vec<SocketAddr> = upstreams.iter().map(ScriptedUpstream::address).collect();
        let configuration = Configuration::FIRST;
        let document = configuration.document(&addresses);
        let api = ScriptedApi::start(&[config_map(&document)]);
        let mut history = History::new(settings_of(configuration, &addresses));
        for object in fixed().into_iter().chain(marks(0)) {
            api.put(manifest(&object));
            history.put(object);
        }
        let mut pods = Vec::new();
        for number in 0..PODS {
            pods.push(Pod::start(number, api.kubeconfig()).await);
        }
        Stage {
            pods,
            history,
            api,
            upstreams,
            configuration,
            config_marks: 0,
            mark: 0,
            saved: VecDeque::new(),
            active: Vec::new(),
        }
    }

    /// The marks that show that everything was seen: of objects, and of the configuration.
    pub fn marks(&self) -> (u64, u64) {
        (self.mark, self.configuration.mark)
    }

    /// Whether events may not reach this pod.
    pub fn is_delayed(&self, pod: usize) -> bool {
        !self.pods[pod].is_running()
            || self.active.iter().any(|fault| fault.kind.delays_events() && fault.is_on(pod))
    }

    /// Whether names of others may get SERVFAIL: every upstream is silent or fails.
    pub fn has_no_upstream(&self) -> bool {
        let is_away = |number: usize| {
            self.active.iter().any(|fault| {
                matches!(fault.kind, Kind::UpstreamSilent | Kind::UpstreamFails)
                    && fault.is_on(number)
            })
        };
        (0..UPSTREAMS).all(is_away)
    }

    /// Whether questions for others take seconds.
    pub fn is_slow_for_others(&self) -> bool {
        self.active.iter().any(|fault| {
            matches!(fault.kind, Kind::UpstreamSilent | Kind::UpstreamSlow | Kind::PacketsLost)
        })
    }

    /// Whether the objects may change: every pod knows nearly everything.
    pub fn may_change(&self) -> bool {
        self.pods.iter().all(|pod| self.history.unseen(pod.seen) < MAX_UNSEEN)
    }

    /// Makes a random change; says which, if it was one.
    pub fn change(&mut self, random: &mut Random) -> Option<String> {
        let next = change(random, self.config_marks + 1);
        let said = said(&next);
        match next {
            Change::Put(object) => self.put(object),
            Change::Delete(resource, key) => {
                if !self.history.holds(&(resource, key.clone())) {
                    return None;
                }
                self.delete(resource, &key);
            }
            Change::Configure(configuration) => {
                self.config_marks = configuration.mark;
                self.configure(configuration);
            }
        }
        Some(said)
    }

    /// Shows the next marks.
    pub fn show_marks(&mut self) {
        self.mark += 1;
        for object in marks(self.mark) {
            self.put(object);
        }
        let newest: Vec<Key> = marks(self.mark).iter().map(Object::key).collect();
        for (resource, key) in self.history.now().into_keys() {
            if is_namespace_mark(resource, &key) && !newest.contains(&key) {
                self.delete(resource, &key);
            }
        }
    }

    fn put(&mut self, object: Object) {
        self.api.put(manifest(&object));
        self.history.put(object);
    }

    fn delete(&mut self, resource: Resource, key: &Key) {
        self.api.delete(kind(resource), &key.namespace, &key.name);
        self.history.delete((resource, key.clone()));
    }

    fn configure(&mut self, configuration: Configuration) {
        let addresses = self.addresses();
        self.api.put(config_map(&configuration.document(&addresses)));
        self.history.configure(settings_of(configuration, &addresses));
        self.configuration = configuration;
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.upstreams.iter().map(ScriptedUpstream::address).collect()
    }

    /// Forgets what no pod can show, and keeps a state to restore.
    pub fn tidy(&mut self) {
        let needed = self.pods.iter().map(Pod::needs_since).min().unwrap_or(0);
        let remembered = self.history.number().saturating_sub(MAX_REMEMBERED);
        let seen = self.pods.iter().map(|pod| pod.seen).min().unwrap_or(0);
        self.history.forget(needed.max(remembered).min(seen));
        if self.saved.len() == SAVED {
            self.saved.pop_front();
        }
        self.saved.push_back(Saved {
            store: self.api.state(),
            version: self.api.version(),
            objects: self.history.now(),
            configuration: self.configuration,
        });
    }

    /// Lets a fault begin; whether it could be made.
    pub fn begin(&mut self, fault: Fault, random: &mut Random) -> bool {
        self.active.push(fault);
        self.set_links();
        let on: Vec<usize> = (0..PODS).filter(|pod| fault.is_on(*pod)).collect();
        let watches = || Requests::all().watches();
        match fault.kind {
            Kind::WatchesReset => self.once(&on, fault_proxy::Fault::Reset),
            Kind::WatchesCutShort => self.once(&on, fault_proxy::Fault::Truncate),
            Kind::WatchesExpired => self.once(&on, fault_proxy::Fault::expired()),
            Kind::WatchesHung => {
                for pod in on {
                    self.pods[pod].proxy.fault(watches(), fault_proxy::Fault::Hang);
                }
            }
            Kind::WatchesEnded => self.api.end_watches(),
            Kind::EventsTwice => self.say_everything(),
            Kind::EventsLate => self.say_old_events(random),
            Kind::Compacted => {
                self.api.compact();
                self.api.end_watches();
            }
            Kind::Restored => return self.restore(),
            Kind::Lagging => match self.saved.front() {
                Some(saved) => self.api.lag(saved.store.clone()),
                None => return false,
            },
            Kind::PacketsLost => return lose_packets(),
            Kind::ProcessStopped => on.iter().for_each(|pod| self.pods[*pod].pause()),
            Kind::ProcessKilled => on.iter().for_each(|pod| self.pods[*pod].kill()),
            Kind::KilledWithoutServer => {
                for pod in on {
                    self.pods[pod].kill();
                    self.start_process(pod);
                }
            }
            Kind::DiskFull => on.iter().for_each(|pod| self.pods[*pod].fill_the_disk()),
            Kind::ServerSlow
            | Kind::ServerFails
            | Kind::ServerUnavailable
            | Kind::ServerBusy
            | Kind::ServerStopped
            | Kind::ServerSilent
            | Kind::UpstreamSilent
            | Kind::UpstreamSlow
            | Kind::UpstreamLying
            | Kind::UpstreamFails
            | Kind::UpstreamTruncates => {}
        }
        true
    }

    /// Ends a fault.
    pub fn end(&mut self, fault: Fault) {
        self.active.retain(|active| *active != fault);
        self.set_links();
        let on: Vec<usize> = (0..PODS).filter(|pod| fault.is_on(*pod)).collect();
        match fault.kind {
            Kind::Lagging => self.api.catch_up(),
            Kind::PacketsLost => {
                nft("delete table inet soak");
            }
            Kind::ProcessStopped => on.iter().for_each(|pod| self.pods[*pod].resume()),
            Kind::ProcessKilled => on.into_iter().for_each(|pod| self.start_process(pod)),
            Kind::DiskFull => on.iter().for_each(|pod| self.pods[*pod].empty_the_disk()),
            _ => {}
        }
    }

    fn start_process(&mut self, pod: usize) {
        let (number, oldest) = (self.history.number(), self.history.oldest());
        self.pods[pod].start_process(number, oldest);
    }

    /// Sets every link and every upstream to what the present faults say.
    fn set_links(&self) {
        for (number, pod) in self.pods.iter().enumerate() {
            pod.proxy.heal();
            for fault in self.active.iter().filter(|fault| fault.is_on(number)) {
                let answer = |status| fault_proxy::Fault::status(status);
                let wrong = match fault.kind {
                    Kind::ServerSlow => fault_proxy::Fault::Throttle { bytes_per_s: 500 },
                    Kind::ServerFails => answer(500),
                    Kind::ServerUnavailable => answer(503),
                    Kind::ServerBusy => {
                        fault_proxy::Fault::Answer { status: 429, retry_after_s: Some(1) }
                    }
                    Kind::WatchesHung => {
                        let watches = Requests::all().watches();
                        pod.proxy.fault(watches, fault_proxy::Fault::Hang);
                        continue;
                    }
                    Kind::ServerStopped | Kind::KilledWithoutServer => {
                        pod.proxy.link(Link::Cut);
                        continue;
                    }
                    Kind::ServerSilent => {
                        pod.proxy.link(Link::Hung);
                        continue;
                    }
                    _ => continue,
                };
                pod.proxy.fault(Requests::all(), wrong);
            }
        }
        for (number, upstream) in self.upstreams.iter().enumerate() {
            let of_upstreams = |fault: &&Fault| fault.kind.is_of_upstreams() && fault.is_on(number);
            upstream.play(script(self.active.iter().find(of_upstreams).map(|fault| fault.kind)));
        }
    }

    /// Does something once to every watch of these pods.
    fn once(&self, pods: &[usize], fault: fault_proxy::Fault) {
        for pod in pods {
            let watches = Requests::all().watches();
            self.pods[*pod].proxy.fault_times(STREAMS, watches, fault.clone());
        }
    }

    fn say_everything(&self) {
        for (resource, key) in self.history.now().into_keys() {
            let object = self.api.get(kind(resource), &key.namespace, &key.name);
            self.api.say(kind(resource), &event("MODIFIED", object));
        }
        let map = self.api.get("ConfigMap", CONFIG_NAMESPACE, CONFIG_NAME);
        self.api.say("ConfigMap", &event("MODIFIED", map));
    }

    /// Changes objects, and sends their former versions after it; and deletes what never was.
    fn say_old_events(&mut self, random: &mut Random) {
        for _ in 0..LATE {
            let Change::Put(object) = change(random, 0) else { continue };
            let (resource, key) = (object.resource(), object.key());
            if !self.history.holds(&(resource, key.clone())) {
                continue;
            }
            let old = self.api.get(kind(resource), &key.namespace, &key.name);
            self.put(object);
            self.api.say(kind(resource), &event("MODIFIED", old));
        }
        let version = self.api.version().to_string();
        let never = json!({"apiVersion": "v1", "kind": "Service", "metadata": {
            "namespace": "shop", "name": "never", "resourceVersion": version,
            "uid": "00000000-0000-4000-8000-0000000000ff"}});
        self.api.say("Service", &event("DELETED", never));
    }

    /// Shows an older state, if there is one that is old enough.
    fn restore(&mut self) -> bool {
        let version = self.api.version();
        let is_old = |saved: &&Saved| saved.version + MIN_DEPTH <= version;
        let Some(saved) = self.saved.iter().rev().find(is_old) else { return false };
        self.api.show(saved.store.clone());
        self.history.restore(&saved.objects, settings_of(saved.configuration, &self.addresses()));
        self.configuration = saved.configuration;
        // States that are newer than the truth are of another time.
        let version = saved.version;
        self.saved.retain(|saved| saved.version <= version);
        true
    }
}

fn settings_of(configuration: Configuration, upstreams: &[SocketAddr]) -> Settings {
    let document = configuration.document(upstreams);
    dataplane::settings::of(&document).expect("a configuration of a soak can be used")
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn said(change: &Change) -> String {
    match change {
        Change::Put(object) => format!("put {}", manifest(object)),
        Change::Delete(resource, key) => format!("delete {} {key}", resource.plural()),
        Change::Configure(configuration) => format!("configure {configuration:?}"),
    }
}

fn lose_packets() -> bool {
    nft("add table inet soak")
        && nft("add chain inet soak in { type filter hook input priority 0; }")
        && nft(&format!(
            "add rule inet soak in meta l4proto udp numgen random mod 100 < {LOST} drop"
        ))
}

/// Runs one command of nft in the namespace of the test; whether it could.
fn nft(command: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let run =
        Command::new("nft").env("PATH", format!("{path}:/usr/sbin:/sbin")).arg(command).output();
    run.is_ok_and(|output| output.status.success())
}
