//! One data plane as a process of its own, on ports that were free, over a folder of its own.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Generous: machines that build are slow at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A folder of its own, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("clusterdns-it-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.0.join(from), self.0.join(to)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The command line that starts the program: Cargo's, or that of the folder `CLUSTERDNS_PROGRAMS`, such as the one of a
/// release; by `CLUSTERDNS_RUNNER` where this machine cannot start it by itself.
fn words() -> Vec<OsString> {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let program = match given("CLUSTERDNS_PROGRAMS") {
        Some(folder) => Path::new(&folder).join("clusterdns-dataplane").into_os_string(),
        None => env!("CARGO_BIN_EXE_clusterdns-dataplane").into(),
    };
    given("CLUSTERDNS_RUNNER").into_iter().chain([program]).collect()
}

/// The program with no environment of ours.
fn program() -> Command {
    let words = words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_clear();
    command
}

/// Runs to the end, for command lines that fail at once.
pub(crate) fn run(flags: &[&str]) -> Output {
    program().args(flags).output().unwrap()
}

/// The program, started by another one.
fn program_by(by: &[&str]) -> Command {
    let [by, with @ ..] = by else { return program() };
    let mut command = Command::new(by);
    command.args(with).args(words());
    command
}

/// Runs, by way of the command `by`, until its log says this.
pub(crate) fn log_until(by: &[&str], flags: &[&str], expected: &str) -> String {
    let mut child = program_by(by).args(flags).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        log.push_str(&line.unwrap());
        log.push('\n');
        if log.contains(expected) {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    log
}

/// A data plane that serves; killed if it is still there at the end.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) dns: SocketAddr,
    pub(crate) http: SocketAddr,
    log: Arc<Mutex<String>>,
    output: Arc<Mutex<String>>,
}

/// Collects what comes, from a thread of its own.
fn collect(source: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let collected = Arc::new(Mutex::new(String::new()));
    let kept = collected.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            let mut text = kept.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
    collected
}

fn spawn(folder: &Path, more: &[&str]) -> Child {
    spawn_by(&[], folder, more)
}

fn spawn_by(by: &[&str], folder: &Path, more: &[&str]) -> Child {
    let more = [&["--log-format", "json"], more].concat();
    spawn_without_log_flags(by, Ipv4Addr::LOCALHOST, folder, &more)
}

fn spawn_without_log_flags(by: &[&str], at: Ipv4Addr, folder: &Path, more: &[&str]) -> Child {
    program_by(by)
        .arg("--manifests")
        .arg(folder)
        .args(["--listen", &format!("{at}:0"), "--http", &format!("{at}:0"), "--workers", "1"])
        .args(more)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Of DNS and HTTP, if this line has them.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = serde_json::from_str::<Value>(line).ok()?;
    if line["message"] != "answering" {
        return None;
    }
    let http = line["http_address"].as_str()?.parse().ok()?;
    Some((line["addresses"].as_str()?.trim_matches(['[', ']']).parse().ok()?, http))
}

impl Process {
    /// Starts, and waits until it says that it answers.
    pub(crate) fn start(folder: &Path, more: &[&str]) -> Process {
        Process::start_by(&[], folder, more)
    }

    /// The same, started by another program.
    pub(crate) fn start_by(by: &[&str], folder: &Path, more: &[&str]) -> Process {
        Process::answering(spawn_by(by, folder, more))
    }

    /// Starts with log lines as the ClusterDNS of the folder says, which must be JSON.
    pub(crate) fn start_without_log_flags(folder: &Path) -> Process {
        Process::answering(spawn_without_log_flags(&[], Ipv4Addr::LOCALHOST, folder, &[]))
    }

    /// Starts on this address of loopback, for tests that need a certain port.
    pub(crate) fn start_at(at: Ipv4Addr, folder: &Path, more: &[&str]) -> Process {
        let more = [&["--log-format", "json"], more].concat();
        Process::answering(spawn_without_log_flags(&[], at, folder, &more))
    }

    fn answering(mut child: Child) -> Process {
        let log = collect(child.stderr.take().unwrap());
        let output = collect(child.stdout.take().unwrap());
        let addresses = || log.lock().unwrap().lines().find_map(addresses);
        let (dns, http) = wait_for("the program to answer", addresses);
        Process { child, dns, http, log, output }
    }

