//! What is written besides the trial: rights, formats, and what others wrote into it.

use super::*;
use crds::between_planes::Rollout;

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
    // Of many pods, some are asked in each look: it may be one of the others that still runs it.
    let report = story.observed.pod_reports.remove("dns-2-uid").expect("a report");
    let plan = story.reconcile(203);
    assert!(plan.needs_pods && plan.again_in == Some(RECONCILE_EVERY), "its turn comes soon");
    story.observed.pod_reports.insert("dns-2-uid".to_owned(), report);
    assert!(!story.reconcile(204).needs_pods);
}

/// After a rollback of the operator, pods run what the newer one wrote.
#[test]
fn rights_stay_wide_while_pods_run_a_document_that_cannot_be_read() {
    const NEWER: &str = "{\"format\":2,\"podRecords\":\"Verified\"}";
    let mut story = Story::with_pods(3);
    let mut plan = story.reconcile(1);
    plan.stable = NEWER.to_owned();
    (plan.state.stable, plan.state.needs_pods) = (config::revision_of(NEWER), true);
    write(&mut story.observed, &plan);
    story.pods_follow();
    let plan = story.reconcile(100);
    assert!(plan.canary.is_some() && plan.stable == NEWER, "what the spec asks for is tried");
    assert!(plan.needs_pods && plan.state.needs_pods, "not known is not narrow");
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(110);
    assert_eq!(story.reconcile(130).state.stable, revision(OLD));
    story.observed.comparison = None;
    story.pods_follow();
    assert!(!story.reconcile(131).needs_pods, "no pod runs it any more");

    // The document is lost, and what the spec asks for failed: every pod keeps what it runs.
    let mut story = failed();
    let mut state = story.reconcile(200).state;
    state.needs_pods = true;
    let data = json!({"rollout.json": serde_json::to_string(&state).unwrap()});
    story.observed.config_map = Some(from(json!({"data": data})));
    let plan = story.reconcile(201);
    assert_eq!(plan.stable, "");
    assert!(plan.needs_pods);
}

#[test]
fn o7_data_planes_read_what_the_operator_writes_about_the_canary() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    let mut state = story.reconcile(100).state;
    if let Some(pod) = &mut state.canary_pod {
        pod.process = "p1".to_owned();
    }
    let text = serde_json::to_string(&state).unwrap();
    let read: Rollout = serde_json::from_str(&text).unwrap();
    assert!(read.canary_pod.is_some() && read.observe_seconds > 0, "{text}");
    let written = Rollout {
        stable: Some(state.stable),
        canary: Some(state.canary),
        canary_pod: state.canary_pod,
        started_at: Some(state.started_at),
        observe_seconds: state.observe_seconds.into(),
    };
    assert_eq!(read, written);
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
    // rollout.json was left, so the failed revision is still known.
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

const FOREIGN: &str = "{\"format\":1,\"ttlSeconds\":99}";

impl Story {
    /// Another client writes it, and pods take it at once.
    fn is_edited(&mut self, before: Option<&str>) {
        let data = self.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
        data.insert("stable.json".to_owned(), FOREIGN.to_owned());
        self.observed.lost_document =
            before.map(|spec| crate::fixtures::config(&dns(spec)).to_json());
    }

    /// Another client wrote what is there, and the document before is not known.
    fn is_unknown(&mut self) {
        let state = json!({"stable": revision(OLD)}).to_string();
        self.observed.config_map =
            Some(from(json!({"data": {"stable.json": FOREIGN, "rollout.json": state}})));
        self.observed.lost_document = None;
    }

    fn written(&mut self, seconds: i64) -> RolloutPlan {
        let plan = self.reconcile(seconds);
        self.observed.lost_document = None;
        self.pods_follow();
        plan
    }
}

#[test]
fn o4_an_edit_during_a_trial_is_undone_and_the_trial_continues() {
    let mut story = Story::on_trial();
    let canary = story.canary();
    story.is_edited(Some(OLD));
    let plan = story.written(110);
    assert_eq!(plan.stable, crate::fixtures::config(&dns(OLD)).to_json());
    assert_eq!((plan.state.stable, plan.state.canary), (revision(OLD), revision(NEW)));
    assert_eq!((story.canary(), plan.state.started_at), (canary, at(100).to_string()));
    assert!(plan.notices.is_empty(), "nothing goes out untried: {:?}", plan.notices);
    assert_eq!((plan.state.edited_at, plan.state.is_edit_kept), (at(110).to_string(), false));
    story.compare(true, true);
    story.reconcile(125);
    let plan = story.reconcile(130);
    assert_eq!((plan.state.stable, plan.state.edited_at), (revision(NEW), at(110).to_string()));
    assert_eq!(story.reconcile(110 + 601).state.edited_at, "", "it is over");
}

