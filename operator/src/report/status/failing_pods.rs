//! Pods that do not start, and why: what the kubelet, the scheduler and the API server say in the status of pods and
//! workloads. Messages hold nothing that changes by itself, so that an unchanged cluster has an unchanged status.

use crds::ClusterDNS;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::ResourceExt;

use super::problem::{MAX_NAMED, Problem, named};
use crate::decide::adoption::is_per_node;
use crate::desired::Kind;
use crate::names;
use crate::observe::observed::Observed;
use crate::observe::pods::{self, CRASHES, NO_CONTAINER, NO_IMAGE};
use crate::runtime::resources;

/// Time for the scheduler to find a node, or for an autoscaler to bring one.
const SCHEDULING_S: i64 = 30;
/// Restarts after which a container that runs counts as failing, if it is not ready, or if it ended a moment ago.
const RESTARTS: i32 = 3;
/// A container that ends after less than this, and that ended within this, ends again and again, also if it is ready in between.
/// A kubelet waits up to 5 minutes before it starts one again, and forgets that after one has run for 10.
const AGAIN: SignedDuration = SignedDuration::from_mins(15);
/// Longest quoted message of kubelet, scheduler or API server per pod, in octets.
const MAX_WORDS: usize = 300;

/// A pod that ended for one of these reasons was not refused: its node was drained, full or lost.
const NOT_REFUSED: [&str; 7] = [
    "Evicted",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
    "Preempting",
    "NodeLost",
    "DeadlineExceeded",
];

/// All failing pods, those with the clearest reason first.
pub(super) fn failing_pods(
    dns: &ClusterDNS,
    observed: &Observed,
    now: Timestamp,
) -> impl Iterator<Item = Problem> {
    let (namespace, _) = names::service(dns);
    let of_these = |all: Vec<&Pod>, reason, advice: &str, why: &dyn Fn(&Pod) -> Option<String>| {
        let found = all.into_iter();
        let found = found.filter_map(|pod| Some(format!("{} {}", pods::name(pod), why(pod)?)));
        let found: Vec<String> = found.collect();
        let message = || format!("{}: kubectl -n {namespace} {advice}", named(found.clone()));
        (!found.is_empty()).then(|| trouble(reason, message()))
    };
    let of_pods = |reason, advice: &str, why: &dyn Fn(&Pod) -> Option<String>| {
        of_these(alive(observed).collect(), reason, advice, why)
    };
    let ended = observed.pods.iter().filter(|pod| !pods::is_leaving(pod) && pods::has_ended(pod));
    [
        of_pods("ImagePullFailed", "describe pod shows the reason", &image),
        of_pods("ContainerNotCreated", "describe pod shows more", &creation),
        of_pods("CrashLoopBackOff", "logs --previous shows the reason", &|pod| crash(pod, now)),
        of_pods("PodsUnschedulable", "describe pod shows more", &|pod| unschedulable(pod, now)),
        of_these(ended.collect(), "PodsRefused", "describe pod shows more", &|pod| {
            refused(pod, dns, observed)
        }),
        paused(dns, observed),
        not_created(dns, observed, now),
        no_progress(dns, observed, now),
    ]
    .into_iter()
    .flatten()
}

/// Pods that may still become ready.
fn alive(observed: &Observed) -> impl Iterator<Item = &Pod> {
    observed.pods.iter().filter(|pod| !pods::is_leaving(pod) && !pods::has_ended(pod))
}

fn trouble(reason: &'static str, message: String) -> Problem {
    Problem { reason, message, needs_a_person: false }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    })
}

fn waiting<'a>(
    pod: &'a Pod,
    reasons: &'a [&str],
) -> impl Iterator<Item = (&'a ContainerStatus, &'a str, &'a str)> {
    containers(pod).filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let message = waiting.message.as_deref().unwrap_or_default();
        reasons.contains(&reason).then_some((container, reason, message))
    })
}

fn image(pod: &Pod) -> Option<String> {
    // The kubelet's words alternate between the error and the back-off: only the image stays the same.
    let (container, ..) = waiting(pod, &NO_IMAGE).next()?;
    Some(format!("cannot pull the image {}", container.image))
}

fn creation(pod: &Pod) -> Option<String> {
    let (_, reason, message) = waiting(pod, &NO_CONTAINER).next()?;
    Some(format!("container could not be created ({reason}: {})", words(message)))
}

fn crash(pod: &Pod, now: Timestamp) -> Option<String> {
    let is_crashing = |container: &&ContainerStatus| {
        let state = container.state.clone().unwrap_or_default();
        let is_waiting = state.waiting.and_then(|it| it.reason);
        is_waiting.as_deref() == Some(CRASHES)
            || (container.restart_count >= RESTARTS
                && (!container.ready || ended_lately(container, now)))
    };
    let container = containers(pod).find(is_crashing)?;
    let last = ended(container.last_state.as_ref());
    Some(format!("crashes repeatedly{}", last.unwrap_or_default()))
}

/// Its last process ended a short time ago, after a short time.
fn ended_lately(container: &ContainerStatus, now: Timestamp) -> bool {
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let Some(end) = last.and_then(|last| Some(last.finished_at.as_ref()?.0)) else { return false };
    let begin = last.and_then(|last| Some(last.started_at.as_ref()?.0));
    now.duration_since(end) < AGAIN && begin.is_none_or(|begin| end.duration_since(begin) < AGAIN)
}

