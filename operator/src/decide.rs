//! All decisions of one reconcile, in their order: may it be acted on, with what certificates, whose Service, how many pods,
//! which revision. Pure.

pub mod plan;
pub mod config_map;
pub mod admit;
pub mod service_account;
pub mod adoption;
pub mod disruption_budget;
pub mod scale;
pub mod rollout;

use crds::v1alpha1::ManagementState;
use crds::{ClusterDNS, Config, check_resource};
use jiff::Timestamp;

use crate::decide::plan::{Plan, Refusal};
use crate::observe::observed::Observed;
use crate::settings::Settings;

/// What must be done for a ClusterDNS that [`crds::check_resource`] found to mean `config`; the Config that comes back has
/// its certificates.
///
/// # Errors
/// Why nothing is done: what runs is left as it is.
pub fn decide(
    dns: &ClusterDNS,
    config: &Config,
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
) -> Result<(Config, Plan), Refusal> {
    admit::admit(dns, config, observed, settings)?;
    let config = admit::with_bundles(config, observed)?;
    let mut plan = plan(dns, &config, observed, now)?;
    match dns.spec.management_state {
        ManagementState::Managed => {}
        ManagementState::Unmanaged => {
            plan.rollout = rollout::untouched(observed, plan.rollout.desired_revision);
        }
    }
    Ok((config, plan))
}

/// Does the spec ask for a trial of the configuration that is on trial? If not, nothing that pods answer matters any more.
pub fn wants_trial(dns: &ClusterDNS, observed: &Observed) -> bool {
    let config = check_resource(dns).ok();
    let config = config.and_then(|config| admit::with_bundles(&config, observed).ok());
    match dns.spec.management_state {
        ManagementState::Managed => {
            config.is_some_and(|config| rollout::is_wanted(dns, &config, observed))
        }
        ManagementState::Unmanaged => false,
    }
}

/// The same of one that is admitted; `config` has the certificates that it must have.
///
/// # Errors
/// Why its Service can be neither created nor adopted nor given back.
pub fn plan(
    dns: &ClusterDNS,
    config: &Config,
    observed: &Observed,
    now: Timestamp,
) -> Result<Plan, Refusal> {
    let service = adoption::plan(dns, observed, now)?;
    Ok(Plan {
        budget: disruption_budget::budget(dns, observed, &service),
        size: scale::size(&dns.spec, observed),
        rollout: rollout::plan(dns, config, observed, now),
        service,
    })
}
