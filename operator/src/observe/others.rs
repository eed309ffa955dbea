//! The other ClusterDNS, and the Services that they name: what may conflict with this one (O3).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::ClusterDNS;
use kube::ResourceExt;
use serde_json::Value;

use super::caches::Caches;
use super::named_services::NamedService;
use crate::desired::Kind;
use crate::names;

/// Every other ClusterDNS, by name.
pub(super) fn all(caches: &Caches, dns: &ClusterDNS) -> Vec<Arc<ClusterDNS>> {
    let mut others = caches.resources.state();
    others.retain(|other| other.metadata.name != dns.metadata.name);
    others.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    others
}

/// The Services that these name, as far as watches keep them, by the name of the ClusterDNS.
pub(super) fn services(caches: &Caches, all: &[Arc<ClusterDNS>]) -> BTreeMap<String, NamedService> {
    let named = |dns: &Arc<ClusterDNS>| {
        let (namespace, name) = names::service(dns);
        let service = caches.object(Kind::Service, &namespace, &name)?;
        let spec = service.data.get("spec").unwrap_or(&Value::Null);
        Some((dns.name_any(), NamedService::of(&service.metadata, spec)))
    };
    all.iter().filter_map(named).collect()
}
