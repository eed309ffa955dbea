//! Stories of a changed configuration, reconcile by reconcile.

mod clocks;
mod cut_off;
mod deleted;
mod documents;
mod waits;
mod stuck;
mod moving;
mod rounds;
mod losses;
mod replaced;

use super::*;
use crate::decide::plan::HeldBy;
use crate::fixtures::{at, compared, deploy, dns, from, pod, reported, says, unready, write};
use serde_json::json;

const OLD: &str = "{ttlSeconds: 5}";
const NEW: &str = "{ttlSeconds: 7}";

/// Plays reconciles of a cluster: what is decided is written, and pods run it, as they do.
struct Story {
    observed: Observed,
    dns: ClusterDNS,
}

impl Story {
    /// This many pods run what the old spec asks for.
    fn with_pods(count: u32) -> Self {
        let mut story = Self { observed: Observed::default(), dns: dns(OLD) };
        deploy(&mut story.observed, count);
        story.reconcile(0);
        story.pods_follow();
        story
    }

    /// One of three pods runs a change, which is tried there since second 100.
    fn on_trial() -> Self {
        let mut story = Self::with_pods(3);
        story.edit(NEW);
        story.reconcile(100);
        story.pods_follow();
        story
    }

    fn edit(&mut self, spec: &str) {
        let generation = self.dns.metadata.generation.map(|generation| generation + 1);
        self.dns = dns(spec);
        self.dns.metadata.generation = generation;
    }

    fn reconcile(&mut self, seconds: i64) -> RolloutPlan {
        let config = crate::fixtures::config(&self.dns);
        let plan = plan(&self.dns, &config, &self.observed, at(seconds));
        write(&mut self.observed, &plan);
        plan
    }

    /// Every pod runs its configuration.
    fn pods_follow(&mut self) {
        let state = config_map::state(&self.observed);
        for pod in self.observed.pods.clone() {
            let name = pods::name(&pod).to_owned();
            let is_canary = state.canary_pod.as_ref().is_some_and(|canary| canary.name == name);
            says(&mut self.observed, &name, if is_canary { &state.canary } else { &state.stable });
        }
    }

    /// In this round both pods give the same answers, or different ones.
    fn compare(&mut self, canary: bool, stable: bool) {
        let state = config_map::state(&self.observed);
        let name = state.canary_pod.expect("a canary").name;
        self.observed.comparison = Some(compared(&name, &state.canary, canary, stable));
    }

    fn canary(&self) -> Option<String> {
        config_map::state(&self.observed).canary_pod.map(|pod| pod.name)
    }

    fn remove(&mut self, name: &str) {
        self.observed.pods.retain(|pod| pods::name(pod) != name);
    }
}

fn revision(spec: &str) -> String {
    crate::fixtures::config(&dns(spec)).revision()
}

#[test]
fn the_first_configuration_goes_out_at_once() {
    let mut story = Story { observed: Observed::default(), dns: dns(OLD) };
    deploy(&mut story.observed, 3);
    let plan = story.reconcile(0);
    assert_eq!((plan.state.stable, plan.canary), (revision(OLD), None));
    assert_eq!(plan.again_in, Some(RECONCILE_EVERY), "no pod was asked yet");
    story.pods_follow();
    let again = story.reconcile(1);
    assert_eq!(again.again_in, None);
    assert_eq!(again.state.stable, revision(OLD));
    assert!(again.notices.is_empty(), "nothing changed, so no Event");
}

#[test]
fn one_pod_or_no_canary_and_it_goes_out_at_once() {
    let mut story = Story::with_pods(1);
    story.edit("{ttlSeconds: 7, scaling: {fixed: {replicas: 1}}}");
    let plan = story.reconcile(1);
    assert_eq!((plan.state.stable.as_str(), plan.canary.as_ref()), (revision(NEW).as_str(), None));

    let mut story = Story::with_pods(3);
    story.edit("{ttlSeconds: 7, rollout: {canary: false}}");
    let plan = story.reconcile(1);
    assert_eq!((plan.state.stable.as_str(), plan.canary.as_ref()), (revision(NEW).as_str(), None));
    assert_eq!(plan.notices.len(), 1);
}

