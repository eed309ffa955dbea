//! The cluster zone: which names exist below `Z` and what they hold (§3.1, §3.2, §3.4).

use dataplane_core::{PodRecords, Protocol, Resource, Service, ServiceAddresses, ServiceKind};

use super::endpoints::Published;
use super::expected::{Data, RrSet};
use super::names::Name;
use super::visible::external_name;
use super::{Local, Node, Oracle, record, rrset};

fn protocol(label: &str) -> Option<Protocol> {
    match label {
        "_tcp" => Some(Protocol::Tcp),
        "_udp" => Some(Protocol::Udp),
        "_sctp" => Some(Protocol::Sctp),
        _ => None,
    }
}

/// RR30-RR33: priority and weight are constants.
fn srv(port: u16, target: &Name) -> Data {
    Data::Srv(0, 100, port, target.clone())
}

impl Oracle {
    /// The verdict on a name at or below `Z`, given the labels left of it.
    pub(super) fn cluster_zone(&self, name: &Name, labels: &[Vec<u8>]) -> Local {
        // A label that is not text is no name of ours; a dot inside one is no boundary.
        let text: Vec<String> = labels
            .iter()
            .map(|label| String::from_utf8_lossy(label).replace(['.', '\u{fffd}'], "\0"))
            .collect();
        let text: Vec<&str> = text.iter().map(String::as_str).collect();
        let (mut node, mut needs) = self.by_position(name, &text);
        let mut may_need = Vec::new();
        if matches!(node, Node::Missing)
            && let Some((node, needs)) = self.federated(name, &text)
        {
            return Local { node, soa: self.soa(self.zone()), needs, may_need };
        }
        if matches!(node, Node::Missing) {
            let is_ancestor = self.has_override_below(name);
            // Not in the table: names that can never exist, ancestors of overriding owners, and
            // missing Services while empty ones are hidden.
            if needs.is_empty() || is_ancestor {
                may_need.extend(Resource::ALL);
            } else if self.settings.hide_empty_services {
                may_need.push(Resource::EndpointSlices);
            }
            if is_ancestor {
                // RR84: it exists.
                node = Node::Exists(Vec::new());
            } else if !needs.is_empty() {
                // §4.4 note 1: an NXDOMAIN about objects needs the namespaces as well.
                needs.push(Resource::Namespaces);
            }
        }
        Local { node, soa: self.soa(self.zone()), needs, may_need }
    }

    fn by_position(&self, name: &Name, labels: &[&str]) -> (Node, Vec<Resource>) {
        let ttl = self.settings.ttl_s;
        let pods_enabled = self.settings.pods != PodRecords::Disabled;
        let namespace_needs = vec![Resource::Services, Resource::Namespaces];
        match *labels {
            // The apex has SOA and NS (RR1, RR70, RR71).
            [] => (Node::Exists(self.apex(name)), vec![]),
            // Empty non-terminals that always exist (RR2).
            ["svc" | "pod" | "dns"] => (Node::Exists(vec![]), vec![]),
            // The name server of the zone (RR3).
            ["ns", "dns"] => {
                let needs = match self.settings.service_addresses {
                    ServiceAddresses::Fixed { .. } => vec![],
                    ServiceAddresses::OfService { .. } => vec![Resource::Services],
                };
                (Node::Exists(self.addresses(name, &self.service_addresses(), ttl)), needs)
            }
            // The version of the specification (RR4, RR73).
            ["dns-version"] => {
                let version = Data::Txt(vec![b"1.1.0".to_vec()]);
                (Node::Exists(rrset(name, 28800, vec![version]).into_iter().collect()), vec![])
            }
            // A visible namespace is an empty non-terminal (RR5, RR6).
            [namespace, "svc"] => (self.namespace_node(namespace), namespace_needs),
            [namespace, "pod"] if pods_enabled => (self.namespace_node(namespace), namespace_needs),
            // A pod name (RR11).
            [label, namespace, "pod"] if pods_enabled => self.pod(name, label, namespace),
            [service, namespace, "svc"] => self
                .of_service(namespace, service, false, |service| self.service_node(name, service)),
            // `_proto` above a named port is an empty non-terminal (RR9).
            [label, service, namespace, "svc"] if protocol(label).is_some() => {
                let protocol = protocol(label).expect("checked by the guard");
                self.of_service(namespace, service, false, |service| {
                    self.protocol_node(name, service, protocol)
                })
            }
            // An endpoint name (RR8).
            [label, service, namespace, "svc"] => {
                // A label with an underscore is no endpoint's (RR23), with any slices.
                let is_label = !label.starts_with('_');
                self.of_service(namespace, service, is_label, |service| {
                    self.endpoint_node(name, service, label)
                })
            }
            // A named port (RR10).
            [port, proto, service, namespace, "svc"]
                if port.starts_with('_') && protocol(proto).is_some() =>
            {
                let protocol = protocol(proto).expect("checked by the guard");
                self.of_service(namespace, service, false, |service| {
                    self.port_node(name, service, &port[1..], protocol)
                })
            }
            // No other name exists (RR12).
            _ => (Node::Missing, vec![]),
        }
    }

    /// SOA and NS of a zone of ours.
    pub(super) fn apex(&self, name: &Name) -> Vec<RrSet> {
        let soa = RrSet { records: vec![self.soa(name.clone())], ordered: false };
        let ns = self.kubernetes(name, vec![Data::Ns(self.in_zone("ns.dns"))]);
        [Some(soa), ns].into_iter().flatten().collect()
    }

    fn namespace_node(&self, namespace: &str) -> Node {
        if self.namespace_is_visible(namespace) { Node::Exists(vec![]) } else { Node::Missing }
    }

