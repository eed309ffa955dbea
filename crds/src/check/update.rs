//! Immutable fields: an accidental change would be an outage of the whole cluster.

use super::violations::{Reason, Violations};
use crate::ClusterDNSSpec;

/// What is wrong with a change from one spec to another.
///
/// # Errors
/// Each field that cannot be changed and was.
pub fn check_update(old: &ClusterDNSSpec, new: &ClusterDNSSpec) -> Result<(), Violations> {
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
    let were_set = before.cluster_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    if were_set && before.cluster_ips != after.cluster_ips {
        refuse(
            "spec.service.clusterIPs",
            "kubelets have the clusterIPs as clusterDNS: once set they",
        );
    }
    violations.or(())
}
