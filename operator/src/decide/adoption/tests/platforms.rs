//! What distributions of Kubernetes do to an adopted Service, and to the pods of the server that it is given back to.

use super::deleted::reconcile;
use super::*;
use crate::report::changes;

/// A pod that the scheduler finds no node for.
fn unplaced(name: &str) -> Pod {
    let mut pod = unready(foreign_pod());
    pod.metadata.name = Some(name.to_owned());
    let conditions = pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions.push(from(json!({"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available"})));
    pod
}

#[test]
fn o15_who_gives_back_to_pods_without_a_node_is_shown_the_rule_that_keeps_them_off() {
    let refused = |pods: Vec<Pod>| {
        let observed = Observed { foreign_pods: pods, ..with(switched()) };
        let refusal = plan(&dns("{}"), &observed, at(0)).unwrap_err();
        assert_eq!(refusal.reason, "NoOtherServer");
        refusal.message
    };
    for pods in [vec![], vec![unready(foreign_pod())]] {
        let message = refused(pods);
        assert!(message.ends_with("Start that server, or set adopt to true"), "{message}");
    }
    let message = refused(vec![unplaced("coredns-1"), unplaced("coredns-2")]);
    for words in
        ["no node for coredns-1 and 1 more", "required podAntiAffinity", "set adopt to true"]
    {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(!message.contains("Start that server"), "{message}");
}

#[test]
fn o18_an_upgrade_that_takes_what_the_spec_needs_of_the_service_is_news_once() {
    let dns = dns("{service: {adopt: true, trafficDistribution: PreferSameNode}, \
        listeners: {tls: {certificate: {name: a}}, quic: {certificate: {name: a}}}}");
    let mut service = switched();
    let spec = service.spec.as_mut().unwrap();
    spec.traffic_distribution = Some("PreferSameNode".to_owned());
    spec.ports.as_mut().unwrap().push(from(json!({"name": "tls", "port": 853, "targetPort": 853})));
    let mut observed = with(service);
    observed.offers.minor = 34;
    let news = |observed: &Observed| changes::of_adopted_service(&dns, observed);
    assert_eq!(news(&observed), None, "nothing was seen before");
    reconcile(&mut observed, &dns, 0).unwrap();
    assert_eq!(news(&observed), None, "it is as it was");
    // kubeadm sends the Service of its template.
    let mut upgraded = kube_dns();
    upgraded.metadata.resource_version = Some("200".to_owned());
    observed.service = Some(upgraded);
    let change = news(&observed).expect("news");
    assert!(change.is_warning && change.reason == "ServiceFieldsLost");
    for words in ["kube-system/kube-dns", "spec.listeners.tls", "spec.service.trafficDistribution"]
    {
        assert!(change.message.contains(words), "{words}: {}", change.message);
    }
    assert!(!change.message.contains("quic"), "no port led there before: {}", change.message);
    reconcile(&mut observed, &dns, 1).unwrap();
    assert_eq!(news(&observed), None, "once");
}