fn ended(state: Option<&ContainerState>) -> Option<String> {
    let terminated = state?.terminated.as_ref()?;
    let reason = terminated.reason.as_deref().unwrap_or("Error");
    Some(format!(" ({reason}, exit code {})", terminated.exit_code))
}

fn unschedulable(pod: &Pod, now: Timestamp) -> Option<String> {
    let condition = pods::unschedulable(pod)?;
    let since =
        condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let is_long = now.duration_since(since) >= SignedDuration::from_secs(SCHEDULING_S);
    let message = condition.message.as_deref().unwrap_or_default();
    is_long.then(|| format!("cannot be scheduled ({})", words(message)))
}

/// Refused by the kubelet of its node, for example because it does not allow a sysctl. The workload makes another
/// such pod again and again; old ones are ignored when enough pods run.
fn refused(pod: &Pod, dns: &ClusterDNS, observed: &Observed) -> Option<String> {
    let status = pod.status.as_ref()?;
    let reason = status.reason.as_deref().filter(|reason| !NOT_REFUSED.contains(reason))?;
    let progress = pods::progress(observed, is_per_node(dns));
    let is_refused = status.phase.as_deref() == Some("Failed") && progress.ready < progress.desired;
    let message = words(status.message.as_deref().unwrap_or_default());
    is_refused.then(|| format!("was refused by its node ({reason}: {message})"))
}

/// `kubectl rollout pause`: no pod gets a new template until it is resumed.
fn paused(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let is_paused = !is_per_node(dns) && pods::is_paused(observed);
    let deployment = observed.deployment.as_ref().filter(|_| is_paused)?;
    let (namespace, name) = (names::service(dns).0, deployment.metadata.name.as_deref()?);
    let message = format!(
        "another client paused the Deployment, so edits that need new pods wait: kubectl -n {namespace} rollout resume \
         deployment/{name}"
    );
    Some(Problem { reason: "DeploymentPaused", message, needs_a_person: true })
}

/// Refused by the API server: an admission webhook, a policy, a quota.
fn not_created(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> Option<Problem> {
    if is_per_node(dns) {
        return pods_missing_on_nodes(observed, now);
    }
    let message = deployment_condition(observed, "ReplicaFailure", "True", None)?;
    Some(trouble(
        "PodsNotAdmitted",
        format!(
            "the API server refuses new pods: {}. Change the admission policy, the quota or the spec that it names",
            words(message)
        ),
    ))
}

/// A DaemonSet has no condition for it: fewer than half of its pods exist, and it is no new one.
fn pods_missing_on_nodes(observed: &Observed, now: Timestamp) -> Option<Problem> {
    let set = observed.daemon_set.as_ref()?;
    let status = set.status.as_ref()?;
    let created = set.metadata.creation_timestamp.as_ref()?.0;
    let (desired, current) = (status.desired_number_scheduled, status.current_number_scheduled);
    let is_old = now.duration_since(created) >= SignedDuration::from_secs(SCHEDULING_S);
    let (name, namespace) = (set.metadata.name.as_deref()?, set.metadata.namespace.as_deref());
    let namespace = namespace.unwrap_or_default();
    (is_old && current.saturating_mul(2) < desired).then(|| {
        let why = format!(
            "DaemonSet {name} has pods on {current} of {desired} nodes: kubectl -n {namespace} describe daemonset {name} \
             shows the reason"
        );
        trouble("PodsNotAdmitted", why)
    })
}

fn no_progress(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> Option<Problem> {
    let reason = "ProgressDeadlineExceeded";
    let per_node = is_per_node(dns);
    let progress = pods::progress(observed, per_node);
    // All its pods may be there, and a Deployment waits until they are ready.
    let is_waited_for = pods::is_moving(observed, per_node) && progress.desired > 0;
    let is_there = progress.has_newest_pods() && !is_waited_for;
    let kind = match per_node {
        true if is_there || !pods::has_stalled(observed, now) => return None,
        true => Kind::DaemonSet,
        false => {
            deployment_condition(observed, "Progressing", "False", Some(reason))?;
            Kind::Deployment
        }
    };
    let waiting = alive(observed).filter(|pod| !pods::is_ready(pod));
    let waiting: Vec<String> =
        waiting.map(|pod| pods::name(pod).to_owned()).take(MAX_NAMED).collect();
    let (name, own) = (resources::name(kind), names::child(&dns.name_any()));
    let (namespace, of_kind) = (names::service(dns).0, name.to_lowercase());
    let why = match waiting.as_slice() {
        [] => format!(
            "and it makes no others. kubectl -n {namespace} describe {of_kind} {own} shows the reason"
        ),
        [first, ..] => format!(
            "and some do not become ready ({}). kubectl -n {namespace} describe pod {first} shows the reason",
            waiting.join(", ")
        ),
    };
    Some(trouble(
        reason,
        format!(
            "the {name} made no progress for 10 minutes: {} of {} pods have the newest template, {why}",
            progress.updated, progress.desired
        ),
    ))
}

fn deployment_condition<'a>(
    observed: &'a Observed,
    kind: &str,
    status: &str,
    reason: Option<&str>,
) -> Option<&'a str> {
    let conditions = observed.deployment.as_ref()?.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| {
        condition.type_ == kind
            && condition.status == status
            && reason.is_none_or(|reason| condition.reason.as_deref() == Some(reason))
    })?;
    Some(found.message.as_deref().unwrap_or_default())
}

/// A message of another program, on one line and not too long.
fn words(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::shortened::shortened(&line, MAX_WORDS)
}
