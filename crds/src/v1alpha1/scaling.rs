//! How many pods run: a union, so the schema has no defaults in here (see the module above).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::bounds;
use crate::defaults::{self, flag, number};

/// How many pods run: at most one member. None: proportional with its defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::scaling_has_one_member()]))]
pub struct Scaling {
    /// Always this number of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Fixed>,

    /// In proportion to the cores and nodes of the cluster; the larger number counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proportional: Option<Proportional>,

    /// By tables of cores and nodes; the larger number counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,

    /// By load, with a HorizontalPodAutoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,

    /// One pod on every node that spec.placement allows, as a DaemonSet; for at most 500 such nodes. Example: {}.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_node: Option<PerNode>,
}

/// A fixed number of pods.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fixed {
    /// The number, 1-1000. Example: 3.
    #[schemars(range(min = 1, max = bounds::REPLICAS))]
    pub replicas: u32,
}

/// In proportion to the size of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::min_replicas_is_not_above_max()]))]
pub struct Proportional {
    /// Cores for which one pod is enough, 1-10000000. Default 1024.
    #[serde(default = "number::<{ defaults::CORES_PER_REPLICA }>")]
    #[schemars(range(min = 1, max = bounds::SCALE))]
    pub cores_per_replica: u32,

    /// Nodes for which one pod is enough, 1-10000000. Default 64.
    #[serde(default = "number::<{ defaults::NODES_PER_REPLICA }>")]
    #[schemars(range(min = 1, max = bounds::SCALE))]
    pub nodes_per_replica: u32,

    /// Fewest pods, 1-1000. Default 2.
    #[serde(default = "number::<{ defaults::MIN_REPLICAS }>")]
    #[schemars(range(min = 1, max = bounds::REPLICAS))]
    pub min_replicas: u32,

    /// Most pods, 1-1000. Default 32.
    #[serde(default = "number::<{ defaults::MAX_REPLICAS }>")]
    #[schemars(range(min = 1, max = bounds::REPLICAS))]
    pub max_replicas: u32,

    /// At least two pods where there is more than one node, but not more than maxReplicas. Default true.
    #[serde(default = "flag::<true>")]
    pub prevent_single_point_of_failure: bool,

    /// Counts nodes that take no new pods, too. If false, they add no pods, but no pod is removed before they are gone: what runs on
    /// them asks until then. Default false.
    #[serde(default)]
    pub include_unschedulable_nodes: bool,
}

impl Default for Proportional {
    fn default() -> Self {
        Self {
            cores_per_replica: defaults::CORES_PER_REPLICA,
            nodes_per_replica: defaults::NODES_PER_REPLICA,
            min_replicas: defaults::MIN_REPLICAS,
            max_replicas: defaults::MAX_REPLICAS,
            prevent_single_point_of_failure: true,
            include_unschedulable_nodes: false,
        }
    }
}

/// By tables: the highest step that the cluster has reached gives the number of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::ladder_has_a_step()]))]
pub struct Ladder {
    /// By cores, at most 64 steps. Example: [{cores: 1, replicas: 2}, {cores: 512, replicas: 3}].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::LADDER_STEPS))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cores"]))]
    pub cores_to_replicas: Option<Vec<CoreStep>>,

    /// By nodes, at most 64 steps. Example: [{nodes: 1, replicas: 2}, {nodes: 100, replicas: 3}].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::LADDER_STEPS))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["nodes"]))]
    pub nodes_to_replicas: Option<Vec<NodeStep>>,

    /// Counts nodes that take no new pods, too. If false, they add no pods, but no pod is removed before they are gone: what runs on
    /// them asks until then. Default false.
    #[serde(default)]
    pub include_unschedulable_nodes: bool,
}

/// From this many cores on, this many pods.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoreStep {
    /// Cores, 1-10000000.
    #[schemars(range(min = 1, max = bounds::SCALE))]
    pub cores: u32,
    /// Pods from this number of cores on, 1-1000.
    #[schemars(range(min = 1, max = bounds::REPLICAS))]
    pub replicas: u32,
}

/// From this many nodes on, this many pods.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStep {
    /// Nodes, 1-10000000.
    #[schemars(range(min = 1, max = bounds::SCALE))]
    pub nodes: u32,
    /// Pods from this number of nodes on, 1-1000.
    #[schemars(range(min = 1, max = bounds::REPLICAS))]
    pub replicas: u32,
}

/// By load: a HorizontalPodAutoscaler over CPU, and over queries a second where set.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::min_replicas_is_not_above_max()]))]
pub struct Load {
    /// Fewest pods, 2-1000. Default 2.
    #[serde(default = "number::<{ defaults::MIN_REPLICAS }>")]
    #[schemars(range(min = 2, max = bounds::REPLICAS))]
    pub min_replicas: u32,

    /// Most pods, 2-1000. Default 32.
    #[serde(default = "number::<{ defaults::MAX_REPLICAS }>")]
    #[schemars(range(min = 2, max = bounds::REPLICAS))]
    pub max_replicas: u32,

    /// CPU in thousandths of a core that a pod should use on average, 10-100000. A limit in spec.resources must be more than 10 %
    /// higher, or no pod is added. Default 300.
    #[serde(default = "number::<{ defaults::CPU_MILLICORES_PER_REPLICA }>")]
    #[schemars(range(min = 10, max = 100_000))]
    pub cpu_millicores_per_replica: u32,

    /// Queries per second that a pod should answer on average, 1-10000000. They count where the API custom.metrics.k8s.io has
    /// the metric clusterdns_queries_per_second of pods: docs/metrics.md has the rule for prometheus-adapter. Default: only
    /// CPU counts. Example: 20000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SCALE))]
    pub queries_per_second_per_replica: Option<u32>,
}

/// One pod on every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PerNode {}
