//! Pods that do not answer the operator hide no problem, and are one after five minutes.

use super::*;
use crate::observe::observed::DownServer;
use crate::report::changes;

/// Both pods have no upstream that answers.
fn without_upstream() -> (Story, ClusterDNSStatus) {
    let mut story = Story::settled("{}");
    for pod in ["dns-0", "dns-1"] {
        reported(&mut story.observed, pod).upstreams_down = vec![DownServer {
            group: "upstreams".to_owned(),
            server: "192.0.2.1:53".to_owned(),
            group_servers: 1,
            ..DownServer::default()
        }];
    }
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    (story, status)
}

/// No pod answers: what they said counts still, or they have been silent for minutes.
fn silence(story: &mut Story, is_silent: bool) {
    for answer in story.observed.pod_reports.values_mut() {
        let said = std::mem::replace(&mut answer.reported, Err("no route".to_owned())).ok();
        answer.before = said.or(answer.before.take()).filter(|_| !is_silent);
        answer.is_silent = is_silent;
    }
}

fn reasons(before: &ClusterDNSStatus, after: &ClusterDNSStatus) -> Vec<String> {
    let changes = changes::of(Some(before), after, &[], None);
    changes.into_iter().map(|change| change.reason).collect()
}

#[test]
fn o19_what_pods_reported_stays_a_problem_while_they_do_not_answer() {
    let (mut story, before) = without_upstream();
    silence(&mut story, false);
    assert_eq!(story.reconcile(40), before);
    silence(&mut story, true);
    let silent = story.reconcile(340);
    is(&story, "True=Valid True=Serving False=Complete True=PodsSilent", Kstatus::Current);
    assert_eq!(reasons(&before, &silent), ["PodsSilent"], "and nothing is over");
    let degraded = condition(&silent, "Degraded").unwrap();
    for words in [
        "2 of 2 ready pods have not answered",
        "(no route): dns-0, dns-1",
        "clusterdns.dev/instance=default, TCP 9153",
    ] {
        assert!(degraded.message.contains(words), "{words}: {}", degraded.message);
    }
    assert_eq!(condition(&silent, "UpToDate").unwrap().status, "True", "they got nothing new");
    assert_eq!(story.reconcile(370), silent, "reported once");
    story.pods_follow();
    let after = story.reconcile(400);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    assert_eq!(reasons(&silent, &after), ["Recovered"]);
}

#[test]
fn o19_one_silent_pod_of_two_is_named_beside_what_the_other_reports() {
    let (mut story, _) = without_upstream();
    let answer = story.observed.pod_reports.get_mut("dns-1-uid").unwrap();
    (answer.reported, answer.is_silent) = (Err("no route".to_owned()), true);
    let status = story.reconcile(340);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "NoUsableUpstream");
    assert!(degraded.message.contains("; 1 of 2 ready pods have not answered"));
    assert!(degraded.message.contains(": dns-1. "), "{}", degraded.message);
}

#[test]
fn o19_another_leader_ends_no_problem_before_it_has_heard_the_pods() {
    let (mut story, before) = without_upstream();
    // Of many pods, some are asked in its first look.
    story.pods_follow();
    story.observed.pod_reports.remove("dns-1-uid");
    assert_eq!(condition(&story.reconcile(20), "Degraded"), condition(&before, "Degraded"));
    // It reaches none of them: it does not know what they said before.
    silence(&mut story, false);
    for answer in story.observed.pod_reports.values_mut() {
        answer.before = None;
    }
    assert_eq!(condition(&story.reconcile(30), "Degraded"), condition(&before, "Degraded"));
    story.pods_follow();
    assert_eq!(condition(&story.reconcile(40), "Degraded").unwrap().reason, "AsExpected");
    // A problem that pods do not report ends without them.
    story.observed.pod_reports.clear();
    story.applied.failures = vec![("Deployment kube-system/x".to_owned(), "no".to_owned())];
    assert_eq!(condition(&story.reconcile(50), "Degraded").unwrap().reason, "ApplyFailed");
    story.applied.failures.clear();
    assert_eq!(condition(&story.reconcile(60), "Degraded").unwrap().reason, "AsExpected");
}

#[test]
fn o5_a_pod_that_refuses_its_configuration_and_misses_one_look_still_refuses_it() {
    let mut story = Story::settled("{}");
    reported(&mut story.observed, "dns-1").rejection = Some("format 9".to_owned());
    let before = story.reconcile(10);
    silence(&mut story, false);
    assert_eq!(story.reconcile(40), before);
    assert_eq!(condition(&before, "UpToDate").unwrap().reason, "PodsRefuse");
}
