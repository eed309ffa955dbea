//! What rounds of questions decide, and when a revision that failed is tried again.

use super::*;
use crate::names::RETRY;
use crate::observe::observed::{Check, CheckResult};

/// A rollout whose canary is on trial and has been asked.
fn on_trial() -> Story {
    let mut story = Story::on_trial();
    story.compare(true, true);
    story
}

fn worse(story: &mut Story, what: &str) {
    story.compare(false, true);
    story.observed.comparison.as_mut().unwrap().checks[0].what = what.to_owned();
}

#[test]
fn o17_a_question_that_is_lost_in_one_round_decides_nothing() {
    let mut story = on_trial();
    for (second, what) in [(104, "a.example. A"), (108, "b.example. A"), (112, "a.example. A")] {
        worse(&mut story, what);
        let plan = story.reconcile(second);
        assert_eq!((plan.state.failed.as_str(), plan.canary.is_some()), ("", true), "{second}");
    }
    story.compare(true, true);
    story.reconcile(116);
    worse(&mut story, "a.example. A");
    assert_eq!(story.reconcile(120).state.failed, "", "it was well in between");
    story.compare(true, true);
    story.reconcile(126);
    assert_eq!(story.reconcile(130).state.stable, revision(NEW));
}

#[test]
fn o17_two_rounds_are_apart_also_under_two_leaders() {
    let mut story = on_trial();
    worse(&mut story, "a.example. A");
    story.reconcile(104);
    assert_eq!(story.reconcile(107).state.failed, "", "three seconds are one moment");
    let plan = story.reconcile(108);
    assert_eq!(plan.state.failed, revision(NEW), "what was seen first is in rollout.json");
    assert!(plan.state.failure.contains("a.example. A: SERVFAIL"), "{}", plan.state.failure);
}

/// The pod gives a trial up by the number in rollout.json: the operator must judge by the same one.
#[test]
fn o7_a_trial_in_progress_keeps_the_number_of_seconds_that_it_began_with() {
    let mut story = on_trial();
    story.reconcile(120);
    story.edit("{ttlSeconds: 7, rollout: {observeSeconds: 3600}}");
    let state = story.reconcile(129).state;
    assert_eq!((state.stable, state.observe_seconds), (revision(OLD), 30));
    assert_eq!(story.reconcile(130).state.stable, revision(NEW));
}

/// The operator cannot send to the canary.
fn cut_off(story: &mut Story) {
    story.compare(true, true);
    let why = "it cannot send to the pod: no route to host".to_owned();
    story.observed.comparison.as_mut().unwrap().unreachable = Some(HeldBy::Network.because(why));
}

#[test]
fn o17_the_operators_own_trouble_holds_and_is_never_a_loss() {
    let mut story = on_trial();
    for second in (102..240).step_by(2) {
        cut_off(&mut story);
        let plan = story.reconcile(second);
        assert_eq!((plan.state.failed.as_str(), plan.state.losses), ("", 0), "{second}");
        assert!(plan.held.is_some_and(|held| held.why.contains("no route")));
        assert_eq!((plan.state.stable, plan.canary.is_some()), (revision(OLD), true), "{second}");
    }
    story.compare(true, true);
    story.reconcile(240);
    assert_eq!(
        story.reconcile(244).state.stable,
        revision(NEW),
        "it continues when the problem is over"
    );
}

#[test]
fn o17_no_pod_keeps_what_the_operator_cannot_judge_and_it_is_tried_again() {
    let mut story = on_trial();
    let mut now = 100;
    for minutes in [5, 10, 20] {
        cut_off(&mut story);
        let begun = now;
        while story.observed.comparison.is_some() {
            now += 2;
            assert!(now < begun + 400, "it stays on its pod");
            let plan = story.reconcile(now);
            if plan.canary.is_none() {
                story.observed.comparison = None;
                let notice = &plan.notices[0];
                assert_eq!(notice.reason, "CanaryUnreachable");
                let is_blamed = notice.message.contains("Correct the spec");
                assert!(!is_blamed, "the spec has no mistake: {}", notice.message);
            }
        }
        let plan = story.reconcile(now);
        assert_eq!((plan.state.stable, plan.state.losses), (revision(OLD), 0));
        assert!(plan.held.is_some_and(|held| held.why.contains("no route")), "it is still said");
        story.pods_follow();
        assert!(story.reconcile(now + minutes * 60 - 1).canary.is_none(), "{minutes}");
        now += minutes * 60;
        assert!(story.reconcile(now).canary.is_some(), "after {minutes} minutes");
        story.pods_follow();
    }
    story.compare(true, true);
    story.reconcile(now + 26);
    let plan = story.reconcile(now + 30);
    assert_eq!((plan.state.stable, plan.state.failed), (revision(NEW), String::new()));
}

