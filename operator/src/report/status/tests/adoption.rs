//! What is reported while a Service is adopted, moves, is reset by another client and is given back.

use super::*;
use crate::fixtures::from;
use crate::observe::observed::DnsService;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

/// A pod of the other DNS server is behind the Service too.
fn expose_other(story: &mut Story) {
    expose(&mut story.observed);
    let endpoint = json!({"addresses": ["10.244.0.8"], "conditions": {"ready": true},
        "targetRef": {"kind": "Pod", "name": "coredns-1", "uid": "coredns-1-uid"}});
    story.observed.slices[0].endpoints.push(from(endpoint));
}

/// Only that pod is behind it.
pub(super) fn expose_only_other(story: &mut Story) {
    expose_other(story);
    let endpoints = &mut story.observed.slices[0].endpoints;
    endpoints.drain(..endpoints.len() - 1);
}

/// Reason of `Ready`, which is false, and whether the metrics and so the alert leave it out.
fn not_ready(status: &ClusterDNSStatus) -> (&str, bool) {
    let ready = condition(status, "Ready").unwrap();
    assert_eq!(ready.status, "False");
    (&ready.reason, conditions::SERVED_OTHERWISE.contains(&ready.reason.as_str()))
}

#[test]
fn o15_a_take_over_is_no_outage_while_the_other_server_answers() {
    let mut story = Story::new("{service: {adopt: true}}");
    story.observed.service = Some(kube_dns());
    deploy(&mut story.observed, 2);
    let ready = story.observed.pods.clone();
    story.observed.pods = ready.iter().cloned().map(unready).collect();
    expose_only_other(&mut story);
    let status = story.reconcile(0);
    assert_eq!(not_ready(&status), ("NotSwitched", true), "no pod of ours is ready yet");
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains("get pods shows the reason"), "{message}");
    story.observed.slices.clear();
    assert_eq!(not_ready(&story.reconcile(1)), ("NoPodReady", false));

    story.observed.pods = ready;
    assert_eq!(not_ready(&story.reconcile(2)), ("ServiceWithoutPods", false));
    expose_only_other(&mut story);
    assert_eq!(not_ready(&story.reconcile(3)), ("NotSwitched", true));
    // Without pods of the other server ours answer alone, before the Service has moved.
    expose(&mut story.observed);
    let status = story.reconcile(4);
    assert_eq!(not_ready(&status), ("NotSwitched", true));
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains("2 pods of this ClusterDNS and to no others"), "{message}");

    // A spec that is refused takes no DNS from anyone either.
    story.dns.spec.ttl_seconds = 5_000;
    expose_only_other(&mut story);
    assert_eq!(not_ready(&story.reconcile(5)), ("OtherServerServes", true));
    story.observed.slices.clear();
    assert_eq!(not_ready(&story.reconcile(6)), ("NotAccepted", false));
}

/// As our patch leaves it.
fn switched() -> Service {
    let mut switched = kube_dns();
    switched.metadata.resource_version = Some("101".to_owned());
    let selector = switched.spec.as_mut().unwrap().selector.as_mut().unwrap();
    selector.insert(crate::names::INSTANCE.to_owned(), "default".to_owned());
    switched.metadata.annotations =
        Some([(crate::names::ADOPTED_BY.to_owned(), "default".to_owned())].into());
    switched
}

/// A ClusterDNS whose Service has moved and was reset, while the other DNS server has no pods.
fn reset_without_others() -> Story {
    let mut story = Story::new("{service: {adopt: true}}");
    story.observed.service = Some(kube_dns());
    deploy(&mut story.observed, 2);
    expose(&mut story.observed);
    story.reconcile(0);
    story.pods_follow();
    let mut switched = switched();
    story.observed.service = Some(switched.clone());
    story.reconcile(10);
    switched.spec = kube_dns().spec;
    switched.metadata.resource_version = Some("102".to_owned());
    story.observed.service = Some(switched);
    story
}

