//! Decides which pod runs which revision, from the ConfigMap, the pods' reports and `now`. A changed
//! configuration goes to one pod
//! first; it reaches the others only when that pod was seen to run it and answered as well as they do. Pure: all state is in
//! rollout.json, so that a new leader continues where the last one stopped.

mod trial;
mod rounds;
mod retry;
mod nothing_new;

use std::time::Duration;

use crds::config::PodRecords;
use crds::{ClusterDNS, Config, config};
use jiff::{SignedDuration, Timestamp};

use crate::decide::config_map::{self, Current, Edit};
use crate::decide::plan::{Notice, RolloutPlan, RolloutState, Size};
use crate::decide::scale;
use crate::decide::{adoption, service_account};
use crate::observe::observed::{Observed, Reported};
use crate::observe::pods;
pub use nothing_new::nothing_new;
pub use retry::{NextTrial, next_trial, remembered as what_failed};

/// Ready pods without which nothing can be compared, so that nothing is tried.
const PODS_TO_TRY: usize = 2;
/// Between two reconciles while there is something to wait for.
const RECONCILE_EVERY: Duration = Duration::from_secs(2);
/// Wait for a second ready pod; after it, a configuration goes out untried.
const WAIT_FOR_SECOND: SignedDuration = SignedDuration::from_secs(60);
/// How long a warning about a configuration stays after every pod got it: after that, the pods' own reports show what
/// is still true.
const WARNED_FOR: SignedDuration = SignedDuration::from_secs(600);
/// The same where servers reply only with errors: pods report silent servers, and not these.
const WARNED_OF_ERRORS_FOR: SignedDuration = SignedDuration::from_secs(24 * 3_600);
/// How long an edit by another client, which was undone, is reported.
const EDIT_REPORTED_FOR: SignedDuration = SignedDuration::from_secs(600);
/// By how much the clocks of two operators may differ.
const CLOCKS: SignedDuration = SignedDuration::from_mins(5);
/// Why a configuration goes out untried, or a trial ends.
const ONE_POD: &str = "it was not tried, because there is one pod only, so that nothing can be compared; with two or more pods \
                       every change is tried first";
/// Format of pods that do not report a format.
const OLDEST_FORMAT: u32 = 1;

/// What the configuration ConfigMap should hold now.
pub fn plan(dns: &ClusterDNS, config: &Config, observed: &Observed, now: Timestamp) -> RolloutPlan {
    let written = Current::read(observed);
    let asked = Asked::of(config, &written, observed);
    let mut plan = decide(dns, &asked, &written, observed, now);
    plan.needs_pods = needs_pods(&plan, &written, observed);
    plan.state.needs_pods = plan.needs_pods;
    plan.state.failed_pod = failed_pod(&plan, &written, observed);
    plan.state.failed_earlier = retry::earlier(&written.state, &plan.state);
    (plan.state.edited_at, plan.state.is_edit_kept) = edited(&plan, &written, now);
    plan.state.switch = adoption::remember(dns, observed, now);
    plan.state.service = adoption::to_remember(dns, observed);
    plan.state.account = service_account::seen(dns, observed);
    plan.desired_revision = asked.revision;
    let warned_for = if plan.state.has_errors_only { WARNED_OF_ERRORS_FOR } else { WARNED_FOR };
    if is_over(&plan.state.warned_at, warned_for, now) {
        (plan.state.warning, plan.state.warned_at) = (String::new(), String::new());
        plan.state.has_errors_only = false;
    }
    let lacks_document =
        |pod| pods::reported(observed, pod).is_some_and(|reported| reported.has_no_document);
    if pods::behind(observed, &plan.state).next().is_some()
        || pods::unasked(observed) > 0
        || pods::ready(observed).any(lacks_document)
    {
        plan.again_in =
            Some(plan.again_in.map_or(RECONCILE_EVERY, |again| again.min(RECONCILE_EVERY)));
    }
    plan
}

