//! Whether a rollout of pods stands still. Then its old pods stay, and nothing may wait for its end. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::{
    DAEMON_TEMPLATE_HASH, has_ended, has_no_older_pods, is_leaving, is_moving, is_ready, is_seen,
    label, newest_template_of_daemon_set, node, progress,
};
use crate::observe::observed::Observed;

/// A kubelet's reasons for a container whose image it does not have.
pub const NO_IMAGE: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];
/// A kubelet's reasons for a container that it could not create.
pub const NO_CONTAINER: [&str; 4] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PreCreateHookError",
];
/// A kubelet's reason for a container that ends again and again.
pub const CRASHES: &str = "CrashLoopBackOff";
/// Restarts after which a pod that is not ready counts as one that crashes, also in the seconds in which it runs.
const CRASHED: i32 = 2;

/// How long a workload may make no step. A Deployment has a condition that says so after the same time, while its controller works.
const DEADLINE: SignedDuration = SignedDuration::from_secs(600);

/// Is the workload on its way to a template and does not get there: it is not made, its pods do not start, or it makes no step? Its
/// old pods stay for as long as that lasts, and so do those of the workload that it replaces.
pub fn is_stuck(observed: &Observed, per_node: bool, now: Timestamp) -> bool {
    // It is made just after the decision, unless it is refused, as by an admission webhook: nothing says for how long that lasts.
    let is_not_made = is_moving(observed, per_node) && !progress(observed, per_node).exists;
    is_not_made
        || does_not_start(observed, per_node)
        || match per_node {
            true => has_stalled(observed, now),
            false => is_past_deadline(observed) || is_paused(observed) || is_ignored(observed, now),
        }
}

/// Do the pods that run stay? No rollout takes them away, and no other workload replaces theirs; or that stands still.
pub fn stay(observed: &Observed, per_node: bool, now: Timestamp) -> bool {
    has_no_older_pods(observed, per_node) && !is_moving(observed, per_node)
        || is_stuck(observed, per_node, now)
}

fn does_not_start(observed: &Observed, per_node: bool) -> bool {
    let is_alive = |pod: &&Pod| !is_leaving(pod) && !has_ended(pod) && !is_ready(pod);
    let newest = newest_template_of_daemon_set(observed);
    let moves = is_moving(observed, per_node);
    let is_of_daemon_set = |pod: &Pod| label(pod, DAEMON_TEMPLATE_HASH).is_some();
    // Those of a DaemonSet that a Deployment replaces keep nothing from it.
    let stops_others = |pod: &&Pod| match per_node {
        true => stops_daemon_set(pod, (newest, moves), observed),
        false => !(moves && is_of_daemon_set(pod)),
    };
    let alive = observed.pods.iter().filter(is_alive).filter(stops_others);
    let statuses = alive.filter_map(|pod| pod.status.as_ref());
    let mut containers = statuses.flat_map(|status| status.container_statuses.iter().flatten());
    containers.any(|container| {
        if container.restart_count >= CRASHED {
            return true;
        }
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        reason.is_some_and(|reason| {
            NO_IMAGE.contains(&reason) || NO_CONTAINER.contains(&reason) || reason == CRASHES
        })
    })
}

fn is_past_deadline(observed: &Observed) -> bool {
    let status = observed.deployment.as_ref().and_then(|deployment| deployment.status.as_ref());
    let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| {
        condition.type_ == "Progressing"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    })
}

/// `kubectl rollout pause`: no pod gets a new template until a person resumes it.
pub fn is_paused(observed: &Observed) -> bool {
    let spec = observed.deployment.as_ref().and_then(|deployment| deployment.spec.as_ref());
    spec.is_some_and(|spec| spec.paused == Some(true))
}

/// Has the controller of Deployments not looked at the last write for that long?
fn is_ignored(observed: &Observed, now: Timestamp) -> bool {
    observed.deployment.as_ref().is_some_and(|deployment| {
        let seen = deployment.status.as_ref().and_then(|status| status.observed_generation);
        !is_seen(&deployment.metadata, seen) && was_written_long_ago(&deployment.metadata, now)
    })
}

/// A controller that has not seen a write that is this old makes no step.
fn was_written_long_ago(metadata: &ObjectMeta, now: Timestamp) -> bool {
    written_at(metadata).is_some_and(|at| now.duration_since(at) >= DEADLINE)
}

