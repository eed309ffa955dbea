//! The objects of a soak, as the oracle reads them and as an API server shows them. Few names and addresses, so that they
//! meet each other; and the marks, by which a run knows what a data plane has seen.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crds::Config;
use crds::config::{EndpointNames, Group, Host, PodRecords, Server, ServiceAddresses, Upstreams};
use dataplane_core::{
    Endpoint, Key, Namespace, Object, Pod, Protocol, Resource, Service, ServiceKind, Slice,
};
use serde_json::{Map, Value, json};

pub const ZONE: &str = "cluster.local";
/// The namespaces whose objects change.
pub const NAMESPACES: [&str; 3] = ["shop", "data", "back"];
/// Where the ConfigMap is.
pub const CONFIG_NAMESPACE: &str = "dns";
pub const CONFIG_NAME: &str = "clusterdns-soak";
/// The ClusterDNS by which operators write it.
pub const INSTANCE: &str = "soak";
/// Its Service.
const SERVICE: &str = "dns";
const SERVICE_ADDRESS: &str = "10.96.0.53";
/// The names of the marks.
const MARK: &str = "mark";
const SPOT: &str = "spot";
/// A Service that every process must know at any time.
pub const PILLAR: &str = "pillar";
/// A host record that says which configuration is in use.
pub const CONFIG_MARK: &str = "mark.soak.example";
/// The networks of the marks: Services, endpoints, pods, each for the namespace of this number; and configurations.
const OF_SERVICES: u8 = 100;
const OF_SLICES: u8 = 110;
const OF_PODS: u8 = 120;
const OF_CONFIGS: u8 = 130;

/// Host records that configurations choose from.
pub const HOSTS: [(&str, &str); 4] = [
    ("registry.corp.example", "10.20.0.5"),
    ("second.corp.example", "10.20.0.6"),
    ("*.apps.corp.example", "10.20.0.80"),
    ("api.apps.corp.example", "10.20.0.81"),
];

/// What of a configuration changes in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub ttl_s: u32,
    pub by_pod_name: bool,
    pub hides_empty_services: bool,
    /// Bit `i` is `HOSTS[i]`.
    pub hosts: u8,
    /// The mark that it has.
    pub mark: u64,
}

impl Configuration {
    pub const FIRST: Configuration = Configuration {
        ttl_s: 5,
        by_pod_name: false,
        hides_empty_services: false,
        hosts: 0b0101,
        mark: 0,
    };

    /// The document, with these upstreams.
    pub fn document(self, upstreams: &[SocketAddr]) -> Config {
        let servers = upstreams.iter().map(|at| Server {
            ip: at.ip(),
            port: at.port(),
            transport: Default::default(),
            tls: None,
        });
        let host = |name: &str, address: IpAddr| Host {
            name: name.to_owned(),
            addresses: vec![address],
            ttl_seconds: 30,
            reverse: true,
            override_cluster_zone: false,
        };
        let chosen = HOSTS.iter().enumerate().filter(|(place, _)| self.hosts >> place & 1 == 1);
        let mut hosts: Vec<Host> = chosen
            .map(|(_, (name, address))| host(name, address.parse().expect("an address")))
            .collect();
        hosts.push(host(CONFIG_MARK, marked(OF_CONFIGS, self.mark)));
        let ranges = ["10.96.0.0/12", "10.244.0.0/16", "fd00:244::/62"];
        Config {
            ttl_seconds: self.ttl_s,
            pod_records: PodRecords::Verified,
            endpoint_names: match self.by_pod_name {
                true => EndpointNames::PodName,
                false => EndpointNames::Address,
            },
            hide_empty_services: self.hides_empty_services,
            service_addresses: ServiceAddresses::Listed(vec![
                SERVICE_ADDRESS.parse().expect("an address"),
            ]),
            reverse_cidrs: ranges.map(|range| range.parse().expect("a range")).to_vec(),
            hosts,
            upstreams: Upstreams::Servers(Group {
                servers: servers.collect(),
                options: Default::default(),
            }),
            ..Config::default()
        }
    }
}

