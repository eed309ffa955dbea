//! What is kept of as many nodes as Kubernetes supports, and of three times as many, with Services that have an endpoint on each.

use k8s_openapi::api::core::v1::{ContainerStatus, PodIP};
use k8s_openapi::api::discovery::v1::Endpoint;

use super::*;
use crate::desired::ports;
use crate::fixtures::many;

const IN_A_SLICE: usize = 100;

#[tokio::test]
async fn k23_a_large_cluster_alone_does_not_fill_the_cache() {
    // With a pod of ours on each node up to as many as Kubernetes supports.
    for (nodes, has_pods) in [(5_000, true), (15_000, false)] {
        let client = api::client(move |asked| match asked.last() {
            _ if asked.is_watch() => Reply::stream(futures::stream::pending()),
            "nodes" => Reply::list((0..nodes).map(|n| many::node(n, 30)).collect::<Vec<_>>()),
            "endpointslices" => {
                let of_service = |service| {
                    (0..nodes / IN_A_SLICE).map(move |n| many::slice(service, n, IN_A_SLICE))
                };
                Reply::list((0..3).flat_map(of_service).collect::<Vec<_>>())
            }
            "pods" if has_pods => Reply::list((0..nodes).map(many::pod).collect::<Vec<_>>()),
            "services" => {
                Reply::list([json!({"metadata": {"name": "kube-dns", "namespace": "kube-system",
                "resourceVersion": "7", "annotations": {"prometheus.io/port": "9153"}},
                "spec": {"clusterIP": "10.96.0.10", "selector": {"k8s-app": "kube-dns"}}})])
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
        let not_kept = caches.budget.not_kept("kube-system");
        assert_eq!(not_kept, BTreeSet::new(), "{nodes} nodes: {whole} octets are kept");
        assert_eq!(caches.size().nodes as usize, nodes);
        let slices = caches.slices("kube-system", "service-0").expect("all of them are kept whole");
        assert_eq!(slices.iter().map(|it| it.endpoints.len()).sum::<usize>(), nodes);
        let service = caches.object(Kind::Service, "kube-system", "kube-dns").expect("it is kept");
        assert!(!stubs::is_stub(service.as_ref()), "{nodes} nodes");
    }
}

#[test]
fn k23_of_a_pod_all_that_decisions_read_is_kept() {
    let mut pod: Pod = serde_json::from_value(many::pod(7)).unwrap();
    let numbered = ports::NAMES.iter().zip(1053..);
    let all = numbered.map(|(name, number)| json!({"name": name, "containerPort": number}));
    let others = [json!({"name": "other", "containerPort": 1}), json!({"containerPort": 2})];
    let all: Vec<Value> = all.chain(others).collect();
    pod.spec.as_mut().unwrap().containers[0].ports = serde_json::from_value(json!(all)).unwrap();
    let status = pod.status.as_mut().unwrap();
    status.pod_ips.as_mut().unwrap().push(PodIP { ip: "fd00::7".to_owned() });
    let mut refused = status.conditions.as_ref().unwrap()[0].clone();
    (refused.type_, refused.status) = ("PodScheduled".to_owned(), "False".to_owned());
    refused.reason = Some("Unschedulable".to_owned());
    status.conditions.as_mut().unwrap().push(refused);
    let waiting = json!({"name": "sidecar", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": "ErrImagePull"}}, "lastState": {"terminated": {"exitCode": 1}}});
    let waiting: ContainerStatus = serde_json::from_value(waiting).unwrap();
    status.container_statuses.as_mut().unwrap().push(waiting.clone());
    let (before, mut kept) = (pod.clone(), pod);
    slim::slim_pod(&mut kept);
    let read = |pod: &Pod| {
        let addresses: Vec<_> = pods::addresses(pod).collect();
        let ports = ports::NAMES.map(|name| pods::port(pod, name).expect(name));
        let is_made = pods::is_made_by(pod, &BTreeSet::from(["daemon-set".to_owned()]));
        let is_of_daemon_set = pods::is_of_daemon_set(pod);
        let condition = pods::unschedulable(pod).cloned();
        let is = (pods::ready_since(pod), pods::restarts(pod), condition, pod.labels().clone());
        (is, addresses, ports, is_made, is_of_daemon_set)
    };
    assert_eq!(read(&kept), read(&before));
    assert!(kept.status.as_ref().unwrap().container_statuses.as_ref().unwrap().contains(&waiting));
    assert_eq!(kept.spec.unwrap().containers[0].ports.as_ref().unwrap().len(), ports::NAMES.len());
    let whole: Pod = serde_json::from_value(many::pod(7)).unwrap();
    let mut kept = whole.clone();
    slim::slim_pod(&mut kept);
    assert!(octets(&kept) < octets(&whole) * 3 / 4);
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
