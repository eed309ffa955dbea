//! What is kept of pods and resources that are much larger than that. The API server is a function.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::api::{self, Reply};
use crate::fixtures::from;
use crate::observe::octets::octets;

/// Much larger than what is kept.
const FILLING: usize = 100_000;
const PODS: usize = 30;
const LATE: Duration = Duration::from_secs(1);

/// A ready pod of ours whose author has filled everything that can be filled.
fn large_pod(number: usize) -> Value {
    let filling = "x".repeat(FILLING);
    let name = format!("pod-{number}");
    json!({
        "metadata": {"name": name, "namespace": "dns", "uid": name, "resourceVersion": "7", "annotations": {"a": filling},
            "labels": {names::INSTANCE: "default", "more": "m"}, "finalizers": ["f/f"]},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}],
            "ports": [{"name": "dns", "containerPort": 1053}, {"name": "metrics", "containerPort": 9200}]}]},
        "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": "True", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn large_resource() -> Value {
    json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
        "metadata": {"name": "default", "resourceVersion": "7", "annotations": {"a": "x".repeat(FILLING)}},
        "spec": {"domain": "c.example", "managementState": "Unmanaged", "service": {"podPort": 5353, "name": "n"},
            "hosts": [{"name": "a.example", "addresses": ["10.0.0.2"]}]},
        "status": {"clusterIPs": ["fd00:96::a"], "conditions": [{"type": "Ready", "status": "True", "reason": "Serving",
            "message": "x".repeat(FILLING), "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// Lists what there is, and keeps every watch open.
fn server() -> Client {
    api::client(|asked| match asked.last() {
        _ if asked.is_watch() => Reply::stream(futures::stream::pending()),
        "pods" => Reply::list((0..PODS).map(large_pod).collect::<Vec<_>>()),
        // When the pods have taken all room that they can get.
        _ => Reply::list([large_resource()]).after(LATE),
    })
}

async fn kept(most: usize, metrics: &Arc<Metrics>) -> PodsToAsk {
    let namespaces = ["dns".to_owned()];
    let it = PodsToAsk::within((most, most), &server(), &namespaces, metrics.clone());
    it.resources.wait_until_ready().await.unwrap();
    it.pods[0].wait_until_ready().await.unwrap();
    it
}

#[tokio::test(start_paused = true)]
async fn k23_of_pods_and_resources_only_what_the_lookout_reads_is_kept() {
    let it = kept(MOST_OF_PODS, &Arc::default()).await;
    let all = it.pods[0].state();
    assert_eq!(all.len(), PODS);
    for pod in all {
        assert!(octets(pod.as_ref()) < 9 << 10, "{} octets", octets(pod.as_ref()));
        let kept: Value = serde_json::to_value(pod.as_ref()).unwrap();
        assert_eq!(kept["metadata"]["labels"], json!({names::INSTANCE: "default"}));
        assert!(pods::is_ready(&pod));
        assert_eq!((pods::node(&pod), http_port(&pod)), (Some("node"), 9200));
        let dns: ClusterDNS = from(large_resource());
        assert_eq!(pods::dns_port(&pod, &dns), 1053, "its own, and not that of the spec");
        assert_eq!(pods::address(&pod), Some([10, 0, 0, 1].into()));
        assert_eq!(pods::addresses(&pod).last(), Some("fd00::1".parse().unwrap()));
    }
    let resources = it.resources.state();
    let [dns] = resources.as_slice() else { panic!("{} resources", resources.len()) };
    assert!(octets(dns.as_ref()) < 16 << 10, "{} octets", octets(dns.as_ref()));
    let expected: ClusterDNS = from(
        json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
        "metadata": {"name": "default"}, "spec": {"domain": "c.example", "managementState": "Unmanaged",
        "service": {"podPort": 5353}}}),
    );
    assert_eq!((dns.name_any(), &dns.spec), ("default".to_owned(), &expected.spec));
    assert_eq!(dns.status.as_ref().unwrap().cluster_ips, ["fd00:96::a"]);
}

#[tokio::test(start_paused = true)]
async fn k23_pods_beyond_the_budget_of_the_lookout_are_counted_and_not_kept() {
    let metrics = Arc::<Metrics>::default();
    let it = kept(128 << 10, &metrics).await;
    let held = it.pods[0].state().len();
    assert!(held > 0 && held < PODS, "{held} pods are kept");
    assert_eq!(it.resources.state().len(), 1, "pods take no room of a ClusterDNS");
    let page = metrics.text();
    let expected =
        format!("clusterdns_operator_objects_not_kept_total{{resource=\"pods\"}} {}", PODS - held);
    assert!(page.contains(&expected), "{page}");
    assert!(page.contains("clusterdns_operator_cache_bytes{part=\"lost_pods\"}"), "{page}");
    assert!(!page.contains("part=\"whole\""), "the gauge of the other caches: {page}");
}

#[test]
fn o20_a_pod_that_was_out_for_a_moment_is_noted_and_no_more_of_them_than_a_bound() {
    let noted = Mutex::default();
    let mut pod: Pod = from(large_pod(0));
    note_out(&Heard::Changed(&pod, None), &noted);
    assert!(noted.lock().unwrap().is_empty(), "it is ready");
    let conditions = pod.status.as_mut().and_then(|status| status.conditions.as_mut()).unwrap();
    conditions[1].status = "False".to_owned();
    conditions[1].reason = Some(pods::LOST.to_owned());
    for number in 0..=MOST_OUT {
        pod.metadata.uid = Some(format!("pod-{number:04}"));
        note_out(&Heard::Changed(&pod, None), &noted);
    }
    let noted = noted.into_inner().unwrap();
    assert_eq!((noted.len(), noted.contains("pod-0000")), (MOST_OUT, true));
}
