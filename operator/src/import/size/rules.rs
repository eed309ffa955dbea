//! The rules of an autoscaler in proportion to the cluster (cluster-proportional-autoscaler), as `spec.scaling`. Pure.

use crds::bounds;
use crds::v1alpha1::{CoreStep, Ladder, NodeStep, Proportional, Scaling};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Its key `linear`. A number that is not written is 0 there.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Linear {
    cores_per_replica: f64,
    nodes_per_replica: f64,
    min: u32,
    max: u32,
    #[serde(alias = "preventSinglePointOfFailure")]
    prevent_single_point_failure: bool,
    include_unschedulable_nodes: bool,
}

/// Its key `ladder`: pairs of a size and a number of pods.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Steps {
    cores_to_replicas: Vec<(u32, u32)>,
    nodes_to_replicas: Vec<(u32, u32)>,
    include_unschedulable_nodes: bool,
}

/// The fields of an object: a list is none, which is refused as by the autoscaler.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let fields: serde_json::Result<serde_json::Map<_, _>> = serde_json::from_str(text);
    let read = fields.and_then(|fields| serde_json::from_value(fields.into()));
    read.map_err(|error| error.to_string())
}

/// What `linear` says.
///
/// # Errors
/// Why the autoscaler refuses it too.
pub(super) fn linear(text: &str) -> Result<Scaling, String> {
    let read: Linear = read(text)?;
    if read.cores_per_replica <= 0.0 && read.nodes_per_replica <= 0.0 {
        return Err("neither coresPerReplica nor nodesPerReplica is in it".to_owned());
    }
    let most = if read.max == 0 { bounds::REPLICAS } else { read.max };
    let proportional = Proportional {
        cores_per_replica: per_replica(read.cores_per_replica),
        nodes_per_replica: per_replica(read.nodes_per_replica),
        min_replicas: read.min.max(1),
        max_replicas: most.min(bounds::REPLICAS),
        prevent_single_point_of_failure: read.prevent_single_point_failure,
        include_unschedulable_nodes: read.include_unschedulable_nodes,
    };
    Ok(Scaling { proportional: Some(proportional), ..Scaling::default() })
}

/// Whole cores or nodes, so that there are no fewer pods; one that is not written asks for none.
fn per_replica(written: f64) -> u32 {
    let most = f64::from(bounds::SCALE);
    if written <= 0.0 { bounds::SCALE } else { written.floor().clamp(1.0, most) as u32 }
}

/// What `ladder` says.
///
/// # Errors
/// Why the autoscaler refuses it too.
pub(super) fn ladder(text: &str) -> Result<Scaling, String> {
    let read: Steps = read(text)?;
    let cores =
        read.cores_to_replicas.into_iter().map(|(cores, replicas)| CoreStep { cores, replicas });
    let nodes =
        read.nodes_to_replicas.into_iter().map(|(nodes, replicas)| NodeStep { nodes, replicas });
    let ladder = Ladder {
        cores_to_replicas: Some(cores.collect()).filter(|it: &Vec<CoreStep>| !it.is_empty()),
        nodes_to_replicas: Some(nodes.collect()).filter(|it: &Vec<NodeStep>| !it.is_empty()),
        include_unschedulable_nodes: read.include_unschedulable_nodes,
    };
    if ladder.cores_to_replicas.is_none() && ladder.nodes_to_replicas.is_none() {
        return Err("neither coresToReplicas nor nodesToReplicas is in it".to_owned());
    }
    Ok(Scaling { ladder: Some(ladder), ..Scaling::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_in_proportion_mean_the_same_here() {
        let usual =
            r#"{"coresPerReplica":256,"nodesPerReplica":16,"preventSinglePointFailure":true}"#;
        let read = linear(usual).unwrap().proportional.unwrap();
        assert_eq!((read.cores_per_replica, read.nodes_per_replica), (256, 16));
        assert_eq!((read.min_replicas, read.max_replicas), (1, bounds::REPLICAS));
        assert!(read.prevent_single_point_of_failure && !read.include_unschedulable_nodes);
        let nodes = r#"{"nodesPerReplica":2.5,"min":3,"max":7,"includeUnschedulableNodes":true}"#;
        let read = linear(nodes).unwrap().proportional.unwrap();
        assert_eq!((read.cores_per_replica, read.nodes_per_replica), (bounds::SCALE, 2));
        assert_eq!((read.min_replicas, read.max_replicas), (3, 7));
        assert!(!read.prevent_single_point_of_failure && read.include_unschedulable_nodes);
        for wrong in ["{}", "", "[1]", r#"{"min":2}"#, r#"{"nodesPerReplica":"16"}"#] {
            assert!(linear(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_by_steps_mean_the_same_here() {
        let read = ladder(r#"{"coresToReplicas":[[1,2],[512,3]],"nodesToReplicas":[[1,2]]}"#);
        let read = read.unwrap().ladder.unwrap();
        let cores: Vec<(u32, u32)> =
            read.cores_to_replicas.iter().flatten().map(|it| (it.cores, it.replicas)).collect();
        assert_eq!(cores, [(1, 2), (512, 3)]);
        assert_eq!(read.nodes_to_replicas.map(|it| it.len()), Some(1));
        for wrong in ["{}", r#"{"nodesToReplicas":[[1]]}"#, r#"{"nodesToReplicas":[]}"#] {
            assert!(ladder(wrong).is_err(), "{wrong}");
        }
    }
}
