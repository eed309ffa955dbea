//! What is written besides the trial: rights, formats, and what others wrote into it.

use super::*;

#[test]
fn rights_are_wide_before_a_document_needs_them_and_until_no_pod_runs_one() {
    const VERIFIED: &str = "{podRecords: Verified}";
    let mut story = Story::with_pods(3);
    assert!(!story.reconcile(1).needs_pods);
    story.edit(VERIFIED);
    let plan = story.reconcile(100);
    assert!(plan.needs_pods && plan.canary.is_some(), "one pod will need them");
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(110);
    assert!(story.reconcile(130).needs_pods);
    story.pods_follow();
    story.edit("{podRecords: Insecure, rollout: {canary: false}}");
    assert!(story.reconcile(200).needs_pods, "pods still run the old one");
    assert!(story.reconcile(201).needs_pods);
    says(&mut story.observed, "dns-0", &revision("{podRecords: Insecure}"));
    story.observed.pod_reports.get_mut("dns-1-uid").unwrap().reported = Err("no answer".to_owned());
    assert!(story.reconcile(202).needs_pods, "one of them may still run it");
    story.pods_follow();
    // Of more than fifty pods, fifty are asked.
    story.observed.pod_reports.remove("dns-2-uid");
    assert!(!story.reconcile(203).needs_pods);
}

#[test]
fn o4_a_foreign_edit_of_the_configuration_is_undone() {
    let mut story = Story::with_pods(3);
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    data.insert("stable.json".to_owned(), "{\"format\":1,\"ttlSeconds\":99}".to_owned());
    let plan = story.reconcile(10);
    assert_eq!(
        (plan.stable, plan.state.stable),
        (crate::fixtures::config(&dns(OLD)).to_json(), revision(OLD))
    );
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    data.remove("rollout.json");
    assert_eq!(story.reconcile(11).state.stable, revision(OLD));
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    data.insert("stable.json".to_owned(), "not JSON".to_owned());
    assert_eq!(story.reconcile(12).state.stable, revision(OLD));
}

#[test]
fn the_format_is_the_newest_that_all_pods_know() {
    let mut story = Story::with_pods(2);
    let of = |story: &Story| format(&Current::read(&story.observed), &story.observed);
    assert_eq!(of(&story), config::FORMAT);
    reported(&mut story.observed, "dns-0").max_format = 99;
    assert_eq!(of(&story), config::FORMAT, "never one that we do not know");
    reported(&mut story.observed, "dns-0").max_format = 0;
    assert_eq!(of(&story), OLDEST_FORMAT);
}

#[test]
fn o4_after_the_configuration_was_deleted_a_change_is_tried_beside_what_pods_run() {
    let mut story = Story::with_pods(3);
    story.observed.config_map = None;
    story.observed.lost_document = Some(crate::fixtures::config(&dns(OLD)).to_json());
    let plan = story.reconcile(9);
    assert_eq!((plan.state.stable, plan.notices.len()), (revision(OLD), 0), "it is written again");
    story.observed.config_map = None;
    story.edit(NEW);
    let plan = story.reconcile(10);
    assert_eq!((plan.state.stable, plan.state.canary), (revision(OLD), revision(NEW)));
    assert_eq!(plan.notices[0].reason, "CanaryStarted");
    // With rollout.json left, what failed stays known.
    story.observed.lost_document = None;
    story.pods_follow();
    reported(&mut story.observed, "dns-0").rejection = Some("no".to_owned());
    says_old(&mut story);
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    data.remove("stable.json");
    story.observed.lost_document = Some(crate::fixtures::config(&dns(OLD)).to_json());
    let plan = story.reconcile(20);
    assert_eq!((plan.state.stable, plan.state.failed), (revision(OLD), revision(NEW)));
}

/// The canary refuses what it tries, and answers with what it ran before.
fn says_old(story: &mut Story) {
    let state = config_map::state(&story.observed);
    let name = state.canary_pod.expect("a canary").name;
    reported(&mut story.observed, &name).revision = state.stable;
}

#[test]
fn o4_why_nothing_was_tried_names_what_another_client_did() {
    for (content, expected) in [(Some("not JSON"), "edited"), (None, "deleted")] {
        let mut story = Story::with_pods(3);
        let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
        match content {
            Some(content) => data.insert("stable.json".to_owned(), content.to_owned()),
            None => data.remove("stable.json"),
        };
        story.edit(NEW);
        let notice = &story.reconcile(10).notices[0];
        assert_eq!(notice.reason, "ConfigurationUntried");
        assert!(notice.message.contains(&format!("another client {expected}")), "{notice:?}");
    }
}
