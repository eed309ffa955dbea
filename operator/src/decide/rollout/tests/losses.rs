//! Canaries that go away, restart or cannot be judged: another is named, and the third loss fails the revision.

use super::*;

#[test]
fn a_lost_canary_is_replaced_and_the_third_loss_fails_the_revision() {
    let mut story = Story::with_pods(5);
    story.edit(NEW);
    story.reconcile(100);
    story.pods_follow();
    story.remove("dns-0");
    let plan = story.reconcile(110);
    assert_eq!(story.canary().as_deref(), Some("dns-1"));
    assert_eq!(
        (plan.state.started_at.as_str(), plan.state.losses),
        (at(110).to_string().as_str(), 1),
        "again"
    );
    story.pods_follow();
    story.compare(true, true);
    assert_eq!(story.reconcile(139).state.stable, revision(OLD), "a whole observation");
    // A restart is a loss: what is in memory now is not what was watched.
    story.observed.pods[0] = pod("dns-1", 120, 1);
    story.observed.comparison = None;
    assert_eq!(story.reconcile(140).state.losses, 2);
    assert_eq!(story.canary(), None, "it runs it still");
    story.pods_follow();
    assert_eq!(story.reconcile(141).state.losses, 2);
    assert_eq!(story.canary().as_deref(), Some("dns-2"));
    story.pods_follow();
    let leaving = json!("2026-01-01T00:00:00Z");
    story.observed.pods[1].metadata.deletion_timestamp = Some(from(leaving));
    let plan = story.reconcile(150);
    assert_eq!(plan.state.failed, revision(NEW));
    assert!(plan.state.failure.contains("3 pods in a row"), "{}", plan.state.failure);
}

#[test]
fn o17_a_canary_that_its_node_evicted_is_not_watched_to_the_end_of_its_time() {
    let mut story = Story::on_trial();
    let ended = json!({"phase": "Failed", "reason": "Evicted"});
    story.observed.pods[0].status = Some(from(ended));
    assert_eq!(story.reconcile(110).state.losses, 1);
    assert_eq!(story.canary().as_deref(), Some("dns-1"));
}

#[test]
fn o17_a_restart_of_a_container_that_others_injected_is_no_loss() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    let begun = story.reconcile(100);
    assert_eq!((begun.state.losses, story.canary().as_deref()), (0, Some("dns-0")));
    story.pods_follow();
    let restart = |story: &mut Story, container: &str| {
        let status = story.observed.pods[0].status.as_mut().unwrap();
        let restarted = json!({"name": container, "ready": true, "restartCount": 1, "image": "", "imageID": ""});
        status.container_statuses.as_mut().unwrap().push(from(restarted));
    };
    restart(&mut story, "istio-proxy");
    story.compare(true, true);
    let plan = story.reconcile(110);
    assert_eq!((plan.state.losses, story.canary().as_deref()), (0, Some("dns-0")));
    restart(&mut story, crate::desired::CONTAINER);
    assert_eq!(story.reconcile(111).state.losses, 1);
}

#[test]
fn o17_a_canary_that_goes_because_its_template_was_edited_too_is_no_loss() {
    let mut story = Story::with_pods(3);
    story.edit("{ttlSeconds: 7, resources: {requests: {cpu: 100m}}}");
    story.reconcile(100);
    assert_eq!(story.canary().as_deref(), Some("dns-0"), "the template is written after that");
    story.pods_follow();
    let counts = |story: &mut Story, updated, all| {
        let status = story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap();
        (status.updated_replicas, status.replicas) = (Some(updated), Some(all));
    };
    let set = json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"},
        "labels": {"pod-template-hash": "newer"}}});
    story.observed.replica_sets = vec![from(set)];
    counts(&mut story, 1, 4);
    let leaving = json!("2026-01-01T00:00:00Z");
    story.observed.pods[0].metadata.deletion_timestamp = Some(from(leaving.clone()));
    let plan = story.reconcile(120);
    assert_eq!((plan.state.losses, plan.canary), (0, None), "the rollout of pods took it away");
    story.observed.pods = (3..6).map(|n| pod(&format!("dns-{n}"), 130, 0)).collect();
    for pod in &mut story.observed.pods {
        let labels = pod.metadata.labels.as_mut().unwrap();
        labels.insert("pod-template-hash".to_owned(), "newer".to_owned());
    }
    counts(&mut story, 3, 3);
    story.pods_follow();
    let plan = story.reconcile(140);
    assert_eq!((plan.state.losses, story.canary().as_deref()), (0, Some("dns-3")));
    story.observed.pods[0].metadata.deletion_timestamp = Some(from(leaving));
    assert_eq!(story.reconcile(150).state.losses, 1, "this one was drained");
}

