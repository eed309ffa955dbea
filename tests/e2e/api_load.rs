//! Many endpoints and many changes, right at each step (K17, K19). The benchmarks measure how fast.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dataplane_core::Resource;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tests::control_plane::ControlPlane;
use tests::live::Live;
use tests::objects::create_any;

use super::api_objects::{at, headless, service, slice};

/// 5,000 endpoints, as many in a slice as its controller puts there.
const SLICES: u32 = 50;
const PER_SLICE: u32 = 100;
/// Enough to overtake a reader many times.
const CHANGES: u32 = 300;

fn address(base: Ipv4Addr, number: u32) -> String {
    Ipv4Addr::from(u32::from(base) + number).to_string()
}

async fn patch(client: &Client, namespace: &str, name: &str, endpoints: &[Value]) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"endpoints": endpoints}));
    slices.patch(name, &PatchParams::default(), &patch).await.expect("the API server takes it");
}

#[tokio::test]
async fn k17_one_of_5000_endpoints_changes_and_no_other() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("big").await;
    let (client, name) = (plane.client().await, namespace.name());
    headless(&client, name, "big").await;
    let base = Ipv4Addr::new(10, 245, 0, 1);
    let of_slice = |number: u32| -> Vec<Value> {
        let from = number * PER_SLICE;
        (from..from + PER_SLICE).map(|n| at(&address(base, n))).collect()
    };
    for number in 0..SLICES {
        let made = slice(name, "big", &format!("big-{number}"), &of_slice(number));
        create_any(&client, &made).await.expect("created");
    }
    let live = Live::start(plane.kubeconfig());
    live.wait_until_ready();
    let own_name = |address: &str| format!("{}.big.{name}", address.replace('.', "-"));
    let is_there = |address: &str| live.a(&own_name(address)).is_ok();
    let last = SLICES * PER_SLICE - 1;
    for number in [0, last / 2, last] {
        live.wait("every slice", || is_there(&address(base, number)));
    }

    // The first, one in the middle, the last: each replaced, then put back.
    let other = "10.246.0.1";
    for number in [0, last / 2, last] {
        let old = address(base, number);
        let of = number / PER_SLICE;
        let mut endpoints = of_slice(of);
        endpoints[(number % PER_SLICE) as usize] = at(other);
        patch(&client, name, &format!("big-{of}"), &endpoints).await;
        live.wait("the new endpoint", || is_there(other));
        assert_eq!(live.a(&own_name(&old)), Err("NXDOMAIN".into()), "in the same step");
        for neighbour in [number.saturating_sub(1), (number + 1).min(last)] {
            assert!(neighbour == number || is_there(&address(base, neighbour)));
        }
        patch(&client, name, &format!("big-{of}"), &of_slice(of)).await;
        live.wait("the old endpoint", || is_there(&old));
        assert_eq!(live.a(&own_name(other)), Err("NXDOMAIN".into()), "in the same step");
    }
    for number in (0..=last).step_by(97) {
        assert!(is_there(&address(base, number)), "endpoint {number}");
    }
    assert_eq!(live.relists(Resource::EndpointSlices), 0);
}

/// The address of the only endpoint says how many changes there were. A reply is right if it is never empty, never has
/// two addresses, never an earlier one than the reply before it or than was visible when the change was made known to
/// be.
#[tokio::test(flavor = "multi_thread")]
async fn k19_answers_are_right_at_each_step_of_many() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("churn").await;
    let (client, name) = (plane.client().await, namespace.name().to_owned());
    let constant = service(&client, &name, "constant").await;
    headless(&client, &name, "db").await;
    let base = Ipv4Addr::new(10, 247, 0, 1);
    let first = slice(&name, "db", "db-a", &[at(&address(base, 0))]);
    create_any(&client, &first).await.expect("created");
    let live = Live::start(plane.kubeconfig());
    live.wait_until_ready();
    let (db, still) = (format!("db.{name}"), format!("constant.{name}"));
    live.wait_for(&db, &[&address(base, 0)]);

    let begun = Arc::new(AtomicU32::new(0));
    let writing = tokio::spawn({
        let (begun, name) = (begun.clone(), name.clone());
        async move {
            for number in 1..=CHANGES {
                begun.store(number, Ordering::SeqCst);
                patch(&client, &name, "db-a", &[at(&address(base, number))]).await;
            }
        }
    });
    let (mut seen, mut queries, mut steps) = (0, 0_u32, 0_u32);
    live.wait("the last change", || {
        let addresses = live.a(&db).expect("never empty");
        let [std::net::IpAddr::V4(only)] = addresses[..] else { panic!("{addresses:?}") };
        let number = u32::from(only) - u32::from(base);
        assert!(number >= seen, "from {seen} back to {number}");
        assert!(number <= begun.load(Ordering::SeqCst), "{number} is of the future");
        steps += u32::from(number > seen);
        seen = number;
        queries += 1;
        assert_eq!(live.a(&still), Ok(vec![constant.parse().expect("an address")]));
        number == CHANGES
    });
    writing.await.expect("every change is taken");
    assert!(steps > 1 && queries > 1, "{steps} steps in {queries} queries");
    assert_eq!(live.relists(Resource::EndpointSlices), 0);
}
