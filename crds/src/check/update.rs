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
    if !keeps_addresses(resource, &after) {
        refuse(
            "spec.service.clusterIPs",
            "kubelets have the clusterIPs as clusterDNS: the other family can be added behind them, but those that the Service has",
        );
    }
    violations.or(())
}

/// Whether each address that the Service has stays where it is written, in any spelling: Kubernetes adds the other family to a
/// Service. Those that it never got can be corrected. Where there is no status, as in a file, it may have all of them.
fn keeps_addresses(resource: &ClusterDNS, after: &Service) -> bool {
    let before = resource.spec.service.as_ref().map(addresses).unwrap_or_default();
    let (after, status) = (addresses(after), resource.status.as_ref());
    let real = status.map(|status| parsed(&status.cluster_ips));
    let is_had = |ip: &IpAddr| real.as_ref().is_none_or(|real| real.contains(ip));
    before.iter().enumerate().all(|(place, ip)| !is_had(ip) || after.get(place) == Some(ip))
}

fn addresses(service: &Service) -> Vec<IpAddr> {
    parsed(service.cluster_ips.as_deref().unwrap_or_default())
}

fn parsed(texts: &[String]) -> Vec<IpAddr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}
