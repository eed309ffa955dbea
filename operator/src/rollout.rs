//! Which revision which pod runs, given what is written, what pods say and `now`. A changed configuration goes to one pod
//! first; it reaches the others only when that pod was seen to run it and answered as well as they do. Pure: all state is in
//! rollout.json, so that a new leader goes on where the last one stopped.

mod state;
mod trial;

pub use state::{CANARY, ROLLOUT, STABLE, canary, state, state_in, untouched};

use std::time::Duration;

use crds::config::PodRecords;
use crds::{ClusterDNS, Config, config};
use jiff::Timestamp;

use crate::adoption;
use crate::observed::Observed;
use crate::plan::{Notice, RolloutPlan, RolloutState};
use crate::pods;
use state::Written;

/// Ready pods without which nothing can be compared, so that nothing is tried.
const PODS_TO_TRY: usize = 2;
/// Between two looks while there is something to wait for.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The first format there was: what a pod that says nothing of formats reads.
const OLDEST_FORMAT: u32 = 1;

/// What the configuration ConfigMap should hold now.
pub fn plan(dns: &ClusterDNS, config: &Config, observed: &Observed, now: Timestamp) -> RolloutPlan {
    let written = Written::read(observed);
    let config = Config { format: format(&written, observed), ..config.clone() };
    let asked = Asked { revision: config.revision(), text: config.to_json() };
    let mut plan = decide(dns, &asked, &written, observed, now);
    plan.needs_pods = needs_pods(&plan, &written, observed);
    plan.state.needs_pods = plan.needs_pods;
    plan.state.switch = adoption::remember(dns, observed, now);
    plan.state.service = adoption::last_seen(dns, observed);
    plan.desired_revision = asked.revision;
    if pods::behind(observed, &plan.state).next().is_some() {
        plan.again_in = Some(plan.again_in.map_or(LOOK_EVERY, |again| again.min(LOOK_EVERY)));
    }
    plan
}

/// The document that the spec asks for.
struct Asked {
    revision: String,
    text: String,
}

fn decide(
    dns: &ClusterDNS,
    asked: &Asked,
    written: &Written,
    observed: &Observed,
    now: Timestamp,
) -> RolloutPlan {
    let state = &written.state;
    let rule = dns.spec.rollout.clone().unwrap_or_default();
    let Some(stable) = written.stable.as_ref().filter(|_| !must_be_replaced(written, asked)) else {
        return at_once(asked, None);
    };
    if asked.revision == state.stable {
        return keep(stable, state);
    }
    if !rule.canary {
        return at_once(asked, Some("spec.rollout.canary is false"));
    }
    let has_failed =
        state.failed == asked.revision && state.failed_generation == dns.metadata.generation;
    if has_failed {
        let RolloutState { failed, failure, failed_generation, .. } = state.clone();
        let mut plan = keep(stable, state);
        plan.state = RolloutState { failed, failure, failed_generation, ..plan.state };
        return plan;
    }
    // A canary that took its pod down leaves fewer than two ready pods: that is no reason to give it, or what comes after
    // it, to the others. The pod goes back to stable, and then there are two again.
    let is_trying = !state.canary.is_empty();
    if !is_trying && pods::ready(observed).count() < PODS_TO_TRY {
        return at_once(asked, Some("fewer than two pods are ready, so nothing can be compared"));
    }
    let observe_seconds = rule.observe_seconds;
    trial::Trial { dns, observe_seconds, asked, stable, state, observed, now }.plan()
}

/// Somebody else wrote into stable.json: what it was is known only if it is what the spec asks for, or nothing at all.
fn must_be_replaced(written: &Written, asked: &Asked) -> bool {
    written.is_foreign && asked.revision != written.state.failed
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

/// Every pod goes on with what it has.
fn keep(stable: &str, state: &RolloutState) -> RolloutPlan {
    RolloutPlan {
        stable: stable.to_owned(),
        state: RolloutState { stable: state.stable.clone(), ..RolloutState::default() },
        ..RolloutPlan::default()
    }
}

/// The newest format that all running pods know. Silent pods may know as little as what is written now tells.
fn format(written: &Written, observed: &Observed) -> u32 {
    let known = |pod| match observed.answers.get(pods::uid(pod)).map(|answer| &answer.said) {
        Some(Ok(said)) => Some(said.max_format.max(OLDEST_FORMAT)),
        Some(Err(_)) | None => written.format,
    };
    pods::ready(observed).filter_map(known).fold(config::FORMAT, u32::min)
}

/// RBAC is wide before a document that needs it is written, and until no pod can still run one.
fn needs_pods(plan: &RolloutPlan, written: &Written, observed: &Observed) -> bool {
    let verified = |text: &String| {
        Config::from_json(text).is_ok_and(|(config, _)| config.pod_records == PodRecords::Verified)
    };
    if verified(&plan.stable) || plan.canary.as_ref().is_some_and(verified) {
        return true;
    }
    let runs_it =
        |pod| pods::said(observed, pod).is_some_and(|said| said.revision == plan.state.stable);
    // Of many pods some are asked, who speak for all.
    let mut asked =
        pods::ready(observed).filter(|pod| observed.answers.contains_key(pods::uid(pod)));
    let is_settled = written.state.stable == plan.state.stable && asked.all(runs_it);
    written.state.needs_pods && !is_settled
}

#[cfg(test)]
mod tests;
