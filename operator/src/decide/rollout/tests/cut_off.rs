//! Pods that cannot read their configuration, and so cannot try another one.

use super::*;
use crate::observe::observed::CutOff;

impl Story {
    /// Their watch of the ConfigMap fails, for this long.
    fn are_cut_off(&mut self, names: &[&str], seconds: u64) {
        for name in names {
            let why = "the API server is not reached".to_owned();
            reported(&mut self.observed, name).cut_off = Some(CutOff { why, seconds });
        }
    }
}

#[test]
fn o17_a_pod_that_cannot_read_what_it_should_try_fails_nothing() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    let mut notices = Vec::new();
    for second in (102..=252).step_by(2) {
        // It answers, and runs what it ran.
        story.are_cut_off(&["dns-0", "dns-1", "dns-2"], second as u64 - 90);
        let plan = story.reconcile(second);
        assert!(plan.held.is_some_and(|held| held.by == HeldBy::CutOff), "{second}");
        assert_eq!((plan.state.losses, &plan.state.stable), (0, &revision(OLD)), "{second}");
        notices.extend(plan.notices);
    }
    let state = config_map::state(&story.observed);
    assert_eq!((state.failed.as_str(), state.is_unjudged), (&*revision(NEW), true));
    assert_eq!((state.canary_pod, state.unjudged_by.as_str()), (None, "CanaryCutOff"));
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(notice.reason, "CanaryCutOff");
    assert!(!notice.message.contains("Correct the spec"), "{}", notice.message);
    // It is no failure that would be remembered.
    story.pods_follow();
    story.edit("{ttlSeconds: 9}");
    assert_eq!(story.reconcile(260).state.failed_earlier, []);
}

#[test]
fn o17_a_watch_that_failed_a_moment_ago_holds_no_trial() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    story.are_cut_off(&["dns-0"], 3);
    assert_eq!(story.reconcile(102).held, None);
    // What it runs, it can be judged by.
    story.pods_follow();
    story.are_cut_off(&["dns-0"], 30);
    story.compare(true, true);
    story.reconcile(120);
    assert_eq!(story.reconcile(130).state.stable, revision(NEW));
}

#[test]
fn o17_a_pod_that_reads_its_configuration_is_named_before_one_that_does_not() {
    let named = |cut_off: &[&str]| {
        let mut story = Story::with_pods(3);
        story.are_cut_off(cut_off, 30);
        story.edit(NEW);
        story.reconcile(100);
        story.canary().unwrap()
    };
    assert_eq!(named(&[]), "dns-0");
    assert_eq!(named(&["dns-0", "dns-1"]), "dns-2");
    assert_eq!(named(&["dns-0", "dns-1", "dns-2"]), "dns-0", "the status says why it waits");
}

#[test]
fn o17_another_pod_tries_what_the_named_one_cannot_read() {
    let mut story = Story::with_pods(3);
    story.edit(NEW);
    story.reconcile(100);
    assert_eq!(story.canary().unwrap(), "dns-0");
    story.are_cut_off(&["dns-0"], 3);
    story.reconcile(104);
    assert_eq!(story.canary().unwrap(), "dns-0", "its watch failed a moment ago");
    story.are_cut_off(&["dns-0"], 12);
    let plan = story.reconcile(112);
    assert_eq!((story.canary().unwrap(), plan.state.losses), ("dns-1".to_owned(), 0));
    assert_eq!(plan.held, None);
    // Its own trial has the whole time.
    story.compare(true, true);
    story.reconcile(114);
    assert_eq!(story.canary().unwrap(), "dns-1");
    // An edit does not go back to the one that is cut off.
    story.edit("{ttlSeconds: 9}");
    story.reconcile(116);
    assert_eq!(story.canary().unwrap(), "dns-1");
}