    /// The same; from then on its log is not read, but the pipe stays open for the result.
    pub(crate) fn start_blocking(folder: &Path) -> (Process, ChildStderr) {
        let mut child = spawn(folder, &[]);
        let mut lines = BufReader::with_capacity(1, child.stderr.take().unwrap());
        let (dns, http) =
            lines.by_ref().lines().find_map(|line| addresses(&line.unwrap())).expect("it answers");
        let output = collect(child.stdout.take().unwrap());
        (Process { child, dns, http, log: Arc::default(), output }, lines.into_inner())
    }

    /// The same; from then on its log cannot be read.
    pub(crate) fn start_unread(folder: &Path) -> Process {
        let mut child = spawn(folder, &[]);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (dns, http) = lines.find_map(|line| addresses(&line.unwrap())).expect("it answers");
        let output = collect(child.stdout.take().unwrap());
        Process { child, dns, http, log: Arc::default(), output }
    }

    /// Starts, and waits only until the process exists; it does not answer yet.
    pub(crate) fn start_reading(folder: &Path) -> Process {
        let mut child = spawn(folder, &["--log-level", "debug"]);
        let log = collect(child.stderr.take().unwrap());
        let output = collect(child.stdout.take().unwrap());
        let is_begun = || log.lock().unwrap().contains("reading manifests").then_some(());
        wait_for("the program to begin", is_begun);
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let of_probes = |line: &str| {
            let line = serde_json::from_str::<Value>(line).ok()?;
            let is_it = line["message"] == "probes are answered";
            is_it.then(|| line["http_address"].as_str()?.parse().ok())?
        };
        let http = log.lock().unwrap().lines().find_map(of_probes).expect("logged before");
        Process { child, dns: nowhere, http, log, output }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line: the log is written by a thread of its own.
    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_for(text, || self.log().contains(text).then_some(()));
    }

    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Stops all threads. The signal comes at once, its effect does not: a thread on another processor may still answer.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            // The name of the thread, which may have spaces, is in brackets before the state.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        wait_for("all threads to stop", || {
            std::fs::read_dir(&tasks).unwrap().all(is_stopped).then_some(())
        });
    }

    /// A number in `/proc/PID/status`; sizes of memory are in KiB.
    pub(crate) fn in_status(&self, field: &str) -> u64 {
        self.in_status_as_text(field).parse().unwrap()
    }

    /// The first word of a field there.
    pub(crate) fn in_status_as_text(&self, field: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let row = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        row.split_whitespace().next().unwrap().to_owned()
    }

    /// From now on `VmHWM` is the most memory since now.
    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("the program to end", || child.try_wait().unwrap())
    }

    /// Status and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let text = self.fetch(path);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Status line and header fields of a GET.
    pub(crate) fn head(&self, path: &str) -> String {
        let text = self.fetch(path);
        text.split_once("\r\n\r\n").unwrap().0.to_owned()
    }

    /// Status and body of a POST with these header fields besides, each with its line end.
    pub(crate) fn post(&self, path: &str, fields: &str) -> (u16, String) {
        let text = self.exchange("POST", path, fields);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn fetch(&self, path: &str) -> String {
        self.exchange("GET", path, "")
    }

    fn exchange(&self, method: &str, path: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn config(&self) -> Value {
        let (status, body) = self.get("/config");
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    }

    /// The value of one line of `/metrics`.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{series} ")));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
    }

    /// The answer to an A question: its one record ends with the address. No late reply to another owner of its port is read.
    pub(crate) fn ask(&self, name: &str) -> Answer {
        let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(label.len() as u8);
            packet.extend_from_slice(label.as_bytes());
        }
        packet.extend_from_slice(&[0, 0, 1, 0, 1]);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(self.dns).and_then(|()| socket.send(&packet)).unwrap();
        let mut reply = [0; 1500];
        let length = socket.recv(&mut reply).unwrap();
        assert_eq!(reply[..2], packet[..2]);
        match (reply[3] & 0x0f, reply[7]) {
            (0, 0) => Answer::NoData,
            (0, _) => {
                Answer::Address(<[u8; 4]>::try_from(&reply[length - 4..length]).unwrap().into())
            }
            (3, _) => Answer::NxDomain,
            (rcode, _) => Answer::Other(rcode),
        }
    }

    /// Asks until this is the answer.
    pub(crate) fn wait_for_answer(&self, name: &str, expected: Answer) {
        wait_for(&format!("{name} to be {expected:?}"), || {
            (self.ask(name) == expected).then_some(())
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Address(Ipv4Addr),
    NoData,
    NxDomain,
    Other(u8),
}

pub(crate) fn address(text: &str) -> Answer {
    Answer::Address(text.parse().unwrap())
}

/// Polls, and fails after [`PATIENCE`].
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(POLL);
    }
}
