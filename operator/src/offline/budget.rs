//! A budget that lets no pod be away: a drain waits forever for a pod that it may not take.

use crds::ClusterDNS;
use crds::v1alpha1::{Ladder, Scaling};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::warning::{Warning, warning};

/// A warning for a budget that blocks drains, always or while there are as few pods as may be.
pub(super) fn budget(dns: &ClusterDNS) -> Option<Warning> {
    let budget = dns.spec.pod_disruption_budget.as_ref().filter(|budget| budget.enabled)?;
    // With a pod on each node shares and maxUnavailable have no effect, and how many nodes there are is not known.
    let fewest = fewest_pods(&dns.spec.scaling.clone().unwrap_or_default())?;
    let may_none_be_away = |most: &IntOrString| pods(most, fewest) == Some(0);
    let must_all_be_there =
        |least: &IntOrString| pods(least, fewest).is_some_and(|least| least >= fewest);
    let field = if budget.max_unavailable.as_ref().is_some_and(may_none_be_away) {
        "spec.podDisruptionBudget.maxUnavailable"
    } else if budget.min_available.as_ref().is_some_and(must_all_be_there) {
        "spec.podDisruptionBudget.minAvailable"
    } else {
        return None;
    };
    let message = format!(
        "no node with a pod of this ClusterDNS can be drained while there are {fewest}: allow one pod to be away"
    );
    Some(warning(field, "BudgetBlocksDrains", message))
}

/// The number that is meant for this many pods. The API server rounds shares up in both fields.
fn pods(written: &IntOrString, of: u32) -> Option<u32> {
    match written {
        IntOrString::Int(number) => u32::try_from(*number).ok(),
        IntOrString::String(share) => {
            let percent: u32 = share.strip_suffix('%')?.parse().ok()?;
            Some(percent.saturating_mul(of).div_ceil(100))
        }
    }
}

/// The fewest pods that there are meant to be; none where nodes decide.
fn fewest_pods(scaling: &Scaling) -> Option<u32> {
    let Scaling { fixed, proportional, ladder, load, per_node } = scaling;
    match (fixed, proportional, ladder, load, per_node) {
        (Some(fixed), ..) => Some(fixed.replicas),
        (_, Some(proportional), ..) => Some(proportional.min_replicas),
        (_, _, Some(ladder), ..) => of_ladder(ladder, 0),
        (_, _, _, Some(load), _) => Some(load.min_replicas),
        (_, _, _, _, Some(_)) => None,
        (None, None, None, None, None) => Some(crds::defaults::MIN_REPLICAS),
    }
}

/// The fewest pods of any step that a cluster of at least this many nodes may be at; the table with more pods counts. A higher step
/// may have fewer pods. How many cores its nodes have is not known.
pub(super) fn of_ladder(ladder: &Ladder, least_nodes: u32) -> Option<u32> {
    let cores = ladder.cores_to_replicas.iter().flatten().map(|step| step.replicas).min();
    let nodes = || ladder.nodes_to_replicas.iter().flatten();
    // It is at the highest step that it has reached, and below the first one at that one.
    let reached = nodes().filter(|step| step.nodes <= least_nodes).max_by_key(|step| step.nodes);
    let first = reached.or(nodes().min_by_key(|step| step.nodes));
    let later = nodes().filter(|step| step.nodes > least_nodes);
    cores.max(later.chain(first).map(|step| step.replicas).min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o18_a_budget_that_lets_no_pod_go_is_a_warning_however_it_is_written() {
        for (spec, expected) in [
            ("podDisruptionBudget: {minAvailable: 2}, scaling: {fixed: {replicas: 2}}", true),
            ("podDisruptionBudget: {minAvailable: 3}, scaling: {fixed: {replicas: 2}}", true),
            ("podDisruptionBudget: {minAvailable: 1}, scaling: {fixed: {replicas: 2}}", false),
            ("podDisruptionBudget: {minAvailable: 60%}, scaling: {fixed: {replicas: 2}}", true),
            ("podDisruptionBudget: {minAvailable: 50%}, scaling: {fixed: {replicas: 2}}", false),
            ("podDisruptionBudget: {minAvailable: 2}", true),
            ("podDisruptionBudget: {minAvailable: 2}, scaling: {load: {minReplicas: 3}}", false),
            ("podDisruptionBudget: {minAvailable: 3}, scaling: {load: {minReplicas: 3}}", true),
            (
                "podDisruptionBudget: {minAvailable: 4}, scaling: {proportional: {minReplicas: 4}}",
                true,
            ),
            (
                "podDisruptionBudget: {minAvailable: 2}, scaling: {ladder: {nodesToReplicas: [{nodes: 9, replicas: 5}, {nodes: 1, replicas: 2}]}}",
                true,
            ),
            (
                "podDisruptionBudget: {minAvailable: 2}, scaling: {ladder: {nodesToReplicas: [{nodes: 1, replicas: 5}, {nodes: 9, replicas: 2}]}}",
                true,
            ),
            ("podDisruptionBudget: {minAvailable: 2}, scaling: {perNode: {}}", false),
            ("podDisruptionBudget: {minAvailable: 100%}, scaling: {perNode: {}}", false),
            ("podDisruptionBudget: {maxUnavailable: 0}, scaling: {perNode: {}}", false),
            ("podDisruptionBudget: {maxUnavailable: 0}", true),
            ("podDisruptionBudget: {maxUnavailable: 0%}", true),
            ("podDisruptionBudget: {maxUnavailable: 1%}", false),
            ("podDisruptionBudget: {minAvailable: 2, enabled: false}", false),
        ] {
            let text = format!(
                "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: a}}\nspec: {{{spec}}}"
            );
            let (dns, _) = crds::manifest::read(&text, "a").unwrap();
            assert_eq!(budget(&dns).is_some(), expected, "{spec}");
        }
    }
}