/// The spec that means this document.
pub fn spec(config: &Config) -> Value {
    let host = |host: &Host| json!({"name": host.name, "addresses": host.addresses, "ttlSeconds": host.ttl_seconds});
    let servers = match &config.upstreams {
        Upstreams::Servers(group) => &group.servers[..],
        Upstreams::FromResolvConf(_) | Upstreams::None => &[],
    };
    let server = |server: &Server| json!({"address": server.ip, "port": server.port});
    json!({
        "ttlSeconds": config.ttl_seconds,
        "podRecords": config.pod_records,
        "endpointNames": config.endpoint_names,
        "hideEmptyServices": config.hide_empty_services,
        "reverseCIDRs": config.reverse_cidrs,
        "hosts": config.hosts.iter().map(host).collect::<Value>(),
        "upstreams": {"servers": servers.iter().map(server).collect::<Value>()},
        "service": {"name": SERVICE, "namespace": CONFIG_NAMESPACE, "clusterIPs": [SERVICE_ADDRESS]},
        "scaling": {"fixed": {"replicas": 2}},
        // Without pods that answer nothing could be tried.
        "rollout": {"canary": false},
    })
}

/// The ConfigMap with this document, as the operator writes it.
pub fn config_map(config: &Config) -> Value {
    let document = serde_json::to_string(config).expect("a configuration is JSON");
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"namespace": CONFIG_NAMESPACE, "name": CONFIG_NAME},
           "data": {"stable.json": document}})
}

fn marked(network: u8, mark: u64) -> IpAddr {
    let [.., high, low] = mark.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, network, high, low))
}

/// The objects that never change, with the first marks.
pub fn fixed() -> Vec<Object> {
    let mut objects = Vec::new();
    for namespace in NAMESPACES {
        objects.push(Object::Namespace(Namespace {
            name: namespace.into(),
            uid: 0,
            version: 0,
            labels: Vec::new(),
        }));
        let service = |name: &str, kind| service(namespace, name, kind);
        objects.push(service(SPOT, ServiceKind::Headless));
        objects.push(pillar(namespace, IpAddr::from([10, 96, 7, 7])));
        // With endpoints, so that no configuration hides these.
        for name in [MARK, PILLAR] {
            objects.push(slice(namespace, name, IpAddr::from([10, 244, 9, 9])));
        }
    }
    objects
}

/// The Service that never changes.
pub fn pillar(namespace: &str, address: IpAddr) -> Object {
    service(namespace, PILLAR, ServiceKind::ClusterIp(vec![address]))
}

/// The slice with the name of its Service, and one endpoint.
fn slice(namespace: &str, name: &str, address: IpAddr) -> Object {
    Object::Slice(Slice {
        key: Key::new(namespace, name),
        uid: 0,
        version: 0,
        service: name.into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: vec![Endpoint {
            addresses: vec![address],
            ready: true,
            hostname: None,
            target: None,
        }],
    })
}

fn service(namespace: &str, name: &str, kind: ServiceKind) -> Object {
    Object::Service(Service {
        key: Key::new(namespace, name),
        uid: 0,
        version: 0,
        labels: Vec::new(),
        kind,
        ports: Vec::new(),
    })
}

/// The marks of this number. When a data plane answers with one, it has seen every event before it of the same resource
/// and namespace, because those come in order. The namespace of the number before is deleted.
pub fn marks(mark: u64) -> Vec<Object> {
    let mut objects = Vec::new();
    for (place, namespace) in (0..).zip(NAMESPACES) {
        let cluster_ip = ServiceKind::ClusterIp(vec![marked(OF_SERVICES + place, mark)]);
        objects.push(service(namespace, MARK, cluster_ip));
        objects.push(slice(namespace, SPOT, marked(OF_SLICES + place, mark)));
        objects.push(Object::Pod(Pod {
            key: Key::new(namespace, MARK),
            uid: 0,
            version: 0,
            addresses: vec![marked(OF_PODS + place, mark)],
            host_network: false,
            finished: false,
        }));
    }
    objects.push(Object::Namespace(Namespace {
        name: namespace_mark(mark).into(),
        uid: 0,
        version: 0,
        labels: Vec::new(),
    }));
    objects
}

fn namespace_mark(mark: u64) -> String {
    format!("round-{mark}")
}

/// Whether this is the Namespace of a mark.
pub fn is_namespace_mark(resource: Resource, key: &Key) -> bool {
    resource == Resource::Namespaces && key.name.starts_with("round-")
}

