//! A stand-in for scheduler, kubelet and container runtime: Pods on fake Nodes, some of them real processes.
//!
//! A Pod that no Node has is bound to one round-robin (a DaemonSet's to the Node it names). What then happens is the
//! [`Play`] that the test chose for it: our own programs run as real processes, each Pod in a network namespace of its
//! own with an address of its own, in a root file system with nothing but the system's libraries, the program and the
//! Pod's volumes (service account token, ConfigMaps, emptyDirs); with the sysctls, user and environment its spec asks
//! for. All other Pods only report that they run. Probes decide on readiness and restarts, deletion is SIGTERM, grace
//! period, SIGKILL. The real controllers do the rest: ReplicaSets, DaemonSets, EndpointSlices.
//!
//! Not done: resources, affinity and taints, preStop, init containers, sidecars, subPath, secrets as volumes, image
//! pulls. Only the first container of a Pod is played.

mod nodes;
mod pod;
mod sandbox;
mod volumes;
mod container;
mod binaries;
mod probe;
mod status;
mod recorder;
mod through;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use binaries::RUNNER;
pub use binaries::{command, program};
pub use nodes::FakeNode;
pub use recorder::{Moment, Recorder};
pub use through::{ask, endpoints, through_service};

use crate::control_plane::ControlPlane;
use crate::process::Process;
use crate::scratch::Scratch;

/// What a Pod does once it is bound.
#[derive(Clone, Debug)]
pub enum Play {
    /// Its first container runs this program, with the arguments and environment of the spec.
    Program(PathBuf),
    /// It has an address, at which only the test may answer, and says that it runs; ready after this time,
    /// or never.
    Pretend {
        /// Time from start to readiness; `None`: never ready.
        ready_after: Option<Duration>,
    },
    /// It has run and succeeded, as the Pod of a `helm test` or a Job.
    Complete,
    /// It is bound, and nothing reports its status, as on a node that is down.
    Ignore,
}

impl Play {
    /// What a Pod is by its command, arguments and image: our programs run, everything else pretends to be ready.
    pub fn by_command(pod: &Pod) -> Play {
        let Some(container) = pod.spec.as_ref().and_then(|spec| spec.containers.first()) else {
            return Play::Ignore;
        };
        let words = container.command.iter().flatten().chain(container.args.iter().flatten());
        for word in words.chain(container.image.iter()) {
            for name in ["clusterdns-dataplane", "clusterdns-operator"] {
                if word.rsplit('/').next().is_some_and(|last| last.starts_with(name)) {
                    return Play::Program(program(name));
                }
            }
        }
        Play::Pretend { ready_after: Some(Duration::ZERO) }
    }
}

/// Decides what each Pod does; asked once per Pod.
pub type Hook = dyn Fn(&Pod) -> Play + Send + Sync;

/// How the nodes are set up.
pub struct Settings {
    /// Decides what each Pod does: [`Play::by_command`] unless said otherwise.
    pub play: Box<Hook>,
    /// `/etc/resolv.conf` of Pods with `dnsPolicy: Default`.
    pub resolv_conf: String,
    /// Whether Pods have an IPv6 address too.
    pub dual_stack: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            play: Box::new(Play::by_command),
            resolv_conf: "nameserver 192.0.2.53\n".to_owned(),
            dual_stack: false,
        }
    }
}

/// The running stand-in; Pods' processes end when it is dropped.
pub struct Kubelet {
    shared: Arc<Shared>,
    watching: JoinHandle<()>,
}

/// What every Pod's task sees.
struct Shared {
    client: Client,
    settings: Settings,
    api_server_port: u16,
    nodes: Mutex<Vec<String>>,
    next_node: AtomicUsize,
    pods: Mutex<HashMap<String, Played>>,
    scratch: Scratch,
}

/// A Pod that runs here, by uid.
struct Played {
    namespace: String,
    name: String,
    latest: watch::Sender<Option<Arc<Pod>>>,
    ran: Arc<Mutex<Ran>>,
    task: JoinHandle<()>,
}

/// What other tasks see and do of a Pod.
#[derive(Debug, Default)]
struct Ran {
    addresses: Vec<IpAddr>,
    restarts: u32,
    process: Option<Process>,
    log: Option<PathBuf>,
    /// The next end of its process is not reported.
    is_hasty: bool,
    /// Nothing is done about it, because its node is frozen.
    is_frozen: bool,
}