/// When another client changed the stable document, for as long as that is reported, and whether pods still run what it wrote.
fn edited(plan: &RolloutPlan, written: &Current, now: Timestamp) -> (String, bool) {
    let state = &written.state;
    match written.edit {
        Edit::None => {
            let is_kept = state.is_edit_kept && state.stable == plan.state.stable;
            let is_past = !is_kept && is_over(&state.edited_at, EDIT_REPORTED_FOR, now);
            let at = if is_past { String::new() } else { state.edited_at.clone() };
            (at, is_kept)
        }
        // Nothing can be written back, so each look finds the same edit: a new time would be a write that wakes every pod.
        Edit::Unreadable if plan.stable.is_empty() && !state.edited_at.is_empty() => {
            (state.edited_at.clone(), false)
        }
        Edit::Undone | Edit::Unreadable => (now.to_string(), false),
        Edit::Kept => (now.to_string(), written.stable.as_ref() == Some(&plan.stable)),
    }
}

/// The pod on which a revision failed last, while that pod exists: its node may be the reason.
fn failed_pod(plan: &RolloutPlan, written: &Current, observed: &Observed) -> String {
    let newest = [&plan.state.failed_pod, &written.state.failed_pod];
    let exists = |uid: &&&String| observed.pods.iter().any(|pod| pods::uid(pod) == **uid);
    newest
        .into_iter()
        .find(|uid| !uid.is_empty())
        .filter(|uid| exists(&uid))
        .cloned()
        .unwrap_or_default()
}

/// Does the spec ask for a trial of what is on trial? Where it does not, the trial ends, also if its pod answers well.
pub fn is_wanted(dns: &ClusterDNS, config: &Config, observed: &Observed) -> bool {
    let written = Current::read(observed);
    let asked = Asked::of(config, &written, observed);
    let rule = dns.spec.rollout.clone().unwrap_or_default();
    rule.canary && asked.revision == written.state.canary && !has_one_pod(dns, observed)
}

/// The document that the spec asks for.
struct Asked {
    revision: String,
    text: String,
}

impl Asked {
    fn of(config: &Config, written: &Current, observed: &Observed) -> Asked {
        let config = Config { format: format(written, observed), ..config.clone() };
        Asked { revision: config.revision(), text: config.to_json() }
    }
}

fn decide(
    dns: &ClusterDNS,
    asked: &Asked,
    written: &Current,
    observed: &Observed,
    now: Timestamp,
) -> RolloutPlan {
    let rule = dns.spec.rollout.clone().unwrap_or_default();
    let Some(stable) = &written.stable else {
        return without_stable(asked, written, observed, rule.canary);
    };
    if asked.revision == written.state.stable && written.edit == Edit::Kept {
        return at_once(asked, None);
    }
    let beside = beside_foreign(stable, written);
    let written = beside.as_ref().unwrap_or(written);
    let state = &written.state;
    if asked.revision == state.stable {
        return keep(stable, state);
    }
    if !rule.canary {
        return at_once(asked, Some("spec.rollout.canary is false"));
    }
    let has_failed = retry::has_failed(dns, state, &asked.revision);
    if has_failed && state.canary != asked.revision && !retry::is_due(dns, state, now) {
        let mut plan = keep(stable, state);
        plan.state = RolloutState { stable: plan.state.stable, ..retry::remembered(state) };
        plan.again_in = retry::due_in(state, now);
        plan.held = retry::unjudged(dns, state, &asked.revision);
        return plan;
    }
    // A revision that failed is never rolled out untried (unless spec.rollout.canary is false), even if the
    // spec was edited in between, also to another revision.
    let has_failed = retry::is_known_to_fail(state, &asked.revision);
    // A canary that broke its pod leaves fewer than two ready pods. The others must not get it, nor a later edit, for
    // that reason. The pod goes back to stable, and then there are two again.
    let is_trying = !state.canary.is_empty();
    if !is_trying && !has_failed && all_refuse(observed, &state.stable) {
        let why = "no pod runs the configuration before, so nothing can be compared";
        return at_once(asked, Some(why));
    }
    let has_one_pod = has_one_pod(dns, observed);
    if has_one_pod && has_failed {
        return cannot_retry(&asked.revision, stable, state);
    }
    if !is_trying && !has_failed && pods::ready(observed).count() < PODS_TO_TRY {
        return without_trial(dns, asked, written, observed, now);
    }
    let observe_seconds = rule.observe_seconds;
    let trial = trial::Trial { dns, observe_seconds, asked, stable, state, observed, now };
    // The spec asks for one pod since the trial began: a second one to compare with never comes.
    if is_trying && has_one_pod {
        return trial.end_alone();
    }
    trial.plan()
}

