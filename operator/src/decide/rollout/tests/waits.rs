//! With fewer than two ready pods nothing can be tried: what waits, and for how long.

use super::*;
use crate::observe::observed::Comparison;

/// Two pods, one of them drained.
fn drained() -> Story {
    let mut story = Story::with_pods(2);
    story.observed.pods[1] = unready(pod("dns-1", 0, 0));
    story.edit(NEW);
    story
}

#[test]
fn o17_a_drained_node_is_no_reason_to_skip_the_trial() {
    let mut story = drained();
    let plan = story.reconcile(100);
    assert_eq!((plan.state.stable, plan.canary), (revision(OLD), None));
    assert_eq!(plan.again_in, Some(RECONCILE_EVERY));
    assert_eq!(story.reconcile(159).state.stable, revision(OLD));
    story.observed.pods[1] = pod("dns-1", 159, 0);
    story.pods_follow();
    let plan = story.reconcile(159);
    assert!(plan.canary.is_some(), "it is tried");
    assert_eq!(plan.state.waits_since, "");
}

#[test]
fn o17_after_sixty_seconds_without_a_second_pod_it_goes_out_and_that_is_said() {
    let mut story = drained();
    story.reconcile(100);
    // Another edit does not begin the minute again.
    story.edit("{ttlSeconds: 9}");
    story.reconcile(130);
    let plan = story.reconcile(160);
    assert_eq!(plan.state.stable, revision("{ttlSeconds: 9}"));
    let notice = &plan.notices[0];
    assert!(notice.is_warning && notice.reason == "ConfigurationUntried", "{notice:?}");
    assert!(notice.message.contains("was not tried"), "{notice:?}");
}

#[test]
fn o17_what_failed_never_goes_out_untried() {
    let mut story = failed();
    for pod in &mut story.observed.pods[1..] {
        *pod = unready(pod.clone());
    }
    for second in (200..20_000).step_by(30) {
        let plan = story.reconcile(second);
        assert_eq!(plan.state.stable, revision(OLD), "{second}");
        assert_eq!(plan.state.failed, revision(NEW), "{second}");
    }
}

#[test]
fn o5_where_every_pod_refuses_its_configuration_a_repair_does_not_wait() {
    // They run what was there before that.
    let refused_by = |names: &[&str]| {
        let mut story = Story::with_pods(3);
        for name in names {
            let said = reported(&mut story.observed, name);
            said.rejection = Some("format 9".to_owned());
            said.revision = "before".to_owned();
        }
        story.edit(NEW);
        story.reconcile(100)
    };
    let plan = refused_by(&["dns-0", "dns-1"]);
    assert!(plan.canary.is_some(), "one runs what all should run: it tries");
    let plan = refused_by(&["dns-0", "dns-1", "dns-2"]);
    assert_eq!(plan.state.stable, revision(NEW));
    assert_eq!(plan.notices[0].reason, "ConfigurationChanged");
}

/// What the workload becomes when the spec asks for one pod: this one.
fn scale_to_one(story: &mut Story, name: &str) {
    story.dns.spec.scaling = dns("{scaling: {fixed: {replicas: 1}}}").spec.scaling;
    story.dns.metadata.generation = story.dns.metadata.generation.map(|it| it + 1);
    let answers = std::mem::take(&mut story.observed.pod_reports);
    deploy(&mut story.observed, 1);
    story.observed.pods = vec![pod(name, 0, 0)];
    story.observed.pod_reports = answers;
    story.observed.comparison = None;
}

#[test]
fn o17_a_trial_ends_when_the_spec_asks_for_one_pod_only() {
    for remaining in ["dns-0", "dns-1"] {
        let mut story = Story::with_pods(3);
        story.edit(NEW);
        story.reconcile(100);
        story.pods_follow();
        scale_to_one(&mut story, remaining);
        let plan = story.reconcile(110);
        assert_eq!((plan.state.stable, plan.canary), (revision(NEW), None), "{remaining}");
        let notice = &plan.notices[0];
        assert!(notice.is_warning && notice.reason == "ConfigurationUntried", "{notice:?}");
    }
}

#[test]
fn o17_what_took_pods_down_does_not_reach_the_only_pod() {
    let mut story = Story::on_trial();
    story.remove("dns-0");
    assert_eq!(story.reconcile(110).state.losses, 1);
    story.pods_follow();
    scale_to_one(&mut story, "dns-2");
    let plan = story.reconcile(120);
    assert_eq!((plan.state.stable, plan.state.failed), (revision(OLD), revision(NEW)));
    assert!(plan.state.failure.contains("no second pod"), "{}", plan.state.failure);
    for second in (121..20_000).step_by(60) {
        assert_eq!(story.reconcile(second).state.stable, revision(OLD), "{second}");
    }
}

#[test]
fn o17_what_failed_does_not_reach_the_only_pod_and_is_tried_when_there_are_two() {
    for is_on_trial in [false, true] {
        let mut story = failed();
        let mut now = 200;
        if is_on_trial {
            now = 105 + 301;
            assert!(story.reconcile(now).canary.is_some(), "it is tried again");
        }
        scale_to_one(&mut story, "dns-1");
        for second in (now + 1..20_000).step_by(60) {
            let plan = story.reconcile(second);
            assert_eq!((plan.state.stable, plan.canary), (revision(OLD), None), "{second}");
            assert_eq!(plan.state.failed, revision(NEW), "{second}");
            assert_eq!((plan.again_in, plan.notices.len()), (None, 0), "{second}");
        }
        deploy(&mut story.observed, 2);
        story.dns.spec.scaling = None;
        story.pods_follow();
        assert!(story.reconcile(20_001).canary.is_some(), "there are two pods");
    }
}

