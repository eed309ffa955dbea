//! Pods, the nodes that they may run on, and the autoscaler that says how many there are.

use super::*;
use crate::fixtures::from;
use crate::observe::observed::Misfit;
use crate::observe::spare_nodes::SeveralSince;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

#[test]
fn o2_nodes_that_do_not_fit_the_spec_are_reported_and_refuse_nothing() {
    let mut story = Story::settled("{placement: {nodeSelector: {pool: infra}}}");
    story.observed.size.nodes = 3;
    story.observed.no_node_fits = Some(Misfit::NodeSelector);
    let status = story.reconcile(10);
    is(
        &story,
        "True=Valid True=Serving False=Complete True=PlacementMatchesNoNode",
        Kstatus::Current,
    );
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("new pods wait for a node that fits"), "{message}");
    story.observed.no_node_fits = None;
    story.reconcile(20);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

/// A DaemonSet that wants this many pods, and has them.
fn daemon_set(count: u32) -> k8s_openapi::api::apps::v1::DaemonSet {
    from(json!({"metadata": {"name": "clusterdns-default", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": count, "currentNumberScheduled": count,
            "updatedNumberScheduled": count, "numberMisscheduled": 0, "numberReady": count,
            "numberAvailable": count}}))
}

#[test]
fn o19_a_workload_that_wants_no_pod_is_a_problem() {
    let mut story = Story::settled("{scaling: {perNode: {}}}");
    story.observed.deployment = None;
    story.observed.daemon_set = Some(daemon_set(2));
    story.observed.size.nodes = 2;
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    // Each node got a taint with the effect NoSchedule: pods that run stay.
    story.observed.daemon_set = Some(daemon_set(0));
    let status = story.reconcile(12);
    let degraded = condition(&status, "Degraded").unwrap();
    assert!(degraded.message.contains("so no new pod of it runs"), "{}", degraded.message);
    story.observed.no_node_fits = Some(Misfit::Tolerations);
    let status = story.reconcile(14);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "PlacementMatchesNoNode");
    assert!(degraded.message.contains("Pods that run stay"), "{}", degraded.message);
    assert_eq!(condition(&status, "Ready").unwrap().reason, "Serving");
    story.observed.no_node_fits = None;
    // Each node lost a label: the DaemonSet ended every pod.
    story.observed.pods.clear();
    let status = story.reconcile(20);
    assert_eq!(condition(&status, "Ready").unwrap().reason, "NoPodReady");
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "NoPodWanted");
    assert!(degraded.message.contains("on none of 2 nodes"), "{}", degraded.message);
    story.observed.no_node_fits = Some(Misfit::Tolerations);
    let status = story.reconcile(30);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "PlacementMatchesNoNode", "the field of the spec is known");
    let begin = "spec.placement.tolerations: none of 2 nodes is without a taint with the effect NoSchedule or NoExecute";
    assert!(degraded.message.starts_with(begin), "{}", degraded.message);
    assert!(degraded.message.contains("no pod runs before a node fits"), "{}", degraded.message);
    story.observed.no_node_fits = None;
    story.observed.size.nodes = 0;
    assert_eq!(condition(&story.reconcile(40), "Degraded").unwrap().reason, "AsExpected");

    let mut story = Story::settled("{managementState: Unmanaged}");
    deploy(&mut story.observed, 0);
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "NoPodWanted");
    assert!(
        degraded.message.contains("kubectl -n kube-system scale deployment/clusterdns-default")
    );
}

#[test]
fn o2_a_cluster_that_outgrows_one_pod_on_each_node_is_reported_and_not_refused() {
    let mut story = Story::new("{scaling: {perNode: {}}}");
    story.observed.service = Some(own_service());
    deploy(&mut story.observed, 2);
    story.observed.deployment = None;
    story.observed.daemon_set = Some(daemon_set(2));
    story.reconcile(0);
    story.pods_follow();
    for (nodes, degraded) in
        [(449, "False=AsExpected"), (450, "True=PerNodeTooLarge"), (501, "True=PerNodeTooLarge")]
    {
        (story.observed.size.nodes, story.observed.nodes_that_fit) = (501, nodes);
        story.reconcile(10 + i64::from(nodes));
        is(&story, &format!("True=Valid True=Serving False=Complete {degraded}"), Kstatus::Current);
    }
}