#[test]
fn o17_a_canary_that_is_not_asked_for_lack_of_time_is_no_problem_and_no_loss() {
    let mut story = on_trial();
    let postpone = |story: &mut Story| {
        story.observed.comparison.as_mut().unwrap().checks.clear();
        story.observed.comparison.as_mut().unwrap().is_postponed = true;
    };
    postpone(&mut story);
    for second in (102..250).step_by(2) {
        let plan = story.reconcile(second);
        assert_eq!(
            (plan.held, plan.state.losses, plan.canary.is_some()),
            (None, 0, true),
            "{second}"
        );
    }
    let plan = story.reconcile(250);
    assert!(plan.canary.is_none() && plan.state.is_unjudged, "the pod goes back in the end");
    assert_eq!(plan.held.unwrap().by, HeldBy::Busy);
    assert_eq!((plan.state.stable, plan.state.losses), (revision(OLD), 0));
}

#[test]
fn o17_a_retry_takes_another_pod_so_that_one_bad_node_blocks_no_edit() {
    let mut story = failed();
    let mut tried = Vec::new();
    let mut now = 105;
    for minutes in [5, 10, 20] {
        now += minutes * 60;
        tried.push(story.reconcile(now).state.canary_pod.expect("it is tried again").name);
        story.pods_follow();
        story.compare(false, true);
        story.reconcile(now + 1);
        now += 5;
        assert!(story.reconcile(now).canary.is_none());
        story.pods_follow();
    }
    assert_eq!(tried, ["dns-1", "dns-2", "dns-0"]);
    // The next edit does not begin with the pod that failed last, either.
    story.edit("{ttlSeconds: 9}");
    let next = story.reconcile(now + 1).state.canary_pod.expect("another configuration").name;
    assert_eq!(next, "dns-1");
}

#[test]
fn o17_an_operator_that_no_pod_answers_says_so_and_waits() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    for answer in story.observed.pod_reports.values_mut() {
        answer.reported = Err("http://10.244.0.9:9153/config did not answer within 1 s".to_owned());
    }
    let plan = story.reconcile(100);
    assert_eq!((plan.canary, plan.state.stable), (None, revision(OLD)));
    let held = plan.held.unwrap();
    assert!(held.why.contains("none of 3 ready pods says what it runs"), "{held:?}");
    assert_eq!(held.by, HeldBy::Network);
    // The same in the middle of a trial.
    let mut story = on_trial();
    story.observed.comparison = None;
    for answer in story.observed.pod_reports.values_mut() {
        answer.reported = Err("no answer".to_owned());
    }
    for second in 1..100 {
        let plan = story.reconcile(100 + second * 30);
        assert_eq!((plan.state.losses, plan.state.stable.as_str()), (0, revision(OLD).as_str()));
        assert!(plan.held.is_some());
    }
}

#[test]
fn o17_a_failed_revision_is_tried_again_after_five_minutes_then_ten_up_to_an_hour() {
    let mut story = failed();
    let mut now = 105;
    for minutes in [5, 10, 20, 40, 60, 60] {
        assert_eq!(story.reconcile(now + minutes * 60 - 1).canary, None);
        let plan = story.reconcile(now + minutes * 60);
        assert!(plan.canary.is_some(), "after {minutes} minutes");
        assert_eq!(plan.state.failed, revision(NEW), "the failure is still reported");
        now += minutes * 60;
        story.pods_follow();
        story.compare(false, true);
        story.reconcile(now + 1);
        assert!(story.reconcile(now + 5).canary.is_none());
        now += 5;
        story.pods_follow();
    }
    // The servers are back.
    story.reconcile(now + 3_600);
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(now + 3_610);
    let plan = story.reconcile(now + 3_640);
    assert_eq!((plan.state.stable, plan.state.failed), (revision(NEW), String::new()));
}

