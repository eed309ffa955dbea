//! Immutable fields: an accidental change would be an outage of the whole cluster.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::violations::{Reason, Violations};
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
    if has_written_addresses(resource) && before.cluster_ips != after.cluster_ips {
        refuse(
            "spec.service.clusterIPs",
            "kubelets have the clusterIPs as clusterDNS: once the Service has them they",
        );
    }
    violations.or(())
}

/// Does the Service have the addresses of the spec? Those that it never got can be corrected. Where there is no status, as in a
/// file, it may have them.
fn has_written_addresses(resource: &ClusterDNS) -> bool {
    let of = |texts: &Vec<String>| -> BTreeSet<IpAddr> {
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    };
    let service = resource.spec.service.as_ref();
    let written = service.and_then(|service| service.cluster_ips.as_ref()).map(of);
    let Some(written) = written.filter(|written| !written.is_empty()) else { return false };
    let real = resource.status.as_ref().map(|status| of(&status.cluster_ips));
    real.is_none_or(|real| written.is_subset(&real))
}
