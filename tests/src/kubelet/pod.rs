//! The life of one Pod, from its binding to its end, in one task.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use kube::api::{Api, DeleteParams, Preconditions};
use tokio::sync::watch;

use super::sandbox::Sandbox;
use super::status::{self, Known, now};
use super::{Play, Ran, Shared, container, probe};

/// How often a task looks at its process and its object.
const POLL: Duration = Duration::from_millis(50);
/// Probes that have not passed yet are asked more often than their period: tests wait for them.
const FIRST_PROBES: Duration = Duration::from_millis(200);
/// What a start that fails, or a program that ends, waits at first, and at most. A kubelet waits 10 s to 5 min.
const BACK_OFF: Duration = Duration::from_millis(200);
const MAX_BACK_OFF: Duration = Duration::from_secs(5);
/// Of a Pod that does not say.
const GRACE_SECONDS: i64 = 30;

/// Plays a Pod until its object is gone.
pub(super) async fn play(
    shared: Arc<Shared>,
    seen: watch::Receiver<Option<Arc<Pod>>>,
    play: Play,
    ran: Arc<Mutex<Ran>>,
) {
    let known = Known {
        addresses: Vec::new(),
        pod_started: now(),
        restarts: 0,
        ready: false,
        container: status::Container::Waiting(String::new()),
        last_exit: None,
    };
    let probes = Probes::default();
    let mut life = Life { shared, seen, ran, known, probes, written: None };
    match play {
        Play::Ignore => {}
        Play::Pretend { ready_after } => life.pretend(ready_after).await,
        Play::Complete => life.complete().await,
        Play::Program(program) => life.run(&program).await,
    }
}

struct Life {
    shared: Arc<Shared>,
    seen: watch::Receiver<Option<Arc<Pod>>>,
    ran: Arc<Mutex<Ran>>,
    known: Known,
    probes: Probes,
    /// The status that was written last.
    written: Option<Known>,
}

enum End {
    /// By itself, or killed: it is started again.
    Alone(i32),
    /// Because the Pod was deleted.
    Asked(i32),
    /// The object is gone: no status is written any more.
    Gone,
}

impl Life {
    async fn pretend(&mut self, ready_after: Option<Duration>) {
        let sandbox = Sandbox::of_nothing(self.shared.settings.dual_stack);
        self.has(sandbox.addresses());
        self.known.container = status::Container::Running(now());
        let started = Instant::now();
        while let Some(pod) = self.pod() {
            if pod.metadata.deletion_timestamp.is_some() {
                self.end(0).await;
                return;
            }
            self.known.ready = ready_after.is_some_and(|after| started.elapsed() >= after);
            self.report(&pod).await;
            tokio::time::sleep(POLL).await;
        }
    }

    async fn complete(&mut self) {
        self.known.container = status::Container::Ended(0);
        while let Some(pod) = self.pod() {
            if pod.metadata.deletion_timestamp.is_some() {
                self.end(0).await;
                return;
            }
            self.report(&pod).await;
            tokio::time::sleep(POLL).await;
        }
    }

    async fn run(&mut self, program: &Path) {
        let Some(pod) = self.pod() else { return };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let folder = self.shared.scratch.path().join(uid);
        let sandbox = Sandbox::of(&pod, self.shared.settings.dual_stack);
        let sandbox = std::fs::create_dir_all(&folder).map_err(Into::into).and(sandbox);
        if let Ok(sandbox) = &sandbox {
            self.has(sandbox.addresses());
            self.ran.lock().expect("no panic").log = Some(container::log_of(&folder));
        }
        let mut back_off = BACK_OFF;
        while let Some(pod) = self.pod() {
            if pod.metadata.deletion_timestamp.is_some() {
                self.end(0).await;
                return;
            }
            match self.start(&pod, &sandbox, program, &folder).await {
                Err(reason) => {
                    self.known.container = status::Container::Waiting(format!("{reason:#}"));
                    self.report(&pod).await;
                }
                Ok(()) => match self.attend(&pod).await {
                    End::Gone => return,
                    End::Asked(code) => {
                        self.end(code).await;
                        return;
                    }
                    End::Alone(_) if self.is_hasty() => continue,
                    End::Alone(code) => self.ended_alone(&pod, code).await,
                },
            }
            tokio::time::sleep(back_off).await;
            back_off = (back_off * 2).min(MAX_BACK_OFF);
        }
    }

    async fn start(
        &mut self,
        pod: &Pod,
        sandbox: &Result<Sandbox>,
        program: &Path,
        folder: &Path,
    ) -> Result<()> {
        let sandbox = sandbox.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        let process = container::start(&self.shared, pod, sandbox, program, folder).await?;
        self.ran.lock().expect("no panic").process = Some(process);
        self.known.container = status::Container::Running(now());
        Ok(())
    }

