//! A Service that is gone, and configurations that cannot be tried or failed: what is said, and what to do.

use super::words::failed_trial;
use super::*;
use crate::apply::contention::Contested;
use crate::decide::plan::HeldBy;
use crate::fixtures::from;
use serde_json::json;

#[test]
fn o16_the_status_keeps_the_addresses_of_a_deleted_service() {
    let mut story = Story::settled("{}");
    story.observed.service = None;
    let status = story.reconcile(10);
    is(&story, "True=Valid False=ServiceGone False=Complete False=AsExpected", Kstatus::InProgress);
    assert_eq!(status.cluster_ips, ["10.96.0.10"]);
    story.applied.failures = vec![(
        "Service kube-system/kube-dns".to_owned(),
        "provided IP is already allocated".to_owned(),
    )];
    let status = story.reconcile(11);
    is(&story, "True=Valid False=ServiceGone False=Complete True=ServiceGone", Kstatus::Failed);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("already allocated"), "{message}");
    assert!(message.contains("kubectl get services -A | grep -wF '10.96.0.10'"), "{message}");
    story.applied.failures.clear();
    story.observed.service = Some(own_service());
    story.reconcile(12);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

#[test]
fn o16_while_nothing_is_managed_a_deleted_service_is_reported_with_the_command() {
    let mut story = Story::settled("{}");
    story.edit("{managementState: Unmanaged}");
    story.observed.service = None;
    let status = story.reconcile(10);
    is(&story, "True=Valid False=ServiceGone False=Unmanaged True=ServiceGone", Kstatus::Failed);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("kubectl patch clusterdns default"), "{message}");
}

#[test]
fn o16_a_service_replaced_by_one_with_other_addresses_is_degraded() {
    let mut story = Story::settled("{}");
    let spec = story.observed.service.as_mut().unwrap().spec.as_mut().unwrap();
    spec.cluster_ip = Some("10.96.7.7".to_owned());
    spec.cluster_ips = Some(vec!["10.96.7.7".to_owned()]);
    let status = story.reconcile(10);
    is(
        &story,
        "True=Valid True=Serving False=Complete True=ServiceAddressesChanged",
        Kstatus::Failed,
    );
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("with 10.96.7.7, and clients still ask 10.96.0.10"), "{message}");
}

#[test]
fn o16_a_service_of_ours_replaced_by_one_of_others_is_no_green_status() {
    let mut story = Story::settled("{}");
    story.observed.service = Some(from(
        json!({"metadata": {"name": "kube-dns", "namespace": "kube-system", "uid": "b"},
        "spec": {"clusterIP": "10.96.7.7", "clusterIPs": ["10.96.7.7"], "selector": {"app": "x"}}}),
    ));
    let status = story.reconcile(10);
    is(
        &story,
        "False=ServiceReplaced False=NotAccepted False=NotAccepted True=ServiceReplaced",
        Kstatus::Failed,
    );
    assert_eq!(status.cluster_ips, ["10.96.0.10"], "which clients ask");
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("created again with 10.96.0.10, which clients ask"), "{message}");
}

#[test]
fn o4_an_object_that_another_client_edits_again_and_again_is_named() {
    let mut story = Story::settled("{}");
    story.applied.contested = vec![Contested {
        what: "Deployment kube-system/clusterdns-default".to_owned(),
        managers: vec!["argocd-controller".to_owned()],
        fields: vec!["spec.replicas".to_owned()],
    }];
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=Contended", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    let words =
        "Deployment kube-system/clusterdns-default: argocd-controller writes spec.replicas. ";
    assert!(message.contains(words), "{message}");
    assert!(!message.contains("  "), "{message}");
    assert!(message.len() < 700, "room for other problems: {}", message.len());
    assert_eq!(story.reconcile(11), status, "so it is not written again");
    story.applied.contested.clear();
    story.reconcile(12);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

#[test]
fn o17_when_a_failed_configuration_is_tried_again_is_in_the_status() {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    story.reconcile(10);
    reported(&mut story.observed, "dns-0").rejection = Some("no".to_owned());
    let status = story.reconcile(20);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains(&format!("next trial is at {:.0}", at(320))), "{message}");
    assert!(
        message.contains("kubectl annotate clusterdns default clusterdns.dev/retry="),
        "{message}"
    );
    assert_eq!(story.reconcile(40), status, "reported once");
    reported(&mut story.observed, "dns-0").rejection = None;
    story.reconcile(321);
    is(&story, "True=Valid True=Serving True=CanaryOnTrial True=CanaryFailed", Kstatus::InProgress);
}

