//! A client list that refuses most pods, however it went out: Ready is false where pods run it, and only there.

use super::*;
use crate::ask_pods::canary_analysis::clients::REASON;

/// Two pods in a range of pods that [`LIST`] does not have.
fn with_addresses(mut story: Story) -> Story {
    for pod in &mut story.observed.pods {
        pod.status.get_or_insert_default().pod_ip = Some("10.244.1.5".to_owned());
    }
    story
}

/// All conditions while pods run such a list.
fn excluded(progressing: &str) -> String {
    format!("True=Valid False={REASON} {progressing} True={REASON}")
}

const LIST: &str = "{access: {clients: [192.0.2.0/24]}}";
const UNTRIED: &str = "{access: {clients: [192.0.2.0/24]}, rollout: {canary: false}}";

#[test]
fn o14_after_a_first_install_that_refuses_most_pods_ready_is_false() {
    let mut story = with_addresses(Story::settled(LIST));
    let status = story.reconcile(10);
    is(&story, &excluded("False=Complete"), Kstatus::Failed);
    for kind in ["Ready", "Degraded"] {
        let message = &condition(&status, kind).unwrap().message;
        for words in [
            "spec.access.clients",
            "2 of 2 pods that are known",
            "add the ranges of pods and nodes",
        ] {
            assert!(message.contains(words), "{kind}: {message}");
        }
    }
    // Pods that the operator cannot ask run what the ConfigMap has.
    story.observed.pod_reports.clear();
    let status = story.reconcile(20);
    assert_eq!(condition(&status, "Ready").unwrap().reason, REASON);
}

#[test]
fn o14_an_untried_edit_makes_ready_false_when_most_pods_run_it() {
    let mut story = with_addresses(Story::settled("{rollout: {canary: false}}"));
    story.edit(UNTRIED);
    let ready = |status: &ClusterDNSStatus| condition(status, "Ready").unwrap().status.clone();
    let status = story.reconcile(10);
    assert_eq!(ready(&status), "True", "no pod has read it yet");
    let revision = config(&story.dns).revision();
    says(&mut story.observed, "dns-0", &revision);
    assert_eq!(ready(&story.reconcile(11)), "True", "one of two pods");
    says(&mut story.observed, "dns-1", &revision);
    assert_eq!(ready(&story.reconcile(12)), "False");
    // Pods that refuse a configuration keep the one before.
    let mut story = with_addresses(Story::settled("{rollout: {canary: false}}"));
    story.edit(UNTRIED);
    for pod in ["dns-0", "dns-1"] {
        reported(&mut story.observed, pod).rejection = Some("format 9".to_owned());
    }
    assert_eq!(ready(&story.reconcile(10)), "True");
}

#[test]
fn o14_a_list_on_trial_or_in_a_refused_edit_leaves_ready_true() {
    let mut story = with_addresses(Story::settled("{}"));
    story.edit(LIST);
    story.reconcile(10);
    says(&mut story.observed, "dns-0", &config(&story.dns).revision());
    story.reconcile(11);
    is(&story, "True=Valid True=Serving True=CanaryOnTrial False=AsExpected", Kstatus::InProgress);
    let mut story = with_addresses(Story::settled("{}"));
    story.edit("{access: {clients: [192.0.2.0/24]}, ttlSeconds: 5000}");
    let status = story.reconcile(10);
    assert_eq!(condition(&status, "Ready").unwrap().reason, "Serving");
}

#[test]
fn o14_such_a_list_stays_not_ready_while_an_edit_is_refused_or_tried() {
    let mut story = with_addresses(Story::settled(LIST));
    story.edit("{access: {clients: [192.0.2.0/24]}, ttlSeconds: 5000}");
    let status = story.reconcile(10);
    let ready = condition(&status, "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", REASON));
    // The correction is on trial: no person has to do more.
    story.edit("{access: {clients: [10.0.0.0/8]}}");
    story.reconcile(20);
    is(&story, &excluded("True=CanaryOnTrial"), Kstatus::InProgress);
    let revision = config(&story.dns).revision();
    story.edit("{access: {clients: [10.0.0.0/8]}, rollout: {canary: false}}");
    story.reconcile(30);
    for pod in ["dns-0", "dns-1"] {
        says(&mut story.observed, pod, &revision);
    }
    story.reconcile(31);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}
