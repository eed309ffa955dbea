//! Too few pods are ready: until when that is a problem, and where a person reads why.

use crds::ClusterDNS;
use crds::bounds::MESSAGE;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::conditions::{ALSO, Conditions};
use super::problem::{Problem, problem};
use crate::decide::adoption::is_per_node;
use crate::desired::CONTAINER;
use crate::desired::ports::METRICS;
use crate::names;
use crate::observe::observed::Observed;
use crate::observe::pods::{self, Progress};
use crate::shortened::shortened;

/// The reason of `Degraded`, and words of its message, by which the next look knows it again.
const TOO_FEW: &str = "TooFewPodsReady";
const FEWER: &str = "fewer than half";
/// What a status says of it where the pods are not looked at.
const LAST_SEEN: &str = "; at the last look at the pods, fewer than half of them were ready";

/// Fewer than half of the desired pods are ready, and no rollout or scaling was in progress when that began. A new ClusterDNS is
/// starting; one that was ready once has this until half of its pods are ready again, also while a rollout is to mend it.
pub(super) fn too_few_pods(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let per_node = is_per_node(dns);
    let wanted = pods::progress(observed, per_node);
    let are_enough = |it: &Progress| it.ready.saturating_mul(2) >= it.desired;
    // Those of the workload before serve until all of the wanted one do, which start meanwhile; either of them may end this.
    let is_moving = pods::is_moving(observed, per_node);
    let progress = if is_moving { pods::progress(observed, !per_node) } else { wanted };
    let have_come = is_moving && wanted.desired > 0 && are_enough(&wanted);
    let begins = was_ready(dns) && progress.has_newest_pods();
    if !(begins || had_too_few_pods(dns)) || have_come || are_enough(&progress) {
        return None;
    }
    problem(
        TOO_FEW,
        format!(
            "{} of {} pods are ready, {FEWER}: {}",
            progress.ready,
            progress.desired,
            next_step(dns, observed)
        ),
    )
}

/// The messages of all problems. That of this one is first: the next look knows it by its words, so they must not be cut off.
/// Before them are the reasons of all that are not the first, because what follows a long message is cut off.
pub(super) fn described(problems: &[Problem]) -> String {
    let first = problems.first().map(|problem| problem.reason);
    let mut others: Vec<&str> = problems.iter().map(|problem| problem.reason).collect();
    others.retain(|reason| Some(*reason) != first);
    others.dedup();
    let others = match others.is_empty() {
        true => String::new(),
        false => format!("{ALSO}{}; ", others.join(", ")),
    };
    let mut all: Vec<&Problem> = problems.iter().collect();
    all.sort_by_key(|problem| problem.reason != TOO_FEW);
    let messages: Vec<&str> = all.iter().map(|problem| problem.message.as_str()).collect();
    format!("{others}{}", messages.join("; "))
}

/// `text` and then this problem, in the length that a condition may have: the next look knows it by its words.
pub(super) fn with_too_few_last(text: &str, too_few: &Problem) -> String {
    ending(text, &format!("; {}", too_few.message))
}

/// Shortens a text, so that there is room for its end.
fn ending(text: &str, end: &str) -> String {
    format!("{}{end}", shortened(text, MESSAGE.saturating_sub(end.len())))
}

/// Is it no new one, so that pods that are not ready do not just start?
pub(super) fn was_complete(dns: &ClusterDNS) -> bool {
    was_ready(dns) || had_too_few_pods(dns)
}

/// Did the last status say so? Where it knew nothing, the pods count that the last look found ready.
fn was_ready(dns: &ClusterDNS) -> bool {
    let conditions = Conditions::of(dns, Timestamp::UNIX_EPOCH);
    let replicas = dns.status.as_ref().and_then(|status| status.replicas.as_ref());
    let had_ready_pods = replicas.is_some_and(|replicas| replicas.ready > 0);
    conditions.was_true("Ready") || conditions.was_not_false("Ready") && had_ready_pods
}

/// Did the last status have this problem? Another one may have come first.
fn had_too_few_pods(dns: &ClusterDNS) -> bool {
    let conditions = Conditions::of(dns, Timestamp::UNIX_EPOCH);
    let degraded = conditions.before("Degraded").filter(|it| it.status == "True");
    degraded.is_some_and(|it| it.reason == TOO_FEW || it.message.contains(FEWER))
}

/// The message of `Degraded` where the pods are not looked at. That does not end this problem, and nothing but this message says
/// to the next look that these pods do not just start.
pub(super) fn not_looked_at(dns: &ClusterDNS, message: &str) -> String {
    match had_too_few_pods(dns) {
        true => ending(message, LAST_SEEN),
        false => message.to_owned(),
    }
}

/// The command that shows it. Of a pod that runs, Kubernetes knows only the status code of the probe: the pod itself says why.
/// It is not quoted, because it counts seconds, so that the status would change with each look.
pub(super) fn next_step(dns: &ClusterDNS, observed: &Observed) -> String {
    let (namespace, _) = names::service(dns);
    let waits = |pod: &&Pod| !pods::is_ready(pod) && !pods::is_leaving(pod) && is_running(pod);
    let Some(pod) = observed.pods.iter().filter(waits).min_by_key(|pod| pods::name(pod)) else {
        return format!("kubectl -n {namespace} get pods shows the reason");
    };
    let (name, port) =
        (pods::name(pod), pods::port(pod, METRICS).map_or(crds::defaults::HTTP_PORT, u32::from));
    format!(
        "{name} runs, and says why it is not ready at /readyz: kubectl -n {namespace} port-forward pod/{name} {port}, and in a \
         second terminal curl http://127.0.0.1:{port}/readyz"
    )
}

fn is_running(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut ours = statuses.filter(|status| status.name == CONTAINER);
    ours.any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o19_the_words_by_which_an_outage_is_known_are_not_cut_off() {
        let long = "0/9 nodes are available. ".repeat(60);
        let too_few = || problem(TOO_FEW, format!("0 of 6 pods are ready, {FEWER}")).unwrap();
        let all = [problem("PodsUnschedulable", long.clone()).unwrap(), too_few()];
        assert!(shortened(&described(&all), MESSAGE).contains(FEWER));
        let text = with_too_few_last(&long, &too_few());
        assert!(text.len() <= MESSAGE && text.contains(FEWER), "{text}");
    }
}
