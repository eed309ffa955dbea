//! May a valid ClusterDNS be acted on in this cluster? What only the cluster knows: who else claims its Service, which
//! addresses that Service got, how many nodes there are, what is in the ConfigMaps it names. Pure.

mod claims;
mod pods;
mod image;
mod bundles;

pub use bundles::with_bundles;
pub(crate) use claims::claimed_ips;
pub(crate) use image::is_entry;
pub(crate) use pods::certificates;

use std::net::IpAddr;
use std::time::Duration;

use crds::check::check_own_addresses;
use crds::{ClusterDNS, Config};

use crate::decide::adoption::{cluster_ips, is_per_node};
use crate::decide::plan::Refusal;
use crate::observe::observed::Observed;
use crate::observe::pods::ready;
use crate::settings::Settings;

/// Nodes up to which every one may have a pod: each pod watches the API server.
pub(crate) const MAX_NODES_PER_NODE: u32 = 500;

/// When it is tried again: no watch covers Secrets, and a person labels one after this refusal.
const LOOK_FOR_CERTIFICATES: Duration = Duration::from_secs(5);

/// Whether it may be acted on. A refusal changes nothing that runs.
///
/// # Errors
/// The reason of the refusal, and what to write instead.
pub fn admit(
    dns: &ClusterDNS,
    config: &Config,
    observed: &Observed,
    settings: &Settings,
) -> Result<(), Refusal> {
    is_managed(dns, settings)?;
    claims::are_free(dns, observed)?;
    does_not_ask_itself(config, observed)?;
    pods::are_allowed(dns, observed, settings)?;
    fits_the_nodes(dns, observed)
}

fn is_managed(dns: &ClusterDNS, settings: &Settings) -> Result<(), Refusal> {
    let name = dns.metadata.name.clone().unwrap_or_default();
    if !settings.instances.is_empty() && !settings.instances.contains(&name) {
        return Err(Refusal::new(
            "NameNotManaged",
            "metadata.name",
            format!(
                "this operator manages {} only: use one of these names, or start it with {name} among its instances",
                settings.instances.join(", ")
            ),
        ));
    }
    let namespace = dns.spec.service.clone().unwrap_or_default().namespace;
    if !settings.workload_namespaces.contains(&namespace) {
        return Err(Refusal::new(
            "NamespaceNotManaged",
            "spec.service.namespace",
            format!(
                "this operator may create pods in {} only: use one of these, or add {namespace} to workloadNamespaces of its \
                 chart",
                settings.workload_namespaces.join(", ")
            ),
        ));
    }
    Ok(())
}

/// O2, A34: the addresses that the Service turned out to have.
fn does_not_ask_itself(config: &Config, observed: &Observed) -> Result<(), Refusal> {
    let own: Vec<IpAddr> = observed.service.iter().flat_map(cluster_ips).collect();
    check_own_addresses(config, &own).map_err(|violations| {
        let first = &violations.listed()[0];
        let more = match violations.count() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Refusal::new("UpstreamIsOwnService", &first.field, format!("{}{more}", first.message))
    })
}

/// Only what a writer changes is refused. A cluster that grows, or a pool that is scaled to zero, is no mistake of the
/// spec: the status says so.
fn fits_the_nodes(dns: &ClusterDNS, observed: &Observed) -> Result<(), Refusal> {
    let nodes = observed.size.nodes;
    if !is_per_node(dns) || was_accepted(dns) {
        return Ok(());
    }
    if nodes > MAX_NODES_PER_NODE && observed.daemon_set.is_none() {
        return Err(Refusal::new(
            "PerNodeTooLarge",
            "spec.scaling.perNode",
            format!(
                "{nodes} nodes would be {nodes} pods that watch the API server, and at most {MAX_NODES_PER_NODE} may: use \
                 proportional, and NodeLocal DNSCache on the nodes"
            ),
        ));
    }
    // A Deployment keeps its old pods until new ones are ready. A DaemonSet ends them at once.
    if fits_no_node(observed) && ready(observed).next().is_some() {
        return Err(Refusal::new(
            "PlacementMatchesNoNode",
            "spec.placement.nodeSelector",
            format!(
                "none of {nodes} nodes has these labels, so with perNode no pod would run: correct them, or label nodes first"
            ),
        ));
    }
    Ok(())
}

/// Does `placement.nodeSelector` match none of the nodes that there are?
pub(crate) fn fits_no_node(observed: &Observed) -> bool {
    observed.placeable_nodes == Some(0) && observed.size.nodes > 0
}

/// Was this very spec accepted before?
fn was_accepted(dns: &ClusterDNS) -> bool {
    let conditions = dns.status.iter().flat_map(|status| &status.conditions);
    let mut accepted = conditions.filter(|it| it.type_ == "Accepted" && it.status == "True");
    accepted.any(|it| it.observed_generation == dns.metadata.generation)
}

#[cfg(test)]
mod tests;
