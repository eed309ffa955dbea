//! What pods and workloads say about themselves, as every decision reads it.

mod mounted;
mod progress;
mod stuck;

pub use mounted::mounted_secrets;
pub use progress::{Progress, has_no_older_pods, is_moving, progress};
pub use stuck::{CRASHES, NO_CONTAINER, NO_IMAGE, has_stalled, is_paused, is_stuck, stay};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crds::ClusterDNS;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::decide::plan::RolloutState;
use crate::desired::CONTAINER;
use crate::desired::ports::DNS;
use crate::names::TEMPLATE_HASH;
use crate::observe::observed::{Observed, Reported};

/// The label in which a DaemonSet writes the template of a pod.
const DAEMON_TEMPLATE_HASH: &str = "controller-revision-hash";
/// One of each family.
const FAMILIES: usize = 2;
/// The annotation that orders the ReplicaSets of a Deployment.
const REPLICA_SET_REVISION: &str = "deployment.kubernetes.io/revision";

/// Since when a pod has been ready; `None` if it is not ready, or is being deleted.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    if is_leaving(pod) {
        return None;
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// The reason of the condition `Ready` of a pod that we took out of its Service because it no longer answers.
pub const LOST: &str = "PodLost";

/// Did we take it out of its Service, without a sign of life from its kubelet since then?
pub fn is_lost(pod: &Pod) -> bool {
    lost_at(pod).is_some()
}

/// When, by the clock of the operator that took it out; none: it is not out. Clocks of nodes differ, so this tells one loss of a
/// pod from another one, and no time is counted from it.
pub fn lost_at(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let is_ours = |it: &&PodCondition| it.status == "False" && it.reason.as_deref() == Some(LOST);
    let ours = ready.find(is_ours).filter(|_| !is_leaving(pod))?;
    Some(ours.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// True if the condition Ready is True.
pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// The condition in which the scheduler says that it finds no node for it.
pub fn unschedulable(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|it| {
        (it.type_.as_str(), it.status.as_str()) == ("PodScheduled", "False")
            && it.reason.as_deref() == Some("Unschedulable")
    })
}

/// Was it asked to stop?
pub fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Has it ended for good, as after the shutdown of its node or an eviction? Its workload has made another one, and its object
/// stays, with the restarts of its life.
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// How often our container in it was restarted. That others inject a second one says nothing about ours.
pub fn restarts(pod: &Pod) -> u32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ours = statuses.filter(|status| status.name == CONTAINER);
    ours.map(|status| u32::try_from(status.restart_count).unwrap_or(0)).sum()
}

/// Its uid, the key of [`Observed::pod_reports`].
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Its address, once it has one.
pub fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

/// All its addresses, its own first: one of each family.
pub fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let others = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    let others = others.filter_map(|it| it.ip.parse().ok());
    let own = address(pod);
    own.into_iter().chain(others.filter(move |ip| Some(*ip) != own)).take(FAMILIES)
}

/// Its address of a family that these have, such as those of a Service: only that one is behind the Service. Its own where it has
/// none of these families.
pub fn address_beside(pod: &Pod, served: &[IpAddr]) -> Option<IpAddr> {
    let is_served = |ip: &IpAddr| served.iter().any(|it| it.is_ipv4() == ip.is_ipv4());
    addresses(pod).find(is_served).or_else(|| address(pod))
}

/// The port at which it answers DNS. A pod from before an edit of `spec.service.podPort` has another one than the spec, until
/// it is replaced.
pub fn dns_port(pod: &Pod, dns: &ClusterDNS) -> u16 {
    let by_spec = || dns.spec.service.clone().unwrap_or_default().pod_port;
    port(pod, DNS).unwrap_or_else(by_spec)
}

/// The number of its container port of this name.
pub fn port(pod: &Pod, name: &str) -> Option<u16> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(named.container_port).ok()
}

/// The node that it runs on, once it has one.
pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// uids of what makes pods of ours: our DaemonSet, and ReplicaSets of our Deployment. Anyone who may create pods in the namespace
/// can give them our labels.
pub fn makers(workloads: &[String], replica_sets: &[ReplicaSet]) -> BTreeSet<String> {
    let is_of_ours =
        |set: &&ReplicaSet| controller(&set.metadata).is_some_and(|it| workloads.contains(&it.uid));
    let sets = replica_sets.iter().filter(is_of_ours);
    let sets = sets.filter_map(|set| set.metadata.uid.clone());
    workloads.iter().cloned().chain(sets).collect()
}

