//! Names of federations (§3.11), which exist where Kubernetes has no such name.

use dataplane_core::{Resource, ServiceKind};

use super::expected::Data;
use super::names::{Name, is_label};
use super::{Node, Oracle, record};

/// The resources that RR95 to RR97 depend on (§4.4).
const NEEDS: [Resource; 3] = [Resource::Services, Resource::Namespaces, Resource::EndpointSlices];

impl Oracle {
    /// The verdict on a name of a federation, by the labels left of `Z`, and what it takes to know it.
    pub(super) fn federated(&self, name: &Name, labels: &[&str]) -> Option<(Node, Vec<Resource>)> {
        match *labels {
            [federation, "svc"] if self.federation(federation).is_some() => {
                Some((Node::Exists(Vec::new()), Vec::new()))
            }
            [namespace, federation, "svc"] if is_label(namespace) => {
                self.federation(federation)?;
                Some((Node::Exists(Vec::new()), NEEDS.to_vec()))
            }
            [service, namespace, federation, "svc"]
                if is_label(service)
                    && service.starts_with(|it: char| it.is_ascii_alphabetic())
                    && is_label(namespace) =>
            {
                let domain = self.federation(federation)?;
                let end = format!("{service}.{namespace}.{federation}.svc");
                let target = match domain {
                    _ if self.is_served(namespace, service) => {
                        self.in_zone(&format!("{service}.{namespace}.svc"))
                    }
                    // RR97: zone or region is not known.
                    None => return Some((Node::Unplaced, NEEDS.to_vec())),
                    Some(domain) => Name([Name::text(&end).0, domain.0].concat()),
                };
                let cname = record(name, self.settings.ttl_s, Data::Cname(target.clone()));
                let node = if target.fits() { Node::Alias(cname) } else { Node::Missing };
                Some((node, NEEDS.to_vec()))
            }
            _ => None,
        }
    }

    /// Where the Services of a federation of this name are, if there is one: nothing while the place is not known.
    fn federation(&self, label: &str) -> Option<Option<Name>> {
        let is_it = |name: &dataplane_core::Name| Name::of(name) == Name::text(label);
        let found = self.settings.federations.iter().find(|federation| is_it(&federation.name))?;
        Some(found.domain.as_ref().map(Name::of))
    }

    /// RR96: a visible Service with a published endpoint, or with another name.
    fn is_served(&self, namespace: &str, name: &str) -> bool {
        let mut services = self.visible_services().filter(|service| {
            service.key.namespace.eq_ignore_ascii_case(namespace)
                && service.key.name.eq_ignore_ascii_case(name)
        });
        services.any(|service| match service.kind {
            ServiceKind::ExternalName(_) => true,
            ServiceKind::ClusterIp(_) | ServiceKind::Headless => {
                !self.endpoints(service).is_empty()
            }
        })
    }
}
