//! The Kubernetes API as the source of objects. One thread lists, watches, decodes and writes; the
//! records are never more than one list behind, and when the API server is gone they stay.
//!
//! Nothing is written to the API server, and nothing but Services, EndpointSlices, the metadata of
//! Namespaces, Pods (verified pod records only) and one ConfigMap is read.

mod watched;
mod connect;
mod client;
mod heartbeat;
mod watch;
mod list;
mod listed;
mod compare;
mod meanwhile;
mod supervise;
mod namespace_turns;
mod sink;
mod ingest;
mod put_off;
mod decode;
mod status;
mod configuration;
mod wanted;
mod rollout;
mod warm;
mod pace;

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use crds::Config;
use dataplane_core::Resource;
use tokio::sync::{oneshot, watch as channel};
use tokio::task::LocalSet;

use super::configuration::Checked;
use super::writer::{Setup, Writer};
use crate::first_thread::Job;
use crate::restarting::restarting;
use crate::snapshot;
use crate::state::State;
use crate::status::Status;
use client::ApiClient;
use configuration::Configuration;
use ingest::Ingest;
use rollout::Own;
use sink::Sink;
use status::StreamStatus;
use watch::Stream;
use watched::Watched;

pub use connect::Credentials;
pub use pace::Pace;
pub use wanted::Wanted;

/// How long a start without any configuration on this machine waits for the ConfigMap.
const FIRST_CONFIGURATION: Duration = Duration::from_secs(2);
/// How often to check for changes that time alone brings.
const TICK: Duration = Duration::from_millis(100);
/// How often what is not served is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What this source needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// The API server, and our credentials.
    pub credentials: Credentials,
    /// Where the configuration comes from.
    pub wanted: Wanted,
    /// Decides whether a canary is ours.
    pub pod_uid: Option<String>,
    /// Where the warm start is kept, if it is.
    pub state_dir: Option<PathBuf>,
    /// Times that tests shorten.
    pub pace: Pace,
}

/// The running source; it ends with this.
#[derive(Debug)]
pub struct Api {
    state: Arc<State>,
    configs: channel::Receiver<Arc<Config>>,
    /// True once the process was asked to end.
    is_ending: channel::Sender<bool>,
    _end: oneshot::Sender<()>,
}

/// The first message of the thread.
type Opened = anyhow::Result<(Arc<State>, channel::Receiver<Arc<Config>>)>;

impl Api {
    /// Starts to list and watch. Returns at once where a configuration is known on this machine: from
    /// a file, the mounted copy of the ConfigMap, or the snapshot. Otherwise it returns when the
    /// ConfigMap was read, or after 2 s, because what needs no configuration must be answered.
    ///
    /// # Errors
    /// The credentials or `--config` cannot be used. An API server that is away is no error.
    pub fn open(options: Options, setup: Setup) -> anyhow::Result<Api> {
        let of_its_own = std::thread::Builder::new().name("source".into());
        Api::open_on(options, setup, |work| of_its_own.spawn(work).map(drop))
    }

    /// The same; `begin` begins the work of the source on a thread that does nothing else until the result is dropped.
    ///
    /// # Errors
    /// As [`Api::open`], and those of `begin`.
    pub fn open_on(
        options: Options,
        setup: Setup,
        begin: impl FnOnce(Job) -> io::Result<()>,
    ) -> anyhow::Result<Api> {
        let (end, ended) = oneshot::channel();
        let (is_ending, ending) = channel::channel(false);
        let (opened, opening) = mpsc::sync_channel(1);
        begin(Box::new(move || run(options, setup, &opened, ending, ended)))
            .context("cannot start the thread that watches the API server")?;
        let (state, configs) =
            opening.recv().context("the thread that watches the API server ended")??;
        Ok(Api { state, configs, is_ending, _end: end })
    }

    /// The published state, which serving threads read.
    pub fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    /// The configuration in use, and those that take over.
    pub fn configs(&self) -> channel::Receiver<Arc<Config>> {
        self.configs.clone()
    }

    /// The process was asked to end: one more snapshot is written, as fresh as can be, for the
    /// process that takes over (E40). Does not wait for it; the drain takes longer.
    pub fn write_last_snapshot(&self) {
        self.is_ending.send_replace(true);
    }
}

