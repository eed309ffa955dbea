//! S10: which clients may connect to the pods.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use serde_json::json;

use super::*;

fn ports(rule: &NetworkPolicyIngressRule) -> Vec<(i32, String)> {
    let ports = rule.ports.iter().flatten().map(|port| match &port.port {
        Some(IntOrString::Int(number)) => (*number, port.protocol.clone().unwrap()),
        other => panic!("{other:?}"),
    });
    ports.collect()
}

#[test]
fn s10_there_is_no_network_policy_unless_asked_for() {
    let desired = desired(&dns("{}"), &observed(), |_| ());
    assert!(desired.get(Kind::NetworkPolicy).is_none());
}

#[test]
fn s10_dns_from_anywhere_http_from_some_and_nothing_about_egress() {
    let spec = "{networkPolicy: true, service: {podPort: 1053}, listeners: {tls: {certificate: {name: c}}}}";
    let desired = desired(&dns(spec), &observed(), |_| ());
    let policy: NetworkPolicy = object(&desired, Kind::NetworkPolicy);
    let spec = policy.spec.unwrap();
    assert_eq!((spec.egress, spec.policy_types), (None, Some(vec!["Ingress".to_owned()])));
    let [dns, http] = &spec.ingress.unwrap()[..] else { panic!("two rules") };
    // The ports of the pod: policies match after address translation.
    let expected = [(1053, "UDP"), (1053, "TCP"), (853, "TCP")];
    assert_eq!(ports(dns), expected.map(|(port, protocol)| (port, protocol.to_owned())));
    assert_eq!(dns.from, None, "from anywhere");
    assert_eq!(ports(http), [(9153, "TCP".to_owned())]);
    let peers = http.from.as_ref().expect("only from some");
    let operator = peers[0].namespace_selector.as_ref().unwrap().match_labels.as_ref().unwrap();
    assert_eq!(operator["kubernetes.io/metadata.name"], "clusterdns-system");
    let is_limited = |peer: &k8s_openapi::api::networking::v1::NetworkPolicyPeer| {
        let selects =
            |selector: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>| {
                selector
                    .as_ref()
                    .is_some_and(|s| s.match_labels.is_some() || s.match_expressions.is_some())
            };
        selects(&peer.namespace_selector) || selects(&peer.pod_selector)
    };
    assert!(peers.iter().all(is_limited), "{peers:?}");
}

/// Pods of ours that answer DNS at these ports, besides one of others with our labels.
fn with_pods(ports: &[i32]) -> Observed {
    let pod = |port: &i32, owner: &str| -> Pod {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": owner, "controller": true}]);
        let container = |name: &str, port: i32| {
            json!({"name": name, "ports": [
            {"name": "dns", "containerPort": port, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": port, "protocol": "TCP"},
            {"name": "dns-tls", "containerPort": 853, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"}]})
        };
        let containers = [container("sidecar", 7), container("clusterdns", *port)];
        let pod = json!({"metadata": {"name": "p", "ownerReferences": owner}, "spec": {"containers": containers}});
        serde_json::from_value(pod).unwrap()
    };
    let mut pods: Vec<Pod> = ports.iter().map(|port| pod(port, "ours")).collect();
    pods.push(pod(&6, "theirs"));
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}]);
    Observed {
        deployment: Some(serde_json::from_value(json!({"metadata": {"uid": "d"}})).unwrap()),
        replica_sets: vec![
            serde_json::from_value(json!({"metadata": {"uid": "ours", "ownerReferences": owner}}))
                .unwrap(),
        ],
        pods,
        ..observed()
    }
}

#[test]
fn s10_an_edit_of_a_port_cuts_off_no_pod_that_still_has_the_one_before() {
    let of = |spec: &str, pods: &[i32]| {
        let desired = desired(&dns(spec), &with_pods(pods), |_| ());
        let policy: NetworkPolicy = object(&desired, Kind::NetworkPolicy);
        let rules = policy.spec.unwrap().ingress.unwrap();
        assert_eq!(ports(&rules[1]), [(9153, "TCP".to_owned())]);
        ports(&rules[0]).into_iter().map(|(port, _)| port).collect::<Vec<_>>()
    };
    let moved = "{networkPolicy: true, service: {podPort: 1053}}";
    assert_eq!(of(moved, &[53, 53]), [1053, 1053, 53, 53], "UDP and TCP of both");
    assert_eq!(of(moved, &[1053, 53]), [1053, 1053, 53, 53]);
    assert_eq!(of(moved, &[1053, 1053]), [1053, 1053], "the last of the pods before is gone");
    assert_eq!(of(moved, &[5353, 53]), of(moved, &[53, 5353]), "two edits in a row");
    let listener = |port: u16| {
        format!(
            "{{networkPolicy: true, listeners: {{tls: {{port: {port}, certificate: {{name: c}}}}}}}}"
        )
    };
    assert_eq!(of(&listener(8853), &[53]), [53, 53, 8853, 853]);
    assert_eq!(of("{networkPolicy: true}", &[53]), [53, 53], "a listener is closed at once");
    let many: Vec<i32> = (2000..2100).collect();
    assert_eq!(of(moved, &many).len(), 2 + 16, "bounded");
}
