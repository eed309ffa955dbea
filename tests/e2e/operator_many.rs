//! What many ClusterDNS cost the operator at its start. It prints numbers, which differ from machine to machine, so nothing
//! about time is asserted: `cargo test -p tests --test e2e operator_many -- --ignored --nocapture`. With CLUSTERDNS_PROGRAMS the
//! programs of that folder are measured, such as those of a release build.

#![allow(clippy::print_stdout, reason = "it measures")]

use std::time::{Duration, Instant};

use crds::ClusterDNS;
use kube::api::{Api, ListParams};
use serde_json::json;
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::{FaultProxy, Requests};
use tests::operator::{Operator, apply, prepare, writes};
use tests::usage::Usage;

const NAMESPACE: &str = "dns";
const MANY: usize = 200;
const LONGEST: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_millis(500);
/// Time without a write that the tests want.
const QUIET: Duration = Duration::from_secs(5);
/// Reconciles of each that a start may cost: one that creates, one for what it created, one for its status, and one that
/// changes nothing.
const LOOKS_OF_EACH: f64 = 12.0;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it prints what the start of 200 ClusterDNS costs, and takes minutes"]
async fn o13_the_start_of_many_costs_each_a_few_looks() {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let proxy = FaultProxy::start(&plane).await;
    for n in 0..MANY {
        let service = json!({"name": format!("dns-{n}"), "namespace": NAMESPACE});
        apply(&client, &format!("d{n}"), json!({"service": service})).await;
    }
    let began = Instant::now();
    let mut operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    let pid = loop {
        match operator.process().pid() {
            Some(pid) => break pid,
            None => tokio::time::sleep(EVERY).await,
        }
    };
    let usage = Usage::of(pid);
    let all = Api::<ClusterDNS>::all(client.clone());
    let have_services = async || {
        let list = all.list(&ListParams::default()).await.expect("a list");
        let has_address =
            |dns: &&ClusterDNS| dns.status.as_ref().is_some_and(|it| !it.cluster_ips.is_empty());
        list.items.iter().filter(has_address).count()
    };
    while have_services().await < MANY {
        operator.process().ensure_running().expect("the operator runs");
        assert!(began.elapsed() < LONGEST, "{}", operator.log());
        tokio::time::sleep(EVERY).await;
    }
    let (took, cpu) = (began.elapsed(), usage.cpu());
    let mut written = 0;
    while proxy.count(&writes()) > written {
        written = proxy.count(&writes());
        tokio::time::sleep(QUIET).await;
    }
    let looks = operator.reconciles();
    println!(
        "{MANY} ClusterDNS: all have a Service after {took:.1?} and {cpu:.1?} of processor; quiet after {:.1?} and {:.1?}; \
         {looks} looks, {} writes, {} requests, {:.0} MiB at most",
        began.elapsed(),
        usage.cpu(),
        proxy.count(&writes()),
        proxy.count(&Requests::all()),
        usage.peak_mib()
    );
    assert!(looks <= LOOKS_OF_EACH * MANY as f64, "{looks} looks\n{}", operator.log());
}
