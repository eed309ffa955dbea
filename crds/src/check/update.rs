//! Immutable fields: an accidental change would be an outage of the whole cluster.

use std::net::IpAddr;

use super::violations::{Reason, Violations};
use crate::v1alpha1::Service;
use crate::{ClusterDNS, ClusterDNSSpec};

/// What is wrong with a change of this resource to another spec.
///
/// # Errors
/// Each field that cannot be changed and was.
pub fn check_update(resource: &ClusterDNS, new: &ClusterDNSSpec) -> Result<(), Violations> {
    let old = &resource.spec;
    let mut violations = Violations::default();
    let mut refuse = |field: &str, what: &str| {
        let message = format!(
            "{what} cannot be changed: write a second ClusterDNS with the new value beside this one, move the clients, \
             then delete this one"
        );
        violations.add(field, Reason::Immutable, message);
    };
    let (before, after) =
        (old.service.clone().unwrap_or_default(), new.service.clone().unwrap_or_default());
    if old.domain != new.domain {
        refuse("spec.domain", "the cluster domain is in every pod's search path and");
    }
    if before.name != after.name {
        refuse("spec.service.name", "the Service that clients ask");
    }
    if before.namespace != after.namespace {
        refuse("spec.service.namespace", "the namespace of the Service");
    }
    if has_written_addresses(resource) && !begins_with(&after, &before) {
        refuse(
            "spec.service.clusterIPs",
            "kubelets have the clusterIPs as clusterDNS: the other family can be added behind them, but those that the Service has",
        );
    }
    violations.or(())
}

/// Does it write the same addresses first, in any spelling? Kubernetes adds the other family to a Service.
fn begins_with(after: &Service, before: &Service) -> bool {
    addresses(after).starts_with(&addresses(before))
}

fn addresses(service: &Service) -> Vec<IpAddr> {
    let texts = service.cluster_ips.iter().flatten();
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Does the Service have the addresses of the spec? Those that it never got can be corrected. Where there is no status, as in a
/// file, it may have them.
fn has_written_addresses(resource: &ClusterDNS) -> bool {
    let written = resource.spec.service.as_ref().map(addresses).unwrap_or_default();
    let has = |ip: &IpAddr, real: &[String]| real.iter().any(|text| text.parse() == Ok(*ip));
    let has_all = |real: &[String]| written.iter().all(|ip| has(ip, real));
    !written.is_empty() && resource.status.as_ref().is_none_or(|it| has_all(&it.cluster_ips))
}
