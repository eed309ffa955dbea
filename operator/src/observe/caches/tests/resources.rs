//! What is kept of every ClusterDNS where some are nearly as large as etcd takes.

use kube::runtime::reflector;

use super::*;

const LARGE: usize = 30;
const MIB: usize = 1 << 20;

fn resource(name: &str, version: usize, values: &[String]) -> Value {
    let expression = json!({"key": "a", "operator": "In", "values": values});
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression]}});
    let affinity =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let condition = json!({"type": "Accepted", "status": "False", "reason": "TooLarge",
        "message": "m".repeat(version), "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(), "generation": 3,
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(1_000),
                names::RETRY: "7"}, "finalizers": ["a/b"]},
        "spec": {"service": {"namespace": "dns", "name": name}, "placement": {"affinity": affinity}},
        "status": {"clusterIPs": ["10.96.1.7"], "conditions": [condition]}})
}

#[tokio::test]
async fn k23_many_large_clusterdns_take_bounded_memory_and_one_that_works_stays_whole() {
    let values: Vec<String> = (0..1_400).map(|n| format!("{n:01000}")).collect();
    let api = Api::default();
    let large = |version| (0..LARGE).map(move |n| (format!("b{n:02}"), version));
    let all = large(1).map(|(name, version)| resource(&name, version, &values));
    // Nothing else is there.
    *api.has.lock().unwrap() = (1, 0);
    *api.resources.lock().unwrap() = [resource("a", 1, &[])].into_iter().chain(all).collect();
    let (kept, writer) = reflector::store();
    let metrics = Arc::<Metrics>::default();
    let namespaces = ["dns".to_owned()];
    let (triggers, lists) = (Arc::<Triggers>::default(), Arc::default());
    let caches = Caches::start(
        api.client(),
        &namespaces,
        kept.clone(),
        triggers.clone(),
        metrics.clone(),
        lists,
    );
    caches.keep_resources(writer, Arc::default());
    kept.wait_until_ready().await.unwrap();
    let check = || {
        let (whole, stubs) = caches.budget_of_resources.held();
        assert!(whole > 16 * MIB && whole <= 24 * MIB, "{whole} octets of whole objects");
        assert!(stubs <= 8 * MIB, "{stubs} octets of stubs");
        let all = kept.state();
        let counted: usize = all.iter().map(|dns| octets(dns.as_ref())).sum();
        assert!(all.len() == LARGE + 1 && counted <= whole + stubs, "{counted} octets are kept");
        let working = kept.get(&ObjectRef::new("a")).unwrap();
        assert!(!stubs::is_stub(working.as_ref()));
        let retry = [(names::RETRY.to_owned(), "7".to_owned())];
        assert_eq!(working.metadata.annotations, Some(retry.into()), "what is read of them");
        assert_eq!(caches.budget.held().0, 0, "they take no room of others");
    };
    check();
    let stub = kept.get(&ObjectRef::new(&format!("b{:02}", LARGE - 1))).unwrap();
    assert!(stubs::is_stub(stub.as_ref()) && octets(stub.as_ref()) < 16 << 10);
    // What it claims is still known, and it is still enqueued.
    assert_eq!(names::service(&stub), ("dns".to_owned(), format!("b{:02}", LARGE - 1)));
    let status = stub.status.as_ref().unwrap();
    assert_eq!((status.cluster_ips.len(), status.conditions[0].reason.as_str()), (1, "TooLarge"));
    assert_eq!(stub.metadata.generation, Some(3));
    let page = metrics.text();
    assert!(page.contains("clusterdns_operator_cache_bytes{part=\"clusterdns\"}"), "{page}");
    // A status is written to each.
    for (name, version) in large(2) {
        api.send("clusterdnses", resource(&name, version, &values)).await;
    }
    let is_newest = |dns: &ClusterDNS| dns.metadata.resource_version.as_deref() == Some("2");
    while kept.state().iter().filter(|dns| is_newest(dns)).count() < LARGE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    check();
    let mut woken = Box::pin(triggers.stream());
    let mut names = BTreeSet::new();
    while let Some(Some(reference)) = woken.next().now_or_never() {
        names.insert(reference.name);
    }
    assert_eq!(names.len(), LARGE + 1, "also those of which only a stub is kept");
}
