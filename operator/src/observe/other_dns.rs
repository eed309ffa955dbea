//! Which other Services of a namespace serve DNS, and to whose pods they lead: our pods must not answer beside those of
//! another DNS server. Pure.

use std::net::IpAddr;

use crds::defaults::DNS_PORT;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::DynamicObject;

use crate::observe::pods;

/// Can clients ask it for names? It has a clusterIP and port 53: a headless Service for metrics has neither.
pub(super) fn serves_dns(service: &DynamicObject) -> bool {
    let spec = &service.data["spec"];
    let has_address = spec["clusterIP"].as_str().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    let mut ports = spec["ports"].as_array().into_iter().flatten();
    has_address && ports.any(|port| port["port"].as_u64() == Some(DNS_PORT.into()))
}

/// Does any of its endpoints belong to a pod that is not ours, ready or not? One that names no pod does. Slices and pods
/// come by different watches, so a pod of ours that has just come or gone is known by the name of its workload.
pub(super) fn has_other_pods(slices: &[EndpointSlice], ours: &[Pod], workload: &str) -> bool {
    let is_named_as_ours =
        |name: &str| name.strip_prefix(workload).is_some_and(|rest| rest.starts_with('-'));
    let mut endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    endpoints.any(|endpoint| {
        let target = endpoint.target_ref.as_ref();
        let uid = target.and_then(|target| target.uid.as_deref());
        let name = target.and_then(|target| target.name.as_deref());
        !name.is_some_and(is_named_as_ours) && !ours.iter().any(|pod| Some(pods::uid(pod)) == uid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{expose, from, pod};
    use crate::observe::observed::Observed;
    use serde_json::json;

    #[test]
    fn o2_only_a_service_that_clients_can_ask_for_names_serves_dns() {
        let service = |ip: &str, ports: &[u16]| -> DynamicObject {
            let ports: Vec<_> = ports.iter().map(|port| json!({"port": port})).collect();
            from(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"},
                "spec": {"clusterIP": ip, "ports": ports}}))
        };
        assert!(serves_dns(&service("10.96.0.11", &[9153, 53])));
        assert!(serves_dns(&service("fd00::b", &[53])));
        // kube-prometheus-stack makes this one for CoreDNS and kube-dns.
        assert!(!serves_dns(&service("None", &[9153, 10054])));
        assert!(!serves_dns(&service("10.96.0.11", &[9153])));
        assert!(!serves_dns(&service("None", &[53])));
        assert!(!serves_dns(&from(json!({"metadata": {"name": "x"}}))));
    }

    #[test]
    fn o2_a_service_has_other_pods_when_one_endpoint_is_not_ours() {
        let mut observed = Observed { pods: vec![pod("dns-0", 0, 0)], ..Observed::default() };
        expose(&mut observed);
        assert!(!has_other_pods(&observed.slices, &observed.pods, "clusterdns-default"));
        assert!(!has_other_pods(&[], &observed.pods, "clusterdns-default"));
        assert!(has_other_pods(&observed.slices, &[pod("dns-1", 0, 0)], "clusterdns-default"));
    }

    #[test]
    fn o2_a_pod_of_ours_that_has_gone_is_no_other_pod_while_its_endpoint_stays() {
        let slice = |name: &str| -> EndpointSlice {
            from(json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.244.0.9"],
                "targetRef": {"kind": "Pod", "name": name, "uid": "gone"}}]}))
        };
        let has_others = |name: &str| has_other_pods(&[slice(name)], &[], "clusterdns-default");
        assert!(!has_others("clusterdns-default-7d9c-x2x"));
        assert!(has_others("coredns-5d78c9869d-abcde"));
        assert!(has_others("clusterdns-defaulted"));
    }
}
