//! From the start of the process to ready, by the API server and by a snapshot, and what it holds then.

use std::time::{Duration, Instant};

use kube::Client;
use tests::control_plane::ControlPlane;
use tests::data_plane::DataPlane;
use tests::scratch::Scratch;

use crate::read_list;
use crate::table::{row, s};

/// Number of starts. The best one is printed, because other work on the machine only makes them longer.
const STARTS: usize = 3;
/// After this time nothing changes any more.
const REST: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(120);

struct Start {
    ready: Duration,
    cpu: Duration,
    peak_mib: f64,
}

/// Returns the last one started, at rest.
pub(crate) async fn measure(plane: &ControlPlane, client: &Client) -> DataPlane {
    let mut lists = Duration::MAX;
    for _ in 0..STARTS {
        let begun = Instant::now();
        tokio::join!(
            read_list(client, "/api/v1/services", 500),
            read_list(client, "/apis/discovery.k8s.io/v1/endpointslices", 100),
            read_list(client, "/api/v1/namespaces", 500),
        );
        lists = lists.min(begun.elapsed());
    }
    row("the lists alone, read by a client that keeps nothing", &s(lists), "");

    let mut best: Option<Start> = None;
    let mut running = None;
    for _ in 0..STARTS {
        drop(running.take());
        let begun = Instant::now();
        let server = DataPlane::start(plane.kubeconfig(), &[]);
        wait_until_ready(&server);
        let ready = begun.elapsed();
        let usage = server.usage();
        let start = Start { ready, cpu: usage.cpu(), peak_mib: usage.peak_mib() };
        if best.as_ref().is_none_or(|best| start.ready < best.ready) {
            best = Some(start);
        }
        running = Some(server);
    }
    let (best, server) = (best.expect("a start"), running.expect("the last start"));
    row("exec to ready", &s(best.ready), "1 s beyond the lists");
    row("processor time until then", &s(best.cpu), "");
    row("peak memory until then", &format!("{:.1} MiB", best.peak_mib), "");
    std::thread::sleep(REST);
    let at_rest = server.usage();
    let (resident, cpu) = (at_rest.resident_mib(), at_rest.cpu());
    row("memory at rest", &format!("{resident:.1} MiB"), "40 MiB");
    std::thread::sleep(REST);
    let idle = (at_rest.cpu() - cpu).as_secs_f64() / REST.as_secs_f64();
    row("processor at rest", &format!("{:.2} % of a core", idle * 100.0), "");
    from_snapshot(plane);
    server
}

/// E40: what writing it takes, and how soon the next process answers from it.
fn from_snapshot(plane: &ControlPlane) {
    let folder = Scratch::new("state").expect("a scratch directory");
    let flags = ["--state-dir", &folder.path().display().to_string()];
    let server = DataPlane::start(plane.kubeconfig(), &flags);
    wait_until_ready(&server);
    let usage = server.usage();
    usage.forget_peak().expect("our own process");
    let (cpu, peak) = (usage.cpu(), usage.resident_mib());
    tests::data_plane::wait_for("a snapshot", || {
        let written = server.metric("clusterdns_snapshot_writes_total");
        written.is_some_and(|writes| writes >= 1.0).then_some(())
    });
    let octets = server.metric("clusterdns_snapshot_bytes").unwrap_or(0.0);
    let grown = (usage.peak_mib() - peak).max(0.0);
    let size = octets / f64::from(1 << 20);
    row("a snapshot on disk", &format!("{size:.1} MiB"), "");
    row("writing it", &format!("{} , +{grown:.1} MiB", s(usage.cpu() - cpu)), "");
    drop(server);
    let begun = Instant::now();
    let _server = DataPlane::start(plane.kubeconfig(), &flags);
    row("exec to answering from the snapshot", &s(begun.elapsed()), "1 s (D4)");
}

pub(crate) fn wait_until_ready(server: &DataPlane) {
    let begun = Instant::now();
    while server.get("/readyz").0 != 200 {
        assert!(begun.elapsed() < PATIENCE, "it is never ready: {:?}", server.get("/readyz"));
        std::thread::sleep(POLL);
    }
}
