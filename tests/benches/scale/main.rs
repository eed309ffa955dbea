//! What a large cluster takes of the data plane, as a process of its own beside a real API server: time, memory and
//! processor until it is ready, at rest, during a relist and while things change. Figures are printed beside the
//! goals; only a wrong answer fails.
//!
//! Everything shares one machine: where that has two cores, the API server, etcd and this program take most of both
//! while they work, so times are longer than those of a data plane on a node. Processor time and memory are its own.

#![allow(clippy::print_stdout)]

mod ready;
mod change;
mod exposure;
mod relist;
mod flood;
mod wide;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use kube::Client;
use tests::control_plane::{ControlPlane, Setup};
use tests::data_plane::DataPlane;
use tests::scale::{Cluster, check_all, fill};

use table::{row, title};

/// Another number of Services than the most that Kubernetes supports.
const SERVICES_VARIABLE: &str = "CLUSTERDNS_BENCH_SERVICES";
const SERVICES: usize = 10_000;
/// Set to `exposure` or `flood`: only that part is measured.
const PART_VARIABLE: &str = "CLUSTERDNS_BENCH_PART";

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.expect("a runtime").block_on(run()) {
        0 => ExitCode::SUCCESS,
        wrong => {
            println!("{wrong} answers were WRONG");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; returns how many answers were wrong.
async fn run() -> usize {
    let part = std::env::var(PART_VARIABLE).unwrap_or_default();
    if part == "flood" {
        table::machine();
        return flood();
    }
    // No controllers: only this program writes, and no controller takes processor time.
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return 0 };
    let services = std::env::var(SERVICES_VARIABLE).ok().and_then(|text| text.parse().ok());
    let mut cluster = Cluster::new(services.unwrap_or(SERVICES), "ns");
    table::machine();
    let client = plane.client().await;
    let begun = Instant::now();
    fill(&client, &cluster).await;
    println!(
        "{} Services and {} endpoints in {} namespaces were created in {:.0} s",
        cluster.services,
        cluster.endpoints(),
        cluster.namespaces,
        begun.elapsed().as_secs_f64()
    );

    title("another exposure, two pods (K24)");
    exposure::measure(&plane, &client).await;
    if part == "exposure" {
        return 0;
    }

    title("start and rest");
    let server = ready::measure(&plane, &client).await;
    let mut wrong = right(&cluster, &server, "after the first list");

    title("one slice changes");
    change::measure(&client, &mut cluster, &server).await;
    wrong += right(&cluster, &server, "after all changes");

    title("a Service of 5,000 endpoints, 100 changes a second (K17)");
    wide::measure(&client, &server).await;
    drop(server);

    title("everything is listed again");
    wrong += relist::measure(&plane, &cluster).await;

    wrong + flood()
}

/// Needs no real API server.
fn flood() -> usize {
    title("1,000 changes and 10,000 questions a second, from a scripted API server (K19)");
    flood::measure()
}

fn right(cluster: &Cluster, server: &DataPlane, when: &str) -> usize {
    let (asked, wrong) = check_all(cluster, server);
    row(&format!("wrong answers {when}"), &format!("{} of {asked}", wrong.len()), "0");
    if let Some(first) = wrong.first() {
        println!("{first:#?}");
    }
    wrong.len()
}

/// Reads a whole collection in the pages that the data plane asks for, and does nothing with it: what the API server
/// needs to send it.
async fn read_list(client: &Client, path: &str, page: usize) {
    #[derive(serde::Deserialize)]
    struct Page {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        #[serde(rename = "continue", default)]
        token: String,
    }
    let mut token = String::new();
    loop {
        let request = hyper::Request::get(format!("{path}?limit={page}&continue={token}"));
        let request = request.body(Vec::new()).expect("a well-formed request");
        let text = client.request_text(request).await.expect("a page");
        let page: Page = serde_json::from_str(&text).expect("a page");
        token = page.metadata.token.replace('=', "%3D").replace('+', "%2B");
        if token.is_empty() {
            return;
        }
    }
}
