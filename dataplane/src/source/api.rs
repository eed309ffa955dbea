//! The Kubernetes API as the source of objects. One thread lists, watches, decodes and writes; the
//! records are never more than one list behind, and when the API server is gone they stay.
//!
//! Nothing is written to the API server, and nothing but Services, EndpointSlices, the metadata of
//! Namespaces, Pods (verified pod records only) and one ConfigMap is read.

mod client;
mod configuration;
mod connect;
mod decode;
mod heartbeat;
mod ingest;
mod items;
mod list;
mod pages;
mod rollout;
mod supervise;
mod watch;
mod watched;

use std::cell::RefCell;
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
use crate::snapshot;
use crate::state::State;
use client::ApiClient;
use configuration::Settling;
use ingest::Ingest;
use watch::Stream;
use watched::Watched;

pub use configuration::Wanted;
pub use connect::Credentials;

/// How long a start without any configuration on this machine waits for the ConfigMap.
const FIRST_CONFIGURATION: Duration = Duration::from_secs(2);
/// How often it is looked whether time alone changed something.
const TICK: Duration = Duration::from_millis(100);
/// How often what is not served is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// E25: a list for comparison after 5 to 7 hours.
const COMPARE_AFTER: Duration = Duration::from_secs(5 * 3600);

/// What this source needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who we are to which API server.
    pub credentials: Credentials,
    /// Where the configuration comes from.
    pub wanted: Wanted,
    /// Decides whether a canary is ours.
    pub pod_uid: Option<String>,
    /// Where the warm start is kept, if it is.
    pub state_dir: Option<PathBuf>,
    /// Times that tests cannot wait for.
    pub pace: Pace,
}

/// How slowly what may be slow is done.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Lists that a configuration asks of all pods at once begin at random within this time (E43).
    pub spread: Duration,
    /// Everything is listed for comparison after this time, or up to four tenths later (E25).
    pub compare_after: Duration,
    /// A canary that is neither promoted nor renewed ends so long after the time to observe it.
    pub canary_grace: Duration,
}

impl Pace {
    /// What pods keep, but for the spread, which is a flag.
    pub fn with_spread(spread: Duration) -> Pace {
        Pace { spread, compare_after: COMPARE_AFTER, canary_grace: rollout::GRACE }
    }
}

/// The running source; it ends with this.
#[derive(Debug)]
pub struct Api {
    state: Arc<State>,
    configs: channel::Receiver<Arc<Config>>,
    _end: oneshot::Sender<()>,
}

/// What the thread says once it runs.
type Opened = anyhow::Result<(Arc<State>, channel::Receiver<Arc<Config>>)>;

impl Api {
    /// Starts to list and watch. Returns at once where a configuration is known on this machine: from
    /// a file, the mounted copy of the ConfigMap, or the snapshot. Otherwise it returns when the
    /// ConfigMap was read, or after 2 s, because what needs no configuration is to be answered.
    ///
    /// # Errors
    /// The credentials or `--config` cannot be used. An API server that is away is no error.
    pub fn open(options: Options, setup: Setup) -> anyhow::Result<Api> {
        let (end, ended) = oneshot::channel();
        let (opened, opening) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("source".into())
            .spawn(move || run(options, setup, &opened, ended))
            .context("cannot start the thread that watches the API server")?;
        let (state, configs) =
            opening.recv().context("the thread that watches the API server ended")??;
        Ok(Api { state, configs, _end: end })
    }

    /// What workers read.
    pub fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    /// The configuration in use, and those that take over.
    pub fn configs(&self) -> channel::Receiver<Arc<Config>> {
        self.configs.clone()
    }
}

fn run(
    options: Options,
    setup: Setup,
    opened: &mpsc::SyncSender<Opened>,
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
            Ok((client, ingest)) => {
                let running = {
                    let ingest = ingest.borrow();
                    (ingest.writer.state(), ingest.writer.configs())
                };
                let work =
                    tokio::task::spawn_local(follow(client, ingest, running, opened.clone()));
                tokio::select! {
                    _ = ended => {}
                    ended = work => {
                        // Nothing in there returns: this is a defect, and answers go on all the same.
                        tracing::error!(?ended, "the watches ended: what is known stays in use");
                    }
                }
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        }
    });
}

