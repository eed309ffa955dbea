//! The clocks of two operators differ, and another one leads in the middle of a trial.

use super::*;

/// The next reconcile, by a leader that has watched the trial for this long. By its clock it is this second.
fn look(story: &mut Story, watched: u64, seconds: i64) -> RolloutPlan {
    story.observed.watched = Some(Duration::from_secs(watched));
    story.reconcile(seconds)
}

fn has_passed(plan: &RolloutPlan) -> bool {
    plan.state.stable == revision(NEW)
}

#[test]
fn o8_a_leader_whose_clock_is_ahead_ends_no_trial_early() {
    let mut story = Story::on_trial();
    story.compare(true, true);
    assert!(!has_passed(&look(&mut story, 0, 101)));
    // Another one leads from then on, and its clock is five minutes ahead.
    for watched in [0, 5, 28] {
        let plan = look(&mut story, watched, 401 + watched as i64);
        assert!(!has_passed(&plan), "{watched} s");
        assert_eq!((plan.state.losses, story.canary().as_deref()), (0, Some("dns-0")));
    }
    assert!(has_passed(&look(&mut story, 29, 430)), "and a second before");
}

#[test]
fn o8_a_leader_whose_clock_is_ahead_calls_no_canary_lost_or_unjudged() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    for (watched, seconds) in [(0, 401), (100, 501), (148, 549)] {
        let plan = look(&mut story, watched, seconds);
        assert_eq!((plan.state.losses, plan.state.started_at), (0, at(100).to_string()));
    }

    let mut story = Story::on_trial();
    story.observed.comparison = None;
    for name in ["dns-0", "dns-1", "dns-2"] {
        let report = story.observed.pod_reports.get_mut(&format!("{name}-uid")).unwrap();
        report.reported = Err("no route to host".to_owned());
    }
    let plan = look(&mut story, 0, 101);
    assert!(plan.held.is_some() && plan.canary.is_some());
    let plan = look(&mut story, 0, 402);
    assert!(plan.canary.is_some(), "it was held for a second, and not for 301");
    assert!(look(&mut story, 147, 549).canary.is_some());
    assert_eq!(look(&mut story, 148, 550).canary, None, "it is taken back unjudged");
}

#[test]
fn o8_a_leader_whose_clock_is_behind_continues_the_trial() {
    let mut story = Story::on_trial();
    story.compare(true, true);
    look(&mut story, 0, 102);
    // Another one leads since second 110, and its clock is five minutes behind.
    for watched in [0, 29] {
        let plan = look(&mut story, watched, -190 + watched as i64);
        assert!(!has_passed(&plan));
        assert_eq!((plan.state.losses, story.canary().as_deref()), (0, Some("dns-0")));
    }
    assert!(has_passed(&look(&mut story, 30, -160)), "what was good before is good from then on");

    let mut story = Story::on_trial();
    story.compare(false, true);
    look(&mut story, 0, 102);
    assert_eq!(look(&mut story, 0, -190).state.failed, "");
    assert_eq!(look(&mut story, 3, -187).state.failed, "", "the rounds have to be apart");
    assert_eq!(look(&mut story, 4, -186).state.failed, revision(NEW));
}

#[test]
fn o8_a_trial_ends_also_where_each_leader_watches_it_for_a_moment() {
    let mut story = Story::on_trial();
    story.compare(true, true);
    for seconds in (101..430).step_by(20) {
        assert!(!has_passed(&look(&mut story, 0, seconds)), "{seconds}");
    }
    assert!(has_passed(&look(&mut story, 0, 430)), "no two clocks differ by more");
}
