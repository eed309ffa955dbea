//! The scene of a soak: a scripted API server, upstreams and pods; changes and faults are made here, and what is true is
//! written down.

use std::net::{IpAddr, SocketAddr};

use dataplane_core::{Key, Object, Resource, Settings};

use super::api::{Api, Looked, State};
use super::churn::{Change, change};
use super::history::History;
use super::objects::{Configuration, fixed, is_namespace_mark, manifest, marks};
use super::pod::Pod;
use super::schedule::{Fault, Kind, PODS, Part};
use super::upstreams::script;
use crate::fault_proxy::{self, FaultProxy, Link, Requests};
use crate::mutate::Random;
use crate::netns::{NODE_ADDRESS, nft};
use crate::upstream::ScriptedUpstream;

/// Upstreams of the configuration.
const UPSTREAMS: usize = 2;
/// Streams of one pod: four resources and the ConfigMap.
const STREAMS: usize = 5;
/// Most changes that a pod may lack before the objects wait for it.
const MAX_UNSEEN: u64 = 48;
/// Most changes that are remembered for a process that starts with an old snapshot.
const MAX_REMEMBERED: u64 = 600;
/// Datagrams that are lost, in percent.
const LOST: &str = "15";

/// Everything that runs, and what is true.
pub struct Stage {
    pub pods: Vec<Pod>,
    pub history: History,
    api: Api,
    upstreams: Vec<ScriptedUpstream>,
    configuration: Configuration,
    /// The highest mark of a configuration.
    config_marks: u64,
    mark: u64,
    active: Vec<Fault>,
}

impl Stage {
    /// Starts everything, in the network namespace of the test. Nothing where programs of the control plane have not been
    /// built; this is printed.
    pub async fn start(part: Part) -> Option<Stage> {
        // No operator takes an upstream on loopback.
        let address: IpAddr = NODE_ADDRESS.parse().expect("an address");
        let upstream = |_| ScriptedUpstream::start_at((address, 0).into(), script(None));
        let upstreams: Vec<ScriptedUpstream> =
            (0..UPSTREAMS).map(upstream).collect::<Result<_, _>>().expect("upstreams");
        let addresses: Vec<SocketAddr> = upstreams.iter().map(ScriptedUpstream::address).collect();
        let configuration = Configuration::FIRST;
        let mut stage = Stage {
            pods: Vec::new(),
            history: History::new(settings_of(configuration, &addresses)),
            api: Api::start(part, configuration, &addresses).await?,
            upstreams,
            configuration,
            config_marks: 0,
            mark: 0,
            active: Vec::new(),
        };
        stage.api.own_objects().into_iter().for_each(|object| stage.history.put(object));
        for object in fixed().into_iter().chain(marks(0)) {
            stage.put(object);
        }
        for number in 0..PODS {
            stage.pods.push(Pod::start(number, stage.api.kubeconfig()).await);
        }
        Some(stage)
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
        self.api.is_there()
            && self.pods.iter().all(|pod| self.history.unseen(pod.seen) < MAX_UNSEEN)
    }

    /// Whether the configuration may change: the operator that acts must see it.
    fn may_configure(&self) -> bool {
        self.api.part() == Part::Scripted
            || !self.active.iter().any(|fault| fault.kind.blinds_operators())
    }

    /// What the control plane did that it never may.
    pub fn look(&mut self) -> Looked {
        self.api.look()
    }

    /// The same of its processes, at the end of a cycle.
    pub fn inspect(&mut self) -> Vec<String> {
        self.api.inspect()
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
            Change::Configure(_) if !self.may_configure() => return None,
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
        for made in self.api.put(object, &self.history) {
            match made {
                Change::Put(object) => self.history.put(object),
                Change::Delete(resource, key) => self.history.delete((resource, key)),
                Change::Configure(_) => unreachable!("an object is put"),
            }
        }
    }

    fn delete(&mut self, resource: Resource, key: &Key) {
        self.api.delete(resource, key);
        self.history.delete((resource, key.clone()));
    }

    fn configure(&mut self, configuration: Configuration) {
        let addresses = self.addresses();
        self.api.configure(configuration, &addresses);
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
        let state = State { objects: self.history.now(), configuration: self.configuration };
        self.api.save(state);
    }

