//! A client list that refuses most pods. The DNS pods run and are ready, and most clients get REFUSED from them.

use super::conditions::ConditionState;
use super::problem::Problem;
use crate::ask_pods::canary_analysis::clients;
use crate::decide::config_map::{self, Document};
use crate::decide::plan::Plan;
use crate::observe::observed::Observed;
use crate::observe::pods;

/// The problem, as soon as the operator gives this list to every pod.
pub(super) fn problem(plan: &Plan, observed: &Observed) -> Option<Problem> {
    let rollout = &plan.rollout;
    let document = Document::read(&rollout.stable)?;
    let words = clients::excluded(&document.config, observed)?;
    let message = format!(
        "spec.access.clients of configuration {}, which every pod gets: {words}. These pods get REFUSED: add the ranges of pods \
         and nodes",
        document.revision
    );
    // A corrected list that one pod tries reaches the others by itself.
    let needs_a_person = rollout.desired_revision == document.revision;
    Some(Problem { reason: clients::REASON, message, needs_a_person })
}

/// Ready, unless the list that most ready pods run refuses most clients.
pub(super) fn unless_excluded(ready: ConditionState, observed: &Observed) -> ConditionState {
    let Some(words) = excluded_now(observed) else { return ready };
    ConditionState::no(
        clients::REASON,
        &format!(
            "the DNS pods are ready, but spec.access.clients of the configuration that they run is wrong: {words}. These \
             pods get REFUSED: add the ranges of pods and nodes"
        ),
    )
}

/// What is wrong with the list of the document in the ConfigMap, if more than half of the ready pods run that document. A
/// pod runs it unless it reports another one: those that refuse a new document, or did not read it yet, report the one before.
fn excluded_now(observed: &Observed) -> Option<String> {
    let document = config_map::stable_document(observed)?;
    let words = clients::excluded(&document.config, observed)?;
    let runs_it = |pod| {
        pods::known(observed, pod).is_none_or(|reported| reported.revision == document.revision)
    };
    let (ready, running) = pods::ready(observed)
        .fold((0_usize, 0_usize), |(ready, running), pod| {
            (ready + 1, running + usize::from(runs_it(pod)))
        });
    (running * 2 > ready).then_some(words)
}