#[test]
fn o15_a_reset_service_without_other_pods_serves_and_no_one_is_sent_back() {
    let mut story = reset_without_others();
    let status = story.reconcile(20);
    is(&story, "True=Valid True=Serving False=SelectorReset True=SelectorReset", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    // Without a ready pod of the other server that would be refused.
    assert!(!message.contains("adopt to false"), "{message}");
    for words in ["field manager kubeadm removed", "answer alone", "at 0 pods"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains("2 pods of this ClusterDNS and to no others"), "{message}");
    // A spec that is refused meanwhile changes nothing for clients.
    story.dns.spec.ttl_seconds = 5_000;
    let status = story.reconcile(21);
    assert_eq!(condition(&status, "Ready").unwrap().reason, "Serving");
}

#[test]
fn o15_adoption_is_ready_when_the_service_has_moved_and_stays_so_after_a_reset() {
    let mut story = Story::new("{service: {adopt: true}}");
    story.observed.service = Some(kube_dns());
    story.observed.foreign_pods = vec![foreign_pod()];
    deploy(&mut story.observed, 2);
    expose_other(&mut story);
    story.reconcile(0);
    story.pods_follow();
    story.reconcile(1);
    is(&story, "True=Valid False=NotSwitched True=Switching False=AsExpected", Kstatus::InProgress);
    story.pods_follow();
    expose(&mut story.observed);
    let switched = switched();
    story.observed.service = Some(switched.clone());
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);

    let mut reset = switched.clone();
    reset.spec = kube_dns().spec;
    reset.metadata.resource_version = Some("102".to_owned());
    story.observed.service = Some(reset);
    expose_other(&mut story);
    let status = story.reconcile(20);
    // Our pods have the labels of the selector, so that they answer too; the next switch is at a time that is named.
    is(&story, "True=Valid True=Shared False=SelectorReset True=SelectorReset", Kstatus::Current);
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains("2 pods of this ClusterDNS and to those of another"), "{message}");
    let again = format!("it moves after {}, when every pod", at(80));
    assert!(message.contains(&again), "{message}");
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.starts_with("field manager kubeadm removed"), "{message}");
    assert!(message.contains("answer too") && message.contains("set adopt to false"), "{message}");
    assert_eq!(story.reconcile(25), status, "reported once");

    // With a selector whose labels our pods do not have, only the other server answers.
    let slices = story.observed.slices.clone();
    expose_only_other(&mut story);
    story.reconcile(26);
    is(
        &story,
        "True=Valid False=NotSwitched False=SelectorReset True=SelectorReset",
        Kstatus::InProgress,
    );
    story.observed.slices = slices;
    // A spec that is refused meanwhile changes nothing for clients.
    let spec = story.dns.spec.clone();
    story.dns.spec.ttl_seconds = 5_000;
    let status = story.reconcile(27);
    assert_eq!(condition(&status, "Ready").unwrap().reason, "Shared");
    story.dns.spec = spec;

    story.observed.service = Some(switched);
    story.reconcile(90);
    story.edit("{}");
    story.reconcile(100);
    is(&story, "True=Valid False=Releasing True=Releasing False=AsExpected", Kstatus::InProgress);
    story.observed.service = Some(kube_dns());
    expose_only_other(&mut story);
    let status = story.reconcile(101);
    is(&story, "True=Valid True=Released False=Complete False=AsExpected", Kstatus::Current);
    assert!(status.cluster_ips.is_empty(), "it serves at no address any more");
}

#[test]
fn s14_an_adopted_service_that_shares_its_pods_with_another_is_said() {
    let degraded = |own: &str, other: &str, has_other_pods: bool| {
        let mut story = Story::new(&format!("{{service: {{name: {own}, adopt: true}}}}"));
        let mut service = kube_dns();
        service.metadata.name = Some(own.to_owned());
        story.observed.service = Some(service);
        let beside = DnsService { selector: from(json!({"k8s-app": "kube-dns"})), has_other_pods };
        story.observed.dns_services = [(other.to_owned(), beside)].into();
        // It was adopted before: its pods have the labels.
        deploy(&mut story.observed, 2);
        let status = story.reconcile(0);
        condition(&status, "Degraded").unwrap().clone()
    };
    let shared = degraded("test", "kube-dns", true);
    assert_eq!(shared.reason, "PodsShared");
    let begin = "pods of this ClusterDNS have the labels by which Service kube-system/test selects, and these Services of the \
                 same namespace select by them too: kube-dns. ";
    assert!(shared.message.starts_with(begin), "{}", shared.message);
    for (own, other, has_other_pods) in
        [("test", "kube-dns", false), ("test", "kube-dns-upstream", true), ("kube-dns", "lb", true)]
    {
        assert_eq!(degraded(own, other, has_other_pods).reason, "AsExpected", "{own} {other}");
    }
}

