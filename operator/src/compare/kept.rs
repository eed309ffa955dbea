//! What a comparison keeps of the objects of a cluster: what names are made of, up to a bound for each namespace. Pure.

use std::collections::{BTreeSet, HashMap};

use crds::bounds;
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta as Metadata;

use super::names::MAX_QUESTIONS;
use crate::names::SERVICE_NAME;

/// Names that are kept of one namespace: as many as can be asked. Anyone who may edit it can fill it with large objects.
const MAX_NAMES: usize = MAX_QUESTIONS;
/// Namespaces that a note names.
const MAX_NAMED: usize = 3;

/// How many names are kept of each namespace.
#[derive(Default)]
pub(super) struct Kept {
    names: HashMap<String, usize>,
    /// Namespaces of which objects were left out.
    full: BTreeSet<String>,
}

impl Kept {
    fn has_room(&mut self, namespace: Option<&str>, names: usize) -> bool {
        let namespace = namespace.unwrap_or_default();
        let kept = self.names.entry(namespace.to_owned()).or_default();
        let has_room = *kept + names <= MAX_NAMES;
        match has_room {
            true => *kept += names,
            false => _ = self.full.insert(namespace.to_owned()),
        }
        has_room
    }

    /// What names are made of.
    pub(super) fn service(&mut self, service: Service) -> Option<Service> {
        let spec = service.spec.unwrap_or_default();
        let names = 1
            + spec.ports.as_ref().map_or(0, Vec::len)
            + spec.cluster_ips.as_ref().map_or(0, Vec::len);
        self.has_room(service.metadata.namespace.as_deref(), names).then(|| {
            let port = |port: ServicePort| ServicePort {
                name: port.name,
                protocol: port.protocol,
                ..ServicePort::default()
            };
            let ports = spec.ports.map(|ports| ports.into_iter().map(port).collect());
            let (cluster_ip, cluster_ips) = (spec.cluster_ip, spec.cluster_ips);
            let mut slim_spec = ServiceSpec::default();
            (slim_spec.cluster_ip, slim_spec.cluster_ips) = (cluster_ip, cluster_ips);
            slim_spec.ports = ports;
            let metadata = slim(service.metadata);
            Service { metadata, spec: Some(slim_spec), ..Service::default() }
        })
    }

    /// What names are made of.
    pub(super) fn slice(&mut self, slice: EndpointSlice) -> Option<EndpointSlice> {
        let names = 1 + slice.endpoints.iter().map(|it| it.addresses.len()).sum::<usize>();
        self.has_room(slice.metadata.namespace.as_deref(), names).then(|| {
            // The API server takes any text there.
            let is_namespace = |it: &ObjectReference| {
                it.namespace.as_ref().is_none_or(|it| it.len() <= bounds::LABEL)
            };
            let target = |it: ObjectReference| ObjectReference {
                kind: it.kind.filter(|kind| kind == "Pod"),
                namespace: it.namespace,
                ..ObjectReference::default()
            };
            let endpoint = |it: Endpoint| Endpoint {
                addresses: it.addresses,
                hostname: it.hostname,
                target_ref: it.target_ref.filter(is_namespace).map(target),
                ..Endpoint::default()
            };
            EndpointSlice {
                metadata: slim(slice.metadata),
                endpoints: slice.endpoints.into_iter().map(endpoint).collect(),
                ..EndpointSlice::default()
            }
        })
    }

    /// Which namespaces have more.
    pub(super) fn said(&self) -> Option<String> {
        let some: Vec<&str> = self.full.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = match self.full.len().saturating_sub(some.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!some.is_empty()).then(|| {
            let names = some.join(", ");
            format!("only {MAX_NAMES} names each were read of the namespaces {names}{more}")
        })
    }
}

/// The name, the namespace and the Service of a slice: the rest can be as large as etcd takes.
fn slim(mut metadata: Metadata) -> Metadata {
    let service = metadata.labels.take().and_then(|mut labels| labels.remove_entry(SERVICE_NAME));
    let (name, namespace) = (metadata.name.take(), metadata.namespace.take());
    metadata = Metadata::default();
    (metadata.name, metadata.namespace) = (name, namespace);
    metadata.labels = service.map(|service| [service].into());
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_a_bound_of_its_own() {
        let mut kept = Kept::default();
        assert!(kept.has_room(Some("evil"), MAX_NAMES) && !kept.has_room(Some("evil"), 1));
        assert!(kept.has_room(Some("shop"), 1));
        let said = kept.said().unwrap();
        assert_eq!(said, "only 100000 names each were read of the namespaces evil");
    }
}
