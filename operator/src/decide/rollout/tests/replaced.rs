//! One edit that changes the image and the configuration: what pods of the older image say of it proves nothing.

use super::*;

impl Story {
    /// The workload has a newer template: the number of pods of it, and of all pods.
    fn rolls_out(&mut self, updated: i32, all: i32) {
        let set = json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"},
            "labels": {"pod-template-hash": "newer"}}});
        self.observed.replica_sets = vec![from(set)];
        let status = self.observed.deployment.as_mut().unwrap().status.as_mut().unwrap();
        (status.updated_replicas, status.replicas) = (Some(updated), Some(all));
    }

    /// All pods are of the newer template now, and run what they should.
    fn is_rolled_out(&mut self) {
        self.observed.pods = (3..6).map(|n| pod(&format!("dns-{n}"), 130, 0)).collect();
        for pod in &mut self.observed.pods {
            let labels = pod.metadata.labels.as_mut().unwrap();
            labels.insert("pod-template-hash".to_owned(), "newer".to_owned());
        }
        self.rolls_out(3, 3);
        self.observed.comparison = None;
        self.pods_follow();
    }
}

/// A pod of three tries it, and the workload was not written yet.
fn on_trial() -> Story {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    assert_eq!(story.canary().as_deref(), Some("dns-0"));
    story
}

#[test]
fn o17_a_pod_of_an_older_image_that_refuses_an_edit_fails_nothing() {
    let mut story = on_trial();
    let refuses = |story: &mut Story| {
        reported(&mut story.observed, "dns-0").rejection = Some("ttlSeconds: no".to_owned());
    };
    refuses(&mut story);
    // Its controller has not seen the image.
    story.observed.deployment.as_mut().unwrap().metadata.generation = Some(2);
    let plan = story.reconcile(101);
    assert_eq!((plan.state.failed.as_str(), plan.canary.is_some()), ("", true));
    let status = story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap();
    status.observed_generation = Some(2);
    story.rolls_out(1, 4);
    let plan = story.reconcile(102);
    assert_eq!((plan.state.failed.as_str(), plan.state.losses, plan.canary), ("", 0, None));
    assert!(plan.again_in.is_some() && plan.notices.is_empty());
    story.is_rolled_out();
    let plan = story.reconcile(140);
    assert_eq!((plan.state.losses, story.canary().as_deref()), (0, Some("dns-3")));
}

#[test]
fn o17_a_pod_of_an_older_image_that_answers_well_lets_no_edit_pass() {
    let mut story = on_trial();
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(110);
    story.rolls_out(1, 4);
    for second in [130, 160] {
        assert_eq!(story.reconcile(second).state.stable, revision(OLD), "{second}");
    }
    story.is_rolled_out();
    assert_eq!(story.reconcile(170).state.stable, revision(OLD));
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(180);
    assert_eq!(story.reconcile(200).state.stable, revision(NEW), "a pod of the new image passed");
}

#[test]
fn o17_a_pod_that_does_not_know_a_field_fails_the_edit_and_says_which() {
    let mut story = on_trial();
    // It runs the document without that field, which is another one.
    says(&mut story.observed, "dns-0", "another");
    let said = reported(&mut story.observed, "dns-0");
    (said.role, said.ignored) = ("canary".to_owned(), vec!["access.future".to_owned()]);
    assert_eq!(story.reconcile(104).state.failed, "", "it may not have taken it up yet");
    let plan = story.reconcile(105);
    assert_eq!(plan.state.failed, revision(NEW));
    assert!(plan.state.failure.contains("does not know access.future"), "{}", plan.state.failure);
    assert!(plan.state.failure.contains("Update the image"), "{}", plan.state.failure);
}

#[test]
fn o17_pods_that_ignore_a_field_try_the_edit_that_takes_it_out() {
    // After a rollback: every pod runs the stable document without a field that only the newer version knew.
    let mut story = Story::with_pods(3);
    for name in ["dns-0", "dns-1", "dns-2"] {
        says(&mut story.observed, name, "another");
        reported(&mut story.observed, name).ignored = vec!["access.future".to_owned()];
    }
    story.edit(NEW);
    story.reconcile(100);
    assert_eq!(story.canary().as_deref(), Some("dns-0"));
    // Another edit with such a field fails, see above; one without it is run, and is compared with a pod that ignores the field.
    says(&mut story.observed, "dns-0", &revision(NEW));
    reported(&mut story.observed, "dns-0").ignored.clear();
    story.compare(true, true);
    story.reconcile(110);
    assert_eq!(story.reconcile(200).state.stable, revision(NEW));
}

#[test]
fn o17_fields_of_an_earlier_edit_say_nothing_of_one_that_the_pod_cannot_read() {
    let mut story = on_trial();
    says(&mut story.observed, "dns-0", "another");
    for name in ["dns-0", "dns-1", "dns-2"] {
        let why = "the API server is not reached".to_owned();
        let cut_off = crate::observe::observed::CutOff { why, seconds: 30 };
        reported(&mut story.observed, name).cut_off = Some(cut_off);
    }
    let said = reported(&mut story.observed, "dns-0");
    (said.role, said.ignored) = ("canary".to_owned(), vec!["access.future".to_owned()]);
    let plan = story.reconcile(110);
    assert_eq!((plan.state.failed.as_str(), plan.held.is_some()), ("", true));
}
