//! Kubernetes object to the core's slim object: the one reading of every field, whichever source
//! the object came from. What a person wrote wrong is named and skipped; the rest is kept (E15).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use dataplane_core::{
    Endpoint, Key, Namespace, Pod, Protocol, Service, ServiceKind, ServicePort, Slice, SlicePort,
    TargetRef,
};

use super::slim;

/// The label that says which Service a slice belongs to.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Why a slice of names is not served.
const FQDN_IS_IGNORED: &str = "addressType FQDN is ignored, because it has no IP addresses: for an alias write a Service of type \
                               ExternalName";

/// Most reasons that are kept of one object: the first few lead to the cause.
const MAX_REASONS: usize = 5;

/// Why parts of one object are not served.
#[derive(Debug, Default)]
pub struct Reasons {
    listed: Vec<String>,
    more: usize,
}

impl Reasons {
    /// Adds one, or counts it when there are enough.
    pub fn add(&mut self, reason: String) {
        if self.listed.len() < MAX_REASONS {
            self.listed.push(reason);
        } else {
            self.more += 1;
        }
    }

    /// All of them as one line; `None` when everything is served.
    pub fn text(&self) -> Option<String> {
        let mut text = self.listed.join("; ");
        if self.more > 0 {
            text.push_str(&format!("; and {} more", self.more));
        }
        (!text.is_empty()).then_some(text)
    }
}

/// A Service (RR13-RR19). Unparseable cluster IPs and ports are left out with a reason.
pub fn service(from: &slim::Service, reasons: &mut Reasons) -> Service {
    let spec = &from.spec;
    Service {
        key: key(&from.metadata),
        uid: uid(&from.metadata),
        version: version(&from.metadata),
        labels: labels(&from.metadata.labels),
        kind: service_kind(spec, reasons),
        ports: spec.ports.iter().filter_map(|port| service_port(port, reasons)).collect(),
    }
}

fn service_kind(spec: &slim::ServiceSpec, reasons: &mut Reasons) -> ServiceKind {
    if spec.kind.as_deref() == Some("ExternalName") {
        return ServiceKind::ExternalName(spec.external_name.as_deref().unwrap_or("").into());
    }
    let ips = cluster_ips(spec);
    if ips.first().copied() == Some("None") {
        return ServiceKind::Headless;
    }
    ServiceKind::ClusterIp(ips.iter().filter_map(|text| cluster_ip(text, reasons)).collect())
}

fn cluster_ip(text: &str, reasons: &mut Reasons) -> Option<IpAddr> {
    if text.eq_ignore_ascii_case("None") {
        let why = "is not an IP address: for a headless Service write None, in this spelling";
        reasons.add(format!("clusterIP {text:?} {why}"));
        return None;
    }
    address(text, "clusterIP", reasons)
}

/// `clusterIPs`, else `[clusterIP]`, without empty strings.
fn cluster_ips(spec: &slim::ServiceSpec) -> Vec<&str> {
    let mut ips: Vec<&str> = spec.cluster_ips.iter().map(String::as_str).collect();
    if ips.is_empty() {
        ips.extend(spec.cluster_ip.as_deref());
    }
    ips.retain(|ip| !ip.is_empty());
    ips
}

fn service_port(port: &slim::ServicePort, reasons: &mut Reasons) -> Option<ServicePort> {
    Some(ServicePort {
        name: port.name.as_deref().unwrap_or("").into(),
        port: port_number(port.port, reasons)?,
        protocol: protocol(port.protocol.as_deref(), reasons)?,
    })
}

/// An EndpointSlice; `None` for one of type FQDN, which DNS ignores (RR20) with a reason: CoreDNS answers from it (DF35).
///
/// # Errors
/// What keeps the whole slice from being served.
pub fn slice(from: &slim::EndpointSlice, reasons: &mut Reasons) -> Result<Option<Slice>, String> {
    if let Some(reason) = unknown_address_type(from) {
        return Err(reason);
    }
    if from.address_type == "FQDN" {
        reasons.add(FQDN_IS_IGNORED.to_owned());
        return Ok(None);
    }
    let ipv6 = from.address_type == "IPv6";
    let Some(service) = from.metadata.labels.get(SERVICE_NAME_LABEL) else {
        return Err(format!("it has no label {SERVICE_NAME_LABEL}, so it belongs to no Service"));
    };
    Ok(Some(Slice {
        key: key(&from.metadata),
        uid: uid(&from.metadata),
        version: version(&from.metadata),
        service: service.as_str().into(),
        ipv6,
        ports: slice_ports(&from.ports, reasons),
        endpoints: from.endpoints.iter().map(|from| endpoint(from, reasons)).collect(),
    }))
}

/// Why nothing is known of the addresses of a slice, if its type is one that an API server refuses.
pub fn unknown_address_type(from: &slim::EndpointSlice) -> Option<String> {
    match from.address_type.as_str() {
        "IPv4" | "IPv6" | "FQDN" => None,
        other => Some(format!("addressType {other:?} is not IPv4, IPv6 or FQDN")),
    }
}

fn endpoint(from: &slim::SliceEndpoint, reasons: &mut Reasons) -> Endpoint {
    Endpoint {
        addresses: from
            .addresses
            .iter()
            .filter_map(|text| address(text, "endpoint address", reasons))
            .collect(),
        ready: from.conditions.ready.unwrap_or(true),
        hostname: from.hostname.as_deref().map(Into::into),
        target: from.target_ref.as_ref().and_then(target),
    }
}

