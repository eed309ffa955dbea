//! Pods and the nodes that they may run on.

use super::*;
use crate::fixtures::from;
use crate::observe::observed::Misfit;
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
