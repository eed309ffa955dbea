//! The program itself through an outage: killed and started again while the API server is away (D4), and ready at all
//! times (D5).

use std::path::Path;
use std::time::Duration;

use tests::control_plane::ControlPlane;
use tests::data_plane::{DataPlane, wait_for};
use tests::fault_proxy::{FaultProxy, Link};
use tests::scratch::Scratch;

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

#[tokio::test(flavor = "multi_thread")]
async fn d5_readiness_stays_while_the_api_server_and_the_upstream_are_away() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("ready").await;
    let proxy = FaultProxy::start(plane).await;
    let address = service(&plane.client().await, namespace.name(), "cart").await;
    let cart = format!("cart.{}", namespace.name());
    let state = Scratch::new("state").expect("a scratch directory");
    let running = start(proxy.kubeconfig(), state.path());
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