#[test]
fn o16_a_service_that_was_given_back_and_leads_to_no_pod_is_no_good_end() {
    let mut story = Story::new("{}");
    story.observed.service = Some(kube_dns());
    story.observed.foreign_pods = vec![foreign_pod()];
    deploy(&mut story.observed, 2);
    expose_only_other(&mut story);
    story.reconcile(0);
    story.pods_follow();
    story.reconcile(1);
    is(&story, "True=Valid True=Released False=Complete False=AsExpected", Kstatus::Current);
    // Ours alone are behind it: the other server has just ended, or is not there yet.
    expose(&mut story.observed);
    assert_eq!(not_ready(&story.reconcile(2)), ("Releasing", true));
    story.observed.slices.clear();
    let status = story.reconcile(3);
    assert_eq!(not_ready(&status), ("ServiceWithoutPods", false));
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains("given back to another DNS server. Start that one"), "{message}");
    let up_to_date = condition(&status, "UpToDate").unwrap();
    assert_eq!((&*up_to_date.status, &*up_to_date.reason), ("False", "ServiceWithoutPods"));
}

/// `kubectl replace --force`: the garbage collector has not removed the Service of the one before yet.
#[test]
fn o14_a_cluster_dns_that_is_created_again_waits_and_has_not_failed() {
    let mut story = Story::new("{}");
    let mut service = own_service();
    service.metadata.owner_references.as_mut().unwrap()[0].uid = "old".to_owned();
    story.observed.service = Some(service);
    let status = story.reconcile(0);
    let waits = "False=PreviousService False=PreviousService True=PreviousService \
                 True=PreviousService";
    is(&story, waits, Kstatus::InProgress);
    assert!(condition(&status, "Stalled").is_none());
    story.observed.service = None;
    let status = story.reconcile(5);
    assert_eq!(condition(&status, "Accepted").unwrap().status, "True");
    assert_eq!(kstatus(&story.dns), Kstatus::InProgress);
}

/// As another client leaves it with the type ExternalName: the API server takes every address from it.
fn external_name(mut service: Service) -> Service {
    let spec = service.spec.as_mut().unwrap();
    (spec.type_, spec.external_name) = (Some("ExternalName".into()), Some("dns.example".into()));
    (spec.cluster_ip, spec.cluster_ips) = (None, None);
    service
}

#[test]
fn o16_a_service_of_ours_that_lost_every_address_is_no_green_status() {
    let mut story = Story::settled("{}");
    story.observed.service = Some(external_name(own_service()));
    let status = story.reconcile(10);
    is(&story, "True=Valid False=ServiceGone False=Complete False=AsExpected", Kstatus::InProgress);
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(
        message.ends_with("has no clusterIP any more, and clients ask 10.96.0.10"),
        "{message}"
    );
    assert_eq!(status.cluster_ips, ["10.96.0.10"], "which clients ask");
    let failed = ("Service kube-system/kube-dns".to_owned(), "it is taken".to_owned());
    story.applied.failures = vec![failed];
    let status = story.reconcile(11);
    is(&story, "True=Valid False=ServiceGone False=Complete True=ServiceGone", Kstatus::Failed);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("clients ask 10.96.0.10: it cannot get these"), "{message}");
    assert!(!message.contains(" with ,") && !message.contains("if  is"), "{message}");

    story.applied.failures.clear();
    story.edit("{managementState: Unmanaged}");
    let status = story.reconcile(12);
    is(&story, "True=Valid False=ServiceGone False=Unmanaged True=ServiceGone", Kstatus::Failed);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("kubectl patch clusterdns default"), "{message}");
    assert_eq!(status.cluster_ips, ["10.96.0.10"]);
    // The same where the spec is refused.
    story.dns.spec.ttl_seconds = 5_000;
    assert_eq!(not_ready(&story.reconcile(13)), ("ServiceGone", false));
}