#[test]
fn o12_a_foreign_budget_that_keeps_nodes_from_being_drained_is_a_problem() {
    let mut story = Story::settled("{scaling: {perNode: {}}}");
    story.observed.deployment = None;
    story.observed.daemon_set = Some(daemon_set(2));
    let selector = json!({"matchLabels": {"k8s-app": "kube-dns"}});
    story.observed.budgets = vec![from(
        json!({"metadata": {"name": "coredns"}, "spec": {"maxUnavailable": 1, "selector": selector}}),
    )];
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=EvictionsRefused", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.starts_with("PodDisruptionBudget kube-system/coredns "), "{message}");
    story.observed.budgets.clear();
    story.reconcile(20);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

#[test]
fn o19_pods_that_are_all_on_one_node_of_several_are_a_problem() {
    for (what, nodes, spec, usable, minutes, expected) in [
        ("two nodes", ["a", "a"], "{}", 2, 11, true),
        ("a moment ago", ["a", "a"], "{}", 2, 9, false),
        ("one node", ["a", "a"], "{}", 1, 11, false),
        ("spread", ["a", "b"], "{}", 2, 11, false),
        ("one on each node", ["a", "a"], "{scaling: {perNode: {}}}", 2, 11, false),
    ] {
        let mut story = Story::settled(spec);
        for (pod, node) in story.observed.pods.iter_mut().zip(nodes) {
            pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
            let conditions = pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
            conditions[0].last_transition_time = Some(Time(at(0)));
        }
        assert_eq!(story.observed.pods.len(), 2);
        story.observed.nodes_for_new_pods = SeveralSince::default().note("a", usable, at(0));
        let status = story.reconcile(minutes * 60);
        let degraded = condition(&status, "Degraded").unwrap();
        assert_eq!(degraded.reason == "PodsOnOneNode", expected, "{what}: {}", degraded.message);
        if expected {
            assert!(degraded.message.contains("on node a: if it dies"), "{}", degraded.message);
        }
    }
}

#[test]
fn o19_a_second_node_that_has_just_come_is_no_problem_before_ten_minutes() {
    let mut story = Story::settled("{}");
    for pod in &mut story.observed.pods {
        pod.spec.get_or_insert_default().node_name = Some("a".to_owned());
        let conditions = pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
        conditions[0].last_transition_time = Some(Time(at(0)));
    }
    let several = SeveralSince::default();
    for (minutes, nodes, expected) in [
        (60, 1, "AsExpected"),
        (61, 2, "AsExpected"),
        (70, 2, "AsExpected"),
        (71, 2, "PodsOnOneNode"),
        (72, 1, "AsExpected"),
        (73, 2, "AsExpected"),
        (83, 3, "PodsOnOneNode"),
    ] {
        story.observed.nodes_for_new_pods = several.note("default", nodes, at(minutes * 60));
        let status = story.reconcile(minutes * 60);
        let reason = &condition(&status, "Degraded").unwrap().reason;
        assert_eq!(reason, expected, "{nodes} nodes after {minutes} minutes");
    }
    // Another operator leads, and knows nothing of before.
    let several = SeveralSince::default();
    for (minutes, nodes, expected) in
        [(84, 3, "PodsOnOneNode"), (85, 1, "AsExpected"), (86, 2, "AsExpected")]
    {
        story.observed.nodes_for_new_pods = several.note("default", nodes, at(minutes * 60));
        let status = story.reconcile(minutes * 60);
        let reason = &condition(&status, "Degraded").unwrap().reason;
        assert_eq!(reason, expected, "{nodes} nodes after {minutes} minutes");
    }
}

#[test]
fn o12_an_autoscaler_that_stands_still_is_a_problem_after_five_minutes() {
    for (status, reason, after_min, expected) in [
        ("True", "ValidMetricFound", 6, None),
        // With 0 replicas.
        ("False", "ScalingDisabled", 6, None),
        ("False", "AmbiguousSelector", 4, None),
        ("False", "AmbiguousSelector", 6, Some("Delete the other one")),
        ("False", "FailedGetResourceMetric", 6, Some("install the metrics API")),
    ] {
        let mut story = Story::settled("{scaling: {load: {}}}");
        story.reconcile(0);
        let condition_ = json!({"type": "ScalingActive", "status": status, "reason": reason,
            "message": "a, b", "lastTransitionTime": at(0)});
        story.observed.autoscaler = Some(from(json!({
            "metadata": {"name": "clusterdns-default", "namespace": "kube-system"},
            "status": {"currentReplicas": 2, "desiredReplicas": 2, "conditions": [condition_]}})));
        let status = story.reconcile(after_min * 60);
        let degraded = condition(&status, "Degraded").unwrap();
        let found = (degraded.reason == "NotScaled").then_some(degraded.message.as_str());
        match (found, expected) {
            (Some(message), Some(words)) => assert!(message.contains(words), "{message}"),
            (found, expected) => assert_eq!(found, expected, "{reason} {after_min}"),
        }
    }
}

#[test]
fn o12_an_autoscaler_that_no_field_wants_is_no_problem() {
    let mut story = Story::settled("{scaling: {fixed: {replicas: 2}}}");
    let condition_ = json!({"type": "ScalingActive", "status": "False", "reason": "AmbiguousSelector",
        "message": "a, b", "lastTransitionTime": at(0)});
    story.observed.autoscaler = Some(from(json!({
        "metadata": {"name": "clusterdns-default", "namespace": "kube-system"},
        "status": {"currentReplicas": 2, "desiredReplicas": 2, "conditions": [condition_]}})));
    let status = story.reconcile(600);
    assert_eq!(condition(&status, "Degraded").unwrap().reason, "AsExpected");
}
