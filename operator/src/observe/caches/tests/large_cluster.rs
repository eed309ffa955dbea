//! What is kept of as many nodes as Kubernetes supports, and of Services with an endpoint on each of them.

use k8s_openapi::api::discovery::v1::Endpoint;

use super::*;
use crate::fixtures::many;

const NODES: usize = 5_000;
const IN_A_SLICE: usize = 100;

#[tokio::test]
async fn k23_a_large_cluster_alone_does_not_fill_the_cache() {
    let client = api::client(|asked| match asked.last() {
        _ if asked.is_watch() => Reply::stream(futures::stream::pending()),
        "nodes" => Reply::list((0..NODES).map(|n| many::node(n, 30)).collect::<Vec<_>>()),
        "endpointslices" => {
            let of_service =
                |service| (0..NODES / IN_A_SLICE).map(move |n| many::slice(service, n, IN_A_SLICE));
            Reply::list((0..3).flat_map(of_service).collect::<Vec<_>>())
        }
        _ => Reply::list(Vec::<Value>::new()),
    });
    let (all, _writer) = kube::runtime::reflector::store();
    let namespaces = ["kube-system".to_owned()];
    let (triggers, metrics, lists) = (Arc::default(), Arc::default(), Arc::default());
    let caches = Caches::start(client, &namespaces, all, triggers, metrics, lists);
    caches.wait_until_read("").await;
    caches.wait_until_read("kube-system").await;
    let (whole, _) = caches.budget.held();
    assert_eq!(caches.budget.not_kept("kube-system"), BTreeSet::new(), "{whole} octets are kept");
    assert_eq!(caches.size().nodes as usize, NODES);
    let slices = caches.slices("kube-system", "service-0").expect("all of them are kept whole");
    assert_eq!(slices.iter().map(|it| it.endpoints.len()).sum::<usize>(), NODES);
}

#[test]
fn k23_of_a_slice_only_whose_endpoints_it_has_and_which_are_ready_is_kept() {
    let mut slice: EndpointSlice = serde_json::from_value(many::slice(0, 0, 2)).unwrap();
    let before = slice.clone();
    slim_slice(&mut slice);
    let read = |it: &EndpointSlice| {
        let of = |endpoint: &Endpoint| {
            let target = endpoint.target_ref.clone().unwrap();
            (endpoint.conditions.clone().unwrap().ready, target.name, target.uid)
        };
        let endpoints: Vec<_> = it.endpoints.iter().map(of).collect();
        (it.metadata.name.clone(), it.metadata.labels.clone(), endpoints)
    };
    assert_eq!(read(&slice), read(&before));
    let kept: Value = serde_json::to_value(&slice.endpoints[0]).unwrap();
    let expected = json!({"addresses": [], "conditions": {"ready": true},
        "targetRef": {"name": "service-0-00000-0", "uid": "6f3a1c9e-0000-4000-8000-000000000000"}});
    assert_eq!(kept, expected);
}
