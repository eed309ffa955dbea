//! K23: how much memory the operator takes at most where a namespace that it watches has more than it keeps. The kernel counts
//! the peak, so that nothing depends on how fast the machine is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::operator::{Operator, apply, prepare, wait_until_accepted};
use tests::scale::create_all;
use tests::usage::Usage;

const NAMESPACE: &str = "dns";
/// ConfigMaps of this size have 234 MiB together: more than the bound below, of which the first page has 18.
const MAPS: usize = 260;
const OCTETS: usize = 900 << 10;
/// What the operator keeps of all objects (80 MiB), once more while a kind is listed again, as after a watch that a busy machine
/// broke; a page of a list (8 MiB); and what the chart asks for where there is little (64 MiB). The container may have 256 MiB.
const MOST_MIB: f64 = 2.0 * 80.0 + 8.0 + 64.0;
const LONGEST: Duration = Duration::from_secs(300);
const EVERY: Duration = Duration::from_millis(200);

fn map(number: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("m{number}"), "namespace": NAMESPACE}, "data": {"note": "n".repeat(OCTETS)}})
}

#[tokio::test(flavor = "multi_thread")]
async fn k23_beside_more_objects_than_it_keeps_the_operator_stays_within_its_memory() {
    let Some(plane) = ControlPlane::start(Setup { controllers: false, ..Setup::default() }).await
    else {
        return;
    };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    create_all(&client, (0..MAPS).map(map)).await;
    apply(&client, "default", json!({"service": {"name": "own", "namespace": NAMESPACE}})).await;
    let mut operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    let began = Instant::now();
    let pid = loop {
        match operator.process().pid() {
            Some(pid) => break pid,
            None => tokio::time::sleep(EVERY).await,
        }
        assert!(began.elapsed() < LONGEST, "{}", operator.log());
    };
    // It decides only when it has every list, so all of them have been read by now.
    wait_until_accepted(&client, "default").await;
    let kept = operator.metric("clusterdns_operator_cache_bytes{part=\"whole\"}");
    assert!(kept >= (32 << 20) as f64, "it keeps {kept} octets: it has not read them");
    let usage = Usage::of(pid);
    let (peak, now) = (usage.peak_mib(), usage.resident_mib());
    assert!(now > 1.0, "the kernel counts nothing");
    assert!(peak <= MOST_MIB, "{peak:.0} MiB at most, {now:.0} MiB now\n{}", operator.log());
}
