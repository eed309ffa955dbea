//! Pods that refuse their configuration, were given none, or cannot read it.

use super::*;
use crate::observe::observed::CutOff;

/// What `Degraded` says while these pods are cut off.
fn cut_off(spec: &str, pods: &[(&str, &str, u64)]) -> (Story, ClusterDNSStatus) {
    let mut story = Story::settled(spec);
    for (name, why, seconds) in pods {
        let cut_off = CutOff { why: (*why).to_owned(), seconds: *seconds };
        reported(&mut story.observed, name).cut_off = Some(cut_off);
    }
    let status = story.reconcile(10);
    (story, status)
}

const UNREACHED: &str = "the API server is not reached";
const UNKNOWN: &str = "the API server does not accept the credentials (401)";
const FORBIDDEN: &str = "no permission to list and watch configmaps (403)";

#[test]
fn o17_pods_that_cannot_read_their_configuration_are_named_with_the_next_step() {
    let degraded = |pods: &[(&str, &str, u64)]| {
        let (_, status) = cut_off("{}", pods);
        condition(&status, "Degraded").unwrap().clone()
    };
    assert_eq!(degraded(&[("dns-0", UNREACHED, 60)]).reason, "AsExpected", "a watch begins again");
    for (why, next) in [
        (UNREACHED, "NetworkPolicy with egress rules"),
        (UNKNOWN, "kubectl -n kube-system rollout restart deployment/clusterdns-default"),
        (FORBIDDEN, "Role and RoleBinding"),
    ] {
        let found = degraded(&[("dns-0", why, 61), ("dns-1", UNREACHED, 5)]);
        assert_eq!(found.reason, "PodsCutOff");
        for words in [&format!(": dns-0 ({why}). "), next] {
            assert!(found.message.contains(words), "{words}: {}", found.message);
        }
        assert!(!found.message.contains("dns-1"), "{}", found.message);
        assert_eq!(degraded(&[("dns-0", why, 999)]).message, found.message, "no time that grows");
    }
}

#[test]
fn o5_pods_that_ignore_fields_of_their_configuration_are_named_with_the_fields() {
    let mut story = Story::settled("{}");
    let said = reported(&mut story.observed, "dns-1");
    said.revision = "without".to_owned();
    said.ignored = vec!["access.future".to_owned()];
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=PodsIgnoreFields", Kstatus::Failed);
    assert_eq!(condition(&status, "UpToDate").unwrap().reason, "PodsIgnoreFields");
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("run without them: access.future (pods dns-1)"), "{message}");
    // One that tries it, or tried it a moment ago, goes back.
    reported(&mut story.observed, "dns-1").role = "canary".to_owned();
    let status = story.reconcile(15);
    assert_eq!(condition(&status, "Degraded").unwrap().reason, "AsExpected");
    reported(&mut story.observed, "dns-1").role = "stable".to_owned();
    // Newer pods are on their way.
    story.deployment_status(1, 3);
    let status = story.reconcile(20);
    assert_eq!(condition(&status, "Degraded").unwrap().reason, "AsExpected");
    // They do not come.
    story.observed.deployment.as_mut().unwrap().spec.as_mut().unwrap().paused = Some(true);
    let status = story.reconcile(30);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("access.future"), "{message}");
}

#[test]
fn o14_an_edit_that_waits_for_a_rollout_of_pods_is_said() {
    let mut story = Story::settled("{}");
    story.deployment_status(1, 3);
    let said = |story: &mut Story, seconds| {
        let status = story.reconcile(seconds);
        condition(&status, "Progressing").unwrap().message.clone()
    };
    assert_eq!(said(&mut story, 10), "1 of 2 pods have the newest template");
    story.edit("{ttlSeconds: 7}");
    let message = said(&mut story, 20);
    assert!(message.contains(". After that a pod tries configuration "), "{message}");
}

#[test]
fn o4_pods_without_a_document_refuse_nothing_while_the_operator_writes_it_again() {
    for (spec, reason) in [("{}", "AsExpected"), ("{managementState: Unmanaged}", "PodsRefuse")] {
        let mut story = Story::settled(spec);
        for name in ["dns-0", "dns-1"] {
            let said = reported(&mut story.observed, name);
            said.rejection = Some("there is no ConfigMap".to_owned());
            said.has_no_document = true;
        }
        let status = story.reconcile(10);
        assert_eq!(condition(&status, "Degraded").unwrap().reason, reason, "{spec}");
    }
    let mut story = Story::settled("{}");
    reported(&mut story.observed, "dns-0").rejection = Some("there is none".to_owned());
    reported(&mut story.observed, "dns-0").has_no_document = true;
    let status = story.reconcile(10);
    assert_eq!(condition(&status, "UpToDate").unwrap().reason, "AllPodsCurrent", "it runs it");
}