#[test]
fn o17_what_failed_and_cannot_be_tried_by_one_pod_is_reported_so() {
    let mut story = failed_trial();
    reported(&mut story.observed, "dns-0").rejection = None;
    story.edit("{ttlSeconds: 7, scaling: {fixed: {replicas: 1}}}");
    let status = story.reconcile(30);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("no trial while there is only one pod"), "{message}");
}

#[test]
fn o17_the_operators_own_trouble_is_said_with_what_would_end_it() {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    for answer in story.observed.pod_reports.values_mut() {
        answer.reported = Err("http://10.244.0.9:9153/config did not answer within 1 s".to_owned());
    }
    let status = story.reconcile(10);
    is(
        &story,
        "True=Valid True=Serving True=WaitingForCanary True=CanaryUnreachable",
        Kstatus::InProgress,
    );
    let message = &condition(&status, "Degraded").unwrap().message;
    for words in ["9153/config", "NetworkPolicies", "UDP 53", "clusterdns.dev/instance=default"] {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn o17_a_configuration_that_was_taken_back_unjudged_is_on_its_way_and_says_when() {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    story.reconcile(10);
    says(&mut story.observed, "dns-0", &config(&story.dns).revision());
    let mut round = crate::fixtures::compared("dns-0", &config(&story.dns).revision(), true, true);
    let why = "it cannot send to the pod: no route to host";
    round.unreachable = Some(HeldBy::Network.because(why));
    story.observed.comparison = Some(round);
    story.reconcile(20);
    let held = "True=Valid True=Serving True=CanaryOnTrial True=CanaryUnreachable";
    is(&story, held, Kstatus::InProgress);
    story.reconcile(160);
    story.observed.comparison = None;
    story.pods_follow();
    let status = story.reconcile(170);
    let waits = "True=Valid True=Serving True=WaitingForCanary True=CanaryUnreachable";
    is(&story, waits, Kstatus::InProgress);
    let message = condition(&status, "Degraded").unwrap().message.clone();
    for words in [
        "no route to host",
        "from the operator's namespace to pods with the label clusterdns.dev/instance=default, UDP 53, TCP 53 and TCP 9153",
        "Its pod went back to configuration",
        "The next trial is at",
        "kubectl annotate",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
}

#[test]
fn o20_a_lost_pod_is_named_with_its_node_and_ready_stays_true() {
    let mut story = Story::settled("{}");
    story.observed.lost_pods = LostPods::TakenOut;
    let conditions = story.observed.pods[0].status.as_mut().unwrap().conditions.as_mut().unwrap();
    let ready = conditions.iter_mut().find(|condition| condition.type_ == "Ready").unwrap();
    (ready.status, ready.reason) = ("False".to_owned(), Some(pods::LOST.to_owned()));
    story.observed.pods[0].spec.get_or_insert_default().node_name = Some("node-7".to_owned());
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "PodLost"));
    let name = pods::name(&story.observed.pods[0]).to_owned();
    assert!(degraded.message.contains(&format!("{name} (node node-7)")), "{}", degraded.message);
    assert!(degraded.message.contains("three or more questions"), "{}", degraded.message);
    assert_eq!(condition(&status, "Ready").unwrap().status, "True");
    // Its kubelet lives, or the pod is gone.
    story.observed.pods.remove(0);
    let status = story.reconcile(20);
    assert_ne!(condition(&status, "Degraded").unwrap().reason, "PodLost");
}

#[test]
fn o20_the_status_says_where_pods_of_dead_nodes_are_left_to_kubernetes() {
    for (lost_pods, says) in [
        (LostPods::TakenOut, ""),
        (LostPods::LeftAlone, "lostPods.enabled: true"),
        (LostPods::NoPolicy, "ValidatingAdmissionPolicy clusterdns-operator-pods"),
    ] {
        let mut story = Story::settled("{}");
        story.observed.lost_pods = lost_pods;
        let status = story.reconcile(10);
        let degraded = condition(&status, "Degraded").unwrap();
        assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("False", "AsExpected"));
        let is_more = degraded.message != "no problem found";
        assert_eq!(is_more, !says.is_empty(), "{}", degraded.message);
        assert!(degraded.message.contains(says), "{}", degraded.message);
    }
}

#[test]
fn o16_who_gives_a_service_back_waits_for_up_to_date_which_a_refusal_keeps_false() {
    let mut story = Story::settled("{}");
    let before = story.reconcile(10);
    assert_eq!(condition(&before, "UpToDate").unwrap().status, "True");
    story.edit("{service: {adopt: false}}");
    let refusal = Refusal::new("NoOtherServer", "spec.service.adopt", "no other pod".to_owned());
    let status = refused(&story.dns, &refusal, &story.observed, &PutBack::default(), at(20));
    let up_to_date = condition(&status, "UpToDate").unwrap();
    assert_eq!(up_to_date.status, "False");
    assert_eq!(up_to_date.observed_generation, story.dns.metadata.generation);
    assert_eq!(condition(&status, "Ready").unwrap().status, "True", "it says nothing of the edit");
}

