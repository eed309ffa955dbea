//! What is reported: conditions, revisions, pods, violations, from what was applied and observed, given `now`. Pure.
//!
//! `Accepted`: the spec is valid, and acted on while Managed. `Ready`: DNS answers for the clients of the Service, also if the answers
//! are those of an older spec. `UpToDate`: every ready pod runs this spec. `Progressing`: it is on its way there. `Degraded`: something stands in
//! the way. Two more that are there only while they are true are what kstatus reads: `Reconciling` and `Stalled`.
//! No counters and no timestamps: an unchanged cluster has an unchanged status, which is not written.

pub mod conditions;
mod up_to_date;
mod readiness;
mod clients_excluded;
mod certificates;
mod fields;
mod problem;
mod outdated_pods;
mod pods_shared;
mod problems;
mod silent_pods;
mod nodes;
mod not_scaled;
mod not_ready;
mod upstreams;
mod trial_held;
pub mod failing;
pub mod leaving;
pub mod unread;
pub mod unreadable;
mod failing_pods;
mod not_accepted;
mod operator_lacks;

use crds::v1alpha1::{ClusterDNSStatus, ManagementState, Revision};
use crds::without_effect::{self, WithoutEffect};
use crds::{ClusterDNS, Config};
use jiff::Timestamp;

use crate::apply::outcome::Applied;
use crate::decide::plan::{Plan, RolloutPlan, RolloutState, ServicePlan};
use crate::decide::rollout::{NextTrial, next_trial};
use crate::decide::{adoption, rollout, scale};
use crate::desired::{Kind, adopted_service, without_effect as useless};
use crate::observe::observed::{LostPods, Observed, Offers};
use crate::observe::pods;
pub use conditions::CONDITIONS;
use conditions::{ConditionState, Conditions};
use fields::{cluster_ips, replicas, skipped, wanted};
pub use not_accepted::{refused, rejected};
use not_ready::was_complete;
use problem::named;
use problems::problems;
use readiness::readiness;
use up_to_date::up_to_date;

/// The spec was acted on.
pub fn of(
    dns: &ClusterDNS,
    config: &Config,
    plan: &Plan,
    applied: &Applied,
    observed: &Observed,
    now: Timestamp,
) -> ClusterDNSStatus {
    let unwritten = with_unwritten(plan, applied, observed);
    let plan = unwritten.as_ref().unwrap_or(plan);
    let state = &plan.rollout.state;
    let replicas = replicas(wanted(&plan.size, observed), &state.stable, observed);
    let problems = problems(dns, plan, applied, observed, now);
    let way = on_its_way(dns, plan, observed, now);
    let mut conditions = Conditions::of(dns, now);
    conditions.set("Accepted", accepted_here(dns, config, observed));
    conditions.set(
        "Ready",
        // While nothing was known of it (Unknown), pods may have answered all the time.
        readiness(dns, plan, observed, &replicas, (conditions.was_not_false("Ready"), now)),
    );
    conditions.set("UpToDate", up_to_date(dns, plan, applied, observed, way.as_ref(), &conditions));
    let degraded = match problems.first() {
        Some(first) => Some(ConditionState::yes(first.reason, &not_ready::described(&problems))),
        None => silent_pods::until_heard(observed, conditions.before("Degraded")),
    };
    let rests = || at_rest(dns, plan, observed, degraded.is_some(), now);
    conditions.set("Progressing", way.clone().unwrap_or_else(rests));
    let as_expected = || ConditionState::no("AsExpected", as_expected(observed.lost_pods));
    conditions.set("Degraded", degraded.unwrap_or_else(as_expected));
    let stalled = problems.iter().find(|problem| problem.needs_a_person);
    conditions.set_if(
        "Stalled",
        stalled.map(|problem| ConditionState::yes(problem.reason, &problem.message)),
    );
    conditions.set_if("Reconciling", way);
    ClusterDNSStatus {
        observed_generation: dns.metadata.generation,
        domain: Some(config.domain.clone()),
        cluster_ips: cluster_ips(observed, plan),
        revision: Some(Revision {
            desired: plan.rollout.desired_revision.clone(),
            stable: state.stable.clone(),
            canary: plan.rollout.canary.as_ref().map(|_| state.canary.clone()).unwrap_or_default(),
        }),
        replicas: Some(replicas),
        conditions: conditions.listed(),
        violations: Vec::new(),
        skipped_objects: skipped(observed),
    }
}

/// The plan with the rollout that is in the cluster, where the API server did not take the next one: pods read the ConfigMap.
fn with_unwritten(plan: &Plan, applied: &Applied, observed: &Observed) -> Option<Plan> {
    let is_written = !applied.has_failed(Kind::ConfigMap) || observed.config_map.is_none();
    (!is_written).then(|| {
        let rollout = rollout::untouched(observed, plan.rollout.desired_revision.clone());
        Plan { rollout, ..plan.clone() }
    })
}