#[test]
fn d1_the_longest_ready_pod_tries_a_change_and_the_others_get_it_after_it_answered() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    let plan = story.reconcile(100);
    assert_eq!(story.canary().as_deref(), Some("dns-0"));
    assert_eq!(plan.state.stable, revision(OLD));
    assert_eq!(plan.stable, crate::fixtures::config(&dns(OLD)).to_json());
    assert_eq!(plan.canary, Some(crate::fixtures::config(&dns(NEW)).to_json()));
    assert_eq!(plan.state.started_at, at(100).to_string());
    assert_eq!(plan.notices[0].reason, "CanaryStarted");

    story.pods_follow();
    story.compare(true, true);
    story.reconcile(120);
    let plan = story.reconcile(129);
    assert_eq!(plan.state.stable, revision(OLD), "30 s are not over");
    assert!(plan.notices.is_empty() && plan.again_in.is_some());
    assert_eq!(plan.state.started_at, at(100).to_string(), "a reconcile changes nothing");
    let plan = story.reconcile(130);
    assert_eq!(
        (plan.state.stable, plan.state.canary, plan.canary),
        (revision(NEW), String::new(), None)
    );
    story.pods_follow();
    assert!(story.reconcile(131).notices.is_empty());
}

#[test]
fn d1_nothing_is_promoted_that_no_pod_was_seen_to_run_and_to_answer() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    // The pod has not taken it up, so its answers say nothing.
    story.compare(true, true);
    assert_eq!(story.reconcile(131).state.stable, revision(OLD));
    // It runs it, and it was not compared.
    story.pods_follow();
    story.observed.comparison = None;
    assert_eq!(story.reconcile(132).state.stable, revision(OLD));
    // Another pod was compared, or another revision.
    story.observed.comparison = Some(compared("dns-1", &revision(NEW), true, true));
    assert_eq!(story.reconcile(133).state.stable, revision(OLD));
    story.observed.comparison = Some(compared("dns-0", &revision(OLD), true, true));
    assert_eq!(story.reconcile(134).state.stable, revision(OLD));
    // It answered nothing, and the stable pod nothing either: no reason to fail it, none to trust it.
    story.compare(false, false);
    assert_eq!(story.reconcile(135).state.stable, revision(OLD));
    story.compare(true, false);
    assert_eq!(story.reconcile(136).state.stable, revision(OLD), "one round decides nothing");
    assert_eq!(
        story.reconcile(140).state.stable,
        revision(NEW),
        "it repairs what the stable pods cannot"
    );
}

#[test]
fn d1_what_a_pod_said_before_it_was_named_says_nothing() {
    let mut story = Story::on_trial();
    story.observed.pod_reports.get_mut("dns-0-uid").unwrap().age = Duration::from_secs(50);
    story.compare(true, true);
    assert_eq!(story.reconcile(130).state.stable, revision(OLD));
}

#[test]
fn o7_what_is_worse_in_two_rounds_takes_the_canary_back_and_no_other_pod_has_it() {
    let mut story = Story::on_trial();
    story.compare(false, false);
    assert!(
        story.reconcile(101).canary.is_some(),
        "a check that the stable pod fails too does not count"
    );
    story.compare(false, true);
    assert!(story.reconcile(102).canary.is_some(), "one round decides nothing");
    let plan = story.reconcile(106);
    assert_eq!((plan.canary.as_ref(), plan.state.canary_pod.as_ref()), (None, None));
    assert_eq!(
        (plan.state.stable.as_str(), plan.state.failed.as_str()),
        (revision(OLD).as_str(), revision(NEW).as_str())
    );
    assert!(plan.state.failure.contains("example.com. A: SERVFAIL"), "{}", plan.state.failure);
    assert!(plan.notices[0].is_warning && plan.notices[0].reason == "CanaryFailed");
    story.pods_follow();
    let plan = story.reconcile(300);
    assert_eq!(plan.state.failed, revision(NEW), "not tried again yet");
    assert!(plan.canary.is_none() && plan.notices.is_empty());

    // Until any field of the spec changes.
    story.edit("{ttlSeconds: 7, drainSeconds: 30}");
    assert!(story.reconcile(301).canary.is_some());
}

#[test]
fn o7_a_failed_revision_goes_out_when_a_user_insists() {
    let mut story = failed();
    story.edit("{ttlSeconds: 7, rollout: {canary: false}}");
    let plan = story.reconcile(200);
    assert_eq!((plan.state.stable, plan.state.failed), (revision(NEW), String::new()));
}