/// Does a DaemonSet that is not rolled out make no step any more? A pod of the newest template is not ready for that long beside
/// one of an older template that is, and one such pair ends the rollout of all others; or no pod is made, as where an admission
/// webhook refuses it. Nothing in the status of a DaemonSet says so.
pub fn has_stalled(observed: &Observed, now: Timestamp) -> bool {
    let Some(set) = &observed.daemon_set else { return false };
    // Its controller makes pods of a new template before it says that it has seen it: until then the newest pod is of an older one.
    let seen = set.status.as_ref().and_then(|status| status.observed_generation);
    let is_long = |since: Timestamp| now.duration_since(since) >= DEADLINE;
    if !is_seen(&set.metadata, seen) {
        return was_written_long_ago(&set.metadata, now);
    }
    let made = |pod: &&Pod| {
        label(pod, DAEMON_TEMPLATE_HASH).is_some() && !is_leaving(pod) && !has_ended(pod)
    };
    let pods: Vec<&Pod> = observed.pods.iter().filter(made).collect();
    let youngest = pods.iter().filter_map(|pod| created(&pod.metadata)).max();
    let newest = newest_template_of_daemon_set(observed);
    let is_cut_off =
        |pod: &Pod| meant_node(pod).is_some_and(|node| observed.dead_nodes.contains(node));
    let moves = is_moving(observed, true);
    let waits = |pod: &&Pod| {
        stops_daemon_set(pod, (newest, moves), observed)
            && !is_cut_off(pod)
            && unready_since(pod).is_some_and(is_long)
    };
    // A new template may be on its way to its first pod. A pod that waits is not ready, also if something was written.
    let is_on_its_way = written_at(&set.metadata).is_some_and(|at| !is_long(at));
    // One without any pod has made none since it exists.
    let last_made = youngest.or_else(|| created(&set.metadata));
    pods.iter().any(waits) || !is_on_its_way && last_made.is_some_and(is_long)
}

/// Does all else wait until this pod is ready? It is of the newest template, and on its node one of an older template is ready: the
/// other nodes wait for their turns. Where none is, the older one is deleted at once. Or a Deployment waits for each pod of the
/// DaemonSet that replaces it.
fn stops_daemon_set(pod: &Pod, (newest, moves): (Option<&str>, bool), observed: &Observed) -> bool {
    let is_elder = |it: &Pod| {
        let hash = label(it, DAEMON_TEMPLATE_HASH);
        node(it) == meant_node(pod) && is_ready(it) && hash.is_some() && hash != newest
    };
    let own = label(pod, DAEMON_TEMPLATE_HASH);
    own.is_some()
        && own == newest
        && !is_ready(pod)
        && (moves || observed.pods.iter().any(is_elder))
}

/// The node that it runs on. One that a DaemonSet made and that finds no room there yet names it in its affinity only.
fn meant_node(pod: &Pod) -> Option<&str> {
    let named = || {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let terms = required.node_selector_terms.iter();
        let mut fields = terms.flat_map(|term| term.match_fields.iter().flatten());
        let name = fields.find(|field| field.key == "metadata.name")?;
        name.values.iter().flatten().next().map(String::as_str)
    };
    node(pod).or_else(named)
}

/// When a client that has fields of its spec wrote it last, or deleted it. One that writes annotations changes no pod.
fn written_at(metadata: &ObjectMeta) -> Option<Timestamp> {
    let writes = metadata.managed_fields.iter().flatten();
    let has_spec = |it: &&ManagedFieldsEntry| {
        let fields = it.fields_v1.as_ref();
        fields.is_none_or(|fields| fields.0.get("f:spec").is_some())
    };
    let writes = writes.filter(|it| it.subresource.as_deref() != Some("status")).filter(has_spec);
    let deleted = metadata.deletion_timestamp.as_ref().map(|time| time.0);
    writes.filter_map(|it| Some(it.time.as_ref()?.0)).chain(deleted).max()
}

fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    Some(metadata.creation_timestamp.as_ref()?.0)
}

/// Since when a pod that is not ready has not been: where it never was, since it was made.
fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let since = ready.next().and_then(|condition| Some(condition.last_transition_time.as_ref()?.0));
    since.or_else(|| created(&pod.metadata))
}