#[test]
fn o16_an_adopted_service_that_lost_every_address_is_no_green_status() {
    let mut without_selector = external_name(switched());
    without_selector.spec.as_mut().unwrap().selector = None;
    for emptied in [external_name(switched()), without_selector] {
        let mut story = Story::new("{service: {adopt: true}}");
        story.observed.service = Some(switched());
        deploy(&mut story.observed, 2);
        expose(&mut story.observed);
        story.reconcile(0);
        story.pods_follow();
        story.reconcile(1);
        is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
        story.observed.service = Some(emptied);
        story.observed.slices.clear();
        let status = story.reconcile(10);
        let expected = "False=ServiceNotAdoptable False=ServiceGone False=NotAccepted True=ServiceNotAdoptable";
        is(&story, expected, Kstatus::Failed);
        assert_eq!(status.cluster_ips, ["10.96.0.10"], "which clients ask");
        for kind in ["Ready", "Degraded"] {
            let message = &condition(&status, kind).unwrap().message;
            let words =
                "clients ask 10.96.0.10: set its type to ClusterIP, with clusterIPs 10.96.0.10";
            assert!(message.contains(words), "{message}");
            assert!(!message.contains("another service.name"), "{message}");
        }
        story.dns.spec.ttl_seconds = 5_000;
        assert_eq!(not_ready(&story.reconcile(11)), ("ServiceGone", false));
    }
}

#[test]
fn o15_a_service_that_clients_ask_is_not_to_be_replaced_by_one_of_another_name() {
    let mut story = Story::new("{service: {adopt: true}}");
    story.observed.service = Some(switched());
    deploy(&mut story.observed, 2);
    expose(&mut story.observed);
    story.reconcile(0);
    let mut unselecting = switched();
    unselecting.spec.as_mut().unwrap().selector = None;
    story.observed.service = Some(unselecting.clone());
    let refused = |status: &ClusterDNSStatus| {
        let accepted = condition(status, "Accepted").unwrap();
        assert_eq!(accepted.reason, "ServiceNotAdoptable");
        accepted.message.clone()
    };
    let message = refused(&story.reconcile(10));
    let words = "clients ask 10.96.0.10: give it the selector k8s-app=kube-dns again";
    assert!(message.contains(words), "{message}");

    let being_deleted = |mut service: Service| {
        service.metadata.deletion_timestamp = Some(from(json!("2026-01-01T00:00:00Z")));
        Some(service)
    };
    let words = "created again as it was";
    story.observed.service = being_deleted(switched());
    assert!(refused(&story.reconcile(11)).contains(words), "it is remembered");
    let mut story = Story::new("{service: {adopt: true}}");
    story.observed.service = being_deleted(kube_dns());
    assert!(!refused(&story.reconcile(0)).contains(words), "nothing is known of it");
    story.observed.service = Some(Service { metadata: kube_dns().metadata, ..unselecting });
    assert!(refused(&story.reconcile(1)).contains("another service.name"), "no client asks it");
}

#[test]
fn o15_a_name_that_is_not_managed_warns_of_deleting_what_took_over_a_service() {
    let dns = dns("{service: {adopt: true}}");
    let only = crate::settings::Settings { instances: vec!["other".to_owned()], ..settings() };
    let message = |service| {
        let observed = Observed { service: Some(service), ..Observed::default() };
        let refusal = decide(&dns, &config(&dns), &observed, &only, at(0)).unwrap_err();
        assert_eq!(refusal.reason, "NameNotManaged");
        refusal.message
    };
    let warned = message(switched());
    assert!(warned.contains("Service kube-system/kube-dns: if default is deleted"), "{warned}");
    let own = message(own_service());
    assert!(!own.contains("taken over"), "{own}");
}
