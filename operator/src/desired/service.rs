//! The Service that clients ask, where it is ours. One that is adopted is never applied.

use std::net::IpAddr;

use crds::v1alpha1::TrafficDistribution;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::DynamicObject;
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
/// Octets of a remembered Service; of a larger one only what clients depend on is remembered. It is in the ConfigMap beside
/// the configuration, and a ConfigMap has at most 1 MiB: a larger one could not be written any more.
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

/// A Service as it is created again after it was deleted; none: it is too large to be remembered. A foreign one gets no field of
/// ours, not even the owner.
pub fn as_it_was(service: &Service) -> Option<Value> {
    let mut again = whole(service);
    let fitting = |again: &Service| {
        let value = serde_json::to_value(again).unwrap_or_default();
        (value.to_string().len() <= MAX_MANIFEST).then_some(value)
    };
    if let Some(value) = fitting(&again) {
        return Some(value);
    }
    again.metadata.annotations = None;
    if let Some(value) = fitting(&again) {
        return Some(value);
    }
    // Anyone who may edit the Service can add as many. Ranges of a load balancer stay: without them it would be open to all.
    again.metadata.labels = None;
    again.spec.iter_mut().for_each(|spec| spec.external_ips = None);
    fitting(&again)
}

/// What is not remembered of a Service, for people; none: all of it is.
pub fn not_remembered(service: &Service) -> Option<&'static str> {
    let whole = serde_json::to_value(whole(service)).unwrap_or_default();
    let Some(kept) = as_it_was(service) else { return Some("anything but its addresses") };
    let has_lost = |field: &str| kept.pointer(field).is_none() && whole.pointer(field).is_some();
    if has_lost("/spec/externalIPs") || has_lost("/metadata/labels") {
        return Some("its annotations, labels and externalIPs");
    }
    has_lost("/metadata/annotations").then_some("its annotations")
}

fn whole(service: &Service) -> Service {
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
    Service { metadata, spec: Some(spec), status: None }
}

fn own(of: &Instance<'_>) -> Service {
    let mut metadata = of.called(&of.service.name, Some(of.namespace()));
    metadata.resource_version =
        of.observed.service.as_ref().and_then(|seen| seen.metadata.resource_version.clone());
    metadata.labels.get_or_insert_default().extend(discovered_by(of));
    let ips = addresses(of);
    let ips = Some(ips.as_slice()).filter(|ips| !ips.is_empty());
    let spec = ServiceSpec {
        ports: Some(service_ports(of)),
        selector: Some(names::selector(&of.name)),
        // Written although it is the default: a field that we own is put back. With Local a node whose pod is down would have no
        // DNS.
        internal_traffic_policy: Some("Cluster".to_owned()),
        traffic_distribution: traffic_distribution(of).map(str::to_owned),
        ..at(ips)
    };
    Service { metadata, spec: Some(spec), status: None }
}

/// The addresses to ask for; none: the API server chooses. A deleted Service gets those that clients know; the API server refuses
/// it if another Service has one of them.
///
/// A shorter list takes no address away, because clients of that family would lose DNS: a person takes it out of the Service
/// itself. And the words are those of the Service, because the API server compares addresses as text.
fn addresses(of: &Instance<'_>) -> Vec<String> {
    let last = &of.plan.rollout.state.service;
    let pinned = Some(last.cluster_ips.as_slice()).filter(|_| last.is_pinned);
    let written = of.service.cluster_ips.as_deref().filter(|ips| !ips.is_empty());
    let asked = parsed(written.or(pinned).unwrap_or_default());
    let seen = of.observed.service.as_ref().map(present).unwrap_or_default();
    let known = if seen.is_empty() { parsed(&last.cluster_ips) } else { seen };
    let is_same = |((ip, _), (known, _)): (&Address, &Address)| ip == known;
    let is_shorter = asked.len() <= known.len() && asked.iter().zip(&known).all(is_same);
    if is_shorter && !asked.is_empty() {
        return known.into_iter().map(|(_, text)| text).collect();
    }
    let as_known = |(ip, _): &Address| {
        let found = known.iter().find(|(known, _)| known == ip);
        found.map_or_else(|| ip.to_string(), |(_, text)| text.clone())
    };
    asked.iter().map(as_known).collect()
}

