//! The program itself through an outage: killed and started again while the API server is away (D4), and ready all the
//! while (D5).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::client::{self, Names, Question, Section, Text, Transport};
use tests::control_plane::ControlPlane;
use tests::fault_proxy::{FaultProxy, Link};
use tests::kubelet::program;
use tests::process::Process;
use tests::scratch::Scratch;

use super::api_objects::service;

const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);

/// One run of the data plane as a process.
struct Running {
    process: Process,
    files: Scratch,
    dns: SocketAddr,
    http: SocketAddr,
}

impl Running {
    /// Starts it; returns when its sockets are open.
    fn start(kubeconfig: &Path, state: &Path) -> Running {
        let files = Scratch::new("data-plane").expect("a scratch directory");
        let (kubeconfig, state) = (kubeconfig.display().to_string(), state.display().to_string());
        let flags = [
            "--kubeconfig",
            &kubeconfig,
            "--state-dir",
            &state,
            "--workers",
            "1",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ];
        let program = program("clusterdns-dataplane");
        let process = Process::start(&program, &flags, files.path()).expect("it starts");
        let log = files.path().join("clusterdns-dataplane.log");
        let (dns, http) = wait_for("the sockets", || {
            std::fs::read_to_string(&log).ok()?.lines().find_map(addresses)
        });
        Running { process, files, dns, http }
    }

    /// Status and body of a GET.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).expect("HTTP is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a reply");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    fn ask(&self, name: &str) -> Text {
        let question =
            Question::parse(&format!("{name}.svc.cluster.local. A")).expect("a question");
        let reply = client::ask_udp(self.dns, &question.packet, false).expect("a reply");
        let names = Names { version: String::new(), pod_name: String::new() };
        client::read(&question, reply.as_deref(), Transport::Udp, &names)
    }

    fn answers(&self, name: &str, address: &str) -> bool {
        self.ask(name).records[Section::Answer as usize]
            .iter()
            .any(|record| record.ends_with(address))
    }
}

/// Of DNS and HTTP, if this is the line that tells them.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = serde_json::from_str::<Value>(line).ok()?;
    if line["message"] != "answering" {
        return None;
    }
    let http = line["http_address"].as_str()?.parse().ok()?;
    Some((line["addresses"].as_str()?.trim_matches(['[', ']']).parse().ok()?, http))
}

fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(POLL);
    }
}

/// The first snapshot. It is written once all lists are read, so it holds what was created before the start.
fn wait_for_snapshot(state: &Path) {
    wait_for("a snapshot", || state.join("snapshot").exists().then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_k2_a_killed_process_answers_again_from_its_snapshot_without_the_api_server() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("killed").await;
    let proxy = FaultProxy::start(plane).await;
    let address = service(&plane.client().await, namespace.name(), "cart").await;
    let cart = format!("cart.{}", namespace.name());
    let state = Scratch::new("state").expect("a scratch directory");

    let mut first = Running::start(proxy.kubeconfig(), state.path());
    wait_for("the answer", || first.answers(&cart, &address).then_some(()));
    wait_for_snapshot(state.path());
    proxy.link(Link::Cut);
    assert!(first.answers(&cart, &address), "an API server that is away changes no answer");
    first.process.kill();

    let again = Running::start(proxy.kubeconfig(), state.path());
    // The very first question after the sockets are open: no wait for anything else.
    let text = again.ask(&cart);
    assert!(again.answers(&cart, &address), "{text}\n{}", again.process.log_tail());
    assert!(text.to_string().contains("EDE: 3"), "{text}");
    let (status, why) = again.get("/readyz");
    assert_eq!(status, 200, "{why}");
    assert!(why.contains("snapshot"), "{why}");

    proxy.heal();
    wait_for("live data", || (!again.ask(&cart).to_string().contains("EDE: 3")).then_some(()));
    assert!(again.answers(&cart, &address));
    assert!(again.files.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_readiness_stays_while_the_api_server_and_the_upstream_are_away() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("ready").await;
    let proxy = FaultProxy::start(plane).await;
    let address = service(&plane.client().await, namespace.name(), "cart").await;
    let cart = format!("cart.{}", namespace.name());
    let state = Scratch::new("state").expect("a scratch directory");
    let running = Running::start(proxy.kubeconfig(), state.path());
    wait_for("readiness", || (running.get("/readyz").0 == 200).then_some(()));
    wait_for("the answer", || running.answers(&cart, &address).then_some(()));

    for link in [Link::Cut, Link::Hung] {
        proxy.link(link);
        // As often as a kubelet would in a minute; each failing watch is tried again several times meanwhile.
        for _ in 0..30 {
            let (status, why) = running.get("/readyz");
            assert_eq!((status, running.get("/livez").0), (200, 200), "{link:?}: {why}");
            assert!(running.answers(&cart, &address), "{link:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    proxy.heal();
    assert_eq!(running.get("/readyz").0, 200);
}