#[test]
fn o4_an_edit_is_not_reported_for_as_long_as_a_clock_was_ahead() {
    let mut story = Story::with_pods(3);
    story.is_edited(Some(OLD));
    story.written(3_600);
    // Clocks of two operators may differ a little.
    assert_eq!(story.reconcile(3_540).state.edited_at, at(3_600).to_string());
    assert_eq!(story.reconcile(100).state.edited_at, "", "the clock was corrected");
}

#[test]
fn o4_an_edit_that_cannot_be_undone_is_what_the_configuration_is_tried_beside() {
    let mut story = Story::on_trial();
    // The operator has just started, and pods took it.
    story.is_edited(None);
    let plan = story.written(110);
    let foreign = config::revision_of(FOREIGN);
    assert_eq!((plan.stable.as_str(), &plan.state.stable), (FOREIGN, &foreign));
    assert!(plan.state.is_edit_kept && plan.canary.is_none(), "pods must say that they run it");
    let plan = story.reconcile(111);
    assert_eq!((&plan.state.canary, &plan.state.stable), (&revision(NEW), &foreign));
    assert!(plan.state.is_edit_kept);
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(130);
    let plan = story.reconcile(141);
    assert_eq!((plan.state.stable, plan.state.is_edit_kept), (revision(NEW), false));
    assert_eq!(plan.notices[0].reason, "Promoted");
}

/// Three pods that run the old configuration, because the canary refused the new one.
fn after_a_failed_trial() -> Story {
    let mut story = Story::on_trial();
    let name = story.canary().expect("a canary");
    reported(&mut story.observed, &name).rejection = Some("no".to_owned());
    says_old(&mut story);
    assert_eq!(story.reconcile(102).state.failed, revision(NEW));
    story.pods_follow();
    story
}

#[test]
fn o4_an_edit_after_a_failed_trial_is_undone_and_what_failed_stays_known() {
    for (before, stable) in [(Some(OLD), revision(OLD)), (None, config::revision_of(FOREIGN))] {
        let mut story = after_a_failed_trial();
        story.is_edited(before);
        let plan = story.written(110);
        assert_eq!((plan.state.stable, plan.state.failed), (stable, revision(NEW)));
        assert_eq!((plan.canary, plan.notices.len()), (None, 0));
    }
}

#[test]
fn o4_what_failed_is_never_rolled_out_because_another_client_broke_the_document() {
    let mut story = after_a_failed_trial();
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    data.insert("stable.json".to_owned(), "not JSON".to_owned());
    let plan = story.reconcile(110);
    assert_ne!(plan.state.stable, revision(NEW));
    assert_eq!((plan.state.failed, plan.again_in), (revision(NEW), Some(RECONCILE_EVERY)));
    // Before the first pod says what it runs, nothing changes; then that is written back.
    story.observed.lost_document = Some(crate::fixtures::config(&dns(OLD)).to_json());
    assert_eq!(story.reconcile(112).stable, crate::fixtures::config(&dns(OLD)).to_json());
}

#[test]
fn o4_an_edit_that_cannot_be_undone_is_written_once_and_no_document_is_no_edit() {
    let mut story = after_a_failed_trial();
    let data = |story: &mut Story| story.observed.config_map.as_mut().unwrap().data.take().unwrap();
    // Another client deletes it, and no pod says what it runs.
    let mut deleted = data(&mut story);
    deleted.remove("stable.json");
    story.observed.config_map.as_mut().unwrap().data = Some(deleted);
    let first = story.reconcile(110);
    assert_eq!((first.stable.as_str(), first.state.edited_at.as_str()), ("", ""));
    assert_eq!(story.reconcile(112).state, first.state, "nothing new is written");
    // As operators before this one left it.
    let mut empty = data(&mut story);
    empty.insert("stable.json".to_owned(), String::new());
    story.observed.config_map.as_mut().unwrap().data = Some(empty);
    assert_eq!(story.reconcile(114).state, first.state);
    // Text that is no document, which stays there.
    let mut times = Vec::new();
    for seconds in [120, 122, 124] {
        let mut garbage = data(&mut story);
        garbage.insert("stable.json".to_owned(), "not JSON".to_owned());
        story.observed.config_map.as_mut().unwrap().data = Some(garbage);
        times.push(story.reconcile(seconds).state.edited_at);
    }
    assert_eq!(times, [at(120).to_string(), at(120).to_string(), at(120).to_string()]);
}