/// What does not need the API server to be there.
async fn open(
    options: Options,
    setup: Setup,
) -> anyhow::Result<(Rc<ApiClient>, Rc<RefCell<Ingest>>)> {
    let Options { credentials, wanted, pod_uid, state_dir, pace } = options;
    let stored = state_dir.as_deref().and_then(|folder| snapshot::open(folder, &setup.status));
    let first = match configuration::first(&wanted) {
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
    let unusable = |error| anyhow::anyhow!("the configuration cannot be used: {error}");
    let writer = match &first {
        Some(Checked { config, .. }) => Writer::new(config, setup).map_err(unusable)?,
        None => Writer::unconfigured(setup).map_err(unusable)?,
    };
    let mut ingest = Ingest::new(writer, status, Settling::new(wanted.clone(), pod_uid, pace));
    if let Wanted::ConfigMap { namespace, name, .. } = wanted {
        ingest.follow_config_map(Watched::ConfigMap { namespace, name });
    }
    if let Some(checked) = first {
        ingest.adopt(checked);
    }
    ingest.state_dir = state_dir.map(|folder| (folder, stored));
    ingest.start_with_what_is_kept();
    Ok((client, Rc::new(RefCell::new(ingest))))
}

/// Every stream, until the thread ends.
async fn follow(
    client: Rc<ApiClient>,
    ingest: Rc<RefCell<Ingest>>,
    running: (Arc<State>, channel::Receiver<Arc<Config>>),
    opened: mpsc::SyncSender<Opened>,
) {
    tokio::task::spawn_local(client::renew(client.clone()));
    let (dead, _) = channel::channel(0);
    let stream = |watched| Stream::new(watched, client.clone(), ingest.clone(), dead.subscribe());
    let is_configured = ingest.borrow().is_configured();
    if is_configured {
        // Nothing else comes before the first answer: neither a request nor its time-out.
        let _ = opened.send(Ok(running.clone()));
    }
    let config_map = ingest.borrow().config_map.clone();
    if let Some(watched) = config_map {
        tokio::task::spawn_local(stream(watched).follow());
    }
    if !is_configured {
        wait_for_configuration(&ingest, FIRST_CONFIGURATION).await;
        ingest.borrow_mut().warm_start();
        let _ = opened.send(Ok(running));
    }
    tokio::task::spawn_local(heartbeat::beat(client.clone(), dead.clone()));
    tokio::task::spawn_local(tick(ingest.clone()));
    // Without a configuration nothing would be answered from them (E44), and which are needed is
    // not known either.
    wait_for_configuration(&ingest, Duration::MAX).await;
    ingest.borrow_mut().warm_start();
    tokio::task::spawn_local(keep_snapshots(ingest.clone()));
    for resource in [Resource::Services, Resource::EndpointSlices, Resource::Namespaces] {
        tokio::task::spawn_local(stream(Watched::Objects(resource)).follow());
    }
    follow_pods(&ingest, || stream(Watched::Objects(Resource::Pods))).await;
}

async fn wait_for_configuration(ingest: &Rc<RefCell<Ingest>>, at_most: Duration) {
    let begun = Instant::now();
    while !ingest.borrow().is_configured() && begun.elapsed() < at_most {
        tokio::time::sleep(TICK).await;
    }
}

/// Pods are watched only while a configuration verifies pod records.
async fn follow_pods(ingest: &Rc<RefCell<Ingest>>, stream: impl Fn() -> Stream) {
    let mut wanted = ingest.borrow().pods_wanted.subscribe();
    let mut is_start = true;
    loop {
        if !*wanted.borrow_and_update() {
            is_start = false;
            if wanted.changed().await.is_err() {
                return std::future::pending().await;
            }
            continue;
        }
        let spread = if is_start { Duration::ZERO } else { ingest.borrow().settling.pace.spread };
        let work = async {
            tokio::time::sleep(spread.mul_f64(chance())).await;
            stream().follow().await;
        };
        tokio::select! {
            () = work => {}
            _ = wanted.wait_for(|wanted| !wanted) => ingest.borrow_mut().forget(Resource::Pods),
        }
    }
}

/// E40: a little at a time, between events.
async fn keep_snapshots(ingest: Rc<RefCell<Ingest>>) {
    loop {
        let next = ingest.borrow_mut().writer.step_snapshot();
        // At the latest: a drain writes one more, at once.
        tokio::time::sleep(next.unwrap_or(TICK).min(TICK)).await;
    }
}

async fn tick(ingest: Rc<RefCell<Ingest>>) {
    let mut reported = Instant::now();
    loop {
        tokio::time::sleep(TICK).await;
        let now = Instant::now();
        let mut ingest = ingest.borrow_mut();
        ingest.tick(now);
        if now - reported >= REPORT_INTERVAL {
            reported = now;
            ingest.report();
        }
    }
}

/// In [0, 1), different in every process.
fn chance() -> f64 {
    let random = getrandom::u64().expect("this system gives random numbers");
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