/// What a data plane answers that has seen everything up to this mark: a name, and the address of its A record, or nothing
/// where the name exists without one.
pub fn proofs(mark: u64, config: u64) -> Vec<(String, Option<IpAddr>)> {
    let mut proofs = Vec::new();
    for (place, namespace) in (0..).zip(NAMESPACES) {
        let of = |network: u8| Some(marked(network + place, mark));
        proofs.push((format!("{MARK}.{namespace}.svc.{ZONE}"), of(OF_SERVICES)));
        proofs.push((format!("{SPOT}.{namespace}.svc.{ZONE}"), of(OF_SLICES)));
        let pod = marked(OF_PODS + place, mark);
        let label = pod.to_string().replace('.', "-");
        proofs.push((format!("{label}.{namespace}.pod.{ZONE}"), Some(pod)));
    }
    proofs.push((format!("{}.svc.{ZONE}", namespace_mark(mark)), None));
    proofs.push((CONFIG_MARK.to_owned(), Some(marked(OF_CONFIGS, config))));
    proofs
}

pub fn kind(resource: Resource) -> &'static str {
    match resource {
        Resource::Services => "Service",
        Resource::EndpointSlices => "EndpointSlice",
        Resource::Namespaces => "Namespace",
        Resource::Pods => "Pod",
    }
}

/// The object as the API server has it, without what the server adds.
pub fn manifest(object: &Object) -> Value {
    let metadata = |key: &Key, labels: &[(Box<str>, Box<str>)]| {
        let labels: Map<String, Value> =
            labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
        match key.namespace.is_empty() {
            true => json!({"name": key.name, "labels": labels}),
            false => json!({"namespace": key.namespace, "name": key.name, "labels": labels}),
        }
    };
    match object {
        Object::Service(service) => {
            let mut spec = match &service.kind {
                ServiceKind::ClusterIp(addresses) => {
                    json!({"type": "ClusterIP", "clusterIP": addresses.first(), "clusterIPs": addresses})
                }
                ServiceKind::Headless => {
                    json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]})
                }
                ServiceKind::ExternalName(name) => {
                    json!({"type": "ExternalName", "externalName": name})
                }
            };
            let ports = service.ports.iter();
            spec["ports"] = ports.map(|it| port(&it.name, it.port, it.protocol)).collect::<Value>();
            json!({"apiVersion": "v1", "kind": "Service",
                   "metadata": metadata(&service.key, &service.labels), "spec": spec})
        }
        Object::Slice(slice) => {
            let labels = [("kubernetes.io/service-name".into(), slice.service.clone())];
            let ports = slice.ports.iter().map(|it| port(&it.name, it.port, it.protocol));
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                   "metadata": metadata(&slice.key, &labels),
                   "addressType": if slice.ipv6 { "IPv6" } else { "IPv4" },
                   "ports": ports.collect::<Value>(),
                   "endpoints": slice.endpoints.iter().map(endpoint).collect::<Value>()})
        }
        Object::Namespace(namespace) => {
            let key = Key::new("", namespace.name.clone());
            json!({"apiVersion": "v1", "kind": "Namespace",
                   "metadata": metadata(&key, &namespace.labels)})
        }
        Object::Pod(pod) => {
            let addresses: Value = pod.addresses.iter().map(|ip| json!({"ip": ip})).collect();
            let phase = if pod.finished { "Succeeded" } else { "Running" };
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(&pod.key, &[]),
                   "spec": {"hostNetwork": pod.host_network},
                   "status": {"phase": phase, "podIP": pod.addresses.first(), "podIPs": addresses}})
        }
    }
}

fn port(name: &str, number: u16, protocol: Protocol) -> Value {
    let protocol = match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    };
    match name.is_empty() {
        true => json!({"port": number, "protocol": protocol}),
        false => json!({"name": name, "port": number, "protocol": protocol}),
    }
}

fn endpoint(endpoint: &Endpoint) -> Value {
    let mut value =
        json!({"addresses": endpoint.addresses, "conditions": {"ready": endpoint.ready}});
    if let Some(hostname) = &endpoint.hostname {
        value["hostname"] = json!(hostname);
    }
    if let Some(target) = &endpoint.target {
        value["targetRef"] =
            json!({"kind": "Pod", "namespace": target.namespace, "name": target.name});
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spec_of_a_configuration_means_its_document() {
        let upstreams = [SocketAddr::from(([192, 0, 2, 1], 53))];
        let other = Configuration {
            ttl_s: 0,
            by_pod_name: true,
            hides_empty_services: true,
            hosts: 0b1110,
            mark: 300,
        };
        for configuration in [Configuration::FIRST, other] {
            let document = configuration.document(&upstreams);
            let read = serde_json::from_value(spec(&document)).expect("a spec");
            assert_eq!(crds::check(&read).as_ref(), Ok(&document), "{configuration:?}");
        }
    }
}
