//! The Service that clients ask, where it is ours. One that is adopted is never applied.

use std::net::IpAddr;

use crds::v1alpha1::TrafficDistribution;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::instance::Instance;
use super::ports;
use crate::decide::plan::{ServicePlan, Size};
use crate::names;

/// The minor version that knows PreferSameZone and PreferSameNode by default; before, PreferClose is the zone.
pub(super) const KNOWS_SAME_NODE: u32 = 34;
const SAME_NODE: &str = "PreferSameNode";
const SAME_ZONE: &str = "PreferSameZone";
const CLOSE: &str = "PreferClose";
/// Octets of a remembered Service; the annotations of a larger one are not remembered. It is in the ConfigMap beside
/// the configuration, and a ConfigMap has at most 1 MiB.
const MAX_MANIFEST: usize = 64 * 1024;

pub(super) fn service(of: &Instance<'_>) -> Option<Service> {
    match of.plan.service {
        ServicePlan::Own => Some(own(of)),
        ServicePlan::Adopted { .. }
        | ServicePlan::Recreated { .. }
        | ServicePlan::Released { .. } => None,
    }
}

/// The word of an older API, if the API server refused the Service for this one: its version knows it, and the feature may be off, or
/// it has one of a newer cluster. The older word stays until this operator starts again, or the Service changes.
pub fn older_distribution(written: Option<&str>, refusal: &str) -> Option<&'static str> {
    let is_newer = [SAME_NODE, SAME_ZONE].map(Some).contains(&written);
    (is_newer && refusal.contains("trafficDistribution")).then_some(CLOSE)
}

/// A Service as it is created again after it was deleted. A foreign one gets no field of ours, not even the owner.
pub fn as_it_was(service: &Service) -> Value {
    let seen = &service.metadata;
    let ours = seen.owner_references.iter().flatten().filter(|owner| owner.kind == "ClusterDNS");
    let owners: Vec<_> = ours.cloned().collect();
    let metadata = ObjectMeta {
        name: seen.name.clone(),
        namespace: seen.namespace.clone(),
        labels: seen.labels.clone(),
        annotations: seen.annotations.clone(),
        owner_references: Some(owners).filter(|owners| !owners.is_empty()),
        ..ObjectMeta::default()
    };
    let mut spec = service.spec.clone().unwrap_or_default();
    spec.health_check_node_port = None;
    let mut again = Service { metadata, spec: Some(spec), status: None };
    let value = |service: &Service| serde_json::to_value(service).unwrap_or_default();
    let whole = value(&again);
    if whole.to_string().len() <= MAX_MANIFEST {
        return whole;
    }
    again.metadata.annotations = None;
    value(&again)
}

fn own(of: &Instance<'_>) -> Service {
    let mut metadata = of.called(&of.service.name, Some(of.namespace()));
    metadata.resource_version =
        of.observed.service.as_ref().and_then(|seen| seen.metadata.resource_version.clone());
    metadata.labels.get_or_insert_default().extend(discovered_by(of));
    // A deleted Service gets the addresses that clients know; the API server refuses it if another Service has one of
    // them.
    let last = &of.plan.rollout.state.service;
    let pinned = Some(last.cluster_ips.as_slice()).filter(|_| last.is_pinned);
    let written = of.service.cluster_ips.as_deref().filter(|ips| !ips.is_empty());
    let ips = written.or(pinned).filter(|ips| !ips.is_empty());
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        cluster_ip: ips.map(|ips| ips[0].clone()),
        cluster_ips: ips.map(<[String]>::to_vec),
        ip_families: ips.map(|ips| ips.iter().map(|ip| family(ip).to_owned()).collect()),
        ip_family_policy: ips.map(|ips| policy(ips.len()).to_owned()),
        ports: Some(service_ports(of)),
        selector: Some(names::selector(&of.name)),
        traffic_distribution: traffic_distribution(of).map(str::to_owned),
        ..ServiceSpec::default()
    };
    Service { metadata, spec: Some(spec), status: None }
}

/// The label by which dashboards and addons find the cluster's DNS. Only the Service of that name has it; otherwise
/// they would also find a second ClusterDNS on trial.
fn discovered_by(of: &Instance<'_>) -> Vec<(String, String)> {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    if of.service.name == crds::defaults::SERVICE_NAME {
        vec![label("k8s-app", "kube-dns"), label("kubernetes.io/name", "ClusterDNS")]
    } else {
        Vec::new()
    }
}

/// `check` has made sure that it is an address.
fn family(ip: &str) -> &'static str {
    match ip.parse() {
        Ok(IpAddr::V6(_)) => "IPv6",
        Ok(IpAddr::V4(_)) | Err(_) => "IPv4",
    }
}

fn policy(addresses: usize) -> &'static str {
    if addresses > 1 { "RequireDualStack" } else { "SingleStack" }
}

fn service_ports(of: &Instance<'_>) -> Vec<ServicePort> {
    let port = |port: &ports::Port| ServicePort {
        name: Some(port.name.to_owned()),
        port: port.service.into(),
        protocol: Some(port.protocol.to_owned()),
        target_port: Some(IntOrString::String(port.name.to_owned())),
        ..ServicePort::default()
    };
    ports::of(&of.dns.spec).iter().map(port).collect()
}

fn traffic_distribution(of: &Instance<'_>) -> Option<&'static str> {
    let is_per_node = match of.plan.size {
        Size::PerNode => true,
        Size::Replicas(_) | Size::Autoscaled { .. } => false,
    };
    distribution(of.service.traffic_distribution, is_per_node, of.observed.offers.minor)
}

/// Which pods a Service prefers, in the words of this minor version of Kubernetes. Never internalTrafficPolicy Local: a node
/// whose pod is down would have no DNS.
pub(super) fn distribution(
    written: Option<TrafficDistribution>,
    is_per_node: bool,
    minor: u32,
) -> Option<&'static str> {
    let wanted = written.or(is_per_node.then_some(TrafficDistribution::PreferSameNode))?;
    let knows = minor >= KNOWS_SAME_NODE;
    Some(match wanted {
        TrafficDistribution::PreferSameNode if knows => SAME_NODE,
        TrafficDistribution::PreferSameZone if knows => SAME_ZONE,
        TrafficDistribution::PreferSameNode | TrafficDistribution::PreferSameZone => CLOSE,
    })
}
