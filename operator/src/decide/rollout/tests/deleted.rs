//! Another client deletes the configuration ConfigMap: pods run what they ran, and report that there is none.

use super::*;
use crate::observe::last_documents::{LastDocuments, whose};

impl Story {
    /// Another client deletes it, and this operator knows what was there, or does not.
    fn is_deleted(&mut self, is_known: bool) {
        let documents = LastDocuments::default();
        let text = |key| config_map::text(self.observed.config_map.as_ref(), key).unwrap();
        let state = config_map::state(&self.observed);
        documents.seen(whose(&self.dns), text(config_map::STABLE), text(config_map::ROLLOUT));
        self.observed.lost_document = documents.of("default", &state.stable);
        self.observed.config_map = documents.deleted(&self.dns).filter(|_| is_known);
    }

    /// Every pod reports that it has no document.
    fn pods_miss_it(&mut self) {
        for pod in self.observed.pods.clone() {
            let said = reported(&mut self.observed, pods::name(&pod));
            said.rejection =
                Some("there is no ConfigMap kube-system/clusterdns-default".to_owned());
            said.has_no_document = true;
        }
    }

    /// The next reconcile, after which the document is there again and every pod has read it.
    fn written_again(&mut self, seconds: i64) -> RolloutPlan {
        let plan = self.reconcile(seconds);
        self.observed.lost_document = None;
        self.pods_follow();
        plan
    }
}

fn reasons(plans: &[RolloutPlan]) -> Vec<&str> {
    plans.iter().flat_map(|plan| &plan.notices).map(|notice| notice.reason).collect()
}

#[test]
fn o4_a_change_is_tried_though_every_pod_reports_that_its_configuration_was_deleted() {
    // As data planes say it, and in words that are not known.
    for (is_known, has_no_document) in [(false, true), (true, true), (false, false)] {
        let mut story = Story::with_pods(3);
        story.is_deleted(is_known);
        story.pods_miss_it();
        for n in 0..3 {
            reported(&mut story.observed, &format!("dns-{n}")).has_no_document = has_no_document;
        }
        story.edit(NEW);
        let plans = [story.written_again(10), story.written_again(12)];
        let [first, last] = &plans;
        assert_eq!((&first.state.stable, &last.state.stable), (&revision(OLD), &revision(OLD)));
        assert_eq!(last.state.canary, revision(NEW));
        assert_eq!(reasons(&plans), ["CanaryStarted"], "{is_known} {has_no_document}");
    }
}

#[test]
fn o4_what_failed_goes_to_no_pod_because_the_configuration_was_deleted() {
    for is_known in [true, false] {
        let mut story = failed();
        story.is_deleted(is_known);
        story.pods_miss_it();
        let plan = story.written_again(110);
        assert_eq!(plan.stable, crate::fixtures::config(&dns(OLD)).to_json());
        assert_eq!(plan.state.stable, revision(OLD));
        assert!(
            !reasons(std::slice::from_ref(&plan)).contains(&"ConfigurationChanged"),
            "{plan:?}"
        );
        // Where its failure is known, it is not tried again before its time.
        let failed = if is_known { revision(NEW) } else { String::new() };
        assert_eq!((plan.state.failed, plan.canary.is_none()), (failed, is_known));
    }
}

#[test]
fn o4_a_trial_continues_after_the_configuration_was_deleted() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    // The pod on trial has not read it yet, and then it is gone.
    story.is_deleted(true);
    story.pods_miss_it();
    let plan = story.written_again(104);
    assert_eq!((plan.state.failed.as_str(), plan.state.losses), ("", 0), "it refuses nothing");
    assert_eq!(plan.state.started_at, at(100).to_string());
    assert_eq!(plan.canary, Some(crate::fixtures::config(&dns(NEW)).to_json()));
    assert_eq!(plan.state.canary_pod.unwrap().name, "dns-0");
    story.compare(true, true);
    story.reconcile(120);
    assert_eq!(story.reconcile(130).notices[0].reason, "Promoted");
}

#[test]
fn o4_an_edit_is_tried_while_reports_still_say_that_the_configuration_is_gone() {
    let mut story = Story::with_pods(3);
    story.pods_miss_it();
    let plan = story.reconcile(5);
    assert_eq!(plan.again_in, Some(RECONCILE_EVERY), "pods are asked again soon");
    story.edit(NEW);
    let plan = story.reconcile(10);
    assert_eq!((plan.state.stable, plan.state.canary), (revision(OLD), revision(NEW)));
}

/// An operator that has just started: another client took `stable.json` away and left `rollout.json`.
fn without_document(story: &mut Story) {
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    data.remove(config_map::STABLE);
}

#[test]
fn o4_what_failed_goes_to_no_pod_while_pods_do_not_say_what_they_run() {
    let with = |canary: bool, is_silent: bool| {
        let mut story = failed();
        without_document(&mut story);
        if is_silent {
            story.observed.pod_reports.clear();
        }
        if !canary {
            story.edit("{ttlSeconds: 7, rollout: {canary: false}}");
        }
        let plan = story.reconcile(110);
        (plan.stable.is_empty(), plan.state.failed)
    };
    assert_eq!(with(true, true), (true, revision(NEW)), "one of them may run another one");
    assert_eq!(with(true, false), (true, revision(NEW)));
    assert_eq!(with(false, true), (false, String::new()), "a person insists");
    // Without a pod there is nothing to lose.
    let mut story = failed();
    without_document(&mut story);
    story.observed.pods.clear();
    assert_eq!(story.reconcile(110).state.stable, revision(NEW));
}

#[test]
fn o4_what_failed_stays_known_where_pods_run_another_document_than_was_written() {
    const OLDER: &str = "{ttlSeconds: 3}";
    let mut story = failed();
    without_document(&mut story);
    story.observed.lost_document = Some(crate::fixtures::config(&dns(OLDER)).to_json());
    for pod in story.observed.pods.clone() {
        says(&mut story.observed, pods::name(&pod), &revision(OLDER));
    }
    let plan = story.written_again(110);
    assert_eq!((plan.state.stable, plan.canary), (revision(OLDER), None));
    assert_eq!(plan.state.failed, revision(NEW), "it is not tried again before its time");
    // Also where the spec asks for one pod, so that nothing can be tried.
    story.edit("{ttlSeconds: 7, scaling: {fixed: {replicas: 1}}}");
    assert_eq!(story.reconcile(500).state.stable, revision(OLDER));
}
