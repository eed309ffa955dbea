//! Published endpoints and their names (§3.3), one entry per address and slice.

use std::net::IpAddr;

use dataplane_core::{Endpoint, EndpointNames, Object, Protocol, Service, ServiceKind, Slice};

use super::Oracle;
use super::names::{Name, is_label};

/// One published address of one slice.
pub(super) struct Published {
    pub(super) address: IpAddr,
    /// The RR8 name, the one label.
    pub(super) label: String,
    /// Whether the label is a `hostname` (RR62).
    pub(super) from_hostname: bool,
    /// Whether the entry points to a Pod of its own namespace (RR63).
    pub(super) own_pod: bool,
    /// The ports of the slice (RR27): name, protocol, number.
    pub(super) ports: Vec<(String, Protocol, u16)>,
}

/// RR20: addresses of the slice's family that can be an endpoint.
fn can_be_published(address: IpAddr, ipv6: bool) -> bool {
    let mapped = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    address.is_ipv6() == ipv6
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !mapped
}

impl Oracle {
    /// The published endpoints of a Service.
    pub(super) fn endpoints(&self, service: &Service) -> Vec<Published> {
        let mut published = Vec::new();
        // RR19: ExternalName Services have none.
        if matches!(service.kind, ServiceKind::ExternalName(_)) {
            return published;
        }
        for object in &self.store.objects {
            let Object::Slice(slice) = object else { continue };
            if slice.key.namespace != service.key.namespace || slice.service != service.key.name {
                continue;
            }
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.ready) {
                for &address in &endpoint.addresses {
                    if can_be_published(address, slice.ipv6) {
                        published.push(self.entry(slice, endpoint, address));
                    }
                }
            }
        }
        published
    }

    fn entry(&self, slice: &Slice, endpoint: &Endpoint, address: IpAddr) -> Published {
        let hostname = endpoint.hostname.as_deref().filter(|hostname| is_label(hostname));
        let own_pod = endpoint.target.as_ref().is_some_and(|target| {
            target.namespace.is_empty() || target.namespace == slice.key.namespace
        });
        let ports =
            slice.ports.iter().map(|port| (port.name.to_string(), port.protocol, port.port));
        Published {
            address,
            label: match hostname {
                Some(hostname) => hostname.to_ascii_lowercase(),
                None => self.derived_label(endpoint, address),
            },
            from_hostname: hostname.is_some(),
            own_pod,
            ports: ports.collect(),
        }
    }

    /// RR23 without a hostname.
    fn derived_label(&self, endpoint: &Endpoint, address: IpAddr) -> String {
        if self.settings.endpoint_names == EndpointNames::PodName
            && let Some(target) = &endpoint.target
            && is_label(&target.name)
        {
            return target.name.to_ascii_lowercase();
        }
        let mut label = address.to_string().replace(['.', ':'], "-");
        if label.starts_with('-') {
            label.insert(0, '0');
        }
        if label.ends_with('-') {
            label.push('0');
        }
        label
    }

    /// `<svc>.<ns>.svc.Z`
    pub(super) fn service_name(&self, service: &Service) -> Name {
        self.in_zone(&format!("{}.{}.svc", service.key.name, service.key.namespace))
    }
}
