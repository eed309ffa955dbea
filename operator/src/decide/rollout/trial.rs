//! One pod tries a configuration: who, for how long, and what ends it.

mod call_back;
mod candidate;
mod cut_off;
mod elapsed;

use std::time::Duration;

use crds::{ClusterDNS, between_planes};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::rounds::{self, Tally};
use super::{Asked, ONE_POD, RECONCILE_EVERY, at_once, is_over, keep, retry, untried};
use crate::decide::plan::{CanaryPod, Held, HeldBy, Notice, RolloutPlan, RolloutState};
use crate::observe::observed::{Comparison, Observed, Reported};
use crate::observe::pods;
use crate::shortened::shortened;
use cut_off::{cut_off, reads};
use elapsed::Elapsed;

/// Canary pods that may be lost: the third fails the revision.
const MAX_LOSSES: u32 = 3;
/// Time after the end of the trial until an unjudged canary counts as lost.
const OVERDUE: SignedDuration = SignedDuration::from_secs(120);
/// Time after that end when a pod goes back to stable by itself: only an operator that was away finds its canary after it.
const GONE_BACK: SignedDuration =
    SignedDuration::from_secs(between_planes::CANARY_GRACE.as_secs().cast_signed());
// A canary is given up while it still runs what is on trial.
const _: () = assert!(OVERDUE.as_secs() < GONE_BACK.as_secs());
/// After this time a report of a pod that was named is about what it tries now, and not about what it tried before.
const TAKEN_UP: SignedDuration = SignedDuration::from_secs(5);
/// Longest time that a canary keeps a configuration which the operator cannot judge.
const HELD_AT_MOST: SignedDuration = SignedDuration::from_secs(300);
/// Longest stored reason why a revision failed, in octets.
const MAX_FAILURE: usize = 512;

/// Everything that a trial depends on.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) dns: &'a ClusterDNS,
    pub(super) observe_seconds: u32,
    pub(super) asked: &'a Asked,
    pub(super) stable: &'a str,
    pub(super) state: &'a RolloutState,
    pub(super) observed: &'a Observed,
    pub(super) now: Timestamp,
}

/// What becomes of the canary.
enum Verdict {
    /// Time until the end of the trial.
    Watched(SignedDuration),
    /// Until the end of the trial it answered as well as the stable pods.
    Passed,
    /// The canary answered worse than a stable pod, in two rounds: how.
    Failed(String),
    /// Its pod is gone, was restarted, or could not be judged.
    Lost(&'static str),
    /// A rollout of pods takes its pod away, also if that runs well; or the pod cannot read it, and another can.
    Replaced,
    /// The same process has gone back by itself, and no operator looked meanwhile: nothing is known of it.
    Unwatched,
    /// The operator cannot judge it, which is no fault of the pod's.
    Held {
        held: Held,
        /// Its time is long over, and the pod is about to go back by itself.
        is_overdue: bool,
    },
}

impl<'a> Trial<'a> {
    /// Continues the trial of this revision, or begins one.
    pub(super) fn plan(self) -> RolloutPlan {
        let is_on_trial = self.state.canary == self.asked.revision;
        let losses = if is_on_trial { self.state.losses } else { 0 };
        let Some(pod) = self.state.canary_pod.as_ref().filter(|_| is_on_trial) else {
            return self.begin(losses);
        };
        let comparison = self.comparison(pod);
        let checks = comparison.map(|it| it.checks.as_slice()).unwrap_or_default();
        let round = rounds::add(self.state, checks, self.now);
        match self.verdict(pod, comparison, &round) {
            Verdict::Watched(left) => {
                self.go_on(pod, left, RolloutState { held_since: String::new(), ..round.state })
            }
            Verdict::Held { held, is_overdue } => self.hold(pod, held, is_overdue, round.state),
            Verdict::Passed => self.pass(pod, rounds::unasked(comparison), round.state),
            Verdict::Failed(why) => self.fail(pod, &why, retry::LATER),
            Verdict::Lost(why) if losses.saturating_add(1) >= MAX_LOSSES => {
                let why = format!(
                    "{MAX_LOSSES} pods in a row failed while they tried it; the last one {why}"
                );
                self.fail(pod, &why, retry::LATER)
            }
            Verdict::Lost(_) => self.begin(losses.saturating_add(1)),
            Verdict::Replaced => self.begin(losses),
            Verdict::Unwatched => {
                // Its pod lives and runs what it ran before: if no other pod is ready, this is not why.
                let state =
                    RolloutState { canary: String::new(), canary_pod: None, ..self.state.clone() };
                Trial { state: &state, ..self }.begin(losses)
            }
        }
    }

