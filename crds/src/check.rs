//! Spec in, [`Config`] out, or the list of what is wrong: the one reading that both planes share.
//!
//! Two steps. Reading turns text into addresses and unions into one choice; then the rules look at the Config, so that a
//! data plane can apply the same rules to a document it was handed (A30-A34, G159). What the API server refuses by schema
//! and CEL is repeated here, because files have no API server; what CEL cannot say is here only.

mod bounds;
mod names;
mod read;
mod records;
mod reverse;
mod servers;
mod update;
mod violations;
mod workload;

pub use servers::check_own_addresses;
pub use update::check_update;
pub(crate) use violations::shown;
pub use violations::{Reason, Violation, Violations};

use crate::bounds as limit;
use crate::names::is_label;
use crate::{ClusterDNS, ClusterDNSSpec, Config};

/// What this spec means, or what is wrong with it.
pub fn check(spec: &ClusterDNSSpec) -> Result<Config, Violations> {
    let mut violations = Violations::default();
    workload::check(spec, &mut violations);
    let config = read::config(spec, &mut violations);
    // The rules would speak of the gaps that reading left.
    if violations.is_empty() {
        rules(&config, &mut violations);
        servers::cluster_ips_are_not_upstreams(spec, &config, &mut violations);
    }
    violations.or(config)
}

/// What this resource means, or what is wrong with it, its name included.
pub fn check_resource(dns: &ClusterDNS) -> Result<Config, Violations> {
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

/// What is wrong with a Config: for a document that was handed over instead of read from a spec. Fields are named as in
/// the spec it came from.
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
    reverse::check(config, violations);
    servers::check(config, violations);
}
