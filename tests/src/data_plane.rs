//! The program `clusterdns-dataplane` as a process of its own, watching an API server: its answers, its pages
//! of HTTP, and the resources that it uses.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{self, Names, Question, Section, Text, Transport};
use crate::http;
use crate::kubelet::{RUNNER, command};
use crate::process::Process;
use crate::scratch::Scratch;
use crate::usage::Usage;

const PATIENCE: Duration = Duration::from_secs(90);
/// An emulator takes several times as long for everything.
const WITH_A_RUNNER: u32 = 5;
const POLL: Duration = Duration::from_millis(20);

/// A running one; it ends when dropped.
#[derive(Debug)]
pub struct DataPlane {
    /// To be killed, or sent signals.
    pub process: Process,
    dns: SocketAddr,
    http: SocketAddr,
    _files: Scratch,
}

impl DataPlane {
    /// Starts it with one worker and these flags besides; returns when its sockets are open.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(kubeconfig: &Path, flags: &[&str]) -> DataPlane {
        DataPlane::start_with(&[], "--kubeconfig", kubeconfig, flags)
    }

    /// The same, started by another program that becomes it.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_below(before: &[&str], kubeconfig: &Path, flags: &[&str]) -> DataPlane {
        DataPlane::start_with(before, "--kubeconfig", kubeconfig, flags)
    }

    /// The same over a folder of manifests.
    ///
    /// # Panics
    /// It does not start.
    pub fn of_manifests(folder: &Path) -> DataPlane {
        DataPlane::of_manifests_with(folder, &[])
    }

    /// The same with these flags besides.
    ///
    /// # Panics
    /// It does not start.
    pub fn of_manifests_with(folder: &Path, flags: &[&str]) -> DataPlane {
        DataPlane::start_with(&[], "--manifests", folder, flags)
    }

    /// The same, started by another program that becomes it.
    ///
    /// # Panics
    /// It does not start.
    pub fn of_manifests_below(before: &[&str], folder: &Path) -> DataPlane {
        DataPlane::start_with(before, "--manifests", folder, &[])
    }

    fn start_with(before: &[&str], source: &str, path: &Path, flags: &[&str]) -> DataPlane {
        let files = Scratch::new("data-plane").expect("a scratch directory");
        let path = path.display().to_string();
        let (program, runner) = command("clusterdns-dataplane");
        let mut all: Vec<&str> = runner.iter().map(String::as_str).collect();
        all.extend([source, &path, "--workers", "1"]);
        all.extend(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json"]);
        all.extend(flags);
        let process = Process::start_below(before, &program, &all, &[], files.path());
        let process = process.expect("it starts");
        let (dns, http) = wait_for("the sockets", || process.printed().lines().find_map(addresses));
        DataPlane { process, dns, http, _files: files }
    }

    /// Where it answers, UDP and TCP alike.
    pub fn address(&self) -> SocketAddr {
        self.dns
    }

    /// Address of the HTTP port: probes, metrics, pages.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The resources that it uses.
    pub fn usage(&self) -> Usage {
        Usage::of(self.process.pid().expect("it runs"))
    }

    /// Status and body of a GET.
    ///
    /// # Panics
    /// HTTP is not answered.
    pub fn get(&self, path: &str) -> (u16, String) {
        http::get(self.http, path).unwrap_or_else(|error| panic!("{path}: {error:#}"))
    }

    /// The value of one line of `/metrics`.
    pub fn metric(&self, series: &str) -> Option<f64> {
        http::metric(&self.get("/metrics").1, series)
    }

    /// Complete lists of a resource after the first.
    pub fn relists(&self, plural: &str) -> f64 {
        self.metric(&format!("clusterdns_relists_total{{resource=\"{plural}\"}}")).unwrap_or(0.0)
    }

    /// Asks, `NAME TYPE`.
    ///
    /// # Panics
    /// No reply comes.
    pub fn ask(&self, question: &str, transport: Transport) -> Text {
        let question = Question::parse(question).expect("a question");
        let reply = match transport {
            Transport::Udp => client::ask_udp(self.dns, &question.packet, false),
            Transport::Tcp => client::ask_tcp(self.dns, &question.packet),
        };
        let names = Names { version: String::new(), pod_name: String::new() };
        client::read(&question, reply.expect("a reply").as_deref(), transport, &names)
    }

    /// Asks for the A records of a name below the cluster domain.
    pub fn ask_a(&self, name: &str) -> Text {
        self.ask(&format!("{name}.svc.cluster.local. A"), Transport::Udp)
    }

    /// Whether this address is among those of a name below the cluster domain.
    pub fn answers(&self, name: &str, address: &str) -> bool {
        let records = &self.ask_a(name).records[Section::Answer as usize];
        records.iter().any(|record| record.rsplit(' ').next() == Some(address))
    }

    /// Waits until it says that it is ready.
    pub fn wait_until_ready(&self) {
        wait_for("readiness", || (self.get("/readyz").0 == 200).then_some(()));
    }
}

/// Of DNS and HTTP, if this line has them.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = serde_json::from_str::<Value>(line).ok()?;
    if line["message"] != "answering" {
        return None;
    }
    let http = line["http_address"].as_str()?.parse().ok()?;
    // The first one is ours; flags may add more.
    let first = line["addresses"].as_str()?.trim_matches(['[', ']']).split(", ").next()?;
    Some((first.parse().ok()?, http))
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// There is none for a long time.
pub fn wait_for<T: Debug>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let patience = match std::env::var_os(RUNNER) {
        None => PATIENCE,
        Some(_) => PATIENCE * WITH_A_RUNNER,
    };
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < patience, "waited too long for {what}");
        std::thread::sleep(POLL);
    }
}
