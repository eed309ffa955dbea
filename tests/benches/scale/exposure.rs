//! Another exposure while two pods run, whose labels were not kept (K24): how long after the configuration each pod shows
//! it, how long they contradict each other, and how much memory that takes.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tests::client::{Section, Transport};
use tests::control_plane::ControlPlane;
use tests::data_plane::DataPlane;
use tests::scale::create_all;

use crate::ready::wait_until_ready;
use crate::table::{row, s};

const NAMESPACE: &str = "exposure";
const CONFIG_MAP: &str = "clusterdns";
const REST: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);
/// Changes that are measured; each reads a label that no one before it has read.
const CHANGES: usize = 5;

fn text(hidden: &str) -> Value {
    let expression = json!({"key": hidden, "operator": "DoesNotExist"});
    let exposure = json!({"serviceSelector": {"matchExpressions": [expression]}});
    json!({"data": {"stable.json": json!({"format": 1, "exposure": exposure}).to_string()}})
}

fn objects() -> Vec<Value> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let service = |number: usize| {
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("hidden-{number}"), "namespace": NAMESPACE,
                "labels": {format!("hidden-{number}"): "true"}},
            "spec": {"ports": [{"port": 80}]}})
    };
    let mut map = text("none");
    map["apiVersion"] = "v1".into();
    map["kind"] = "ConfigMap".into();
    map["metadata"] = json!({"name": CONFIG_MAP, "namespace": NAMESPACE});
    [vec![namespace], (0..CHANGES).map(service).collect(), vec![map]].concat()
}

fn shows(server: &DataPlane, number: usize) -> bool {
    let name = format!("hidden-{number}.{NAMESPACE}.svc.cluster.local. A");
    let answer = server.ask(&name, Transport::Udp);
    !answer.records[Section::Answer as usize].is_empty()
}

pub(crate) async fn measure(plane: &ControlPlane, client: &Client) {
    for object in objects() {
        create_all(client, [object]).await;
    }
    let map = format!("{NAMESPACE}/{CONFIG_MAP}");
    let start = || DataPlane::start(plane.kubeconfig(), &["--config-map", &map]);
    let pods = [start(), start()];
    pods.iter().for_each(wait_until_ready);
    std::thread::sleep(REST);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let steady = pods[0].usage().resident_mib();
    row("memory of a pod before", &format!("{steady:.1} MiB"), "");
    for number in 0..CHANGES {
        for pod in &pods {
            pod.usage().forget_peak().expect("our own process");
            assert!(shows(pod, number), "it is not hidden yet");
        }
        let before = pods[0].usage().resident_mib();
        let cpu = pods[0].usage().cpu();
        let patch = Patch::Merge(text(&format!("hidden-{number}")));
        maps.patch(CONFIG_MAP, &PatchParams::default(), &patch).await.expect("a patch");
        let begun = Instant::now();
        let mut took = [None; 2];
        while took.iter().any(Option::is_none) {
            assert!(begun.elapsed() < PATIENCE, "it was never hidden");
            for (pod, took) in pods.iter().zip(&mut took) {
                if took.is_none() && !shows(pod, number) {
                    *took = Some(begun.elapsed());
                }
            }
            std::thread::sleep(POLL);
        }
        let times = took.map(|took| took.unwrap_or_default());
        let (first, last) = (times[0].min(times[1]), times[0].max(times[1]));
        let peak = pods.iter().map(|pod| pod.usage().peak_mib()).fold(0.0, f64::max);
        let cpu = pods[0].usage().cpu() - cpu;
        row(
            &format!("change {number}: first pod, second pod"),
            &format!("{} , {}", s(first), s(last)),
            "2 s (K24)",
        );
        row("  processor time of a pod", &s(cpu), "");
        row("  peak memory, before", &format!("{peak:.1} MiB, {before:.1} MiB"), "");
        std::thread::sleep(REST / 2);
    }
}