/// The Pod behind an endpoint, if it is one.
fn target(from: &slim::ObjectReference) -> Option<TargetRef> {
    (from.kind == "Pod").then(|| TargetRef {
        namespace: from.namespace.as_str().into(),
        name: from.name.as_str().into(),
    })
}

/// Ports with a number; null names are unnamed, null protocols TCP (RR35).
fn slice_ports(from: &[slim::EndpointPort], reasons: &mut Reasons) -> Vec<SlicePort> {
    from.iter()
        .filter_map(|port| {
            Some(SlicePort {
                name: port.name.as_deref().unwrap_or("").into(),
                port: port_number(port.port?, reasons)?,
                protocol: protocol(port.protocol.as_deref(), reasons)?,
            })
        })
        .collect()
}

/// Endpoints as slices: one per subset and family. Their names hold a `:`, which no object of the
/// API server can have, so they never meet a real slice.
pub fn slices_of_endpoints(from: &slim::Endpoints, reasons: &mut Reasons) -> Vec<Slice> {
    let mut slices = Vec::new();
    for (number, subset) in from.subsets.iter().enumerate() {
        let ports = slice_ports(&subset.ports, reasons);
        let ready = subset.addresses.iter().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().map(|address| (address, false));
        let endpoints: Vec<Endpoint> = ready
            .chain(not_ready)
            .filter_map(|(from, ready)| endpoint_of_address(from, ready, reasons))
            .collect();
        for ipv6 in [false, true] {
            let of_family: Vec<Endpoint> =
                endpoints.iter().filter(|e| e.addresses[0].is_ipv6() == ipv6).cloned().collect();
            if of_family.is_empty() {
                continue;
            }
            let family = if ipv6 { "IPv6" } else { "IPv4" };
            slices.push(Slice {
                key: Key::new(
                    from.metadata.namespace.as_str(),
                    format!("endpoints:{}:{number}:{family}", from.metadata.name),
                ),
                uid: uid(&from.metadata),
                version: version(&from.metadata),
                service: from.metadata.name.as_str().into(),
                ipv6,
                ports: ports.clone(),
                endpoints: of_family,
            });
        }
    }
    slices
}

/// Exactly one address, so that its family decides the slice.
fn endpoint_of_address(
    from: &slim::EndpointAddress,
    ready: bool,
    reasons: &mut Reasons,
) -> Option<Endpoint> {
    Some(Endpoint {
        addresses: vec![address(&from.ip, "endpoint address", reasons)?],
        ready,
        hostname: from.hostname.as_deref().map(Into::into),
        target: from.target_ref.as_ref().and_then(target),
    })
}

/// A Namespace with the parts that DNS reads: its name and its labels.
pub fn namespace(from: &slim::Namespace) -> Namespace {
    Namespace {
        name: from.metadata.name.as_str().into(),
        uid: uid(&from.metadata),
        version: version(&from.metadata),
        labels: labels(&from.metadata.labels),
    }
}

/// A Pod; one that finished has no names (RR54).
pub fn pod(from: &slim::Pod, reasons: &mut Reasons) -> Pod {
    Pod {
        key: key(&from.metadata),
        uid: uid(&from.metadata),
        version: version(&from.metadata),
        addresses: pod_addresses(from, reasons),
        host_network: from.spec.host_network,
        finished: is_finished(from),
    }
}

/// `status.podIPs`, else `[status.podIP]`.
fn pod_addresses(from: &slim::Pod, reasons: &mut Reasons) -> Vec<IpAddr> {
    let mut texts: Vec<&str> = from.status.pod_ips.iter().map(|pod| pod.ip.as_str()).collect();
    if texts.is_empty() {
        texts.extend(from.status.pod_ip.as_deref());
    }
    texts.retain(|text| !text.is_empty());
    texts.iter().filter_map(|text| address(text, "pod IP", reasons)).collect()
}

/// The phases in which a Pod has given its address back.
fn is_finished(from: &slim::Pod) -> bool {
    matches!(from.status.phase.as_str(), "Succeeded" | "Failed")
}

pub(in crate::source) fn key(metadata: &slim::Metadata) -> Key {
    Key::new(metadata.namespace.as_str(), metadata.name.as_str())
}

/// A UUID's 128 bits, otherwise a hash; 0 when there is none.
pub(in crate::source) fn uid(metadata: &slim::Metadata) -> u128 {
    let Some(text) = metadata.uid.as_deref().filter(|text| !text.is_empty()) else {
        return 0;
    };
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    if digits.len() == 32
        && let Ok(uid) = u128::from_str_radix(&digits, 16)
    {
        return uid;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    // Never 0, which would mean "no uid".
    u128::from(hasher.finish()) | 1 << 64
}

pub(in crate::source) fn version(metadata: &slim::Metadata) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub(super) fn labels(from: &BTreeMap<String, String>) -> Vec<(Box<str>, Box<str>)> {
    from.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

fn address(text: &str, what: &str, reasons: &mut Reasons) -> Option<IpAddr> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        reasons.add(format!("{what} {text:?} is not an IP address"));
    }
    parsed
}

pub(super) fn port_number(number: i64, reasons: &mut Reasons) -> Option<u16> {
    let port = u16::try_from(number).ok().filter(|&port| port != 0);
    if port.is_none() {
        reasons.add(format!("port {number} is not between 1 and 65535"));
    }
    port
}

pub(super) fn protocol(text: Option<&str>, reasons: &mut Reasons) -> Option<Protocol> {
    match text {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(other) => {
            reasons.add(format!("protocol {other:?} is not TCP, UDP or SCTP"));
            None
        }
    }
}

#[cfg(test)]
mod tests;