/// An address, and how it is written.
type Address = (IpAddr, String);

fn present(service: &Service) -> Vec<Address> {
    let spec = service.spec.as_ref();
    parsed(spec.and_then(|spec| spec.cluster_ips.as_deref()).unwrap_or_default())
}

fn parsed(texts: &[String]) -> Vec<Address> {
    texts.iter().filter_map(|text| Some((text.parse().ok()?, text.clone()))).collect()
}

/// The type of a Service of ours, and its addresses; none: the API server chooses them, or keeps those that it chose.
fn at(ips: Option<&[String]>) -> ServiceSpec {
    ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        cluster_ip: ips.map(|ips| ips[0].clone()),
        cluster_ips: ips.map(<[String]>::to_vec),
        ip_families: ips.map(|ips| ips.iter().map(|ip| family(ip).to_owned()).collect()),
        ip_family_policy: ips.map(|ips| policy(ips.len()).to_owned()),
        ..ServiceSpec::default()
    }
}

/// A Service as it was applied, with these addresses, which it has lost since.
pub fn with_addresses(mut applied: DynamicObject, ips: &[String]) -> DynamicObject {
    let spec = serde_json::to_value(at(Some(ips).filter(|ips| !ips.is_empty())));
    if let (Ok(Value::Object(fields)), Some(spec)) = (spec, applied.data["spec"].as_object_mut()) {
        spec.extend(fields);
    }
    applied
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

/// Which pods a Service prefers, in the words of this minor version of Kubernetes.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::fixtures::kube_dns;

    /// This many labels, as others may write them.
    fn many(count: usize) -> BTreeMap<String, String> {
        (0..count).map(|n| (format!("label-{n}"), "x".repeat(60))).collect()
    }

    #[test]
    fn o16_a_huge_annotation_is_not_remembered() {
        let mut service = kube_dns();
        assert_eq!(not_remembered(&service), None);
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert("big".to_owned(), "x".repeat(100_000));
        service.metadata.labels = Some(many(3));
        let kept = as_it_was(&service).unwrap();
        assert!(kept.to_string().len() <= MAX_MANIFEST);
        assert_eq!(kept["spec"]["clusterIP"], "10.96.0.10");
        assert_eq!(kept["metadata"]["labels"], json!(many(3)));
        assert_eq!(not_remembered(&service), Some("its annotations"));
    }

    #[test]
    fn o16_of_a_service_that_others_made_large_what_clients_need_is_remembered() {
        let large = |change: fn(&mut Service)| {
            let mut service = kube_dns();
            change(&mut service);
            service
        };
        let services = [
            large(|it| {
                let ips = (0..70_000).map(|n: u32| std::net::Ipv4Addr::from(n).to_string());
                it.spec.as_mut().unwrap().external_ips = Some(ips.collect());
            }),
            large(|it| it.metadata.labels = Some(many(3_000))),
        ];
        let expected = serde_json::to_value(kube_dns().spec).unwrap();
        for service in services {
            let kept = as_it_was(&service).unwrap();
            let octets = kept.to_string().len();
            assert!(octets <= MAX_MANIFEST, "{octets} octets");
            assert_eq!((&kept["spec"], &kept["metadata"]["name"]), (&expected, &json!("kube-dns")));
            assert_eq!(not_remembered(&service), Some("its annotations, labels and externalIPs"));
        }
        let huge = large(|it| it.spec.as_mut().unwrap().selector = Some(many(3_000)));
        assert_eq!(as_it_was(&huge), None, "without its selector it would be another Service");
        assert_eq!(not_remembered(&huge), Some("anything but its addresses"));
    }
}