/// What a person should know although there is no problem.
fn as_expected(lost_pods: LostPods) -> &'static str {
    match lost_pods {
        LostPods::TakenOut => "no problem found",
        LostPods::LeftAlone => {
            "no problem found. When a node dies, its pod stays in the Service for about 40 s, until Kubernetes marks the node as \
             not ready. lostPods.enabled: true in the chart's values shortens that to seconds"
        }
        LostPods::NoPolicy => {
            "no problem found. When a node dies, its pod stays in the Service for about 40 s, until Kubernetes marks the node as \
             not ready. To shorten that to seconds, install the ValidatingAdmissionPolicy clusterdns-operator-pods of the chart: \
             it is missing or does not refuse"
        }
    }
}

/// What of the spec has no effect: in this version, beside other fields, and with this API server.
fn accepted_here(dns: &ClusterDNS, config: &Config, observed: &Observed) -> ConditionState {
    let queries_per_second = scale::queries_per_second(observed);
    let offers = &Offers { queries_per_second, ..observed.offers };
    let mut used = without_effect::of(config);
    used.extend(useless::beside_others(dns));
    let adopted = observed.service.as_ref().filter(|_| !adoption::has_own(dns, observed));
    used.extend(adopted_service::of_adopted_service(dns, adopted, offers));
    let message = match dns.spec.management_state {
        ManagementState::Managed => ACTED_ON,
        ManagementState::Unmanaged => IGNORED,
    };
    // Nothing of an unmanaged spec is created, whether its kind is there or not.
    let missing_kinds = match dns.spec.management_state {
        ManagementState::Managed => {
            used.extend(useless::of_missing_kinds(dns, offers));
            useless::missing_kinds(dns, offers)
        }
        ManagementState::Unmanaged => Vec::new(),
    };
    accepted(message, &used, &missing_kinds)
}

const ACTED_ON: &str = "the spec is valid and acted on";
const IGNORED: &str = "the spec is valid; managementState is Unmanaged, so it is not acted on";

/// Names the fields that are accepted and have no effect, so that users do not rely on them. An object of a missing kind is
/// wanted by default, so it is a note and not a reason.
fn accepted(message: &str, used: &[WithoutEffect], missing_kinds: &[&str]) -> ConditionState {
    let mut message = message.to_owned();
    if !used.is_empty() {
        let used = used.iter().map(|it| format!("{} ({})", it.field, it.instead)).collect();
        message.push_str(&format!(". Fields without effect: {}", named(used)));
    }
    if !missing_kinds.is_empty() {
        message.push_str(&format!(
            ". Not created, because the API server does not have the kind: {}. They are created within 5 minutes after the \
             CustomResourceDefinitions of monitoring.coreos.com are there",
            missing_kinds.join(", ")
        ));
    }
    let reason = if used.is_empty() { "Valid" } else { "FieldsWithoutEffect" };
    ConditionState::yes(reason, &message)
}

fn at_rest(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
    is_degraded: bool,
    now: Timestamp,
) -> ConditionState {
    let RolloutState { failed, stable, .. } = &plan.rollout.state;
    match dns.spec.management_state {
        ManagementState::Managed if failed == &plan.rollout.desired_revision => {
            let message = format!(
                "configuration {failed}, which the spec asks for, failed its trial, so pods run the one before, {stable}: \
                 Degraded shows the reason"
            );
            ConditionState::no("TrialFailed", &message)
        }
        ManagementState::Managed => match adoption::reset_by(dns, observed, now) {
            Some((_, Some(until))) => ConditionState::no(
                "SelectorReset",
                &format!(
                    "another client reset the selector of the Service. The operator changes it again after {until:.0}"
                ),
            ),
            Some((_, None)) | None => {
                let scaling = match scale::ceiling(&dns.spec, observed.size) {
                    None => String::new(),
                    Some(most) => format!(
                        ". By its size the cluster would have more pods than maxReplicas of spec.scaling.proportional allows \
                         ({most}): raise it if they are busy"
                    ),
                };
                let problems = if is_degraded { ": Degraded says what is wrong" } else { "" };
                let message = format!(
                    "no rollout, trial or move of the Service is in progress{problems}{scaling}"
                );
                ConditionState::no("Complete", &message)
            }
        },
        ManagementState::Unmanaged => ConditionState::no(
            "Unmanaged",
            "managementState is Unmanaged: the operator ignores changes to this resource",
        ),
    }
}