#[test]
fn o17_what_failed_waits_for_a_second_pod_also_after_another_edit_of_the_spec() {
    let mut story = failed();
    for pod in &mut story.observed.pods[1..] {
        *pod = unready(pod.clone());
    }
    story.edit("{ttlSeconds: 7, scaling: {fixed: {replicas: 3}}}");
    for second in (200..2_000).step_by(30) {
        let state = story.reconcile(second).state;
        assert_eq!((state.stable, state.failed), (revision(OLD), revision(NEW)), "{second}");
    }
}

/// All pods but one are not ready.
fn one_is_left(story: &mut Story) {
    for pod in &mut story.observed.pods[1..] {
        *pod = unready(pod.clone());
    }
}

/// What failed is asked for again, and waits until it can be tried.
fn waits_for_a_trial(mut story: Story, from: i64) {
    story.edit(NEW);
    for second in (from..from + 2_000).step_by(30) {
        let state = story.reconcile(second).state;
        assert_eq!((state.stable, state.failed), (revision(OLD), revision(NEW)), "{second}");
        assert!(!state.failure.is_empty(), "Degraded says why");
    }
    deploy(&mut story.observed, 2);
    story.pods_follow();
    assert!(story.reconcile(from + 2_001).canary.is_some(), "there are two pods");
}

#[test]
fn o17_what_failed_never_goes_out_untried_also_after_other_edits_in_between() {
    const OTHER: &str = "{ttlSeconds: 9}";
    for between in [vec![OTHER], vec![OLD], vec![OTHER, OLD, "{ttlSeconds: 11}"]] {
        let (mut story, mut second) = (failed(), 200);
        one_is_left(&mut story);
        for spec in between {
            story.edit(spec);
            assert_eq!(story.reconcile(second).state.stable, revision(OLD));
            second += 10;
        }
        waits_for_a_trial(story, second);
    }
}

#[test]
fn o17_what_failed_is_known_also_after_another_one_failed() {
    const OTHER: &str = "{ttlSeconds: 9}";
    let mut story = failed();
    story.edit(OTHER);
    story.reconcile(200);
    story.pods_follow();
    story.compare(false, true);
    story.reconcile(201);
    assert_eq!(story.reconcile(205).state.failed, revision(OTHER));
    story.pods_follow();
    one_is_left(&mut story);
    waits_for_a_trial(story, 300);
}

#[test]
fn o17_what_failed_is_known_also_after_a_trial_that_could_not_be_judged() {
    let mut story = failed();
    assert!(story.reconcile(500).canary.is_some(), "it is tried again");
    story.pods_follow();
    let name = story.canary().expect("a canary");
    story.observed.comparison = Some(Comparison {
        unreachable: Some(HeldBy::Network.because("no way")),
        ..compared(&name, &revision(NEW), true, true)
    });
    for second in (502..900).step_by(2) {
        story.reconcile(second);
    }
    let state = config_map::state(&story.observed);
    assert!(state.is_unjudged && state.failed == revision(NEW), "{state:?}");
    story.observed.comparison = None;
    story.pods_follow();
    one_is_left(&mut story);
    waits_for_a_trial(story, 1_000);
}

#[test]
fn o17_a_configuration_that_all_pods_got_is_not_known_to_fail() {
    let mut story = failed();
    story.edit("{ttlSeconds: 9, rollout: {canary: false}}");
    assert_eq!(story.reconcile(200).state.failed_earlier.len(), 1);
    story.edit("{ttlSeconds: 7, rollout: {canary: false}}");
    let state = story.reconcile(210).state;
    assert_eq!((state.stable, state.failed_earlier), (revision(NEW), Vec::new()));
}

#[test]
fn what_is_remembered_of_failed_configurations_is_bounded() {
    let mut state = RolloutState::default();
    for n in 0..100 {
        let failed = RolloutState { failed: n.to_string(), ..state };
        let next = RolloutState::default();
        state = RolloutState { failed_earlier: retry::earlier(&failed, &next), ..next };
    }
    let known: Vec<&str> = state.failed_earlier.iter().map(|it| it.revision.as_str()).collect();
    assert_eq!(known, ["92", "93", "94", "95", "96", "97", "98", "99"]);
}

#[test]
fn o17_a_workload_with_one_pod_that_is_to_have_three_waits_for_a_second() {
    let mut story = Story::with_pods(1);
    story.edit("{ttlSeconds: 7, scaling: {fixed: {replicas: 3}}}");
    assert_eq!(story.reconcile(100).state.stable, revision(OLD));
}

/// Who may write the ConfigMap may write anything into it.
#[test]
fn o17_a_time_or_a_number_at_its_end_ends_no_operator() {
    const LAST: &str = "9999-12-30T22:00:00.999999999Z";
    let mut story = Story::on_trial();
    let mut plan = story.reconcile(101);
    plan.state.losses = u32::MAX;
    write(&mut story.observed, &plan);
    story.remove("dns-0");
    assert_eq!(story.reconcile(102).state.failed, revision(NEW), "it was lost often enough");
    for since in [LAST, "-009999-01-02T01:59:59Z"] {
        let mut story = Story::on_trial();
        let mut plan = story.reconcile(101);
        let state = &mut plan.state;
        (state.started_at, state.waits_since, state.retry_at) =
            (since.into(), since.into(), since.into());
        (state.held_since, state.good_since, state.worse_since) =
            (since.into(), since.into(), since.into());
        (state.warned_at, state.edited_at, state.observe_seconds) =
            (since.into(), since.into(), u32::MAX);
        state.warning = "a warning".to_owned();
        write(&mut story.observed, &plan);
        next_trial(
            &story.dns,
            &untouched(&story.observed, String::new()),
            &story.observed,
            at(102),
        );
        story.reconcile(102);
        nothing_new(&story.dns, &story.observed, at(103));
    }
}
