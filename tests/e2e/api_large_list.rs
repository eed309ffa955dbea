//! A first list of the largest objects that an API server stores (K23). Anyone who may write Services can fill one.

use serde_json::{Value, json};
use tests::data_plane::{DataPlane, wait_for};
use tests::fault_proxy::{Fault, FaultProxy, Requests};
use tests::live::Live;
use tests::scripted_api::ScriptedApi;

use super::api_scripted::{cluster_ip, shop};

/// An annotation of almost the 1.5 MiB of an object in etcd.
const OCTETS: usize = 1_400_000;
/// In one page of 500 they would be 280 MB, more than the memory limit of a container.
const SERVICES: u8 = 200;
/// The process itself, one object of each kind, buffers, and what the allocator keeps. One page of 50 such objects, held
/// whole beside the process, is larger: 67 MiB and 20.
const MOST_MIB: f64 = 80.0;

fn large() -> Vec<Value> {
    let services =
        (1..=SERVICES).map(|n| cluster_ip(&format!("large-{n}"), &format!("10.97.0.{n}")));
    shop().into_iter().chain(services).collect()
}

#[test]
fn k23_a_list_of_the_largest_objects_is_read_in_bounded_memory_and_smaller_pages() {
    let api = ScriptedApi::start(&large());
    api.pad("Service", OCTETS);
    let running = DataPlane::start(api.kubeconfig(), &["--list-spread-seconds", "0"]);
    wait_for("the first list", || (running.get("/readyz").0 == 200).then_some(()));
    assert!(running.answers(&format!("large-{SERVICES}.shop"), &format!("10.97.0.{SERVICES}")));
    let limits = api.limits("Service");
    assert!(limits[1..].iter().all(|limit| *limit < 10), "{limits:?}");
    let peak = running.usage().peak_mib();
    assert!(peak < MOST_MIB, "{peak} MiB");

    // Smaller ones come in larger pages again.
    api.pad("Service", 10);
    api.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}));
    api.compact();
    api.end_watches();
    wait_for("larger pages", || (api.limits("Service").last() > Some(&50)).then_some(()));
}

/// An API server builds a page as a whole before its first octet: one that is too large for it ends there.
#[tokio::test]
async fn k23_a_page_that_does_not_begin_twice_is_asked_for_in_half_the_size() {
    let services = (1..=120).map(|n| cluster_ip(&format!("s-{n}"), &format!("10.97.0.{n}")));
    let api = ScriptedApi::start(&shop().into_iter().chain(services).collect::<Vec<_>>());
    let proxy = FaultProxy::before(api.kubeconfig()).await;
    let behind = Requests::to("/api/v1/services").with("continue=");
    proxy.fault(behind.clone(), Fault::Reset);
    let live = Live::start(proxy.kubeconfig());
    live.wait("a page that does not begin", || proxy.count(&behind) >= 2);
    proxy.heal();
    live.wait_until_ready();
    let limits = api.limits("Service");
    // After a page of 50 the next one has 100, unless that failed.
    assert!(limits.iter().all(|limit| *limit < 100), "{limits:?}");
}