/// The same of the workloads and ReplicaSets that were observed.
pub fn our_makers(observed: &Observed) -> BTreeSet<String> {
    let deployment = observed.deployment.as_ref().and_then(|it| it.metadata.uid.clone());
    let daemon_set = observed.daemon_set.as_ref().and_then(|it| it.metadata.uid.clone());
    let workloads: Vec<String> = deployment.into_iter().chain(daemon_set).collect();
    makers(&workloads, &observed.replica_sets)
}

/// Was it made by one of these?
pub fn is_made_by(pod: &Pod, makers: &BTreeSet<String>) -> bool {
    controller(&pod.metadata).is_some_and(|owner| makers.contains(&owner.uid))
}

/// Was it made by a DaemonSet, ours or not?
pub fn is_of_daemon_set(pod: &Pod) -> bool {
    controller(&pod.metadata).is_some_and(|owner| owner.kind == "DaemonSet")
}

fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// `metadata.name`, empty where there is none.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Does it carry all of these labels?
pub fn has_labels(pod: &Pod, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| {
        pod.metadata.labels.as_ref().and_then(|own| own.get(key)) == Some(value)
    })
}

/// Its last report, if there is one.
pub fn reported<'a>(observed: &'a Observed, pod: &Pod) -> Option<&'a Reported> {
    observed.pod_reports.get(uid(pod))?.reported.as_ref().ok()
}

/// What it says, or said a few minutes ago: see [`PodReport::known`](crate::observe::observed::PodReport::known).
pub fn known<'a>(observed: &'a Observed, pod: &Pod) -> Option<&'a Reported> {
    observed.pod_reports.get(uid(pod))?.known()
}

/// Ready pods that report, without a reason, that they do not run the stable revision.
pub fn behind<'a>(
    observed: &'a Observed,
    state: &'a RolloutState,
) -> impl Iterator<Item = &'a Pod> {
    let canary = state.canary_pod.as_ref().map(|pod| pod.uid.as_str());
    ready(observed).filter(move |pod| {
        let is_other = reported(observed, pod).is_some_and(|reported| {
            let says_why = reported.refusal().is_some() || reported.ignores_fields();
            reported.revision != state.stable && !says_why
        });
        is_other && Some(uid(pod)) != canary
    })
}

/// How many ready pods were not asked yet what they run: of many pods some are asked in each look.
pub fn unasked(observed: &Observed) -> usize {
    ready(observed).filter(|pod| !observed.pod_reports.contains_key(uid(pod))).count()
}

/// Our pods that may receive queries.
pub fn ready(observed: &Observed) -> impl Iterator<Item = &Pod> {
    observed.pods.iter().filter(|pod| is_ready(pod))
}