    /// Ends the trial, because no second pod comes: the only one gets the configuration if nothing speaks against it.
    pub(super) fn end_alone(self) -> RolloutPlan {
        let canary = self.state.canary_pod.clone().unwrap_or_default();
        let worse = self.state.worse.first().map(|worse| format!("{worse} failed once"));
        let why = match self.state.losses {
            0 => worse,
            _ => Some("a pod failed while it tried this configuration".to_owned()),
        };
        match why.filter(|_| self.state.canary == self.asked.revision) {
            Some(why) => {
                let why = format!("{why}, and there is no second pod to compare with");
                self.fail(&canary, &why, retry::NEVER)
            }
            None => untried(self.asked, ONE_POD),
        }
    }

    fn verdict(
        self,
        canary: &CanaryPod,
        comparison: Option<&Comparison>,
        round: &Tally,
    ) -> Verdict {
        let Some(pod) = self.pod(canary) else {
            return Verdict::Lost("went away");
        };
        if pods::is_leaving(pod) || pods::has_ended(pod) {
            return self.leaves(pod);
        }
        if pods::restarts(pod) > self.state.restarts || self.is_another_process(pod, canary) {
            return Verdict::Lost("was restarted");
        }
        // Its image is an older one: what it says of a configuration that was edited together with the image proves nothing.
        if self.is_about_to_go(pod) {
            return Verdict::Replaced;
        }
        let Some(Elapsed { surely, by_clocks }) = self.elapsed() else {
            return Verdict::Lost("has a trial whose start time is missing or in the future");
        };
        let time = self.time();
        let left = (time - surely).max(SignedDuration::ZERO);
        let is_overdue = surely >= time + OVERDUE;
        if self.is_template_unseen() {
            return Verdict::Watched(left);
        }
        let reported = self.reported_since(pod, surely);
        let runs_it = reported.is_some_and(|reported| reported.revision == self.asked.revision);
        // The pod refused nothing when it became the canary, so a refusal now is about the configuration on trial.
        if let Some(why) = reported.and_then(Reported::refusal).filter(|_| !runs_it) {
            return Verdict::Failed(format!("the pod refuses it: {why}"));
        }
        // A pod that is cut off reports the fields of an earlier edit.
        let unread = reported.and_then(cut_off).filter(|_| !runs_it);
        let ignored = reported.and_then(Reported::ignored_as_canary);
        let ignored = ignored.filter(|_| !runs_it && unread.is_none());
        if let Some(fields) = ignored.filter(|_| surely >= TAKEN_UP) {
            return Verdict::Failed(format!(
                "the image of the pod is older than this configuration: it does not know {fields}, and would run without that. \
                 Update the image"
            ));
        }
        if let Some(held) = unread {
            return match self.candidate(self.state.losses) {
                Some(other) if pods::uid(other) != canary.uid && reads(other, self.observed) => {
                    Verdict::Replaced
                }
                _ => Verdict::Held { held, is_overdue },
            };
        }
        if comparison.is_some_and(|it| it.is_postponed) {
            let held = HeldBy::Busy.because("it is busy with trials of other ClusterDNS");
            return match is_overdue {
                true => Verdict::Held { held, is_overdue },
                false => Verdict::Watched(left),
            };
        }
        let unreachable = comparison.and_then(|it| it.unreachable.clone());
        if let Some(held) = unreachable.or_else(|| rounds::no_pod_answers(self.observed)) {
            return Verdict::Held { held, is_overdue };
        }
        if let Some(worse) = round.confirmed.as_ref().filter(|_| runs_it) {
            return Verdict::Failed(worse.clone());
        }
        if left > SignedDuration::ZERO {
            Verdict::Watched(left)
        } else if round.is_well && runs_it && (rounds::unasked(comparison).0 == 0 || is_overdue) {
            Verdict::Passed
        } else if !is_overdue {
            Verdict::Watched(SignedDuration::ZERO)
        } else if runs_it && comparison.is_none() {
            // The pod runs the configuration, but there is no other pod to compare it with.
            let why = "no other ready pod reports the current configuration, so there is nothing to compare with";
            Verdict::Held { held: HeldBy::NoOtherPod.because(why), is_overdue: true }
        } else if by_clocks >= time + GONE_BACK
            && self.state.worse.is_empty()
            && reported.is_some_and(|reported| reported.revision == self.state.stable)
        {
            Verdict::Unwatched
        } else if runs_it {
            Verdict::Lost("ran it, but its answers did not show in time whether it is good")
        } else {
            Verdict::Lost("did not report this configuration in time")
        }
    }