#[test]
fn o4_while_a_spec_is_refused_pods_run_what_they_ran_and_none_tries_another() {
    let refused = |story: &Story| nothing_new(&story.dns, &story.observed, at(110));
    let state = |plan: &RolloutPlan| serde_json::to_string(&plan.state).unwrap();
    let mut story = Story::with_pods(3);
    let settled = story.reconcile(1);
    let plan = refused(&story).unwrap();
    assert_eq!((plan.stable.as_str(), state(&plan)), (settled.stable.as_str(), state(&settled)));
    // Nothing would judge the trial.
    story.edit(NEW);
    assert!(story.reconcile(100).canary.is_some());
    story.pods_follow();
    let plan = refused(&story).unwrap();
    assert_eq!((plan.state.stable.as_str(), &plan.canary), (revision(OLD).as_str(), &None));
    assert_eq!(plan.state.canary_pod, None);
    // It begins again when the spec is accepted.
    write(&mut story.observed, &plan);
    story.pods_follow();
    assert!(story.reconcile(120).canary.is_some());
}

#[test]
fn o17_a_trial_that_a_refused_spec_ended_delays_an_edit_only_if_it_broke_a_pod() {
    let refused = |story: &Story| nothing_new(&story.dns, &story.observed, at(110));
    let stable_later = |change: &dyn Fn(&mut Story)| {
        let mut story = Story::with_pods(3);
        story.edit(NEW);
        assert_eq!(story.reconcile(100).state.canary_pod.unwrap().name, "dns-0");
        story.pods_follow();
        change(&mut story);
        // Two looks at the refused spec: what the first one knew stays known.
        for _ in 0..2 {
            let plan = refused(&story).unwrap();
            write(&mut story.observed, &plan);
        }
        let pods = &mut story.observed.pods;
        // One pod is ready when the spec is correct again.
        *pods = pods.iter().cloned().map(unready).collect();
        pods[2] = pod("dns-2", 2, 0);
        story.pods_follow();
        for second in (120..240).step_by(10) {
            story.reconcile(second);
        }
        config_map::state(&story.observed).stable
    };
    assert_eq!(stable_later(&|_| {}), revision(NEW), "the canary was well");
    let suspects: [&dyn Fn(&mut Story); 5] = [
        &|story| story.observed.pods[0] = unready(pod("dns-0", 0, 0)),
        &|story| story.observed.pods[0] = pod("dns-0", 0, 1),
        &|story| _ = story.observed.pods.remove(0),
        &|story| reported(&mut story.observed, "dns-0").process = "another".to_owned(),
        &|story| reported(&mut story.observed, "dns-0").rejection = Some("why".to_owned()),
    ];
    for (case, change) in suspects.into_iter().enumerate() {
        let stable = stable_later(&|story| {
            change(story);
            story.observed.pods.resize(3, unready(pod("dns-3", 0, 0)));
        });
        assert_eq!(stable, revision(OLD), "{case}");
    }
    // A round in which it answered worse, once.
    let worse = stable_later(&|story| {
        story.compare(false, true);
        story.reconcile(105);
        story.observed.comparison = None;
    });
    assert_eq!(worse, revision(OLD));
}

#[test]
fn o4_while_a_spec_is_refused_an_edit_is_undone_as_far_as_it_is_known() {
    let refused = |story: &Story| nothing_new(&story.dns, &story.observed, at(110));
    let mut story = after_a_failed_trial();
    story.is_edited(Some(OLD));
    let plan = refused(&story).unwrap();
    assert_eq!(plan.stable, crate::fixtures::config(&dns(OLD)).to_json());
    assert_eq!((plan.state.failed, plan.state.edited_at), (revision(NEW), at(110).to_string()));
    story.observed.config_map = None;
    let plan = refused(&story).unwrap();
    assert_eq!(plan.state.stable, revision(OLD), "it is written again");
    story.is_unknown();
    assert_eq!(refused(&story), None, "it is not known what pods ran");
    story.observed.config_map = None;
    assert_eq!(refused(&story), None, "a first install");
}
