//! A configuration whose trial could not be judged, from one trial to the next.

use super::*;
use crate::decide::plan::HeldBy;
use crate::report::changes;

/// The pod that tries the configuration runs it; the operator could not judge it for this reason, if there is one.
fn round(story: &mut Story, by: Option<HeldBy>) {
    let canary = config_map::state(&story.observed).canary_pod.expect("a pod tries it").name;
    let revision = config(&story.dns).revision();
    says(&mut story.observed, &canary, &revision);
    let mut round = crate::fixtures::compared(&canary, &revision, true, true);
    round.unreachable = by.map(|by| by.because("a reason"));
    story.observed.comparison = Some(round);
}

/// It was taken back at second 160, and its next trial begins at second 460.
fn taken_back(by: HeldBy) -> Story {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    story.reconcile(10);
    for second in [20, 160] {
        round(&mut story, Some(by));
        story.reconcile(second);
    }
    story.observed.comparison = None;
    story.pods_follow();
    story.reconcile(170);
    story
}

#[test]
fn o17_what_could_not_be_judged_stays_a_problem_until_a_trial_is_judged() {
    for by in HeldBy::ALL {
        let mut story = taken_back(by);
        let mut before = story.dns.status.clone().unwrap();
        // The next trial begins, is not asked yet, is asked and held, and then is judged.
        for (second, asked) in [(461, None), (463, None), (465, Some(Some(by))), (467, Some(None))]
        {
            if let Some(held) = asked {
                round(&mut story, held);
            }
            let status = story.reconcile(second);
            let progressing = condition(&status, "Progressing").unwrap();
            assert_eq!(progressing.reason, "CanaryOnTrial");
            let degraded = condition(&status, "Degraded").unwrap();
            assert_eq!((&*degraded.status, &*degraded.reason), ("True", by.reason()), "{second}");
            let held = asked == Some(Some(by));
            let words = if held { "is paused" } else { "had no result" };
            for words in [words, "a reason", "A pod tries it again now"] {
                assert!(degraded.message.contains(words), "{words}: {}", degraded.message);
            }
            let changes = changes::of(Some(&before), &status, &[], None);
            assert!(changes.iter().all(|it| it.reason != "Recovered"), "{second}: {changes:?}");
            before = status;
        }
        for second in [490, 495] {
            round(&mut story, None);
            story.reconcile(second);
        }
        let state = config_map::state(&story.observed);
        assert_eq!(state.stable, config(&story.dns).revision());
        let status = story.dns.status.clone().unwrap();
        assert_eq!(condition(&status, "Degraded").unwrap().reason, "AsExpected");
    }
}

#[test]
fn o17_what_could_not_be_judged_stays_a_problem_while_the_next_trial_lacks_pods() {
    let rollout = "The next trial begins when two pods are ready and no rollout of pods is in";
    let untried = at(461 + 60);
    let one_ready = format!(
        "begins when two pods are ready. If they are not at {untried:.0}, every pod gets it"
    );
    // A rollout of pods is in progress; one pod is ready.
    for (is_rollout, lacks) in [(true, rollout), (false, &one_ready)] {
        let mut story = taken_back(HeldBy::NoOtherPod);
        if is_rollout {
            story.deployment_status(1, 3);
        } else {
            story.observed.pods[1] = unready(story.observed.pods[1].clone());
        }
        for second in [461, 463] {
            let status = story.reconcile(second);
            let degraded = condition(&status, "Degraded").unwrap();
            assert_eq!(degraded.reason, "NoPodToCompare", "{second}");
            assert!(degraded.message.contains(lacks), "{}", degraded.message);
        }
        if is_rollout {
            continue;
        }
        let status = story.reconcile(525);
        assert_eq!(condition(&status, "Degraded").unwrap().reason, "AsExpected");
        let state = config_map::state(&story.observed);
        assert_eq!(state.stable, config(&story.dns).revision(), "as every change after 60 s");
    }
}

#[test]
fn o17_when_the_only_pod_gets_what_could_not_be_judged_is_said() {
    let mut story = taken_back(HeldBy::NoOtherPod);
    // The cluster has become small: the spec is the same.
    story.dns.spec.scaling =
        Some(crate::fixtures::from(serde_json::json!({"fixed": {"replicas": 1}})));
    deploy(&mut story.observed, 1);
    story.pods_follow();
    let status = story.reconcile(200);
    let degraded = condition(&status, "Degraded").unwrap();
    let due = at(460);
    let words = format!("it gets this configuration at {due:.0}, or at once after kubectl");
    assert!(degraded.message.contains(&words), "{}", degraded.message);
    let progressing = condition(&status, "Progressing").unwrap();
    assert!(!progressing.message.contains("until the operator can test"), "{progressing:?}");
    story.reconcile(461);
    assert_eq!(config_map::state(&story.observed).stable, config(&story.dns).revision());
}

#[test]
fn o17_another_edit_is_not_blamed_for_what_could_not_be_judged() {
    let mut story = taken_back(HeldBy::NoOtherPod);
    story.edit("{ttlSeconds: 9}");
    let status = story.reconcile(200);
    assert_eq!(condition(&status, "Degraded").unwrap().reason, "AsExpected");
}

#[test]
fn o7_the_status_names_no_trial_that_could_not_be_written() {
    let mut story = Story::settled("{}");
    let before = config(&story.dns).revision();
    story.edit("{ttlSeconds: 7}");
    let denied = ("ConfigMap kube-system/clusterdns-default".to_owned(), "denied".to_owned());
    story.applied.failures = vec![denied];
    let status = story.reconcile(10);
    let shown = status.revision.as_ref().map(|it| (&*it.desired, &*it.stable, &*it.canary));
    assert_eq!(shown, Some((&*config(&story.dns).revision(), &*before, "")));
    assert_eq!(condition(&status, "Degraded").unwrap().reason, "ApplyFailed");
    assert!(!status.conditions.iter().any(|it| it.reason == "CanaryOnTrial"), "{status:?}");
    story.applied.failures.clear();
    let status = story.reconcile(20);
    assert_eq!(condition(&status, "Progressing").unwrap().reason, "CanaryOnTrial");
}