#[test]
fn a_configuration_that_takes_its_pod_down_never_reaches_the_last_pod() {
    let mut story = Story::with_pods(2);
    story.edit(NEW);
    for round in 0..3 {
        let begun = story.reconcile(100 + round * 100);
        let canary = begun.state.canary_pod.expect("two pods are ready").name;
        story.pods_follow();
        let place = story.observed.pods.iter().position(|pod| pods::name(pod) == canary).unwrap();
        let restarts = pods::restarts(&story.observed.pods[place]) + 1;
        story.observed.pods[place] = unready(pod(&canary, 0, restarts));
        for second in 1..60 {
            let plan = story.reconcile(100 + round * 100 + second);
            assert_eq!(plan.state.stable, revision(OLD));
            assert_eq!(plan.canary, None, "one ready pod is left, and it keeps what works");
        }
        story.observed.pods[place] = pod(&canary, 100 + round * 100 + 60, restarts);
        story.pods_follow();
    }
    assert_eq!(story.reconcile(500).state.failed, revision(NEW));
}

#[test]
fn a_canary_that_was_named_by_a_clock_far_ahead_is_named_again() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(3_600);
    story.pods_follow();
    story.compare(true, true);
    // Another leader, whose clock is right: it does not wait for an hour.
    assert_eq!(story.reconcile(100).state.losses, 1);
    story.pods_follow();
    let plan = story.reconcile(101);
    assert_eq!((plan.state.losses, plan.state.started_at), (1, at(101).to_string()));
    // A clock that is a little ahead is waited for.
    story.pods_follow();
    story.compare(true, true);
    assert_eq!(story.reconcile(80).state.losses, 1);
}

#[test]
fn a_canary_that_never_says_that_it_runs_it_is_lost_in_the_end() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    assert!(story.reconcile(249).state.losses == 0);
    assert_eq!(story.reconcile(250).state.losses, 1);
    assert_eq!(story.canary().as_deref(), Some("dns-1"));
}

/// The pod has gone back by itself 300 s after the end of its trial.
#[test]
fn o17_a_canary_that_no_operator_watched_is_no_loss() {
    for (other_pods, losses) in [(2, 0), (2, 1), (0, 0), (0, 1)] {
        let mut story = Story::with_pods(3);
        story.edit(NEW);
        story.reconcile(100);
        story.pods_follow();
        if losses == 1 {
            story.remove("dns-0");
            story.reconcile(110);
            story.pods_follow();
        }
        let canary = story.canary().unwrap();
        says(&mut story.observed, &canary, &revision(OLD));
        if other_pods == 0 {
            story.observed.pods.retain(|pod| pods::name(pod) == canary);
        }
        let plan = story.reconcile(100 + 1_200);
        assert_eq!((plan.state.losses, plan.state.failed.as_str()), (losses, ""));
        assert_eq!(plan.canary.is_some(), other_pods > 0, "it is tried again");
        // One pod is left, and this trial has not broken the other one.
        let plans: Vec<RolloutPlan> = (1_301..1_370).map(|at| story.reconcile(at)).collect();
        let last = &plans.last().unwrap().state.stable;
        let goes_out = other_pods == 0 && losses == 0;
        assert_eq!(*last == revision(NEW), goes_out, "{other_pods} {losses}");
        let early = plans[..50].iter().all(|plan| plan.state.stable == revision(OLD));
        assert!(early, "a second pod is waited for");
    }
}