    fn pod(self, canary: &CanaryPod) -> Option<&'a Pod> {
        self.observed.pods.iter().find(|pod| pods::uid(pod) == canary.uid)
    }

    /// What was asked of this canary, while it ran this revision, in this reconcile.
    fn comparison(self, canary: &CanaryPod) -> Option<&'a Comparison> {
        let runs_it =
            self.pod(canary).and_then(|pod| self.reported_since(pod, self.elapsed()?.surely));
        runs_it.filter(|reported| reported.revision == self.asked.revision)?;
        self.observed.comparison.as_ref().filter(|comparison| {
            comparison.canary_uid == canary.uid && comparison.revision == self.asked.revision
        })
    }

    /// The trial succeeded: every pod gets the document.
    fn pass(self, canary: &CanaryPod, unasked: (usize, usize), state: RolloutState) -> RolloutPlan {
        let RolloutState { warning, has_errors_only, .. } = state;
        let warning = rounds::with_unasked(warning, unasked);
        let mut message = format!(
            "configuration {} passed its trial on pod {} and is rolled out to all pods",
            self.asked.revision, canary.name
        );
        let mut warned_at = String::new();
        if !warning.is_empty() {
            message = format!("{message}. Warning: {warning}");
            warned_at = self.now.to_string();
        }
        let mut plan = at_once(self.asked, None);
        (plan.state.warning, plan.state.warned_at) = (warning, warned_at);
        plan.state.has_errors_only = has_errors_only;
        plan.notices = vec![Notice { is_warning: false, reason: "Promoted", message }];
        plan
    }

    /// Nothing is decided while the operator cannot judge, but no pod keeps an unjudged configuration for long: after a
    /// while it goes back, and the revision is tried again later.
    fn hold(
        self,
        canary: &CanaryPod,
        held: Held,
        is_overdue: bool,
        mut state: RolloutState,
    ) -> RolloutPlan {
        if state.held_since.is_empty() {
            state.held_since = self.now.to_string();
        }
        let may_be_over = self.elapsed().is_none_or(|it| it.surely >= HELD_AT_MOST);
        if is_overdue || may_be_over && is_over(&state.held_since, HELD_AT_MOST, self.now) {
            return self.take_back(canary, held);
        }
        RolloutPlan { held: Some(held), ..self.go_on(canary, SignedDuration::ZERO, state) }
    }

    fn go_on(self, canary: &CanaryPod, left: SignedDuration, state: RolloutState) -> RolloutPlan {
        let left = Duration::try_from(left).unwrap_or(RECONCILE_EVERY);
        // An operator of an older version named it, and did not record the process.
        let process = match canary.process.as_str() {
            "" => self.pod(canary).map(|pod| self.process(pod)).unwrap_or_default().to_owned(),
            known => known.to_owned(),
        };
        let canary_pod = Some(CanaryPod { process, ..canary.clone() });
        RolloutPlan {
            canary: Some(self.asked.text.clone()),
            state: RolloutState { canary_pod, ..state },
            again_in: Some(left.clamp(Duration::from_secs(1), RECONCILE_EVERY)),
            held: retry::unjudged(self.dns, self.state, &self.asked.revision),
            ..keep(self.stable, self.state)
        }
    }

    /// Ends what was tried before and names a pod.
    fn begin(self, losses: u32) -> RolloutPlan {
        if losses > 0 && self.is_run_by_a_lost_pod() {
            return self.call_back(losses);
        }
        let Some(pod) = self.candidate(losses) else {
            return self.wait(losses);
        };
        let named = CanaryPod {
            name: pods::name(pod).to_owned(),
            uid: pods::uid(pod).to_owned(),
            process: self.process(pod).to_owned(),
        };
        let message = format!(
            "pod {} tries configuration {} for {} s before the others get it",
            named.name, self.asked.revision, self.observe_seconds
        );
        RolloutPlan {
            canary: Some(self.asked.text.clone()),
            notices: vec![Notice { is_warning: false, reason: "CanaryStarted", message }],
            state: RolloutState {
                stable: self.state.stable.clone(),
                canary: self.asked.revision.clone(),
                canary_pod: Some(named),
                started_at: self.now.to_string(),
                observe_seconds: self.observe_seconds,
                losses,
                restarts: pods::restarts(pod),
                ..self.failed_before()
            },
            again_in: Some(RECONCILE_EVERY),
            held: retry::unjudged(self.dns, self.state, &self.asked.revision),
            ..keep(self.stable, self.state)
        }
    }

    /// No pod can try it now. What was tried and lost is kept: otherwise a configuration that kills its pods, or the next edit of
    /// it, would look new in a cluster with too few pods to compare.
    fn wait(self, losses: u32) -> RolloutPlan {
        let mut plan = keep(self.stable, self.state);
        plan.again_in = Some(RECONCILE_EVERY);
        let before = match retry::is_known_to_fail(self.state, &self.asked.revision) {
            true => retry::recalled(self.state, &self.asked.revision),
            false => self.failed_before(),
        };
        plan.state = RolloutState { stable: plan.state.stable, ..before };
        let unjudged = || retry::unjudged(self.dns, &plan.state, &self.asked.revision);
        plan.held = rounds::no_pod_answers(self.observed).or_else(unjudged);
        if losses > 0 || !self.state.canary.is_empty() {
            plan.state.losses = losses;
            plan.state.canary = self.asked.revision.clone();
        }
        plan
    }

    /// What is remembered while a revision that failed is tried again.
    fn failed_before(self) -> RolloutState {
        match retry::has_failed(self.dns, self.state, &self.asked.revision) {
            true => retry::remembered(self.state),
            false => RolloutState::default(),
        }
    }

    /// The pod returns to the stable configuration. The revision is not marked as bad.
    fn take_back(self, canary: &CanaryPod, held: Held) -> RolloutPlan {
        let advice = format!("{}. {}", retry::LATER, held.by.advice());
        let mut plan = self.end(canary, &held.why, (held.by.reason(), &advice));
        plan.state.is_unjudged = true;
        plan.state.unjudged_by = held.by.reason().to_owned();
        plan.state.failure = shortened(&held.why, MAX_FAILURE);
        plan.state.failed_pod.clear();
        plan.held = Some(held);
        plan
    }

    fn fail(self, canary: &CanaryPod, why: &str, next: &str) -> RolloutPlan {
        let advice = format!(
            "{next}. Correct the spec, or set spec.rollout.canary to false to give it to every pod"
        );
        self.end(canary, why, ("CanaryFailed", &advice))
    }

    /// Ends the trial without promotion; `event` is its reason, and what is next and what a person can do.
    fn end(self, canary: &CanaryPod, why: &str, event: (&'static str, &str)) -> RolloutPlan {
        let mut plan = keep(self.stable, self.state);
        // The pod may be gone.
        let (from, pod) = match canary.name.as_str() {
            "" => (String::new(), String::new()),
            name => (format!(" from pod {name}"), format!("pod {name}: ")),
        };
        let message = format!(
            "configuration {} was taken back{from}: {why}. Every pod keeps {}. {}",
            self.asked.revision, self.state.stable, event.1
        );
        plan.notices.push(Notice { is_warning: true, reason: event.0, message });
        let failure = shortened(&format!("{pod}{why}"), MAX_FAILURE);
        let failed = retry::failed(self.dns, self.state, (&self.asked.revision, failure), self.now);
        let failed_pod = canary.uid.clone();
        plan.state = RolloutState { stable: plan.state.stable, failed_pod, ..failed };
        plan
    }

    fn reported(self, pod: &Pod) -> Option<&'a Reported> {
        pods::reported(self.observed, pod)
    }

    /// Its report from after it was named, this long ago.
    fn reported_since(self, pod: &Pod, named: SignedDuration) -> Option<&'a Reported> {
        let age = self.observed.pod_reports.get(pods::uid(pod))?.age;
        self.reported(pod).filter(|_| age <= Duration::try_from(named).unwrap_or_default())
    }
}