    /// Watches over the process until it ends, and asks its probes.
    async fn attend(&mut self, pod: &Pod) -> End {
        let Some(container) = pod.spec.as_ref().and_then(|spec| spec.containers.first()) else {
            return End::Gone;
        };
        let mut asked_to_end: Option<Instant> = None;
        loop {
            let Some(pod) = self.pod() else {
                self.ran.lock().expect("no panic").process = None;
                return End::Gone;
            };
            if self.is_frozen() {
                // A kubelet that runs again writes its status again, over what others wrote meanwhile.
                self.written = None;
                tokio::time::sleep(POLL).await;
                continue;
            }
            if pod.metadata.deletion_timestamp.is_some() && asked_to_end.is_none() {
                self.signal("TERM");
                asked_to_end = Some(Instant::now());
            }
            if let Some(code) = self.exit_code() {
                return if asked_to_end.is_some() { End::Asked(code) } else { End::Alone(code) };
            }
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(GRACE_SECONDS);
            if asked_to_end.is_some_and(|at| at.elapsed().as_secs_f64() >= grace as f64) {
                self.signal("KILL");
            }
            let address = self.known.addresses[0];
            self.known.ready = self.probes.ask(container, address, self.known.ready).await;
            if self.probes.is_sick && asked_to_end.is_none() {
                // A kubelet would ask its probes first; here they have failed for long.
                self.signal("KILL");
            }
            self.report(&pod).await;
            tokio::time::sleep(POLL).await;
        }
    }

    fn is_frozen(&self) -> bool {
        self.ran.lock().expect("no panic").is_frozen
    }

    /// Whether this end is not reported.
    fn is_hasty(&self) -> bool {
        std::mem::take(&mut self.ran.lock().expect("no panic").is_hasty)
    }

    async fn ended_alone(&mut self, pod: &Pod, code: i32) {
        self.probes = Probes::default();
        self.known.restarts += 1;
        self.known.ready = false;
        self.known.last_exit = Some(code);
        self.known.container = status::Container::Waiting(format!("it ended with {code}"));
        self.report(pod).await;
        // Last, so that a test that counts restarts finds this one in the API server.
        self.ran.lock().expect("no panic").restarts = self.known.restarts;
    }

    /// Removes the object: the last thing a kubelet does for a Pod.
    async fn end(&mut self, code: i32) {
        self.known.ready = false;
        self.known.container = status::Container::Ended(code);
        while let Some(pod) = self.pod() {
            self.report(&pod).await;
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), namespace);
            let uid = pod.metadata.uid.clone();
            let preconditions = Some(Preconditions { uid, resource_version: None });
            let now = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions,
                ..DeleteParams::default()
            };
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            match pods.delete(name, &now).await {
                Ok(_) => return,
                Err(kube::Error::Api(refusal)) if [404, 409].contains(&refusal.code) => return,
                Err(_) => tokio::time::sleep(BACK_OFF).await,
            }
        }
    }

    /// The newest state of the object; None when it is gone.
    fn pod(&self) -> Option<Arc<Pod>> {
        self.seen.borrow().clone()
    }

    fn has(&mut self, addresses: &[IpAddr]) {
        self.known.addresses = addresses.to_vec();
        self.ran.lock().expect("no panic").addresses = addresses.to_vec();
    }

    fn signal(&self, name: &str) {
        if let Some(process) = &mut self.ran.lock().expect("no panic").process {
            process.signal(name);
        }
    }

    fn exit_code(&self) -> Option<i32> {
        let mut ran = self.ran.lock().expect("no panic");
        let status = ran.process.as_mut()?.exited()?;
        Some(status.code().unwrap_or(-1))
    }

    /// Writes a status that has changed; one that is not taken is written again the next time.
    async fn report(&mut self, pod: &Pod) {
        if self.written.as_ref() == Some(&self.known) {
            return;
        }
        if status::write(&self.shared.client, pod, &self.known).await {
            self.written = Some(self.known.clone());
        }
    }
}

/// What the probes of one process said so far.
#[derive(Default)]
struct Probes {
    has_started: bool,
    is_sick: bool,
    readiness: Turn,
    liveness: Turn,
    startup: Turn,
}

/// When a probe is due, and how often it failed in a row.
#[derive(Default)]
struct Turn {
    last: Option<Instant>,
    failures: i32,
}

impl Probes {
    /// Asks those that are due; whether the container is ready.
    async fn ask(&mut self, container: &Container, address: IpAddr, was_ready: bool) -> bool {
        if !self.has_started {
            let passed = self.startup.ask(container, &container.startup_probe, address, true).await;
            self.has_started = passed == Some(true);
            self.is_sick |= is_over(&container.startup_probe, &self.startup);
            return false;
        }
        self.liveness.ask(container, &container.liveness_probe, address, false).await;
        self.is_sick |= is_over(&container.liveness_probe, &self.liveness);
        match self.readiness.ask(container, &container.readiness_probe, address, !was_ready).await {
            Some(true) => true,
            Some(false) => was_ready && !is_over(&container.readiness_probe, &self.readiness),
            None => was_ready,
        }
    }
}

fn is_over(probe: &Option<Probe>, turn: &Turn) -> bool {
    let threshold = probe.as_ref().and_then(|probe| probe.failure_threshold).unwrap_or(3);
    turn.failures >= threshold
}

impl Turn {
    async fn ask(
        &mut self,
        container: &Container,
        probe: &Option<Probe>,
        address: IpAddr,
        often: bool,
    ) -> Option<bool> {
        let seconds = probe.as_ref().and_then(|probe| probe.period_seconds).unwrap_or(10);
        let period = Duration::from_secs(seconds.try_into().unwrap_or(10));
        let wait = if often { FIRST_PROBES } else { period };
        if self.last.is_some_and(|last| last.elapsed() < wait) {
            return None;
        }
        // Failures count by the period, however often we ask.
        let counts = self.last.is_none_or(|last| !often || last.elapsed() >= period);
        let passes = probe::passes(container, probe.as_ref(), address).await;
        self.failures = match (passes, counts) {
            (true, _) => 0,
            (false, true) => self.failures + 1,
            (false, false) => self.failures,
        };
        self.last = Some(Instant::now());
        Some(passes)
    }
}