    /// Lets a fault begin; whether it could be made.
    pub fn begin(&mut self, fault: Fault, random: &mut Random) -> bool {
        self.active.push(fault);
        self.set_links();
        let on: Vec<usize> = (0..PODS).filter(|pod| fault.is_on(*pod)).collect();
        match fault.kind {
            Kind::WatchesReset => self.once(&on, fault_proxy::Fault::Reset),
            Kind::WatchesCutShort => self.once(&on, fault_proxy::Fault::Truncate),
            Kind::WatchesExpired => self.once(&on, fault_proxy::Fault::expired()),
            Kind::WatchesEnded => self.once(&on, fault_proxy::Fault::End),
            Kind::Restored => return self.restore(),
            Kind::EventsTwice
            | Kind::EventsLate
            | Kind::Compacted
            | Kind::Lagging
            | Kind::ServerRestarted
            | Kind::OperatorKilled
            | Kind::OperatorStopped => {
                return self.api.begin(fault, &mut self.history, random);
            }
            Kind::PacketsLost => return lose_packets(),
            Kind::ProcessStopped => on.iter().for_each(|pod| self.pods[*pod].pause()),
            Kind::ProcessKilled => on.iter().for_each(|pod| self.pods[*pod].kill()),
            Kind::ClocksShifted => return on.iter().all(|pod| self.pods[*pod].shift_clocks()),
            Kind::KilledWithoutServer => {
                for pod in on {
                    self.pods[pod].kill();
                    self.start_process(pod);
                }
            }
            Kind::DiskFull => on.iter().for_each(|pod| self.pods[*pod].fill_the_disk()),
            // Done by the links.
            Kind::WatchesHung
            | Kind::ServerSlow
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
            Kind::PacketsLost => {
                let _ = nft("delete table inet soak");
            }
            Kind::ProcessStopped => on.iter().for_each(|pod| self.pods[*pod].resume()),
            Kind::ProcessKilled | Kind::ClocksShifted => {
                let ended = on.into_iter().filter(|pod| self.pods[*pod].plane().is_none());
                ended.collect::<Vec<_>>().into_iter().for_each(|pod| self.start_process(pod));
            }
            Kind::DiskFull => on.iter().for_each(|pod| self.pods[*pod].empty_the_disk()),
            _ => self.api.end(fault),
        }
    }

    fn start_process(&mut self, pod: usize) {
        let (number, oldest) = (self.history.number(), self.history.oldest());
        self.pods[pod].start_process(number, oldest);
    }

    /// Sets every link and every upstream to what the present faults say.
    fn set_links(&self) {
        let of_all = (0..PODS).flat_map(|number| self.proxies(number).map(move |it| (number, it)));
        for (number, proxy) in of_all {
            proxy.heal();
            for fault in self.active.iter().filter(|fault| fault.is_on(number)) {
                let answer = |status| fault_proxy::Fault::status(status);
                let wrong = match fault.kind {
                    Kind::ServerSlow => fault_proxy::Fault::Throttle { bytes_per_s: 500 },
                    Kind::ServerFails => answer(500),
                    Kind::ServerUnavailable => answer(503),
                    Kind::ServerBusy => {
                        fault_proxy::Fault::Overload { status: 429, retry_after_s: 1 }
                    }
                    Kind::WatchesHung => {
                        let watches = Requests::all().watches();
                        proxy.fault(watches, fault_proxy::Fault::Hang);
                        continue;
                    }
                    Kind::ServerStopped | Kind::KilledWithoutServer => {
                        proxy.link(Link::Cut);
                        continue;
                    }
                    Kind::ServerSilent => {
                        proxy.link(Link::Hung);
                        continue;
                    }
                    _ => continue,
                };
                proxy.fault(Requests::all(), wrong);
            }
        }
        for (number, upstream) in self.upstreams.iter().enumerate() {
            let of_upstreams = |fault: &&Fault| fault.kind.is_of_upstreams() && fault.is_on(number);
            upstream.play(script(self.active.iter().find(of_upstreams).map(|fault| fault.kind)));
        }
    }

    /// The ways to the API server of a data plane, and of the operator beside it.
    fn proxies(&self, number: usize) -> impl Iterator<Item = &FaultProxy> {
        [Some(&self.pods[number].proxy), self.api.operator_proxy(number)].into_iter().flatten()
    }

    /// Does something once to every watch of these pods.
    fn once(&self, pods: &[usize], fault: fault_proxy::Fault) {
        for proxy in pods.iter().flat_map(|pod| self.proxies(*pod)) {
            proxy.fault_times(STREAMS, Requests::all().watches(), fault.clone());
        }
    }

    /// Shows an older state, if there is one that is old enough.
    fn restore(&mut self) -> bool {
        let Some(state) = self.api.restore() else { return false };
        let settings = settings_of(state.configuration, &self.addresses());
        self.history.restore(&state.objects, settings);
        self.configuration = state.configuration;
        true
    }
}

fn settings_of(configuration: Configuration, upstreams: &[SocketAddr]) -> Settings {
    let document = configuration.document(upstreams);
    dataplane::settings::of(&document).expect("a configuration of a soak can be used")
}

fn said(change: &Change) -> String {
    match change {
        Change::Put(object) => format!("put {}", manifest(object)),
        Change::Delete(resource, key) => format!("delete {} {key}", resource.plural()),
        Change::Configure(configuration) => format!("configure {configuration:?}"),
    }
}

fn lose_packets() -> bool {
    let rules = format!(
        "add table inet soak
         add chain inet soak in {{ type filter hook input priority 0; }}
         add rule inet soak in meta l4proto udp numgen random mod 100 < {LOST} drop"
    );
    nft(&rules).is_ok()
}
