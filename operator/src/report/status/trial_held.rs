//! The operator cannot judge a configuration on trial: why, and what ends that. Nothing is decided until it is over.

use crds::ClusterDNS;
use jiff::Timestamp;

use super::problem::Problem;
use crate::decide::plan::{HeldBy, Plan};
use crate::decide::rollout::{NextTrial, next_trial};
use crate::names;
use crate::observe::observed::Observed;

/// The problem, what a person can do about it, and when the operator tries again.
pub(super) fn trial_held(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
    now: Timestamp,
) -> Option<Problem> {
    let held = plan.rollout.held.as_ref()?;
    let state = &plan.rollout.state;
    let has_canary = plan.rollout.canary.is_some();
    let again = match (state.is_unjudged, has_canary) {
        (false, _) => String::new(),
        (true, true) => format!(". {}", next(dns, plan, observed, now).0),
        (true, false) => format!(
            ". Its pod went back to configuration {}. {}",
            state.stable,
            next(dns, plan, observed, now).0
        ),
    };
    let revision = &plan.rollout.desired_revision;
    let what = match has_canary && state.held_since.is_empty() {
        true => {
            format!(
                "the last trial of configuration {revision} had no result. The operator could not test the pod"
            )
        }
        false => {
            format!(
                "the trial of configuration {revision} is paused. The operator cannot test the pod"
            )
        }
    };
    let untried = held.by.without_a_trial().map(|how| format!(". {how}")).unwrap_or_default();
    let message = format!("{what}: {}. {}{untried}{again}", held.why, advice(held.by, dns));
    Some(Problem { reason: held.by.reason(), message, needs_a_person: false })
}

/// What a person can do to end it.
fn advice(by: HeldBy, dns: &ClusterDNS) -> String {
    let own = dns.metadata.name.as_deref().unwrap_or_default();
    let port = dns.spec.service.clone().unwrap_or_default().pod_port;
    let pods = format!("pods with the label {}={own}", names::INSTANCE);
    let http = crds::defaults::HTTP_PORT;
    match by {
        HeldBy::Network => format!(
            "If NetworkPolicies block it, allow this: from the operator's namespace to {pods}, UDP {port}, TCP {port} and TCP \
             {http} (spec.networkPolicy: true creates such a policy)"
        ),
        HeldBy::RefusedOperator => {
            "Add the address of the operator's pod, or the range that it is from, to spec.access.clients: kubectl get pods -A -o \
             wide -l app.kubernetes.io/component=operator shows the address"
                .to_owned()
        }
        HeldBy::ApiServer => {
            "Check the API server, and that the operator may list Namespaces and Services: its trials ask for their names"
                .to_owned()
        }
        HeldBy::Busy => "It continues by itself when it has asked the pods of the others".to_owned(),
        HeldBy::NoOtherPod => format!(
            "Check that a second pod is ready and that the operator reads /config of it on TCP {http}: {pods}"
        ),
        HeldBy::CutOff => format!(
            "Check that {pods} reach the API server, which a NetworkPolicy with egress rules may prevent, and that it accepts \
             their ServiceAccount: PodsCutOff says more after a minute"
        ),
        HeldBy::Interrupted => {
            "Stop that client: the Events ServiceRecreated and ForeignEditUndone say what it does, and the audit log of the API \
             server who it is"
                .to_owned()
        }
    }
}

/// When the configuration that failed, or was not judged, is tried again; and whether that needs a person.
pub(super) fn next(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
    now: Timestamp,
) -> (String, bool) {
    let (again, needs_a_person) = match next_trial(dns, &plan.rollout, observed, now) {
        NextTrial::Now => ("A pod tries it again now", false),
        // A time, not the time until then: an unchanged status must not differ.
        NextTrial::At(at) => {
            let again = retry_command(dns);
            return (format!("The next trial is at {at:.0}, or at once after {again}"), true);
        }
        NextTrial::WithTwoPods => (
            "The next trial begins when two pods are ready and no rollout of pods is in progress",
            false,
        ),
        NextTrial::WithTwoPodsUntil(at) => {
            let again = "The next trial begins when two pods are ready";
            let text =
                format!("{again}. If they are not at {at:.0}, every pod gets it without a trial");
            return (text, false);
        }
        NextTrial::OnePodAt(at) => {
            let text = format!(
                "There is no trial while there is only one pod: it gets this configuration at {at:.0}, or at once after {}",
                retry_command(dns)
            );
            return (text, false);
        }
        NextTrial::OnePod => ("There is no trial while there is only one pod", true),
        NextTrial::Unmanaged => ("There is no trial while managementState is Unmanaged", true),
    };
    (again.to_owned(), needs_a_person)
}

/// The command that has a configuration tried again at once.
fn retry_command(dns: &ClusterDNS) -> String {
    let own = dns.metadata.name.as_deref().unwrap_or_default();
    format!("kubectl annotate clusterdns {own} {}=$(date +%s) --overwrite", names::RETRY)
}
