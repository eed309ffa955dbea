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

/// Keys and values; sorted by key.
type Labels = Vec<(Box<str>, Box<str>)>;

/// What is kept of a Service with a selector.
#[derive(Debug)]
pub struct Selecting {
    pub(super) key: Key,
    selector: Labels,
    families: Families,
    publishes_not_ready: bool,
    ports: Vec<TargetPort>,
}

/// One port of a Service.
#[derive(Debug)]
struct TargetPort {
    name: Box<str>,
    protocol: Protocol,
    target: Target,
}

/// Which port of the Pods that is.
#[derive(Debug)]
enum Target {
    Number(u16),
    /// The container port of this name, in each Pod.
    Name(Box<str>),
}

/// What is kept of a Pod that has not finished.
#[derive(Debug)]
pub struct Pod {
    pub(super) key: Key,
    labels: Labels,
    hostname: Box<str>,
    subdomain: Box<str>,
    addresses: Vec<IpAddr>,
    is_ready: bool,
    /// Ports of containers that have a name, sidecars last; a number that is no port is none.
    ports: Vec<(Box<str>, Protocol, Option<u16>)>,
}

impl Selecting {
    pub fn of(service: &slim::Service) -> Selecting {
        let spec = &service.spec;
        Selecting {
            key: convert::key(&service.metadata),
            selector: convert::labels(&spec.selector),
            families: Families::of(spec),
            publishes_not_ready: spec.publish_not_ready_addresses,
            ports: spec.ports.iter().filter_map(target_port).collect(),
        }
    }
}

/// What is wrong with a port was named when the Service was read.
fn target_port(port: &slim::ServicePort) -> Option<TargetPort> {
    let ignored = &mut Reasons::default();
    let protocol = convert::protocol(port.protocol.as_deref(), ignored)?;
    let target = match &port.target_port {
        None | Some(slim::TargetPort::Number(0)) => {
            Target::Number(convert::port_number(port.port, ignored)?)
        }
        Some(slim::TargetPort::Number(number)) => {
            Target::Number(convert::port_number(*number, ignored)?)
        }
        Some(slim::TargetPort::Name(name)) => Target::Name(name.as_str().into()),
    };
    Some(TargetPort { name: port.name.as_deref().unwrap_or("").into(), protocol, target })
}

impl Pod {
    pub fn of(pod: &slim::Pod, converted: &dataplane_core::Pod) -> Pod {
        let ignored = &mut Reasons::default();
        let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
        let named = containers.flat_map(|container| &container.ports);
        let ports = named.filter(|port| !port.name.is_empty()).filter_map(|port| {
            let protocol = convert::protocol(port.protocol.as_deref(), ignored)?;
            let number = convert::port_number(port.container_port, ignored);
            Some((port.name.as_str().into(), protocol, number))
        });
        Pod {
            key: converted.key.clone(),
            labels: convert::labels(&pod.metadata.labels),
            hostname: pod.spec.hostname.as_str().into(),
            subdomain: pod.spec.subdomain.as_str().into(),
            addresses: converted.addresses.clone(),
            is_ready: is_ready(pod),
            ports: ports.collect(),
        }
    }
}

/// The slices of one Service over the Pods of its namespace; `pods` may hold others too.
///
/// Named target ports are looked up in each Pod, so Pods of different ports come in different
/// slices (RR27). The names of the slices hold a `:`, so they never meet a written one.
pub fn slices<'a>(service: &Selecting, pods: impl Iterator<Item = &'a Pod>) -> Vec<Slice> {
    let mut slices: Vec<Slice> = Vec::new();
    let mut place_of: HashMap<(bool, Ports), usize> = HashMap::new();
    for pod in pods.filter(|pod| selects(service, pod)) {
        let ports = ports(service, pod);
        let addresses = pod.addresses.iter().copied();
        for address in addresses.filter(|address| service.families.has(*address)) {
            let place = *place_of.entry((address.is_ipv6(), ports.clone())).or_insert_with(|| {
                slices.push(empty_slice(service, slices.len(), address.is_ipv6(), &ports));
                slices.len() - 1
            });
            slices[place].endpoints.push(endpoint(service, pod, address));
        }
    }
    slices
}

fn empty_slice(service: &Selecting, number: usize, ipv6: bool, ports: &Ports) -> Slice {
    let Key { namespace, name } = &service.key;
    Slice {
        key: Key::new(namespace.clone(), format!("derived:{name}:{number}")),
        uid: 0,
        version: 0,
        service: name.clone(),
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
fn selects(service: &Selecting, pod: &Pod) -> bool {
    service.key.namespace == pod.key.namespace
        && service.selector.iter().all(|label| pod.labels.binary_search(label).is_ok())
}

/// The address families of a Service.
#[derive(Clone, Copy, Debug)]
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

fn endpoint(service: &Selecting, pod: &Pod, address: IpAddr) -> Endpoint {
    let is_named = !pod.hostname.is_empty() && pod.subdomain == service.key.name;
    Endpoint {
        addresses: vec![address],
        // RR21: the controller, not DNS, reads publishNotReadyAddresses.
        ready: service.publishes_not_ready || pod.is_ready,
        hostname: is_named.then(|| pod.hostname.clone()),
        target: Some(TargetRef {
            namespace: pod.key.namespace.clone(),
            name: pod.key.name.clone(),
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
fn ports(service: &Selecting, pod: &Pod) -> Ports {
    let number = |port: &TargetPort| match &port.target {
        Target::Number(number) => Some(*number),
        Target::Name(name) => {
            let mut named = pod.ports.iter();
            named.find(|(held, protocol, _)| held == name && *protocol == port.protocol)?.2
        }
    };
    let ports = service.ports.iter();
    ports.filter_map(|port| Some((port.name.clone(), number(port)?, port.protocol))).collect()
}

#[cfg(test)]
mod tests;
