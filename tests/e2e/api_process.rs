//! The program itself through an outage: killed and started again while the API server is away (D4), and ready at all
//! times (D5).

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tests::client::Transport;
use tests::control_plane::ControlPlane;
use tests::data_plane::{DataPlane, wait_for};
use tests::fault_proxy::{FaultProxy, Link};
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream};

use super::api_objects::service;

/// One run, with a folder for its snapshots.
fn start(kubeconfig: &Path, state: &Path) -> DataPlane {
    DataPlane::start(kubeconfig, &["--state-dir", &state.display().to_string()])
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

    let mut first = start(proxy.kubeconfig(), state.path());
    wait_for("the answer", || first.answers(&cart, &address).then_some(()));
    wait_for_snapshot(state.path());
    proxy.link(Link::Cut);
    assert!(first.answers(&cart, &address), "an API server that is away changes no answer");
    first.process.kill();

    let again = start(proxy.kubeconfig(), state.path());
    // The very first question after the sockets are open: no wait for anything else.
    let text = again.ask_a(&cart);
    assert!(again.answers(&cart, &address), "{text}\n{}", again.process.log_tail());
    assert!(text.to_string().contains("EDE: 3"), "{text}");
    let (status, why) = again.get("/readyz");
    assert_eq!(status, 200, "{why}");
    assert!(why.contains("snapshot"), "{why}");

    proxy.heal();
    wait_for("live data", || (!again.ask_a(&cart).to_string().contains("EDE: 3")).then_some(()));
    assert!(again.answers(&cart, &address));
}

/// Nothing is wrong with the process until it starts again without the API server, so nothing else says so before.
#[tokio::test(flavor = "multi_thread")]
async fn e40_readyz_of_a_process_says_that_its_snapshots_cannot_be_written() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let folder = Scratch::new("unwritable").expect("a scratch directory");
    // Also root cannot make a folder in a file.
    let file = folder.write("file", "").expect("a file");
    let running = start(plane.kubeconfig(), &file.join("state"));
    wait_for("the line of a ready process", || {
        let (status, page) = running.get("/readyz");
        (status == 200 && page.contains("snapshots cannot be written")).then_some(())
    });
}

/// What a kubelet asks while both may be away: it stays ready and alive, and answers names of the cluster.
fn stays_ready(running: &DataPlane, what: &str, (name, address): (&str, &str)) {
    for _ in 0..30 {
        let (status, why) = running.get("/readyz");
        assert_eq!((status, running.get("/livez").0), (200, 200), "{what}: {why}");
        assert!(running.answers(name, address), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_readiness_stays_while_the_api_server_and_the_upstream_are_away() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("ready").await;
    let proxy = FaultProxy::start(plane).await;
    let address = service(&plane.client().await, namespace.name(), "cart").await;
    let name = format!("cart.{}", namespace.name());
    let cart = (name.as_str(), address.as_str());
    let script =
        ["www.example.org. A\n    answer @ 600 A 192.0.2.80", "* *\n    silent"].map(Script::one);
    let [good, silent] = script.map(|script| script.expect("a script"));
    let upstream = ScriptedUpstream::start(good).expect("a port");
    let at = upstream.address();
    let folder = Scratch::new("ready").expect("a scratch directory");
    let dns = format!(
        "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: ready}}\nspec:\n  upstreams: {{servers: \
         [{{address: {}, port: {}}}]}}\n",
        at.ip(),
        at.port()
    );
    let config = folder.write("dns.yaml", dns).expect("a file").display().to_string();
    let state = folder.path().join("state").display().to_string();
    let flags = ["--config", &config, "--state-dir", &state];
    let running = DataPlane::start(proxy.kubeconfig(), &flags);
    wait_for("readiness", || (running.get("/readyz").0 == 200).then_some(()));
    wait_for("the answer", || running.answers(cart.0, cart.1).then_some(()));
    let other = running.ask("www.example.org. A", Transport::Udp).to_string();
    assert!(other.contains("192.0.2.80"), "{other}");

    for link in [Link::Cut, Link::Hung] {
        proxy.link(link);
        stays_ready(&running, &format!("{link:?}"), cart);
    }
    drop(upstream);
    let _silent = ScriptedUpstream::start_at(at, silent).expect("the same port");
    let mut asked = 0;
    wait_for("the upstream to be down", || {
        asked += 1;
        running.ask(&format!("n{asked}.example.org. A"), Transport::Udp);
        let shown: Value = serde_json::from_str(&running.get("/upstreams").1).ok()?;
        (shown["groups"][0]["servers"][0]["state"] == "down").then_some(())
    });
    stays_ready(&running, "both away", cart);
    proxy.heal();
    stays_ready(&running, "the upstream away", cart);
}