#[test]
fn o7_going_back_to_what_runs_ends_the_failure() {
    let mut story = failed();
    story.edit(OLD);
    let plan = story.reconcile(200);
    assert_eq!((plan.state.stable, plan.state.failed), (revision(OLD), String::new()));
}

fn failed() -> Story {
    let mut story = Story::on_trial();
    story.compare(false, true);
    story.reconcile(101);
    assert_eq!(story.reconcile(105).state.failed, revision(NEW));
    story.pods_follow();
    story
}

#[test]
fn o7_a_canary_that_died_while_it_was_asked_is_lost_and_not_wrong() {
    let mut story = Story::on_trial();
    story.compare(false, true);
    let canary = story.canary().unwrap();
    let silent = crate::observe::observed::PodReport {
        reported: Err("refused".into()),
        age: Duration::ZERO,
        before: None,
        is_silent: false,
    };
    story.observed.pod_reports.insert(format!("{canary}-uid"), silent);
    let plan = story.reconcile(101);
    assert_eq!((plan.state.failed.as_str(), story.canary()), ("", Some(canary)));
    assert!(plan.canary.is_some(), "whether it was restarted is seen by the next reconcile");
}

#[test]
fn o5_a_pod_that_refuses_the_canary_fails_it() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    reported(&mut story.observed, "dns-0").rejection = Some("ttlSeconds: no".to_owned());
    let plan = story.reconcile(101);
    assert_eq!(plan.state.failed, revision(NEW));
    assert!(plan.state.failure.contains("refuses it: ttlSeconds: no"));
}

#[test]
fn o8_a_new_leader_continues_where_the_last_one_stopped() {
    let mut story = Story::on_trial();
    story.compare(true, true);
    // An hour without an operator: the pod was not watched, and has gone back by itself.
    let stable = revision(OLD);
    says(&mut story.observed, "dns-0", &stable);
    story.observed.comparison = None;
    let plan = story.reconcile(3_700);
    assert_eq!((plan.state.stable, plan.state.losses), (revision(OLD), 0));
    assert_eq!(plan.state.started_at, at(3_700).to_string(), "and is watched again");
}

#[test]
fn a_newer_edit_replaces_the_canary_on_the_same_pod() {
    let mut story = Story::on_trial();
    story.compare(true, true);
    story.edit("{ttlSeconds: 9}");
    let plan = story.reconcile(120);
    assert_eq!(story.canary().as_deref(), Some("dns-0"), "one pod only leaves stable");
    assert_eq!(
        (plan.state.canary, plan.state.started_at),
        (revision("{ttlSeconds: 9}"), at(120).to_string())
    );
    assert_eq!(story.reconcile(131).state.stable, revision(OLD), "the observation began again");
}

#[test]
fn an_edit_back_ends_the_canary() {
    let mut story = Story::on_trial();
    story.edit(OLD);
    let plan = story.reconcile(110);
    assert_eq!(
        (plan.canary, plan.state.canary_pod, plan.state.stable),
        (None, None, revision(OLD))
    );
}

#[test]
fn no_pod_is_named_while_the_workload_rolls_or_before_it_says_what_it_runs() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    let status = |story: &mut Story, replicas| {
        story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap().replicas =
            Some(replicas);
    };
    status(&mut story, 4);
    let plan = story.reconcile(100);
    assert_eq!((plan.canary, plan.state.stable), (None, revision(OLD)));
    assert!(plan.again_in.is_some());
    status(&mut story, 3);
    let answers = std::mem::take(&mut story.observed.pod_reports);
    assert_eq!(story.reconcile(101).canary, None);
    story.observed.pod_reports = answers;
    story.observed.replica_sets = vec![
        from(
            json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "9"}, "labels": {"pod-template-hash": "old"}}}),
        ),
        from(
            json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "10"}, "labels": {"pod-template-hash": "new"}}}),
        ),
    ];
    let labels = story.observed.pods[0].metadata.labels.as_mut().unwrap();
    labels.insert("pod-template-hash".to_owned(), "old".to_owned());
    story.reconcile(102);
    assert_eq!(story.canary().as_deref(), Some("dns-1"), "of the current template");
}