/// True if every pod that reports refuses its configuration and runs another one. Then there is no pod to compare with, and a
/// configuration that repairs this would wait forever. A pod that was given no document, because another client deleted the
/// ConfigMap, reports a rejection too, while it runs what it ran.
fn all_refuse(observed: &Observed, stable: &str) -> bool {
    let mut reported =
        pods::ready(observed).filter_map(|pod| pods::reported(observed, pod)).peekable();
    let refuses = |reported: &Reported| reported.refusal().is_some() && reported.revision != stable;
    reported.peek().is_some() && reported.all(refuses)
}

/// Waits a while for a second pod, because a drained node is no reason to skip the trial; then every pod gets it untried.
fn without_trial(
    dns: &ClusterDNS,
    asked: &Asked,
    written: &Current,
    observed: &Observed,
    now: Timestamp,
) -> RolloutPlan {
    if has_one_pod(dns, observed) {
        return untried(asked, ONE_POD);
    }
    let state = &written.state;
    let since = state.waits_since.parse::<Timestamp>().ok().filter(|since| *since <= now);
    let since = since.unwrap_or(now);
    if now.duration_since(since) >= WAIT_FOR_SECOND {
        let why = "it was not tried, because fewer than two pods were ready for 60 s";
        return untried(asked, why);
    }
    let mut plan = keep(written.stable.as_deref().unwrap_or_default(), state);
    plan.held = retry::unjudged(dns, state, &asked.revision);
    if plan.held.is_some() {
        plan.state = RolloutState { stable: plan.state.stable, ..retry::remembered(state) };
    }
    plan.state.waits_since = since.to_string();
    plan.again_in = Some(RECONCILE_EVERY);
    plan
}

/// A failed revision is not rolled out: one pod has no other pod to compare with. The time of the next trial is
/// forgotten, so that the trial begins as soon as there is a second pod.
fn cannot_retry(revision: &str, stable: &str, state: &RolloutState) -> RolloutPlan {
    let mut plan = keep(stable, state);
    plan.state = RolloutState {
        stable: plan.state.stable,
        retry_at: String::new(),
        ..retry::recalled(state, revision)
    };
    plan
}

/// Does the spec ask for one pod? A workload that has one now may be about to get more.
fn has_one_pod(dns: &ClusterDNS, observed: &Observed) -> bool {
    match scale::size(&dns.spec, observed) {
        Size::Replicas(count) => count < 2,
        Size::Autoscaled { min, .. } => min < 2,
        // A DaemonSet that wants no pod is a mistake, and says nothing about the next one.
        Size::PerNode => {
            let progress = pods::progress(observed, true);
            progress.is_seen && progress.desired == 1
        }
    }
}

/// Every pod gets it now, with a warning: no pod has tried it.
fn untried(asked: &Asked, why: &str) -> RolloutPlan {
    let mut plan = at_once(asked, Some(why));
    for notice in &mut plan.notices {
        (notice.is_warning, notice.reason) = (true, "ConfigurationUntried");
    }
    plan
}

/// True if this RFC 3339 time is at least `time` ago, or further ahead than clocks differ: a clock wrote it that was corrected
/// since, and what it limits must not last until that time. False for an empty text.
fn is_over(since: &str, time: SignedDuration, now: Timestamp) -> bool {
    let ago = since.parse::<Timestamp>().map(|since| now.duration_since(since));
    ago.is_ok_and(|ago| ago >= time || ago < -CLOCKS)
}

/// Pods run what another client wrote, and what was there before is not known: the configuration of the spec is tried beside
/// that one. What was tried beside the one before proves nothing here; what failed stays known.
fn beside_foreign(stable: &str, written: &Current) -> Option<Current> {
    let state = &written.state;
    (written.edit == Edit::Kept).then(|| Current {
        stable: written.stable.clone(),
        format: written.format,
        state: RolloutState {
            stable: config::revision_of(stable),
            needs_pods: state.needs_pods,
            ..retry::remembered(state)
        },
        edit: written.edit.clone(),
    })
}