fn run(
    options: Options,
    setup: Setup,
    opened: &mpsc::SyncSender<Opened>,
    ending: channel::Receiver<bool>,
    ended: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime.context("cannot start the runtime of the source") {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = opened.send(Err(error));
            return;
        }
    };
    LocalSet::new().block_on(&runtime, async {
        match open(options, setup).await {
            Ok((client, sink)) => {
                let running = {
                    let sink = sink.borrow();
                    (sink.ingest.writer.state(), sink.ingest.writer.configs())
                };
                let work =
                    tokio::task::spawn_local(follow(client, sink, running, opened.clone(), ending));
                tokio::select! {
                    _ = ended => {}
                    ended = work => {
                        // Nothing in there should return: this is a defect. Queries are still answered.
                        tracing::error!(?ended, "the watches ended: what is known stays in use");
                    }
                }
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        }
    });
    // The end of the process waits for no name of the API server that is still being resolved.
    runtime.shutdown_background();
}

/// The parts that do not need the API server.
async fn open(
    options: Options,
    setup: Setup,
) -> anyhow::Result<(Rc<ApiClient>, Rc<RefCell<Sink>>)> {
    let Options { credentials, wanted, pod_uid, state_dir, pace } = options;
    let stored = state_dir.as_deref().and_then(|folder| snapshot::open(folder, &setup.status));
    let first = match wanted.first() {
        Err(error) if stored.as_ref().is_some_and(|stored| stored.configuration().is_ok()) => {
            // E46: the one in the snapshot is used, and the refusal reported.
            let rejection = super::configuration::unusable("--config".into(), format!("{error:#}"));
            setup.status.reject(rejection);
            None
        }
        first => first?,
    };
    let client = Rc::new(ApiClient::open(credentials).await?);
    let status = setup.status.clone();
    let own = Own { pod_uid, process: setup.identity.instance_id.clone() };
    let unusable = |error| anyhow::anyhow!("the configuration cannot be used: {error}");
    let writer = match &first {
        Some(Checked { config, .. }) => Writer::new(config, setup).map_err(unusable)?,
        None => Writer::unconfigured(setup).map_err(unusable)?,
    };
    let mut ingest = Ingest::new(writer, StreamStatus::new(status));
    let mut configuration = Configuration::new(wanted.clone(), own, pace);
    if let Wanted::ConfigMap { namespace, name, .. } = wanted {
        let watched = Watched::ConfigMap { namespace, name };
        ingest.status.feed(&watched, |_| ());
        configuration.config_map = Some(watched);
    }
    if let Some(checked) = first {
        configuration.adopt(&mut ingest, checked);
    }
    configuration.state_dir = state_dir.map(|folder| (folder, stored));
    configuration.start_with_what_is_kept(&mut ingest);
    Ok((client, Rc::new(RefCell::new(Sink::new(ingest, configuration)))))
}

/// Every stream, until the thread ends.
async fn follow(
    client: Rc<ApiClient>,
    sink: Rc<RefCell<Sink>>,
    running: (Arc<State>, channel::Receiver<Arc<Config>>),
    opened: mpsc::SyncSender<Opened>,
    ending: channel::Receiver<bool>,
) {
    let status = Arc::clone(&sink.borrow().ingest.status.shared);
    let renewed = client.clone();
    keep(&status, "credentials", move || client::renew(renewed.clone()));
    let (dead, _) = channel::channel(0);
    let stream = {
        let (client, sink, dead) = (client.clone(), sink.clone(), dead.clone());
        move |watched| Stream::new(watched, client.clone(), sink.clone(), dead.subscribe())
    };
    let is_configured = sink.borrow().configuration.is_configured();
    if is_configured {
        // The snapshot is loaded first: no request and no time-out may delay the first answer.
        let _ = opened.send(Ok(running.clone()));
    }
    let config_map = sink.borrow().configuration.config_map.clone();
    if let Some(watched) = config_map {
        let stream = stream.clone();
        keep(&status, "watch of the ConfigMap", move || stream(watched.clone()).follow());
    }
    if !is_configured {
        wait_for_configuration(&sink, FIRST_CONFIGURATION).await;
        sink.borrow_mut().warm_start();
        let _ = opened.send(Ok(running));
    }
    keep(&status, "heartbeat", move || heartbeat::beat(client.clone(), dead.clone()));
    let (ticking, applying, keeping) = (sink.clone(), sink.clone(), sink.clone());
    keep(&status, "tick", move || tick(ticking.clone()));
    keep(&status, "events", move || apply_in_turns(applying.clone()));
    // Without a configuration nothing would be answered from them (E44), and which are needed is
    // not known either.
    wait_for_configuration(&sink, Duration::MAX).await;
    sink.borrow_mut().warm_start();
    keep(&status, "snapshot", move || keep_snapshots(keeping.clone(), ending.clone()));
    for resource in [Resource::Services, Resource::EndpointSlices, Resource::Namespaces] {
        let stream = stream.clone();
        keep(&status, resource.plural(), move || stream(Watched::Objects(resource)).follow());
    }
    let pods = || stream(Watched::Objects(Resource::Pods));
    restarting(Resource::Pods.plural(), count_in(&status), || follow_pods(&sink, pods)).await;
}

