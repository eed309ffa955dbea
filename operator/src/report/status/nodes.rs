//! Problems between pods and the nodes that they may run on. None of them makes a spec wrong: nodes come and go.

use crds::ClusterDNS;

use super::problem::{Problem, problem};
use crate::decide::admit::{MAX_NODES_PER_NODE, fits_no_node};
use crate::decide::adoption::is_per_node;
use crate::observe::observed::Observed;

/// With this many nodes a person should know the limit of `perNode`.
const NEAR_LIMIT: u32 = MAX_NODES_PER_NODE / 10 * 9;

/// Pods wait for a node, which an autoscaler may bring; those that run stay where they are.
pub(super) fn no_node_fits(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    if !fits_no_node(observed) {
        return None;
    }
    let nodes = observed.size.nodes;
    let next = match is_per_node(dns) {
        true => "no pod runs before a node has them",
        false => "new pods wait for a node that has them, for example from an autoscaler",
    };
    problem(
        "PlacementMatchesNoNode",
        format!(
            "spec.placement.nodeSelector: none of {nodes} nodes has these labels and kubernetes.io/os: linux, so {next}. Correct \
             the labels, or label nodes"
        ),
    )
}

/// Each pod of `perNode` watches the API server, so that their number has a limit.
pub(super) fn many_nodes(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let nodes = observed.size.nodes;
    if !is_per_node(dns) || nodes < NEAR_LIMIT {
        return None;
    }
    problem(
        "PerNodeTooLarge",
        format!(
            "spec.scaling.perNode: {nodes} pods watch the API server, one on each node, and it is meant for at most \
             {MAX_NODES_PER_NODE} nodes. They keep running. Use proportional, and NodeLocal DNSCache on the nodes"
        ),
    )
}