/// The reason of Progressing; None if the spec is reached, or not applied (Unmanaged).
fn on_its_way(
    dns: &ClusterDNS,
    plan: &Plan,
    observed: &Observed,
    now: Timestamp,
) -> Option<ConditionState> {
    if dns.spec.management_state == ManagementState::Unmanaged {
        return None;
    }
    let rollout = &plan.rollout;
    let state = &rollout.state;
    let per_node = adoption::is_per_node(dns);
    let progress = pods::progress(observed, per_node);
    if pods::is_moving(observed, per_node) {
        let waits = waits_for_pods(dns, rollout, observed, now);
        return Some(ConditionState::yes("RollingOut", &moving(progress, per_node, &waits)));
    }
    if !progress.has_newest_pods() {
        let left_out = match progress.left_out {
            0 => String::new(),
            nodes => format!(". Left out are {nodes} nodes that are not ready"),
        };
        let waits = waits_for_pods(dns, rollout, observed, now);
        let message = format!(
            "{} of {} pods have the newest template{left_out}{waits}",
            progress.updated, progress.desired
        );
        return Some(ConditionState::yes("RollingOut", &message));
    }
    if !was_complete(dns) && !progress.is_ready() {
        return Some(ConditionState::yes(
            "Starting",
            &format!("{} of {} pods are ready", progress.ready, progress.desired),
        ));
    }
    if let Some(pod) = state.canary_pod.as_ref().filter(|_| rollout.canary.is_some()) {
        let message = format!("pod {} tries configuration {}", pod.name, state.canary);
        return Some(ConditionState::yes("CanaryOnTrial", &message));
    }
    if !state.waits_since.is_empty() {
        let message = format!(
            "configuration {} waits up to 60 s for a second ready pod, so that it can be tried",
            rollout.desired_revision
        );
        return Some(ConditionState::yes("WaitingForCanary", &message));
    }
    if state.is_unjudged && state.failed == rollout.desired_revision {
        let message = format!(
            "configuration {} waits, because the operator could not test it: Degraded shows the reason and what is next",
            rollout.desired_revision
        );
        return Some(ConditionState::yes("WaitingForCanary", &message));
    }
    let has_failed = state.failed == rollout.desired_revision;
    let waits = !has_failed || next_trial(dns, rollout, observed, now) == NextTrial::WithTwoPods;
    if rollout.desired_revision != state.stable && waits {
        let message = format!(
            "configuration {} is waiting for two ready pods that report their revision",
            rollout.desired_revision
        );
        return Some(ConditionState::yes("WaitingForCanary", &message));
    }
    let behind = pods::behind(observed, state).count();
    if behind > 0 {
        let message = format!("{behind} ready pods do not run configuration {} yet", state.stable);
        return Some(ConditionState::yes("TakingOver", &message));
    }
    // A new pod takes the configuration before it is ready, so it alone makes nothing unknown.
    let unasked = pods::unasked(observed);
    if unasked > 0 && !Conditions::of(dns, Timestamp::UNIX_EPOCH).was_true_of_this_spec("UpToDate")
    {
        let message = format!(
            "{unasked} ready pods did not say yet what they run: the operator asks them in turn, 50 in a second"
        );
        return Some(ConditionState::yes("TakingOver", &message));
    }
    match &plan.service {
        ServicePlan::Adopted { .. }
            if adoption::standing(dns, observed.service.as_ref())
                != adoption::Standing::Switched =>
        {
            // Nothing happens before that time, which may be an hour away.
            let waits = adoption::reset_by(dns, observed, now)
                .is_some_and(|(_, until)| until.is_some_and(|until| now < until));
            (!waits).then(|| {
                ConditionState::yes(
                    "Switching",
                    "the Service moves to the pods of this ClusterDNS when all of them are ready",
                )
            })
        }
        ServicePlan::Released { patch: Some(_), .. } => {
            Some(ConditionState::yes("Releasing", "the Service is given back"))
        }
        ServicePlan::Recreated { .. } => {
            Some(ConditionState::yes("Recreating", "the Service was deleted and is created again"))
        }
        ServicePlan::Released { .. } | ServicePlan::Adopted { .. } | ServicePlan::Own => None,
    }
}

/// Pods of the workload before serve, also where all of the wanted one are there and not ready.
fn moving(progress: pods::Progress, per_node: bool, waits: &str) -> String {
    let (before, wanted) = match per_node {
        true => ("Deployment", "DaemonSet"),
        false => ("DaemonSet", "Deployment"),
    };
    let how_far = match progress.exists {
        true => {
            format!(": {} of {} pods of the {wanted} are ready", progress.ready, progress.desired)
        }
        false => ", which does not exist yet".to_owned(),
    };
    format!(
        "pods move from the {before} to the {wanted}{how_far}. Those of the {before} stay until all of the {wanted} are{waits}"
    )
}

/// A rollout of many pods takes long, and a person who has edited the configuration should know what that waits for.
fn waits_for_pods(
    dns: &ClusterDNS,
    rollout: &RolloutPlan,
    observed: &Observed,
    now: Timestamp,
) -> String {
    let (wanted, state) = (&rollout.desired_revision, &rollout.state);
    let per_node = adoption::is_per_node(dns);
    let stay = pods::stay(observed, per_node, now);
    if stay || rollout.canary.is_some() || [&state.stable, &state.failed].contains(&wanted) {
        return String::new();
    }
    let or_else = match pods::is_moving(observed, per_node) {
        true => ", or when the new pods do not start or make no step for 10 minutes,",
        false => "",
    };
    format!(
        ". After that{or_else} a pod tries configuration {wanted}; until then pods run {}",
        state.stable
    )
}

#[cfg(test)]
mod tests;
