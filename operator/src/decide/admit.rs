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
use k8s_openapi::api::core::v1::Pod;

use crate::decide::adoption::{adopted_by, cluster_ips, is_per_node};
use crate::decide::plan::Refusal;
use crate::names;
use crate::observe::observed::{Misfit, Observed};
use crate::observe::pods::{is_of_daemon_set, node, ready};
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
    is_managed(dns, settings).map_err(|refusal| with_adopted(refusal, dns, observed))?;
    claims::are_free(dns, observed)?;
    does_not_ask_itself(config, observed)?;
    pods::are_allowed(dns, observed, settings)?;
    fits_the_nodes(dns, observed)
}

/// Does this operator manage it, and does no other ClusterDNS have what it claims?
///
/// # Errors
/// It does not, or another one has it: why.
pub fn is_free(dns: &ClusterDNS, observed: &Observed, settings: &Settings) -> Result<(), Refusal> {
    is_managed(dns, settings)?;
    claims::are_free(dns, observed)
}

/// Is it this operator that manages it?
///
/// # Errors
/// It is not: why.
pub fn is_managed(dns: &ClusterDNS, settings: &Settings) -> Result<(), Refusal> {
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

/// The same where it took over its Service, which would have no pods if the ClusterDNS were deleted without an operator that manages
/// it.
fn with_adopted(mut refusal: Refusal, dns: &ClusterDNS, observed: &Observed) -> Refusal {
    let by = observed.service.as_ref().and_then(adopted_by);
    if let Some(name) = by.filter(|by| dns.metadata.name.as_ref() == Some(by)) {
        let (namespace, service) = names::service(dns);
        refusal.message.push_str(&format!(
            ". It has taken over the Service {namespace}/{service}: if {name} is deleted now, no operator gives that Service back, \
             and it has no pods"
        ));
    }
    refusal
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
    let (nodes, pods) = (observed.size.nodes, observed.nodes_that_fit);
    if !is_per_node(dns) || was_accepted(dns) {
        return Ok(());
    }
    if pods > MAX_NODES_PER_NODE && observed.daemon_set.is_none() {
        return Err(Refusal::new(
            "PerNodeTooLarge",
            "spec.scaling.perNode",
            format!(
                "{pods} nodes would be {pods} pods that watch the API server, and at most {MAX_NODES_PER_NODE} may: use \
                 proportional, and NodeLocal DNSCache on the nodes; or let spec.placement name fewer nodes"
            ),
        ));
    }
    // A Deployment keeps its old pods until new ones are ready. A DaemonSet ends them at once, or as soon as its template changes.
    let is_refused =
        |misfit: &Misfit| ready(observed).next().is_some() && !is_held(*misfit, observed);
    if let Some(misfit) = observed.no_node_fits.filter(is_refused) {
        let (why, remedy) = match misfit {
            Misfit::NodeSelector => ("has these labels", "correct them, or label nodes first"),
            Misfit::NodeAffinity => {
                ("has what a required term asks for", "correct it, or label nodes first")
            }
            Misfit::Tolerations => (
                "is without a taint with the effect NoSchedule or NoExecute that they do not tolerate",
                "tolerate it, or take it from nodes first",
            ),
        };
        return Err(Refusal::new(
            "PlacementMatchesNoNode",
            misfit.field(),
            format!("none of {nodes} nodes {why}, so with perNode no pod would run: {remedy}"),
        ));
    }
    if let Some(misfit) = ends_every_pod(observed) {
        let again = match misfit {
            Misfit::NodeSelector | Misfit::NodeAffinity => {
                "a required term of nodeAffinity can match the labels of both"
            }
            Misfit::Tolerations => "tolerate the taints of both",
        };
        return Err(Refusal::new(
            "PlacementEndsEveryPod",
            misfit.field(),
            format!(
                "with perNode every pod that is ready now would end at once, before another one runs, because this rules out \
                 its node. First allow the nodes of now and those that are meant: {again}. Take the former away when pods of \
                 the latter are ready"
            ),
        ));
    }
    Ok(())
}

/// Did all nodes get taints that the DaemonSet of now does not tolerate either? No edit has caused that, and it gets no new content
/// before a node takes a pod: all else that is edited, such as upstreams, goes out.
fn is_held(misfit: Misfit, observed: &Observed) -> bool {
    match misfit {
        Misfit::Tolerations => observed.no_node_fits_daemon_set,
        // Labels end pods at once, so that no pod of such a DaemonSet runs.
        Misfit::NodeSelector | Misfit::NodeAffinity => false,
    }
}

/// What rules out the nodes of all pods that are ready, where a DaemonSet would end them. Those of a Deployment stay until
/// others serve.
fn ends_every_pod(observed: &Observed) -> Option<Misfit> {
    observed.daemon_set.as_ref()?;
    let misfit = |pod: &Pod| {
        let node = node(pod).filter(|_| is_of_daemon_set(pod))?;
        observed.unfit_nodes.get(node).copied()
    };
    let misfits: Option<Vec<Misfit>> = ready(observed).map(misfit).collect();
    misfits?.into_iter().max()
}

/// Was this very spec accepted before?
fn was_accepted(dns: &ClusterDNS) -> bool {
    let conditions = dns.status.iter().flat_map(|status| &status.conditions);
    let mut accepted = conditions.filter(|it| it.type_ == "Accepted" && it.status == "True");
    accepted.any(|it| it.observed_generation == dns.metadata.generation)
}

#[cfg(test)]
mod tests;
