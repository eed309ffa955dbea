//! Problems between pods and the nodes that they may run on. None of them makes a spec wrong: nodes come and go.

use crds::ClusterDNS;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::problem::{Problem, named, problem};
use crate::decide::admit::MAX_NODES_PER_NODE;
use crate::decide::adoption::is_per_node;
use crate::decide::disruption_budget;
use crate::decide::plan::Plan;
use crate::names;
use crate::observe::observed::{Misfit, Observed};
use crate::observe::pods;

/// With this many nodes a person should know the limit of `perNode`.
const NEAR_LIMIT: u32 = MAX_NODES_PER_NODE / 10 * 9;

/// Nodes are drained, restarted and uncordoned one after another within less than this. An autoscaler takes a new node away again,
/// or it gets pods.
const TOGETHER_FOR: SignedDuration = SignedDuration::from_mins(10);

/// Pods wait for a node, which an autoscaler may bring; those that run stay where they are.
pub(super) fn no_node_fits(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let misfit = observed.no_node_fits?;
    let (field, nodes) = (misfit.field(), observed.size.nodes);
    let (why, remedy) = match misfit {
        Misfit::NodeSelector => {
            ("has these labels and kubernetes.io/os: linux", "Correct the labels, or label nodes")
        }
        Misfit::NodeAffinity => ("has what a required term asks for", "Correct it, or label nodes"),
        Misfit::Tolerations => (
            "is without a taint with the effect NoSchedule or NoExecute that they do not tolerate",
            "Tolerate it, or take it from nodes",
        ),
    };
    let next = match (is_per_node(dns), pods::ready(observed).next()) {
        (true, None) => "no pod runs before a node fits",
        (true, Some(_)) => {
            "no new pod runs before a node fits. Pods that run stay, and the DaemonSet gets no new content before that"
        }
        (false, _) => "new pods wait for a node that fits, for example from an autoscaler",
    };
    problem(
        "PlacementMatchesNoNode",
        format!("{field}: none of {nodes} nodes {why}, so {next}. {remedy}"),
    )
}

/// The workload wants no pod at all, which no field of the spec can ask for: a share of nothing is never too small.
pub(super) fn no_pod_wanted(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let per_node = is_per_node(dns);
    let progress = pods::progress(observed, per_node);
    let nodes = observed.size.nodes;
    // The placement is named already, or there is no node.
    let is_expected = per_node && (observed.no_node_fits.is_some() || nodes == 0);
    if !progress.exists || !progress.is_seen || progress.desired > 0 || is_expected {
        return None;
    }
    let (namespace, own) = (names::service(dns).0, names::child(&dns.name_any()));
    let then = match pods::ready(observed).next() {
        None => "no pod of it runs",
        Some(_) => "no new pod of it runs",
    };
    let message = match per_node {
        true => format!(
            "DaemonSet {own} wants a pod on none of {nodes} nodes, so {then}: spec.placement does not tolerate a taint of each \
             node, or nodes have other labels. kubectl describe nodes shows both"
        ),
        false => format!(
            "another client scaled the Deployment to 0 pods. The operator scales it back unless managementState is Unmanaged: \
             kubectl -n {namespace} scale deployment/{own} --replicas=2"
        ),
    };
    problem("NoPodWanted", message)
}

/// The reason for it.
const ON_ONE_NODE: &str = "PodsOnOneNode";

/// A scheduler spreads new pods, and moves none: after each of two nodes was drained in turn, all pods are on one. Both last for a
/// while: that the pods are there, and that another node could take one.
pub(super) fn on_one_node(
    dns: &ClusterDNS,
    observed: &Observed,
    now: Timestamp,
) -> Option<Problem> {
    let ready: Vec<&Pod> = pods::ready(observed).collect();
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let first = node(ready.first()?)?;
    let together = ready.iter().all(|pod| node(pod).as_ref() == Some(&first));
    let is_long_ago = |since: Timestamp| now.duration_since(since) >= TOGETHER_FOR;
    let spare = observed.nodes_for_new_pods;
    if is_per_node(dns) || ready.len() < 2 || spare.count < 2 || !together {
        return None;
    }
    // A process that has just started does not know for how long there are several. What was reported stays.
    let mut conditions = dns.status.iter().flat_map(|status| &status.conditions);
    let was_reported = conditions.any(|it| it.type_ == "Degraded" && it.reason == ON_ONE_NODE);
    let is_settled = ready.iter().all(|pod| pods::ready_since(pod).is_some_and(is_long_ago));
    if !is_settled || !was_reported && !spare.several_since.is_some_and(is_long_ago) {
        return None;
    }
    let (namespace, _) = names::service(dns);
    let first_pod = ready.iter().map(|pod| pods::name(pod)).min().unwrap_or_default();
    problem(
        ON_ONE_NODE,
        format!(
            "all {} ready pods are on node {first}: if it dies, DNS is away until new ones run. Kubernetes moves no pod that runs, \
             but it spreads new ones: kubectl -n {namespace} delete pod {first_pod}. If the new one comes to the same node, the {} other \
             nodes that spec.placement allows have no room for it",
            ready.len(),
            spare.count - 1,
        ),
    )
}

/// A budget of another DNS server, usually, which selects our pods by the labels of the Service: nodes cannot be drained.
pub(super) fn evictions_refused(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
) -> Option<Problem> {
    let (namespace, _) = names::service(dns);
    let budgets = disruption_budget::refusing(dns, observed, &plan.service);
    let budgets: Vec<String> = budgets.iter().map(|name| format!("{namespace}/{name}")).collect();
    if budgets.is_empty() {
        return None;
    }
    problem(
        "EvictionsRefused",
        format!(
            "PodDisruptionBudget {} selects pods of this ClusterDNS, too. With a DaemonSet of spec.scaling.perNode, Kubernetes \
             cannot compute maxUnavailable or a share, so it refuses to evict any pod that the budget selects: a node with a pod \
             of another DNS server cannot be drained. Delete the budget, or write minAvailable as a number",
            named(budgets)
        ),
    )
}

/// Each pod of `perNode` watches the API server, so that their number has a limit.
pub(super) fn many_nodes(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let nodes = observed.nodes_that_fit;
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
