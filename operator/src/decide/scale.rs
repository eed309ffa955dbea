//! How many pods run: fixed, in proportion to the cluster, by tables, by load, or one per node. Pure and without memory:
//! what runs now is its only state, so that nodes that come and go do not make pods come and go.

use crds::ClusterDNSSpec;
use crds::v1alpha1::{Ladder, Load, Proportional, Scaling};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use crate::decide::plan::Size;
use crate::names::{FIELD_MANAGER, QUERIES_PER_SECOND};
use crate::observe::observed::{ClusterSize, Observed};

/// Percent. Pods are removed only when the cluster, were it larger by this part, would still need fewer.
const SLACK_PERCENT: u64 = 10;

/// How many pods run, and who says so.
pub fn size(spec: &ClusterDNSSpec, observed: &Observed) -> Size {
    let runs = observed.deployment.as_ref().and_then(replicas);
    let Scaling { fixed, proportional, ladder, load, per_node } =
        spec.scaling.clone().unwrap_or_default();
    if let Some(fixed) = fixed {
        Size::Replicas(fixed.replicas)
    } else if let Some(ladder) = ladder {
        let counts_all = ladder.include_unschedulable_nodes;
        Size::Replicas(damped(observed.size, counts_all, runs, |cluster| {
            by_ladder(&ladder, cluster)
        }))
    } else if let Some(load) = load {
        by_load(&load, observed)
    } else if per_node.is_some() {
        Size::PerNode
    } else {
        let rule = proportional.unwrap_or_default();
        let counts_all = rule.include_unschedulable_nodes;
        Size::Replicas(damped(observed.size, counts_all, runs, |cluster| {
            in_proportion(&rule, cluster)
        }))
    }
}

/// Nodes and cores that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountedCluster {
    nodes: u64,
    cores: u64,
}

impl CountedCluster {
    fn counted(size: ClusterSize, counts_all: bool) -> Self {
        let ClusterSize { nodes, schedulable_nodes, cores, schedulable_cores } = size;
        match counts_all {
            true => Self { nodes: nodes.into(), cores: cores.into() },
            false => Self { nodes: schedulable_nodes.into(), cores: schedulable_cores.into() },
        }
    }

    /// Larger by [`SLACK_PERCENT`], and by one node with its cores at least: one node that comes and goes must not
    /// change the number in a small cluster either.
    fn larger(self) -> Self {
        let nodes = self.nodes + (self.nodes * SLACK_PERCENT).div_ceil(100).max(1);
        let by_percent = self.cores + (self.cores * SLACK_PERCENT).div_ceil(100);
        let by_a_node = self.cores + self.cores.div_ceil(self.nodes.max(1));
        Self { nodes, cores: by_percent.max(by_a_node) }
    }
}

/// Up at once; down only to the number that a larger cluster would need, in which all nodes count: a cordoned node has its
/// workloads, which ask as before, until it is drained and gone.
fn damped(
    size: ClusterSize,
    counts_all: bool,
    runs: Option<u32>,
    rule: impl Fn(CountedCluster) -> u32,
) -> u32 {
    let wanted = rule(CountedCluster::counted(size, counts_all));
    match runs {
        // More pods than known nodes: there are nodes that we do not see, because every pod runs on one.
        Some(runs) if size.nodes == 0 && runs > 0 => runs.max(wanted),
        Some(runs) if wanted < runs => {
            let all = CountedCluster::counted(size, true);
            runs.min(rule(all.larger())).max(wanted)
        }
        Some(_) | None => wanted,
    }
}

fn in_proportion(rule: &Proportional, cluster: CountedCluster) -> u32 {
    let alone = rule.prevent_single_point_of_failure && cluster.nodes > 1;
    let least = u64::from(rule.min_replicas).max(if alone { 2 } else { 1 });
    let wanted = by_size(rule, cluster).max(least).min(rule.max_replicas.into());
    u32::try_from(wanted).unwrap_or(rule.max_replicas)
}

/// What the size of the cluster gives, without bounds.
fn by_size(rule: &Proportional, cluster: CountedCluster) -> u64 {
    let by_cores = cluster.cores.div_ceil(rule.cores_per_replica.max(1).into());
    let by_nodes = cluster.nodes.div_ceil(rule.nodes_per_replica.max(1).into());
    by_cores.max(by_nodes)
}

/// `maxReplicas`, where it keeps the number of pods below what the size of the cluster would give.
pub(crate) fn ceiling(spec: &ClusterDNSSpec, size: ClusterSize) -> Option<u32> {
    let Scaling { fixed, proportional, ladder, load, per_node } =
        spec.scaling.clone().unwrap_or_default();
    let is_otherwise = fixed.is_some() || ladder.is_some() || load.is_some() || per_node.is_some();
    let rule = proportional.unwrap_or_default();
    let most = rule.max_replicas;
    let cluster = CountedCluster::counted(size, rule.include_unschedulable_nodes);
    (!is_otherwise && by_size(&rule, cluster) > most.into()).then_some(most)
}

