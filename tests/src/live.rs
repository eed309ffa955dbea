//! A data plane in this process that watches an API server, real or behind a fault proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use dataplane::forward::Forwarder;
use dataplane::metrics::{Form, Metrics, Sources};
use dataplane::readiness::{Health, why_not_ready};
use dataplane::serve::{Limits, Listen, Serving, worker_counters};
use dataplane::source::api::{Api, Credentials, Options, Pace, Wanted};
use dataplane::source::writer::Setup;
use dataplane::state::State;
use dataplane::status::Status;
use dataplane_core::Resource;

use crate::client::{self, Names, Question, Section, Text, Transport};
use crate::in_process::identity;
use crate::scratch::Scratch;

/// "One worker" (§9.2), so that what follows from one socket is answered in order.
const WORKERS: usize = 1;
/// Generous: a busy machine runs several control planes at once.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);

/// The data plane; it ends when dropped. Fields are dropped in order.
#[derive(Debug)]
pub struct Live {
    serving: Serving,
    _api: Api,
    status: Arc<Status>,
    metrics: Metrics,
    health: Arc<Health>,
    names: Names,
    _files: Scratch,
    _runtime: Background,
}

/// A runtime that may be dropped inside another one, as at the end of an async test.
#[derive(Debug)]
pub(crate) struct Background(Option<tokio::runtime::Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Options for a kubeconfig file, the defaults for the rest, and no waiting for others.
pub fn options(kubeconfig: &Path) -> Options {
    let file = Some(PathBuf::from(kubeconfig));
    Options {
        credentials: Credentials::Kubeconfig { file, context: None },
        wanted: Wanted::Defaults,
        pod_uid: None,
        state_dir: None,
        pace: Pace::with_spread(Duration::ZERO),
    }
}

/// What a source starts from, with a name server file in `folder` that is not there, and the names
/// that answers show.
pub(crate) fn setup(folder: &Path) -> (Setup, Names) {
    let identity = identity();
    let names = Names::of(&identity);
    let setup = Setup {
        counters: worker_counters(1, WORKERS),
        identity,
        resolv_conf: folder.join("no-resolv.conf"),
        location: Default::default(),
        status: Arc::default(),
    };
    (setup, names)
}

/// Serves on a free port of loopback, UDP and TCP.
pub(crate) fn serve(state: Arc<State>, forwarder: Arc<Forwarder>) -> Result<(Serving, Background)> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let serving = Serving::start(
        &Listen::at([(Ipv4Addr::LOCALHOST, 0).into()]),
        WORKERS,
        state,
        forwarder,
        Limits::default(),
        runtime.handle().clone(),
    )?;
    Ok((serving, Background(Some(runtime))))
}

impl Live {
    /// Starts one with the defaults as configuration.
    pub fn start(kubeconfig: &Path) -> Live {
        Live::with(options(kubeconfig)).expect("a data plane starts")
    }

    /// Starts one.
    ///
    /// # Errors
    /// Options that cannot be used; an API server that is away is none.
    pub fn with(options: Options) -> Result<Live> {
        let files = Scratch::new("live")?;
        let (setup, names) = setup(files.path());
        let status = setup.status.clone();
        let api = Api::open(options, setup)?;
        let forwarder = Forwarder::new();
        let (serving, runtime) = serve(api.state(), forwarder.clone())?;
        let health = Arc::<Health>::default();
        health.serving();
        let metrics = Metrics::new(Sources {
            state: api.state(),
            serving: serving.counters().clone(),
            forwarder,
            status: status.clone(),
            health: health.clone(),
            configs: api.configs(),
        });
        Ok(Live {
            serving,
            _api: api,
            status,
            metrics,
            health,
            names,
            _files: files,
            _runtime: runtime,
        })
    }

    /// Where it answers, UDP and TCP alike.
    pub fn address(&self) -> SocketAddr {
        self.serving.local_addrs()[0]
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Why `/readyz` says no; nothing when it says yes.
    pub fn why_not_ready(&self) -> Vec<String> {
        why_not_ready(&self.health, &self.status)
    }

    /// Asks over UDP and returns the reply as text.
    pub fn ask(&self, question: &str) -> Text {
        let question = Question::parse(question).expect("a question");
        let reply = client::ask_udp(self.address(), &question.packet, false).expect("a reply");
        client::read(&question, reply.as_deref(), Transport::Udp, &self.names)
    }

    /// The A records of a name below the cluster domain, as addresses; `Err` is the status of a denial.
    pub fn a(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let text = self.ask(&format!("{name}.svc.cluster.local. A"));
        let answers = &text.records[Section::Answer as usize];
        if answers.is_empty() {
            let status = text
                .status
                .split_whitespace()
                .find(|word| ["NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED"].contains(word));
            return Err(status.unwrap_or(&text.status).to_owned());
        }
        let last = |record: &String| record.rsplit(' ').next()?.parse().ok();
        let mut addresses: Vec<IpAddr> = answers.iter().filter_map(last).collect();
        addresses.sort();
        Ok(addresses)
    }

    /// The value of one line of `/metrics`.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let text = String::from_utf8(self.metrics.page(Form::OpenMetrics)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok())
    }

    /// Waits until it is ready.
    pub fn wait_until_ready(&self) {
        self.wait("readiness", || self.why_not_ready().is_empty());
    }

    /// Waits until this holds; fails with all that is known if it never does.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: never\n{:#?}", self.status.read());
            std::thread::sleep(POLL);
        }
    }

    /// Waits until a name has exactly these addresses.
    pub fn wait_for(&self, name: &str, addresses: &[&str]) {
        let expected: Vec<IpAddr> =
            addresses.iter().map(|address| address.parse().expect("an address")).collect();
        self.wait(name, || self.a(name).as_ref() == Ok(&expected));
    }

    /// Waits until a name is denied with this status.
    pub fn wait_for_denial(&self, name: &str, status: &str) {
        self.wait(name, || self.a(name) == Err(status.to_owned()));
    }

    /// Why a watch fails.
    pub fn trouble(&self, resource: Resource) -> Option<String> {
        let reported = self.status.read();
        reported.feeds[resource as usize].trouble.as_ref().map(|trouble| trouble.reason.clone())
    }

    /// Complete lists after the first.
    pub fn relists(&self, resource: Resource) -> u64 {
        self.status.read().feeds[resource as usize].relists
    }
}