impl Kubelet {
    /// Creates the Nodes and plays every Pod of the cluster from now on. Call it [`inside`](crate::netns::inside) a
    /// network namespace, with a control plane started by [`Setup::for_pods`](crate::control_plane::Setup::for_pods).
    pub async fn start(plane: &ControlPlane, nodes: &[FakeNode], settings: Settings) -> Kubelet {
        let shared = Arc::new(Shared {
            client: plane.client().await,
            settings,
            api_server_port: plane.port(),
            nodes: Mutex::default(),
            next_node: AtomicUsize::new(0),
            pods: Mutex::default(),
            scratch: Scratch::new("kubelet").expect("a scratch directory"),
        });
        let watching = tokio::spawn(follow(shared.clone()));
        let kubelet = Kubelet { shared, watching };
        for node in nodes {
            kubelet.add_node(node).await;
        }
        kubelet
    }

    /// Creates one more Node; Pods without a Node may be bound to it.
    pub async fn add_node(&self, node: &FakeNode) {
        node.create(&self.shared.client).await;
        self.shared.nodes.lock().expect("no panic").push(node.name().to_owned());
    }

    /// Deletes a Node; the garbage collector takes its Pods away after a while.
    pub async fn remove_node(&self, name: &str) {
        self.shared.nodes.lock().expect("no panic").retain(|node| node != name);
        nodes::delete(&self.shared.client, name).await;
    }

    /// How often the container of this Pod was started again.
    pub fn restarts(&self, namespace: &str, pod: &str) -> u32 {
        self.with(namespace, pod, |ran| ran.restarts)
    }

    /// The addresses of a Pod that runs here.
    pub fn addresses(&self, namespace: &str, pod: &str) -> Vec<IpAddr> {
        self.with(namespace, pod, |ran| ran.addresses.clone())
    }

    /// Ends its process at once, as `kill -9` does; it is then started again.
    pub fn kill(&self, namespace: &str, pod: &str) {
        self.signal(namespace, pod, "KILL");
    }

    /// The same, and it is started again at once, before a kubelet looks: its status does not show the restart.
    pub fn restart_unnoticed(&self, namespace: &str, pod: &str) {
        self.with(namespace, pod, |ran| ran.is_hasty = true);
        self.kill(namespace, pod);
    }

    /// Sends its process a signal, named as `kill` names it.
    pub fn signal(&self, namespace: &str, pod: &str, signal: &str) {
        self.with(namespace, pod, |ran| {
            if let Some(process) = &mut ran.process {
                process.signal(signal);
            }
        });
    }

    /// Freezes its node for this Pod: its process stops, and no kubelet reports on it.
    pub fn freeze(&self, namespace: &str, pod: &str) {
        self.with(namespace, pod, |ran| ran.is_frozen = true);
        self.signal(namespace, pod, "STOP");
    }

    /// Its node continues where it was frozen, and its kubelet writes its status again.
    pub fn thaw(&self, namespace: &str, pod: &str) {
        self.signal(namespace, pod, "CONT");
        self.with(namespace, pod, |ran| ran.is_frozen = false);
    }

    /// Writes its volumes again while it runs, as a kubelet does when a token is due or a ConfigMap has changed.
    ///
    /// # Panics
    /// Their contents cannot be had.
    pub async fn renew_volumes(&self, namespace: &str, pod: &str) {
        let log = self.with(namespace, pod, |ran| ran.log.clone()).expect("it has been started");
        let object = {
            let pods = self.shared.pods.lock().expect("no panic");
            let found = pods.values().find(|of| of.namespace == namespace && of.name == pod);
            found.and_then(|of| of.latest.borrow().clone()).expect("its object is there")
        };
        let wrote = container::write_volumes(&self.shared, &object, &log).await;
        wrote.unwrap_or_else(|error| panic!("{namespace}/{pod}: {error:#}"));
    }