/// Else the configuration would go out untried where no second pod comes.
#[test]
fn o17_a_canary_that_answered_worse_before_no_operator_watched_it_is_lost() {
    let mut story = Story::on_trial();
    story.compare(false, true);
    story.reconcile(104);
    let canary = story.canary().unwrap();
    says(&mut story.observed, &canary, &revision(OLD));
    assert_eq!(story.reconcile(1_300).state.losses, 1);
}

#[test]
fn o17_a_canary_that_no_operator_watched_and_that_restarted_is_lost() {
    let mut story = Story::on_trial();
    restart(&mut story, "dns-0", &revision(OLD));
    assert_eq!(story.reconcile(1_300).state.losses, 1);
}

#[test]
fn o17_a_canary_that_has_no_pod_to_compare_with_is_taken_back_unjudged() {
    let mut story = Story::with_pods(2);
    story.edit(NEW);
    story.reconcile(100);
    story.pods_follow();
    // The other pod serves, but its page `/config` cannot be read.
    story.observed.pod_reports.remove("dns-1-uid");
    let plan = story.reconcile(250);
    assert!(plan.state.is_unjudged && plan.state.losses == 0, "{:?}", plan.state);
    let why = plan.held.expect("the operator's trouble");
    assert!(why.why.contains("nothing to compare with"), "{why:?}");
    assert_eq!(why.by, HeldBy::NoOtherPod);
    assert_eq!(plan.state.stable, revision(OLD));
}

/// Its container was started again so quickly that nothing else has noticed.
fn restart(story: &mut Story, pod: &str, revision: &str) {
    says(&mut story.observed, pod, revision);
    reported(&mut story.observed, pod).process = "another".to_owned();
}

#[test]
fn a_canary_that_restarts_before_anyone_counts_it_is_lost_and_never_judged() {
    // For each of these: the new process answers worse, answers well at the end of its time, or refuses.
    for (seconds, is_right, rejection) in
        [(1, false, None), (30, true, None), (1, true, Some("no"))]
    {
        let mut story = Story::with_pods(3);
        story.edit(NEW);
        let named = story.reconcile(100).state.canary_pod.expect("a canary");
        assert_eq!((named.name.as_str(), named.process.as_str()), ("dns-0", "dns-0-process"));
        story.pods_follow();
        story.compare(is_right, true);
        let runs = if rejection.is_some() { OLD } else { NEW };
        restart(&mut story, "dns-0", &revision(runs));
        reported(&mut story.observed, "dns-0").rejection = rejection.map(str::to_owned);
        let plan = story.reconcile(100 + seconds);
        assert_eq!(plan.state.stable, revision(OLD), "{rejection:?}");
        assert_eq!((plan.state.failed.as_str(), plan.state.losses), ("", 1), "{rejection:?}");
        assert_eq!(story.canary().is_none(), runs == NEW, "it goes back first");
        story.pods_follow();
        story.reconcile(101 + seconds);
        assert_eq!(story.canary().as_deref(), Some("dns-1"));
    }
}

#[test]
fn o7_a_lost_canary_goes_back_before_another_pod_is_named() {
    let mut story = Story::on_trial();
    restart(&mut story, "dns-0", &revision(NEW));
    for second in [101, 103] {
        let plan = story.reconcile(second);
        assert_eq!((plan.canary, plan.state.losses), (None, 1), "dns-0 runs it still");
    }
    let hangs = story.observed.clone();
    story.pods_follow();
    assert!(story.reconcile(105).canary.is_some());
    assert_eq!(story.canary().as_deref(), Some("dns-1"), "not the lost one");

    story.observed = hangs;
    story.observed.pod_reports.get_mut("dns-0-uid").expect("a report").age =
        Duration::from_secs(11);
    story.reconcile(114);
    assert_eq!(story.canary().as_deref(), Some("dns-1"));
}

