//! Log lines of the operator: a program that reads JSON gets nothing else, from the first line on, and nothing waits for one
//! that does not read.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::http;
use tests::kubelet::program;
use tests::scripted_api::ScriptedApi;

/// Generous: only a failure takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Killed if it is still there at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        sleep(Duration::from_millis(50));
    }
}

/// An output that takes nothing more and blocks, and its reader.
fn full() -> (OwnedFd, UnixStream) {
    let (mut writer, reader) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    while writer.write(&[b'x'; 256]).is_ok() {}
    writer.set_nonblocking(false).unwrap();
    (writer.into(), reader)
}

/// An address that was free a moment ago: no log says which one the operator has.
fn free() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn a_log_that_is_full_stops_neither_probes_of_the_operator_nor_its_end() {
    // It has no Lease, and takes none.
    let (api, http) = (ScriptedApi::start(&[]), free());
    let (writer, reader) = full();
    let mut command = Command::new(program("clusterdns-operator"));
    command.args(["run", "--namespace=kube-system", "--log-level=debug"]);
    command
        .arg(format!("--kubeconfig={}", api.kubeconfig().display()))
        .arg(format!("--http={http}"));
    let mut operator = Killed(command.stderr(writer).spawn().unwrap());
    let page = wait_for("/livez", || http::get(http, "/livez").ok());
    assert_eq!(page, (200, "ok\n".to_owned()));
    let pid = operator.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let ended: ExitStatus = wait_for("the end", || operator.0.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    drop(reader);
}

#[test]
fn from_the_first_line_on_the_log_of_the_operator_is_json_where_that_is_asked_for() {
    let run = |arguments: &[&str], variable: Option<&str>| {
        let mut command = Command::new(program("clusterdns-operator"));
        command.args(arguments).env_remove("CLUSTERDNS_LOG_FORMAT").env_remove("KUBECONFIG");
        let output = command.envs(variable.map(|it| ("CLUSTERDNS_LOG_FORMAT", it))).output();
        let output = output.expect("the operator runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let nowhere = "--kubeconfig=/nowhere";
    for (flags, variable, code, says) in [
        (&["run", "--log-format", "json", "--nonsense"][..], None, 2, "--nonsense"),
        (&["run", "--http=127.0.0.1", "--log-format=json"], None, 2, "such as [::]:8080"),
        (&["run", "--dataplane-args=--listen=x"], Some("json"), 2, "set by the operator"),
        (&["run", "--log-format=json", nowhere], None, 1, "/nowhere"),
        (&["run", nowhere], Some("json"), 1, "/nowhere"),
    ] {
        let (ended, log) = run(flags, variable);
        assert_eq!(ended, Some(code), "{flags:?}: {log}");
        let read = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {log}"))
        };
        let lines: Vec<Value> = log.lines().map(read).collect();
        let last = lines.last().unwrap_or_else(|| panic!("{flags:?}: no line"));
        assert_eq!(last["level"], "ERROR", "{log}");
        assert!(last["message"].as_str().is_some_and(|it| it.contains(says)), "{log}");
    }
    // People read the rest: without the flag, and what commands for people say.
    for (flags, variable) in
        [(&["run", "--nonsense"][..], None), (&["check", "--nonsense"], Some("json"))]
    {
        let (_, text) = run(flags, variable);
        assert!(text.contains("Usage:"), "{flags:?}: {text}");
    }
}