fn by_ladder(ladder: &Ladder, cluster: CountedCluster) -> u32 {
    let cores = ladder.cores_to_replicas.iter().flatten();
    let nodes = ladder.nodes_to_replicas.iter().flatten();
    let by_cores = step(cores.map(|step| (step.cores, step.replicas)), cluster.cores);
    let by_nodes = step(nodes.map(|step| (step.nodes, step.replicas)), cluster.nodes);
    by_cores.max(by_nodes).unwrap_or(1)
}

/// The highest step that was reached; below the first one, the first one's.
fn step(steps: impl Iterator<Item = (u32, u32)>, reached: u64) -> Option<u32> {
    let mut steps: Vec<(u32, u32)> = steps.collect();
    steps.sort_unstable();
    let last = steps.iter().rev().find(|(from, _)| u64::from(*from) <= reached);
    last.or(steps.first()).map(|(_, replicas)| *replicas)
}

fn by_load(load: &Load, observed: &Observed) -> Size {
    let least = load.min_replicas.max(2);
    let most = load.max_replicas.max(least);
    let hold = match &observed.deployment {
        // A DaemonSet may still run a pod on each node; those stay until these are ready. Or another client deleted the Deployment
        // under load: the autoscaler still says what it wanted.
        None => Some(on_nodes(observed).max(autoscaled(observed)).clamp(least, most)),
        Some(deployment) if is_ours(deployment) => {
            Some(replicas(deployment).unwrap_or(1).max(least))
        }
        // Another client did this, and no autoscaler ends it: 0 switches it off.
        Some(deployment) if replicas(deployment) == Some(0) => {
            Some(autoscaled(observed).clamp(least, most))
        }
        Some(_) => None,
    };
    Size::Autoscaled {
        min: least,
        max: most,
        cpu_millicores: load.cpu_millicores_per_replica,
        queries_per_second: load
            .queries_per_second_per_replica
            .filter(|_| counts_queries(observed)),
        hold,
    }
}

/// An autoscaler takes no pod away while one of its metrics is missing, so it gets this one only where it exists. Where that is
/// not known, the autoscaler stays as it is: such an API is often away for a while.
fn counts_queries(observed: &Observed) -> bool {
    queries_per_second(observed).unwrap_or_else(|| {
        let spec = observed.autoscaler.as_ref().and_then(|autoscaler| autoscaler.spec.as_ref());
        let metrics = spec.iter().flat_map(|spec| spec.metrics.iter().flatten());
        let mut of_pods = metrics.filter_map(|metric| metric.pods.as_ref());
        of_pods.any(|pods| pods.metric.name == QUERIES_PER_SECOND)
    })
}

/// Is there the metric of queries? The autoscaler has read it, or the metrics API lists it. Not every metrics adapter lists each
/// metric that it has.
pub(crate) fn queries_per_second(observed: &Observed) -> Option<bool> {
    let status = observed.autoscaler.as_ref().and_then(|autoscaler| autoscaler.status.as_ref());
    let current = status.iter().flat_map(|status| status.current_metrics.iter().flatten());
    let mut of_pods = current.filter_map(|metric| metric.pods.as_ref());
    match of_pods.any(|pods| pods.metric.name == QUERIES_PER_SECOND) {
        true => Some(true),
        false => observed.offers.queries_per_second,
    }
}

/// Pods that a DaemonSet of ours has on its nodes.
pub(crate) fn on_nodes(observed: &Observed) -> u32 {
    let status = observed.daemon_set.as_ref().and_then(|set| set.status.as_ref());
    status.map_or(0, |status| u32::try_from(status.desired_number_scheduled).unwrap_or(0))
}

/// Pods that the autoscaler wanted when it looked last; 0 where it has not, or has seen that it is switched off.
pub(crate) fn autoscaled(observed: &Observed) -> u32 {
    let status = observed.autoscaler.as_ref().and_then(|autoscaler| autoscaler.status.as_ref());
    status.map_or(0, |status| u32::try_from(status.desired_replicas).unwrap_or(0))
}

fn replicas(deployment: &Deployment) -> Option<u32> {
    u32::try_from(deployment.spec.as_ref()?.replicas?).ok()
}

/// Does our own field manager still own `replicas`? If the only owner gives the field up, it becomes 1.
fn is_ours(deployment: &Deployment) -> bool {
    let entries = deployment.metadata.managed_fields.iter().flatten();
    entries.filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER)).any(|entry| {
        let fields: Option<&Value> = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields.pointer("/f:spec/f:replicas").is_some())
    })
}

#[cfg(test)]
mod tests;