/// Runs a task of this thread as long as the thread runs.
fn keep<T: Future<Output = ()> + 'static>(
    status: &Arc<Status>,
    name: &'static str,
    begin: impl Fn() -> T + 'static,
) {
    tokio::task::spawn_local(restarting(name, count_in(status), begin));
}

fn count_in(status: &Arc<Status>) -> impl Fn() + 'static {
    let status = Arc::clone(status);
    move || status.read().panics += 1
}

async fn wait_for_configuration(sink: &Rc<RefCell<Sink>>, at_most: Duration) {
    let begun = Instant::now();
    while !sink.borrow().configuration.is_configured() && begun.elapsed() < at_most {
        tokio::time::sleep(TICK).await;
    }
}

/// Pods are watched only while a configuration verifies pod records.
async fn follow_pods(sink: &Rc<RefCell<Sink>>, stream: impl Fn() -> Stream) {
    let mut wanted = sink.borrow().configuration.pods_wanted.subscribe();
    let mut is_start = true;
    loop {
        if !*wanted.borrow_and_update() {
            is_start = false;
            // A stream that panicked may have left them.
            let is_left = sink.borrow().ingest.is_live(Resource::Pods);
            if is_left {
                sink.borrow_mut().forget(Resource::Pods);
            }
            if wanted.changed().await.is_err() {
                return std::future::pending().await;
            }
            continue;
        }
        let delay = if is_start { Duration::ZERO } else { sink.borrow().configuration.delay() };
        let work = async {
            tokio::time::sleep(delay).await;
            stream().follow().await;
        };
        tokio::select! {
            () = work => {}
            _ = wanted.wait_for(|wanted| !wanted) => sink.borrow_mut().forget(Resource::Pods),
        }
    }
}

/// E40: a little at a time, between events; one more at the end.
async fn keep_snapshots(sink: Rc<RefCell<Sink>>, ending: channel::Receiver<bool>) {
    let step = |is_last| sink.borrow_mut().ingest.writer.step_snapshot(is_last);
    step_until_dropped(step, ending).await;
}

/// Calls `step` as often as it says, and when the process is asked to end; every second if it does not say.
async fn step_until_dropped(
    mut step: impl FnMut(bool) -> Option<Duration>,
    mut ending: channel::Receiver<bool>,
) {
    loop {
        let is_last = *ending.borrow_and_update();
        let next = step(is_last).unwrap_or(snapshot::IDLE);
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            // Fails at once where the sender is gone: only the time counts then.
            Ok(()) = ending.changed() => {}
        }
    }
}

/// Applies the events that the watches read. It pauses between rounds, so that new events get their turn too (L18).
async fn apply_in_turns(sink: Rc<RefCell<Sink>>) {
    let has_events = sink.borrow().has_events();
    loop {
        // First, because this task may have panicked while events waited.
        while sink.borrow_mut().apply_round() {
            tokio::task::yield_now().await;
        }
        has_events.notified().await;
    }
}

async fn tick(sink: Rc<RefCell<Sink>>) {
    let mut reported = Instant::now();
    loop {
        tokio::time::sleep(TICK).await;
        let now = Instant::now();
        let mut sink = sink.borrow_mut();
        sink.tick(now);
        if now - reported >= REPORT_INTERVAL {
            reported = now;
            sink.report();
        }
    }
}

#[cfg(test)]
mod tests;