#[test]
fn o17_an_annotation_has_a_failed_revision_tried_again_at_once_and_once() {
    let mut story = failed();
    let annotate = |story: &mut Story, value: &str| {
        let annotations = story.dns.metadata.annotations.get_or_insert_default();
        annotations.insert(RETRY.to_owned(), value.to_owned());
    };
    annotate(&mut story, "1");
    assert!(story.reconcile(110).canary.is_some());
    story.pods_follow();
    story.compare(false, true);
    story.reconcile(111);
    assert!(story.reconcile(115).canary.is_none());
    story.pods_follow();
    assert!(story.reconcile(120).canary.is_none(), "the same value asks for nothing more");
    annotate(&mut story, "2");
    assert!(story.reconcile(121).canary.is_some());
}

#[test]
fn o17_people_are_warned_for_a_while_of_what_every_pod_got() {
    let silent = "no server of stub domain a replies; the group is new".to_owned();
    let errors = "the servers of stub domain a reply only with errors".to_owned();
    // Pods report silent servers by themselves; nothing reports errors.
    for (outcome, seconds) in
        [(CheckResult::Warning(silent), 600), (CheckResult::ErrorsOnly(errors), 24 * 3_600)]
    {
        let mut story = on_trial();
        let check = Check { what: "a. SOA".to_owned(), outcome };
        story.observed.comparison.as_mut().unwrap().checks.push(check);
        assert!(story.reconcile(120).state.warning.contains("stub domain a"));
        let plan = story.reconcile(130);
        assert_eq!(plan.state.stable, revision(NEW));
        assert!(plan.notices[0].message.contains("stub domain a"));
        story.pods_follow();
        assert!(story.reconcile(130 + seconds - 1).state.warning.contains("stub domain a"));
        let state = story.reconcile(130 + seconds + 1).state;
        assert_eq!((state.warning.as_str(), state.has_errors_only), ("", false));
    }
}

/// The operator that wrote the time had a clock that was ahead, and that was corrected.
#[test]
fn o17_a_warning_does_not_stay_for_as_long_as_a_clock_was_ahead() {
    for (ahead, is_warned) in [(60, true), (3_600, false)] {
        let mut story = on_trial();
        let outcome = CheckResult::Warning("no server of stub domain a replies".to_owned());
        let check = Check { what: "a. SOA".to_owned(), outcome };
        story.observed.comparison.as_mut().unwrap().checks.push(check);
        story.reconcile(120);
        assert!(!story.reconcile(130).state.warned_at.is_empty());
        story.pods_follow();
        let state = story.reconcile(130 - ahead).state;
        assert_eq!(!state.warning.is_empty(), is_warned, "{ahead} s ahead");
        assert_eq!(!state.warned_at.is_empty(), is_warned, "{ahead} s ahead");
    }
}

#[test]
fn o17_a_change_passes_when_all_of_it_was_asked_or_with_a_warning_in_the_end() {
    for (last_unasked, second, warning) in
        [(0, 132, ""), (7, 250, "7 of 900 changed hosts and stub domains were not asked in time")]
    {
        let mut story = on_trial();
        story.compare(true, true);
        story.observed.comparison.as_mut().unwrap().unasked = (300, 900);
        for second in (102..132).step_by(2) {
            assert!(story.reconcile(second).canary.is_some(), "{second}");
        }
        let plan = story.reconcile(131);
        assert_eq!((plan.held, plan.state.stable), (None, revision(OLD)), "it is not whole");
        story.observed.comparison.as_mut().unwrap().unasked = (last_unasked, 900);
        let plan = story.reconcile(second);
        assert_eq!((plan.state.stable, plan.state.warning.as_str()), (revision(NEW), warning));
    }
}

#[test]
fn o17_a_pod_that_ran_it_without_an_answer_to_judge_is_not_called_silent() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    let mut failure = String::new();
    for begin in [100, 400, 700] {
        story.reconcile(begin);
        story.pods_follow();
        story.compare(false, false);
        failure = story.reconcile(begin + 151).state.failure;
        story.pods_follow();
    }
    assert!(failure.contains("ran it, but its answers did not show in time"), "{failure}");
}