/// What pods run is not in the ConfigMap: it is a first install, or another client deleted or edited it. Then the
/// previous configuration is not known, and what failed only where `rollout.json` was left.
fn without_stable(
    asked: &Asked,
    written: &Current,
    observed: &Observed,
    canary: bool,
) -> RolloutPlan {
    let runs = |pod| pods::reported(observed, pod).map(|reported| &reported.revision);
    let runs_it = |pod| runs(pod) == Some(&asked.revision);
    // Nothing to compare with, and every pod keeps what it runs: one that says what that is ends this. A silent pod may run
    // another one.
    let fails = canary && retry::is_known_to_fail(&written.state, &asked.revision);
    if fails && !pods::ready(observed).all(runs_it) {
        let plan = keep("", &written.state);
        let failed = retry::recalled(&written.state, &asked.revision);
        let state = RolloutState { stable: plan.state.stable, ..failed };
        return RolloutPlan { state, again_in: Some(RECONCILE_EVERY), ..plan };
    }
    if !pods::ready(observed).any(|pod| runs(pod).is_some() && !runs_it(pod)) {
        return at_once(asked, None);
    }
    let why = match written.edit {
        Edit::Unreadable | Edit::Kept | Edit::Undone => {
            "it was not tried, because another client edited stable.json of the configuration ConfigMap, and no pod says \
             what was there before"
        }
        Edit::None => {
            "it was not tried, because another client deleted the configuration ConfigMap, or stable.json in it"
        }
    };
    untried(asked, why)
}

/// Every pod gets it now.
fn at_once(asked: &Asked, why: Option<&str>) -> RolloutPlan {
    let notice = why.map(|why| Notice {
        is_warning: false,
        reason: "ConfigurationChanged",
        message: format!("every pod gets configuration {} at once: {why}", asked.revision),
    });
    RolloutPlan {
        stable: asked.text.clone(),
        state: RolloutState { stable: asked.revision.clone(), ..RolloutState::default() },
        notices: notice.into_iter().collect(),
        ..RolloutPlan::default()
    }
}

/// Every pod keeps what it runs.
fn keep(stable: &str, state: &RolloutState) -> RolloutPlan {
    // The warning of this canary is removed with it.
    let is_warned = !state.warned_at.is_empty();
    RolloutPlan {
        stable: stable.to_owned(),
        state: RolloutState {
            stable: state.stable.clone(),
            warning: Some(&state.warning).filter(|_| is_warned).cloned().unwrap_or_default(),
            warned_at: state.warned_at.clone(),
            has_errors_only: state.has_errors_only && is_warned,
            ..RolloutState::default()
        },
        ..RolloutPlan::default()
    }
}

/// The newest format that all running pods know. A pod that does not answer is assumed to know the format that is written now.
fn format(written: &Current, observed: &Observed) -> u32 {
    let known = |pod| match observed.pod_reports.get(pods::uid(pod)).map(|answer| &answer.reported)
    {
        Some(Ok(reported)) => Some(reported.max_format.max(OLDEST_FORMAT)),
        Some(Err(_)) | None => written.format,
    };
    pods::ready(observed).filter_map(known).fold(config::FORMAT, u32::min)
}

/// RBAC is wide before a document that needs it is written, and until no pod can still run one.
fn needs_pods(plan: &RolloutPlan, written: &Current, observed: &Observed) -> bool {
    let verified = |text: &String| {
        let (config, _) = Config::from_json(text).ok()?;
        Some(config.pod_records == PodRecords::Verified)
    };
    let by_stable = verified(&plan.stable);
    if by_stable == Some(true) || plan.canary.as_ref().and_then(verified) == Some(true) {
        return true;
    }
    // A newer operator wrote it, or it is lost: what pods run may need it.
    if by_stable.is_none() {
        return written.state.needs_pods;
    }
    let runs_it = |pod| {
        pods::reported(observed, pod).is_some_and(|reported| reported.revision == plan.state.stable)
    };
    // One that was not asked yet may run the document before.
    let is_settled =
        written.state.stable == plan.state.stable && pods::ready(observed).all(runs_it);
    written.state.needs_pods && !is_settled
}

/// The plan that repeats what is in the cluster, so that nothing is written.
pub fn untouched(observed: &Observed, desired_revision: String) -> RolloutPlan {
    let Current { stable, format: _, state, edit: _ } = Current::read(observed);
    RolloutPlan {
        stable: stable.unwrap_or_default(),
        canary: config_map::text(observed.config_map.as_ref(), config_map::CANARY)
            .map(str::to_owned),
        needs_pods: state.needs_pods,
        state,
        desired_revision,
        again_in: None,
        held: None,
        notices: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