    /// Everything that its process printed, over all restarts.
    pub fn log(&self, namespace: &str, pod: &str) -> String {
        let file = self.with(namespace, pod, |ran| ran.log.clone());
        file.map(|file| std::fs::read(file).unwrap_or_default())
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// The Pods of a namespace that this plays now, by name, with their restarts.
    pub fn pods(&self, namespace: &str) -> BTreeMap<String, u32> {
        let pods = self.shared.pods.lock().expect("no panic");
        let of_it = pods.values().filter(|pod| pod.namespace == namespace);
        of_it.map(|pod| (pod.name.clone(), pod.ran.lock().expect("no panic").restarts)).collect()
    }

    /// The ends of all logs, for the message of a test that fails.
    pub fn logs(&self) -> String {
        let pods = self.shared.pods.lock().expect("no panic");
        let tails = pods.values().filter_map(|pod| {
            let ran = pod.ran.lock().expect("no panic");
            let tail = ran.process.as_ref()?.log_tail();
            Some(format!("{}/{}: {tail}", pod.namespace, pod.name))
        });
        tails.collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn with<T>(&self, namespace: &str, name: &str, then: impl FnOnce(&mut Ran) -> T) -> T {
        let pods = self.shared.pods.lock().expect("no panic");
        let found = pods.values().find(|pod| pod.namespace == namespace && pod.name == name);
        let found = found.unwrap_or_else(|| panic!("no Pod {namespace}/{name} runs here"));
        let mut ran = found.ran.lock().expect("no panic");
        then(&mut ran)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.watching.abort();
        for (_, pod) in self.shared.pods.lock().expect("no panic").drain() {
            pod.task.abort();
            pod.ran.lock().expect("no panic").process = None;
        }
    }
}

/// Hands every event of a Pod to its task, for as long as the kubelet lives, also while the API server fails.
async fn follow(shared: Arc<Shared>) {
    let pods: Api<Pod> = Api::all(shared.client.clone());
    let mut events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                listed.extend(pod.metadata.uid.clone());
                take(&shared, pod).await;
            }
            Ok(Event::InitDone) => forget_all_but(&shared, &listed),
            Ok(Event::Apply(pod)) => take(&shared, pod).await,
            Ok(Event::Delete(pod)) => {
                let gone = pod.metadata.uid.as_deref();
                forget(&shared, |uid| Some(uid) == gone);
            }
            // The back-off has waited; the next item tries again.
            Err(_) => {}
        }
    }
}

async fn take(shared: &Arc<Shared>, pod: Pod) {
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else {
        if pod.metadata.deletion_timestamp.is_none() {
            bind(shared, &pod).await;
        }
        return;
    };
    if !shared.nodes.lock().expect("no panic").contains(&node) {
        return;
    }
    let uid = pod.metadata.uid.clone().expect("objects have a uid");
    let mut pods = shared.pods.lock().expect("no panic");
    if let Some(played) = pods.get(&uid) {
        played.latest.send_replace(Some(Arc::new(pod)));
        return;
    }
    let name = |text: &Option<String>| text.clone().expect("a Pod has a name and a namespace");
    let (namespace, name) = (name(&pod.metadata.namespace), name(&pod.metadata.name));
    let play = (shared.settings.play)(&pod);
    let ran: Arc<Mutex<Ran>> = Arc::default();
    let (latest, seen) = watch::channel(Some(Arc::new(pod)));
    let task = tokio::spawn(pod::play(shared.clone(), seen, play, ran.clone()));
    pods.insert(uid, Played { namespace, name, latest, ran, task });
}

/// As the scheduler does, for one Node after the other; a Pod of a DaemonSet says which.
async fn bind(shared: &Shared, pod: &Pod) {
    let (Some(name), Some(namespace)) = (&pod.metadata.name, &pod.metadata.namespace) else {
        return;
    };
    let node = nodes::named_by(pod).or_else(|| {
        let nodes = shared.nodes.lock().expect("no panic");
        let turn = shared.next_node.fetch_add(1, Ordering::Relaxed);
        (!nodes.is_empty()).then(|| nodes[turn % nodes.len()].clone())
    });
    let Some(node) = node else { return };
    let binding: Binding = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }))
    .expect("a Binding");
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
    // Refused when the Pod is gone or bound meanwhile; an event follows.
    let _: Result<serde_json::Value, _> =
        pods.create_subresource("binding", name, &PostParams::default(), &binding).await;
}

fn forget_all_but(shared: &Shared, listed: &[String]) {
    forget(shared, |uid| !listed.iter().any(|known| known == uid));
}

/// Their objects are gone: informs their tasks, which end what runs.
fn forget(shared: &Shared, is_gone: impl Fn(&str) -> bool) {
    shared.pods.lock().expect("no panic").retain(|uid, pod| {
        if is_gone(uid) {
            pod.latest.send_replace(None);
        }
        !is_gone(uid)
    });
}
