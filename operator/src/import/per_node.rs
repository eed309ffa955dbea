//! A pod on each node, where the other server had a cache there.

use crds::ClusterDNSSpec;
use crds::v1alpha1::{PerNode, Scaling, TrafficDistribution};

use super::draft::Draft;
use crate::desired::adopted_service::patched_by_people;

/// Adds it, and says what it is.
///
/// # Errors
/// Why a ClusterDNS cannot have it.
pub(super) fn add(draft: &mut Draft) -> Result<String, String> {
    let change = |spec: &mut ClusterDNSSpec| {
        spec.scaling = Some(Scaling { per_node: Some(PerNode {}), ..Scaling::default() });
        if let Some(service) = &mut spec.service {
            service.traffic_distribution = Some(TrafficDistribution::PreferSameNode);
        }
    };
    draft.change(change)?;
    let adopted = draft.spec.service.as_ref().filter(|service| service.adopt);
    let asked = match adopted {
        None => {
            "which the Service prefers for the pods of that node (spec.scaling.perNode, spec.service.trafficDistribution: \
             PreferSameNode)"
                .to_owned()
        }
        Some(service) => format!(
            "which the Service prefers for the pods of that node once you have set that, because {} (PreferClose before \
             Kubernetes 1.34; spec.scaling.perNode, spec.service.trafficDistribution)",
            patched_by_people(&(service.namespace.clone(), service.name.clone()), "PreferSameNode")
        ),
    };
    Ok(format!(
        "a pod on each node, {asked}; that is a hint, which kube-proxy follows, and Cilium in its place only with \
         loadBalancer.serviceTopology: true"
    ))
}

/// Is there a pod on each node already?
pub(super) fn is_there(draft: &Draft) -> bool {
    draft.spec.scaling.as_ref().is_some_and(|scaling| scaling.per_node.is_some())
}
