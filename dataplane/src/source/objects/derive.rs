//! The slices that a cluster's controllers would make, from the Pods of a folder: people commit
//! Services and workloads, not EndpointSlices. Only for Services that have a selector and neither
//! EndpointSlices nor Endpoints in the folder.

use std::collections::HashMap;
use std::net::IpAddr;

use dataplane_core::{Endpoint, Key, Protocol, Slice, SlicePort, TargetRef};

use super::convert::{self, Reasons};
use super::slim;

/// Name, number and protocol of each port of a slice.
type Ports = Vec<(Box<str>, u16, Protocol)>;

/// The slices of one Service over the Pods of its namespace; `pods` may hold others too.
///
/// Named target ports are looked up in each Pod, so Pods of different ports come in different
/// slices (RR27). The names of the slices hold a `:`, so they never meet a written one.
pub fn slices<'a>(
    service: &slim::Service,
    pods: impl Iterator<Item = &'a slim::Pod>,
) -> Vec<Slice> {
    let mut slices: Vec<Slice> = Vec::new();
    let mut place_of: HashMap<(bool, Ports), usize> = HashMap::new();
    let families = Families::of(&service.spec);
    for pod in pods.filter(|pod| selects(service, pod) && !convert::is_finished(pod)) {
        let ports = ports(service, pod);
        // Addresses that do not parse were named when the Pod itself was read.
        let addresses = convert::pod_addresses(pod, &mut Reasons::default());
        for address in addresses.into_iter().filter(|address| families.has(*address)) {
            let place = *place_of.entry((address.is_ipv6(), ports.clone())).or_insert_with(|| {
                slices.push(empty_slice(service, slices.len(), address.is_ipv6(), &ports));
                slices.len() - 1
            });
            slices[place].endpoints.push(endpoint(service, pod, address));
        }
    }
    slices
}

fn empty_slice(service: &slim::Service, number: usize, ipv6: bool, ports: &Ports) -> Slice {
    let metadata = &service.metadata;
    Slice {
        key: Key::new(metadata.namespace.as_str(), format!("derived:{}:{number}", metadata.name)),
        uid: 0,
        version: 0,
        service: metadata.name.as_str().into(),
        ipv6,
        ports: ports
            .iter()
            .map(|(name, port, protocol)| SlicePort {
                name: name.clone(),
                port: *port,
                protocol: *protocol,
            })
            .collect(),
        endpoints: Vec::new(),
    }
}

/// Same namespace, and every label of the selector.
fn selects(service: &slim::Service, pod: &slim::Pod) -> bool {
    let labels = &pod.metadata.labels;
    service.metadata.namespace == pod.metadata.namespace
        && service.spec.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The address families of a Service.
#[derive(Clone, Copy)]
struct Families {
    ipv4: bool,
    ipv6: bool,
}

impl Families {
    /// `ipFamilies` if written, else those of the cluster IPs, else (headless) those of the Pods.
    fn of(spec: &slim::ServiceSpec) -> Families {
        let written: Vec<bool> = if spec.ip_families.is_empty() {
            let ips = spec.cluster_ips.iter().chain(&spec.cluster_ip);
            ips.filter_map(|text| text.parse::<IpAddr>().ok()).map(|ip| ip.is_ipv6()).collect()
        } else {
            spec.ip_families.iter().map(|family| family == "IPv6").collect()
        };
        let any = written.is_empty();
        Families { ipv4: any || written.contains(&false), ipv6: any || written.contains(&true) }
    }

    fn has(self, address: IpAddr) -> bool {
        if address.is_ipv6() { self.ipv6 } else { self.ipv4 }
    }
}

fn endpoint(service: &slim::Service, pod: &slim::Pod, address: IpAddr) -> Endpoint {
    let is_named = !pod.spec.hostname.is_empty() && pod.spec.subdomain == service.metadata.name;
    Endpoint {
        addresses: vec![address],
        // RR21: the controller, not DNS, reads publishNotReadyAddresses.
        ready: service.spec.publish_not_ready_addresses || is_ready(pod),
        hostname: is_named.then(|| pod.spec.hostname.as_str().into()),
        target: Some(TargetRef {
            namespace: pod.metadata.namespace.as_str().into(),
            name: pod.metadata.name.as_str().into(),
        }),
    }
}

/// As the `Ready` condition says; a Pod without one, as written by hand, is taken for ready.
fn is_ready(pod: &slim::Pod) -> bool {
    let ready = pod.status.conditions.iter().find(|condition| condition.kind == "Ready");
    pod.metadata.deletion_timestamp.is_none()
        && ready.is_none_or(|condition| condition.status == "True")
}

/// The Service's ports as this Pod has them. A named target port that the Pod does not have is left out.
fn ports(service: &slim::Service, pod: &slim::Pod) -> Ports {
    // What is wrong with a port was named when the Service was read.
    let ignored = &mut Reasons::default();
    let mut ports = Vec::new();
    for port in &service.spec.ports {
        let Some(protocol) = convert::protocol(port.protocol.as_deref(), ignored) else { continue };
        let number = match &port.target_port {
            None | Some(slim::TargetPort::Number(0)) => Some(port.port),
            Some(slim::TargetPort::Number(number)) => Some(*number),
            Some(slim::TargetPort::Name(name)) => container_port(pod, name, protocol),
        };
        let number = number.and_then(|number| convert::port_number(number, ignored));
        if let Some(number) = number {
            ports.push((port.name.as_deref().unwrap_or("").into(), number, protocol));
        }
    }
    ports
}

/// The container port of this name and protocol; sidecars come last.
fn container_port(pod: &slim::Pod, name: &str, protocol: Protocol) -> Option<i64> {
    let ignored = &mut Reasons::default();
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    containers
        .flat_map(|container| &container.ports)
        .find(|port| {
            port.name == name
                && convert::protocol(port.protocol.as_deref(), ignored) == Some(protocol)
        })
        .map(|port| port.container_port)
}

#[cfg(test)]
mod tests;