/// The template of the youngest pod that a DaemonSet made: until it makes a pod from a newer template, this one is
/// the newest.
fn newest_template_of_daemon_set(observed: &Observed) -> Option<&str> {
    let of_daemon_set =
        observed.pods.iter().filter(|pod| label(pod, DAEMON_TEMPLATE_HASH).is_some());
    let youngest =
        of_daemon_set.max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    label(youngest?, DAEMON_TEMPLATE_HASH)
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// A workload that is being deleted loses its pods, also if its status still counts them.
fn is_seen(metadata: &ObjectMeta, observed_generation: Option<i64>) -> bool {
    metadata.deletion_timestamp.is_none() && observed_generation >= metadata.generation
}

/// Is this pod of the newest template of a Deployment? With `per_node` that is not known; a workload that is fully rolled out
/// has no others. ReplicaSets of a Deployment that a DaemonSet replaces say nothing about its pods.
pub fn is_of_newest_template(pod: &Pod, observed: &Observed, per_node: bool) -> bool {
    if per_node {
        return pod.metadata.labels.as_ref().is_none_or(|own| !own.contains_key(TEMPLATE_HASH));
    }
    let revision = |set: &ReplicaSet| -> u64 {
        let text = set.metadata.annotations.as_ref().and_then(|all| all.get(REPLICA_SET_REVISION));
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let newest = observed.replica_sets.iter().max_by_key(|set| revision(set));
    let hash = newest.and_then(|set| set.metadata.labels.as_ref()?.get(TEMPLATE_HASH));
    match hash {
        Some(hash) => {
            pod.metadata.labels.as_ref().and_then(|own| own.get(TEMPLATE_HASH)) == Some(hash)
        }
        None => true,
    }
}

/// Is this pod of an older template, or of the workload that the wanted one replaces? Then a rollout of pods takes it away.
pub fn is_replaced(pod: &Pod, observed: &Observed, per_node: bool) -> bool {
    let hash = label(pod, DAEMON_TEMPLATE_HASH).filter(|_| per_node);
    hash.is_some_and(|hash| newest_template_of_daemon_set(observed) != Some(hash))
        || !is_of_newest_template(pod, observed, per_node)
}

/// Labels of the pods that the workload makes now.
pub fn template_labels(observed: &Observed, per_node: bool) -> BTreeMap<String, String> {
    let template = if per_node {
        observed.daemon_set.as_ref().and_then(|set| set.spec.as_ref()).map(|spec| &spec.template)
    } else {
        observed.deployment.as_ref().and_then(|set| set.spec.as_ref()).map(|spec| &spec.template)
    };
    template.and_then(|template| template.metadata.as_ref()?.labels.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn o17_a_pod_is_replaced_where_a_younger_one_has_a_newer_template() {
        let pod = |labels: serde_json::Value, second: &str| -> Pod {
            let created = format!("2026-01-01T00:00:{second}Z");
            let metadata = json!({"name": "dns", "labels": labels, "creationTimestamp": created});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let older = pod(json!({DAEMON_TEMPLATE_HASH: "1"}), "01");
        let newer = pod(json!({DAEMON_TEMPLATE_HASH: "2"}), "02");
        let of_deployment = pod(json!({TEMPLATE_HASH: "3"}), "03");
        let pods = vec![older.clone(), newer.clone(), of_deployment.clone()];
        let observed = Observed { pods, ..Observed::default() };
        let replaced = [older, newer, of_deployment].map(|pod| is_replaced(&pod, &observed, true));
        assert_eq!(replaced, [true, false, true]);
    }

    #[test]
    fn o20_a_pod_is_out_where_its_condition_says_that_we_took_it_out() {
        let pod = |status: &str, reason: &str, leaves: Option<&str>| -> Pod {
            let other = json!({"type": "PodScheduled", "status": "True"});
            let ready = json!({"type": "Ready", "status": status, "reason": reason,
                "lastTransitionTime": "2026-01-01T10:00:00Z"});
            let metadata = json!({"name": "dns", "deletionTimestamp": leaves});
            let pod = json!({"metadata": metadata, "status": {"conditions": [other, ready]}});
            serde_json::from_value(pod).unwrap()
        };
        let at = "2026-01-01T10:00:00Z".parse().ok();
        assert_eq!(lost_at(&pod("False", LOST, None)), at);
        assert_eq!(lost_at(&pod("False", LOST, Some("2026-01-01T10:00:00Z"))), None);
        assert_eq!(lost_at(&pod("False", "ContainersNotReady", None)), None);
        assert_eq!(lost_at(&pod("True", LOST, None)), None);
    }

    /// What is left of the Deployment that a DaemonSet has replaced.
    #[test]
    fn o17_pods_of_a_daemon_set_are_the_newest_beside_replica_sets_of_before() {
        let set = json!({"metadata": {"name": "dns-1", "labels": {TEMPLATE_HASH: "1"},
            "annotations": {REPLICA_SET_REVISION: "7"}}});
        let replica_sets = vec![serde_json::from_value(set).unwrap()];
        let observed = Observed { replica_sets, ..Observed::default() };
        let pod = |labels: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "dns", "labels": labels}})).unwrap()
        };
        let of_deployment = pod(json!({TEMPLATE_HASH: "1"}));
        let of_daemon_set = pod(json!({"controller-revision-hash": "2"}));
        for (per_node, newest, other) in
            [(true, &of_daemon_set, &of_deployment), (false, &of_deployment, &of_daemon_set)]
        {
            assert!(is_of_newest_template(newest, &observed, per_node), "{per_node}");
            assert!(!is_of_newest_template(other, &observed, per_node), "{per_node}");
        }
    }
}
