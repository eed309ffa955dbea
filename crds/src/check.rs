//! From a spec to a [`Config`], or to the list of mistakes: the one reading that both planes share.
//!
//! Two steps. Reading turns text into addresses and unions into one choice; then the rules look at the Config, so that a
//! data plane can apply the same rules to a document it was handed (A30-A34, G159). What the API server refuses by schema
//! and CEL is repeated here, because files have no API server; what CEL cannot say is here only.

mod read;
mod names;
mod records;
mod federations;
mod probes;
mod reverse;
mod servers;
mod withheld;
mod bounds;
mod follow_up_errors;
mod violations;
mod update;
mod workload;
mod placement;
mod tolerations;
mod affinity;
mod selector;
mod resources;

pub use resources::{in_mebibytes, quantity};
pub use servers::check_own_addresses;
pub use update::check_update;
pub(crate) use violations::shown;
pub use violations::{Reason, Violation, Violations};

use crate::bounds as limit;
use crate::names::is_label;
use crate::{ClusterDNS, ClusterDNSSpec, Config};

/// What this spec means, or what is wrong with it.
///
/// # Errors
/// All of it, by field, up to a bound.
pub fn check(spec: &ClusterDNSSpec) -> Result<Config, Violations> {
    let mut violations = Violations::default();
    workload::check(spec, &mut violations);
    let mut unread = Violations::default();
    let config = read::config(spec, &mut unread);
    let mut broken = Violations::default();
    rules(&config, &mut broken);
    servers::cluster_ips_are_not_upstreams(spec, &config, &mut broken);
    // The rules also report the gaps that reading left: those are not mistakes by themselves.
    let broken = match unread.is_empty() {
        true => broken,
        false => {
            follow_up_errors::without_follow_up_errors(broken, &unread, &read::kept_records(spec))
        }
    };
    violations.append(unread);
    violations.append(broken);
    violations.or(config)
}

/// What this resource means in a cluster, or what is wrong with it, its name included.
///
/// # Errors
/// All of it, by field, up to a bound.
pub fn check_resource(dns: &ClusterDNS) -> Result<Config, Violations> {
    let checked = check_local(dns);
    let mut in_cluster = Violations::default();
    servers::reachable_from_pods(&dns.spec, &mut in_cluster);
    workload::service_can_be_created(dns, &mut in_cluster);
    match checked {
        Ok(config) => in_cluster.or(config),
        Err(mut violations) => {
            violations.append(in_cluster);
            Err(violations)
        }
    }
}

/// The same for a data plane that runs on this machine rather than in a pod: servers may be on the machine itself.
///
/// # Errors
/// All of it, by field, up to a bound.
pub fn check_local(dns: &ClusterDNS) -> Result<Config, Violations> {
    let mut violations = Violations::default();
    let name = dns.metadata.name.as_deref().unwrap_or_default();
    if name.len() > limit::NAME || !is_label(name) {
        let message = format!(
            "{name:?} is part of the names of what is created: use 1-{} lower-case letters, digits and hyphens",
            limit::NAME
        );
        violations.add("metadata.name", Reason::InvalidName, message);
    }
    if name == limit::RESERVED_NAME {
        let message = format!(
            "what is created would be called clusterdns-{name}, as the operator's own: use another name, such as default"
        );
        violations.add("metadata.name", Reason::ReservedName, message);
    }
    match check(&dns.spec) {
        Ok(config) => violations.or(config),
        Err(more) => {
            violations.append(more);
            Err(violations)
        }
    }
}

/// Checks a Config that was read from a document and not from a spec. Fields are named as in the spec.
///
/// # Errors
/// All broken rules, by field, up to a bound.
pub fn check_config(config: &Config) -> Result<(), Violations> {
    let mut violations = Violations::default();
    rules(config, &mut violations);
    violations.or(())
}

/// Every rule about what data planes run.
fn rules(config: &Config, violations: &mut Violations) {
    bounds::check(config, violations);
    names::check(config, violations);
    records::check(config, violations);
    federations::check(config, violations);
    probes::check(config, violations);
    reverse::check(config, violations);
    servers::check(config, violations);
    withheld::check(config, violations);
}