#[test]
fn a_canary_that_keeps_restarting_quickly_fails_its_revision() {
    let mut story = Story::with_pods(5);
    story.edit(NEW);
    for round in 0..3 {
        story.reconcile(100 + round * 10);
        story.pods_follow();
        story.reconcile(101 + round * 10);
        let canary = story.canary().expect("a canary");
        story.pods_follow();
        story.compare(true, true);
        restart(&mut story, &canary, &revision(NEW));
    }
    let plan = story.reconcile(130);
    assert_eq!(plan.state.failed, revision(NEW));
    assert!(plan.state.failure.contains("was restarted"), "{}", plan.state.failure);
}

#[test]
fn a_newer_edit_does_not_go_to_a_canary_that_has_just_restarted() {
    let mut story = Story::on_trial();
    restart(&mut story, "dns-0", &revision(NEW));
    story.edit("{ttlSeconds: 9}");
    story.reconcile(110);
    assert_eq!(story.canary().as_deref(), Some("dns-1"));
}

#[test]
fn versions_that_know_nothing_of_processes_go_on_as_before() {
    // A data plane whose version does not report its process.
    let mut story = Story::on_trial();
    reported(&mut story.observed, "dns-0").process.clear();
    story.compare(true, true);
    assert_eq!(story.reconcile(101).state.losses, 0);
    assert_eq!(story.reconcile(130).state.stable, revision(NEW));

    // An operator that did not ask: its canary stays, and is known from then on.
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&data["rollout.json"]).unwrap();
    state["canaryPod"].as_object_mut().unwrap().remove("process").expect("it was remembered");
    data.insert("rollout.json".to_owned(), state.to_string());
    story.pods_follow();
    let known = story.reconcile(101).state.canary_pod.expect("it stays");
    assert_eq!((known.name.as_str(), known.process.as_str()), ("dns-0", "dns-0-process"));
    restart(&mut story, "dns-0", &revision(NEW));
    assert_eq!(story.reconcile(102).state.losses, 1);
}

#[test]
fn an_edit_of_a_configuration_that_took_its_pod_down_is_tried_in_its_turn() {
    let mut story = Story::with_pods(2);
    story.edit(NEW);
    let canary = story.reconcile(100).state.canary_pod.expect("two pods are ready").name;
    story.pods_follow();
    let place = story.observed.pods.iter().position(|pod| pods::name(pod) == canary).unwrap();
    story.observed.pods[place] = unready(pod(&canary, 0, 0));
    const NEXT: &str = "{ttlSeconds: 9}";
    story.edit(NEXT);
    for second in 110..150 {
        let plan = story.reconcile(second);
        assert_eq!(
            (plan.state.stable, plan.canary),
            (revision(OLD), None),
            "the last pod keeps it"
        );
        assert_eq!(plan.state.losses, 0, "of this one nothing was lost");
    }
    // It has gone back, and is ready again.
    story.observed.pods[place] = pod(&canary, 150, 0);
    story.pods_follow();
    let plan = story.reconcile(151);
    assert_eq!((plan.state.canary, plan.canary.is_some()), (revision(NEXT), true));
    // Going back to what runs ends it, with one ready pod too.
    story.observed.pods[place] = unready(pod(&canary, 0, 0));
    story.edit(OLD);
    assert_eq!(story.reconcile(160).state.canary, "");
}

#[test]
fn d1_a_trial_that_ends_because_one_pod_is_wanted_promises_no_next_one() {
    let mut story = Story::on_trial();
    story.compare(false, true);
    story.reconcile(101);
    assert_eq!(config_map::state(&story.observed).worse.len(), 1, "it failed once");
    story.edit("{ttlSeconds: 7, scaling: {fixed: {replicas: 1}}}");
    story.observed.comparison = None;
    let plan = story.reconcile(102);
    assert_eq!((&*plan.state.failed, plan.notices[0].reason), (&*revision(NEW), "CanaryFailed"));
    let message = &plan.notices[0].message;
    assert!(message.contains("There is no trial while there is only one pod. "), "{message}");
    assert!(!message.contains("time of the next trial"), "{message}");
}
