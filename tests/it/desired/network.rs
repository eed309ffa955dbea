//! S10: which clients may connect to the pods.

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

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