#[test]
fn o16_a_deleted_service_that_cannot_come_back_is_reported_beside_a_refusal() {
    let mut story = Story::settled("{}");
    story.observed.service = None;
    story.edit("{service: {adopt: true}}");
    let refusal = Refusal::new("NothingToAdopt", "spec.service.adopt", "there is none".to_owned());
    let with = |service| PutBack { service, ..PutBack::default() };
    let failed = with(Restored::Failed("the address is already allocated".to_owned()));
    let status = refused(&story.dns, &refusal, &story.observed, &failed, at(20));
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "ServiceGone");
    for words in ["already allocated", "kubectl get services -A", "there is none"] {
        assert!(degraded.message.contains(words), "{words}: {}", degraded.message);
    }
    let changes = crate::report::changes::of_put_back(&story.dns, &failed);
    assert_eq!((changes.len(), changes[0].reason.as_str()), (1, "ServiceGone"));
    let created = crate::report::changes::of_put_back(&story.dns, &with(Restored::Created));
    assert_eq!(created[0].reason, "ServiceRecreated");
    let accepted = condition(&status, "Accepted").unwrap();
    assert_eq!(accepted.reason, "NothingToAdopt", "the edit is still refused");
}

#[test]
fn o4_what_cannot_be_put_back_is_reported_beside_a_refusal() {
    let story = Story::settled("{}");
    let refusal = Refusal::new("CABundleMissing", "spec.stubDomains", "no bundle".to_owned());
    let mut put_back = PutBack::default();
    let failure = ("Deployment kube-system/clusterdns-default".to_owned(), "denied".to_owned());
    put_back.outcome.applied.failures = vec![failure];
    put_back.outcome.applied.contested = vec![Contested {
        what: "NetworkPolicy kube-system/clusterdns-default".to_owned(),
        managers: vec!["argocd-controller".to_owned()],
        fields: vec!["spec.ingress".to_owned()],
    }];
    let status = refused(&story.dns, &refusal, &story.observed, &put_back, at(20));
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "CABundleMissing");
    for words in
        ["no bundle; ", "clusterdns-default: denied; ", "argocd-controller writes spec.ingress"]
    {
        assert!(degraded.message.contains(words), "{words}: {}", degraded.message);
    }
}

#[test]
fn o19_a_paused_deployment_is_named_with_the_command_that_resumes_it() {
    let mut story = Story::settled("{}");
    let deployment = story.observed.deployment.as_mut().unwrap();
    deployment.spec.get_or_insert_default().paused = Some(true);
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "DeploymentPaused");
    assert!(degraded.message.contains("kubectl -n kube-system rollout resume deployment/"));
}

#[test]
fn o17_each_trouble_of_the_operator_has_its_own_reason_and_remedy() {
    for (by, remedy) in [
        (HeldBy::Network, "UDP 53, TCP 53 and TCP 9153"),
        (HeldBy::RefusedOperator, "Add the address of the operator's pod"),
        (HeldBy::ApiServer, "may list Namespaces and Services"),
        (HeldBy::Busy, "It continues by itself"),
        (HeldBy::NoOtherPod, "Check that a second pod is ready"),
        (HeldBy::CutOff, "clusterdns.dev/instance=default reach the API server"),
    ] {
        let mut story = Story::settled("{}");
        story.edit("{ttlSeconds: 7}");
        story.reconcile(10);
        let revision = config(&story.dns).revision();
        says(&mut story.observed, "dns-0", &revision);
        let mut round = crate::fixtures::compared("dns-0", &revision, true, true);
        round.unreachable = Some(by.because("a reason"));
        story.observed.comparison = Some(round);
        for second in [20, 160] {
            // On trial, and when the pod went back: a new leader has only what is written.
            let status = story.reconcile(second);
            let degraded = condition(&status, "Degraded").unwrap().clone();
            assert_eq!(degraded.reason, by.reason(), "{second}");
            assert!(degraded.message.contains(remedy), "{}", degraded.message);
            assert!(degraded.message.contains("a reason"), "{}", degraded.message);
        }
        story.observed.comparison = None;
        story.pods_follow();
        // What is remembered is written again and again until the next trial.
        for second in [170, 180] {
            let status = story.reconcile(second);
            assert_eq!(condition(&status, "Degraded").unwrap().reason, by.reason(), "{second}");
        }
    }
}