    /// The node below a Service, and what it takes to know it (§4.4).
    fn of_service(
        &self,
        namespace: &str,
        name: &str,
        endpoint_name: bool,
        node: impl Fn(&Service) -> Node,
    ) -> (Node, Vec<Resource>) {
        let mut needs = self.needs_of_services();
        let found = self.visible_services().find(|service| {
            service.key.namespace.eq_ignore_ascii_case(namespace)
                && service.key.name.eq_ignore_ascii_case(name)
        });
        let Some(service) = found else { return (Node::Missing, needs) };
        let hide_empty = self.settings.hide_empty_services;
        match service.kind {
            ServiceKind::Headless => needs.push(Resource::EndpointSlices),
            ServiceKind::ClusterIp(_) if endpoint_name || hide_empty => {
                needs.push(Resource::EndpointSlices);
            }
            ServiceKind::ClusterIp(_) | ServiceKind::ExternalName(_) => {}
        }
        // Without a published endpoint a headless Service does not exist, nor a ClusterIP one that must be hidden
        // then (RR15, RR18).
        let hidden = match service.kind {
            ServiceKind::Headless => self.endpoints(service).is_empty(),
            ServiceKind::ClusterIp(_) => hide_empty && self.endpoints(service).is_empty(),
            ServiceKind::ExternalName(_) => false,
        };
        (if hidden { Node::Missing } else { node(service) }, needs)
    }

    /// RR7: the Service itself.
    fn service_node(&self, name: &Name, service: &Service) -> Node {
        let ttl = self.settings.ttl_s;
        match &service.kind {
            ServiceKind::ExternalName(target) => {
                let target = external_name(target).expect("visible Services have a valid one");
                Node::Alias(record(name, ttl, Data::Cname(target)))
            }
            ServiceKind::ClusterIp(addresses) => {
                let mut sets = self.addresses(name, addresses, ttl);
                let target = self.service_name(service);
                let records = service.ports.iter().map(|port| srv(port.port, &target));
                sets.extend(self.kubernetes(name, records.collect()));
                Node::Exists(sets)
            }
            ServiceKind::Headless => {
                Node::Exists(self.endpoint_sets(name, service, &self.endpoints(service), |_| true))
            }
        }
    }

    /// Addresses of these endpoints, and SRV for those of their ports that are wanted (RR31-RR33).
    fn endpoint_sets(
        &self,
        owner: &Name,
        service: &Service,
        endpoints: &[Published],
        wanted: impl Fn(&(String, Protocol, u16)) -> bool,
    ) -> Vec<RrSet> {
        let addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address).collect();
        let mut sets = self.addresses(owner, &addresses, self.settings.ttl_s);
        let mut records = Vec::new();
        for endpoint in endpoints {
            let target = self.service_name(service).child(&endpoint.label);
            let ports = endpoint.ports.iter().filter(|port| wanted(port) && target.fits());
            records.extend(ports.map(|port| srv(port.2, &target)));
        }
        sets.extend(self.kubernetes(owner, records));
        sets
    }

    /// RR8: an endpoint name.
    fn endpoint_node(&self, name: &Name, service: &Service, label: &str) -> Node {
        let mut endpoints = self.endpoints(service);
        endpoints.retain(|endpoint| endpoint.label == label);
        if endpoints.is_empty() {
            return Node::Missing;
        }
        Node::Exists(self.endpoint_sets(name, service, &endpoints, |_| true))
    }

    /// RR9: exists above any RR10 name.
    fn protocol_node(&self, name: &Name, service: &Service, wanted: Protocol) -> Node {
        let mut ports: Vec<(String, Protocol)> = Vec::new();
        match &service.kind {
            ServiceKind::ExternalName(_) => {}
            ServiceKind::ClusterIp(_) => {
                ports.extend(
                    service.ports.iter().map(|port| (port.name.to_string(), port.protocol)),
                );
            }
            ServiceKind::Headless => {
                for endpoint in self.endpoints(service) {
                    ports.extend(
                        endpoint.ports.into_iter().map(|(name, protocol, _)| (name, protocol)),
                    );
                }
            }
        }
        let below = ports.iter().any(|(port, protocol)| {
            let label = format!("_{port}");
            !port.is_empty()
                && *protocol == wanted
                && label.len() <= 63
                && name.child(&label).fits()
        });
        if below { Node::Exists(vec![]) } else { Node::Missing }
    }

    /// RR10: a named port.
    fn port_node(&self, name: &Name, service: &Service, port: &str, wanted: Protocol) -> Node {
        if port.is_empty() {
            return Node::Missing;
        }
        match &service.kind {
            ServiceKind::ExternalName(_) => Node::Missing,
            ServiceKind::ClusterIp(addresses) => {
                let target = self.service_name(service);
                let ports: Vec<Data> = service
                    .ports
                    .iter()
                    .filter(|held| held.name.eq_ignore_ascii_case(port) && held.protocol == wanted)
                    .map(|held| srv(held.port, &target))
                    .collect();
                if ports.is_empty() {
                    return Node::Missing;
                }
                let mut sets = self.addresses(name, addresses, self.settings.ttl_s);
                sets.extend(self.kubernetes(name, ports));
                Node::Exists(sets)
            }
            ServiceKind::Headless => {
                let wanted = |held: &(String, Protocol, u16)| {
                    held.0.eq_ignore_ascii_case(port) && held.1 == wanted
                };
                let mut endpoints = self.endpoints(service);
                endpoints.retain(|endpoint| endpoint.ports.iter().any(wanted));
                if endpoints.is_empty() {
                    return Node::Missing;
                }
                Node::Exists(self.endpoint_sets(name, service, &endpoints, wanted))
            }
        }
    }
}
