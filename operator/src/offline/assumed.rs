//! What `render` assumes of a cluster that it does not read: two nodes, the newest Kubernetes, Prometheus's kinds,
//! certificates that may be mounted, and the Service to adopt. Decisions are made from it by the same functions as in a cluster.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::decide::admit::certificates;
use crate::observe::observed::{Certificate, ClusterSize, Observed, Offers};

/// The smallest cluster in which no object is left out.
const NODES: u32 = 2;
const CORES_PER_NODE: u32 = 4;
/// The newest minor version whose names we know.
const MINOR: u32 = 36;
/// clusterIP that kubeadm would give; used if the spec has none.
const CLUSTER_IP: &str = "10.96.0.10";

/// The assumed cluster.
pub(super) fn observed(dns: &ClusterDNS) -> Observed {
    let cores = NODES * CORES_PER_NODE;
    let size =
        ClusterSize { nodes: NODES, schedulable_nodes: NODES, cores, schedulable_cores: cores };
    let offers = Offers {
        pod_monitor: true,
        prometheus_rule: true,
        queries_per_second: Some(true),
        minor: MINOR,
        crd_is_outdated: false,
    };
    let service = dns.spec.service.clone().unwrap_or_default();
    let usable = |(_, name): (_, &str)| (name.to_owned(), Certificate::Usable);
    Observed {
        size,
        offers,
        service: service.adopt.then(|| existing(service)),
        certificates: certificates(dns).into_iter().map(usable).collect(),
        ..Observed::default()
    }
}

/// A Service as kubeadm, kube-dns and CoreDNS's manifests create it.
fn existing(service: crds::v1alpha1::Service) -> Service {
    let ports = [("dns", "UDP", 53), ("dns-tcp", "TCP", 53), ("metrics", "TCP", 9153)];
    // Only the names are known: the Service of a pod that serves DNS on another port leads to that port.
    let port = |(name, protocol, number): (&str, &str, i32)| ServicePort {
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
        port: number,
        target_port: Some(IntOrString::String(name.to_owned())),
        ..ServicePort::default()
    };
    let ips = service.cluster_ips.filter(|ips| !ips.is_empty());
    let ips = ips.unwrap_or_else(|| vec![CLUSTER_IP.to_owned()]);
    let selector: BTreeMap<String, String> = [("k8s-app".to_owned(), "kube-dns".to_owned())].into();
    Service {
        metadata: ObjectMeta {
            name: Some(service.name),
            namespace: Some(service.namespace),
            resource_version: Some("1".to_owned()),
            labels: Some(selector.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: ips.first().cloned(),
            cluster_ips: Some(ips),
            ports: Some(ports.map(port).to_vec()),
            selector: Some(selector),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
