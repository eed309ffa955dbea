//! How far our workload has come with the template that was written last, as its status counts it. Pure.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;

use super::{DAEMON_TEMPLATE_HASH, is_ready, is_seen, label, newest_template_of_daemon_set};
use crate::observe::observed::Observed;

/// How far our workload has rolled out the template that was written last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The Deployment or DaemonSet exists.
    pub exists: bool,
    /// Pods that there should be.
    pub desired: u32,
    /// Pods of the newest template.
    pub updated: u32,
    /// All pods, of any template.
    pub all: u32,
    /// Pods that may receive queries.
    pub ready: u32,
    /// Of these, the ones that have been ready for as long as the workload demands (`minReadySeconds`): one that became ready a
    /// moment ago may be about to fail.
    pub available: u32,
    /// Of the nodes with a pod of `desired`, those that are not ready and whose pod is of an older template: nothing changes there
    /// before the node is back or gone.
    pub left_out: u32,
    /// Of the same nodes, those that are not ready and have no ready pod of ours.
    pub dead: u32,
    /// Its controller has seen the last write, and it is not being deleted.
    pub is_seen: bool,
}

impl Progress {
    /// Are all pods of the newest template, none missing and none left over?
    pub fn has_newest_pods(&self) -> bool {
        self.exists
            && self.is_seen
            && self.updated + self.left_out >= self.desired
            && self.all <= self.updated
    }

    /// Are all of them ready as well?
    pub fn is_ready(&self) -> bool {
        self.has_newest_pods() && self.are_enough(self.ready)
    }

    /// Have all of them been ready for as long as the workload demands? After that other pods may go, or clients come.
    pub fn is_complete(&self) -> bool {
        self.has_newest_pods() && self.are_enough(self.available)
    }

    fn are_enough(&self, pods: u32) -> bool {
        pods + self.dead >= self.desired && self.desired > 0 && (pods > 0 || self.dead == 0)
    }
}

/// Do the pods that run stay, because none is of an older template? With a pod on each node, one that is missing may be of either.
/// One of a Deployment may be missing for long, as where a quota or a webhook refuses it, and no other pod goes for that.
pub fn has_no_older_pods(observed: &Observed, per_node: bool) -> bool {
    let progress = progress(observed, per_node);
    match per_node {
        true => progress.has_newest_pods(),
        false => progress.exists && progress.is_seen && progress.all <= progress.updated,
    }
}

/// Do pods move between a Deployment and a DaemonSet? Those of the other workload serve until all of the wanted one do, which may
/// not be made at all, or have no pod.
pub fn is_moving(observed: &Observed, per_node: bool) -> bool {
    let (deployment, daemon_set) = (observed.deployment.as_ref(), observed.daemon_set.as_ref());
    let other = match per_node {
        true => deployment.map(|it| &it.metadata),
        false => daemon_set.map(|it| &it.metadata),
    };
    let stays = other.is_some_and(|other| other.deletion_timestamp.is_none());
    stays && !progress(observed, per_node).is_complete()
}

/// The state of our workload; if a Deployment and a DaemonSet exist at the same time, that of the wanted one.
pub fn progress(observed: &Observed, per_node: bool) -> Progress {
    match (&observed.deployment, &observed.daemon_set) {
        (_, Some(daemon_set)) if per_node => of_daemon_set(daemon_set, observed),
        (Some(deployment), _) if !per_node => of_deployment(deployment),
        (None | Some(_), None | Some(_)) => Progress::default(),
    }
}

fn of_deployment(deployment: &Deployment) -> Progress {
    let status = deployment.status.clone().unwrap_or_default();
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    Progress {
        exists: true,
        desired: count(Some(desired)),
        updated: count(status.updated_replicas),
        all: count(status.replicas),
        ready: count(status.ready_replicas),
        available: count(status.available_replicas),
        // Its pods leave such nodes.
        left_out: 0,
        dead: 0,
        is_seen: is_seen(&deployment.metadata, status.observed_generation),
    }
}

fn of_daemon_set(daemon_set: &DaemonSet, observed: &Observed) -> Progress {
    // By its own taint, a node that is not ready is counted nowhere in the status unless pods tolerate that.
    let dead = observed.dead_nodes.difference(&observed.uncounted_nodes);
    let dead: Vec<Vec<&Pod>> = dead.map(|node| unready_pods_on(node, observed)).collect();
    let newest = newest_template_of_daemon_set(observed);
    let is_older = |pod: &&Pod| label(pod, DAEMON_TEMPLATE_HASH) != newest;
    let left_out = dead.iter().filter(|pods| pods.iter().any(is_older)).count();
    let dead = dead.iter().filter(|pods| !pods.is_empty()).count();
    let status = daemon_set.status.clone().unwrap_or_default();
    Progress {
        exists: true,
        desired: count(Some(status.desired_number_scheduled)),
        updated: count(status.updated_number_scheduled),
        // A surge pod is a second one on its node, which no field of the status counts: only `updated` is reliable.
        all: count(status.updated_number_scheduled),
        ready: count(Some(status.number_ready)),
        available: count(status.number_available),
        left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
        dead: u32::try_from(dead).unwrap_or(u32::MAX),
        is_seen: is_seen(&daemon_set.metadata, status.observed_generation),
    }
}

/// The pods that a DaemonSet made for this node; none if one of them is ready.
fn unready_pods_on<'a>(node: &str, observed: &'a Observed) -> Vec<&'a Pod> {
    let is_there =
        |pod: &&Pod| super::node(pod) == Some(node) && label(pod, DAEMON_TEMPLATE_HASH).is_some();
    let pods: Vec<&Pod> = observed.pods.iter().filter(is_there).collect();
    if pods.iter().any(|pod| is_ready(pod)) { Vec::new() } else { pods }
}

fn count(number: Option<i32>) -> u32 {
    u32::try_from(number.unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_became_ready_a_moment_ago_counts_as_ready_and_completes_nothing() {
        for available in [1, 2] {
            let deployment = json!({"metadata": {"generation": 1}, "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
                    "availableReplicas": available}});
            let daemon_set = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "numberMisscheduled": 0,
                "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 2,
                "numberAvailable": available}});
            let observed = Observed {
                deployment: Some(serde_json::from_value(deployment).unwrap()),
                daemon_set: Some(serde_json::from_value(daemon_set).unwrap()),
                ..Observed::default()
            };
            for per_node in [false, true] {
                let progress = progress(&observed, per_node);
                assert!(progress.is_ready(), "{progress:?}");
                assert_eq!(progress.is_complete(), available == 2, "{progress:?}");
            }
        }
    }
}
