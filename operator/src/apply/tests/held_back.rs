//! What is written while something that it needs is denied, such as a right.

use super::cluster::lock;
use super::story::{STABLE, Story};
use super::*;
use crate::decide::plan::SelectorPatch;
use crate::decide::{config_map, decide};
use crate::desired::Desired;
use crate::fixtures::{compared, config, unready};

const OLD: &str = "{ttlSeconds: 5, scaling: {fixed: {replicas: 2}}}";
const NEW: &str = "{ttlSeconds: 7, scaling: {fixed: {replicas: 2}}}";

#[tokio::test]
async fn o4_a_right_that_is_denied_for_good_delays_no_repair() {
    let mut story = Story::begun(OLD).await;
    story.deny(Kind::ClusterRole, "clusterroles");
    for _ in 0..3 {
        story.break_all();
        assert!(!story.is_whole());
        let outcome = story.reconciled().await;
        assert!(story.is_whole(), "{outcome:?}");
        assert!(outcome.has_failed(Kind::ClusterRole) && !outcome.has_failed(Kind::ConfigMap));
    }
    assert_eq!(lock(&story.cluster).count(Kind::ClusterRole), 2, "it is tried with patience");
    // They come back also where they are deleted.
    for kind in [Kind::ConfigMap, Kind::Deployment] {
        lock(&story.cluster).delete(kind);
        story.reconciled().await;
        assert!(story.is_whole(), "{kind:?}");
    }
}

#[tokio::test]
async fn o4_new_content_waits_for_a_right_and_what_was_there_is_put_back_meanwhile() {
    let mut story = Story::begun(OLD).await;
    story.deny(Kind::ClusterRole, "clusterroles");
    story.becomes(
        "{ttlSeconds: 7, scaling: {fixed: {replicas: 2}}, placement: {priorityClassName: other}}",
    );
    let class = "/spec/template/spec/priorityClassName";
    let before = lock(&story.cluster).get(Kind::Deployment, class);
    for _ in 0..3 {
        story.break_all();
        let outcome = story.reconciled().await;
        assert!(story.is_whole() && story.canary().is_null(), "{outcome:?}");
        assert_eq!(lock(&story.cluster).get(Kind::Deployment, class), before);
        let waits = |(_, why): &&(String, String)| why == "waits for the ClusterRole before it";
        let waiting = outcome.applied.failures.iter().filter(waits);
        let waiting: Vec<&str> = waiting.map(|(what, _)| what.as_str()).collect();
        let name = "kube-system/clusterdns-default";
        assert_eq!(waiting, [format!("ConfigMap {name}"), format!("Deployment {name}")]);
    }
    // The Service of the last look is remembered once more as it should be.
    story.reconciled().await;
    let written = lock(&story.cluster).written.len();
    story.reconciled().await;
    assert_eq!(lock(&story.cluster).written.len(), written, "nothing is written without a reason");
    lock(&story.cluster).denied.clear();
    story.ctx.attempts.forget_all();
    assert!(story.reconciled().await.is_complete());
    assert!(!story.canary().is_null(), "it is tried");
    assert_eq!(lock(&story.cluster).get(Kind::Deployment, class), "other");
}

#[tokio::test]
async fn o7_a_right_that_cannot_be_written_keeps_no_verdict_waiting() {
    for is_good in [true, false] {
        let mut story = Story::begun(OLD).await;
        story.becomes(NEW);
        assert!(story.reconciled().await.is_complete());
        let canary = story.canary();
        assert!(!canary.is_null());
        story.pods_follow();
        story.deny(Kind::Role, "roles");
        let state = |story: &Story| config_map::state_in(story.observed.config_map.as_ref());
        for _ in 0..9 {
            story.observe();
            let Some(pod) = state(&story).canary_pod else { break };
            let revision = state(&story).canary;
            story.observed.comparison = Some(compared(&pod.name, &revision, is_good, true));
            let outcome = story.reconciled().await;
            assert!(outcome.has_failed(Kind::Role) && !outcome.has_failed(Kind::ConfigMap));
        }
        let stable = lock(&story.cluster).get(Kind::ConfigMap, STABLE);
        assert!(story.canary().is_null(), "{is_good}");
        assert_eq!(stable == canary, is_good, "every pod gets it, or it is taken back");
    }
}

#[tokio::test]
async fn o4_a_leader_that_begins_while_a_right_is_denied_puts_back_what_it_can() {
    let mut story = Story::begun(OLD).await;
    story.deny(Kind::ClusterRole, "clusterroles");
    story.break_all();
    // An operator newer than its chart: it makes other pods.
    story.with_another_leader("clusterdns:newer").await;
    story.reconciled().await;
    assert!(story.is_whole());
    let image = "/spec/template/spec/containers/0/image";
    assert_eq!(lock(&story.cluster).get(Kind::Deployment, image), "clusterdns:test");
}

const PER_NODE: &str = "{ttlSeconds: 5, scaling: {perNode: {}}}";

/// Each node has a taint that new pods do not tolerate, or is not ready. The controller of DaemonSets ends the pods of an older
/// template there.
async fn on_nodes_that_take_no_pods() -> Story {
    let mut story = Story::begun(PER_NODE).await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "clusterdns-default", "uid": "u",
        "controller": true}]);
    for pod in &mut story.observed.pods {
        pod.metadata.owner_references = Some(from(owner.clone()));
    }
    story.observed.no_node_takes_pods = true;
    story
}

#[tokio::test]
async fn o2_a_daemonset_does_not_change_while_no_node_takes_a_new_pod() {
    let class = "/spec/template/spec/priorityClassName";
    let get = |story: &Story| lock(&story.cluster).get(Kind::DaemonSet, class);
    let mut story = on_nodes_that_take_no_pods().await;
    let before = get(&story);
    assert!(story.reconciled().await.is_complete(), "nothing is new");
    story.becomes("{ttlSeconds: 7, scaling: {perNode: {}}, placement: {priorityClassName: other}}");
    for _ in 0..3 {
        // What another client edits is put back meanwhile.
        lock(&story.cluster).edit(Kind::DaemonSet, class, Some(json!("theirs")));
        let outcome = story.reconciled().await;
        assert_eq!(get(&story), before);
        let [(what, why)] = &outcome.applied.failures[..] else { panic!("{outcome:?}") };
        assert_eq!(what, "DaemonSet kube-system/clusterdns-default");
        assert!(why.starts_with("waits for a node that takes a new pod"), "{why}");
    }
    story.observed.no_node_takes_pods = false;
    assert!(story.reconciled().await.is_complete());
    assert_eq!(get(&story), "other");
    // No pod is lost by it where none of a DaemonSet is ready.
    let mut story = on_nodes_that_take_no_pods().await;
    story.observed.pods.clear();
    story.becomes("{scaling: {perNode: {}}, placement: {priorityClassName: other}}");
    story.reconciled().await;
    assert_eq!(get(&story), "other");
}

#[tokio::test]
async fn o2_a_newer_operator_changes_no_daemonset_while_no_node_takes_a_new_pod() {
    let image = "/spec/template/spec/containers/0/image";
    let mut story = on_nodes_that_take_no_pods().await;
    story.with_another_leader("clusterdns:newer").await;
    for (takes_none, expected) in
        [(true, "clusterdns:test"), (true, "clusterdns:test"), (false, "clusterdns:newer")]
    {
        story.observed.no_node_takes_pods = takes_none;
        story.reconciled().await;
        assert_eq!(lock(&story.cluster).get(Kind::DaemonSet, image), expected);
    }
}

#[tokio::test]
async fn o2_an_operator_that_begins_where_no_node_takes_a_pod_reports_nothing_that_waits() {
    let mut story = on_nodes_that_take_no_pods().await;
    story.with_another_leader("clusterdns:test").await;
    for look in 0..2 {
        let outcome = story.reconciled().await;
        assert!(outcome.is_complete(), "{look}: {:?}", outcome.applied.failures);
    }
}

/// The node controller says that all pods of such nodes are not ready, and they still answer.
#[tokio::test]
async fn o2_a_newer_operator_changes_no_daemonset_while_all_nodes_lost_the_api_server() {
    let image = "/spec/template/spec/containers/0/image";
    for (node, address, expected) in [
        ("dead", Some("10.244.0.9"), "clusterdns:test"),
        ("dead", None, "clusterdns:newer"),
        ("alive", Some("10.244.0.9"), "clusterdns:newer"),
    ] {
        let mut story = on_nodes_that_take_no_pods().await;
        story.observed.dead_nodes = ["dead".to_owned()].into();
        for pod in &mut story.observed.pods {
            *pod = unready(pod.clone());
            pod.spec = Some(from(json!({"nodeName": node, "containers": []})));
            pod.status.as_mut().unwrap().pod_ip = address.map(str::to_owned);
        }
        story.with_another_leader("clusterdns:newer").await;
        story.reconciled().await;
        assert_eq!(
            lock(&story.cluster).get(Kind::DaemonSet, image),
            expected,
            "{node} {address:?}"
        );
    }
}

/// The pods of the story serve, and the Service that was adopted is to lead to them.
pub(super) async fn switched(story: &Story) -> Outcome {
    let (dns, now) = (&story.dns, at(100));
    let settings = &story.ctx.settings;
    let (config, mut plan) = decide(dns, &config(dns), &story.observed, settings, now).unwrap();
    let patch = SelectorPatch { resource_version: "7".to_owned(), add: true };
    plan.service = ServicePlan::Adopted { labels: BTreeMap::new(), patch: Some(patch) };
    plan.rollout.state.switch.is_made = true;
    let desired = Desired::build(dns, &config, &story.observed, &plan, settings);
    let mut newest = Newest::new(&story.ctx, dns, true);
    let how = (&story.observed, now);
    apply(&story.ctx, &mut newest, &desired, how, &plan).await.unwrap()
}

#[tokio::test]
async fn o15_the_switch_of_an_adopted_service_does_not_wait_for_a_right() {
    for (denied, expected) in [("clusterroles", 1), ("configmaps", 0)] {
        let mut story = Story::begun(OLD).await;
        story.becomes(NEW);
        lock(&story.cluster).delete(Kind::ClusterRole);
        lock(&story.cluster).denied.insert(denied);
        story.observe();
        let before = lock(&story.cluster).count(Kind::Service);
        let outcome = switched(&story).await;
        assert!(outcome.has_failed(Kind::ConfigMap), "{denied}");
        let cluster = lock(&story.cluster);
        assert_eq!(cluster.count(Kind::Service) - before, expected, "{denied}");
        let state = cluster.get(Kind::ConfigMap, "/data/rollout.json");
        let is_remembered = state.as_str().unwrap().contains("isMade");
        assert_eq!((outcome.switched.is_some(), is_remembered), (expected == 1, expected == 1));
    }
}

const BY_LOAD: &str =
    "{scaling: {load: {minReplicas: 3, maxReplicas: 9, cpuMillicoresPerReplica: 500}}}";

#[tokio::test]
async fn o12_zero_pods_are_put_back_where_nothing_new_is_written_with_an_autoscaler() {
    for is_refused in [false, true] {
        let mut story = Story::begun(BY_LOAD).await;
        story.observed.autoscaler =
            Some(from(json!({"status": {"desiredReplicas": 5, "currentReplicas": 5}})));
        // The autoscaler has written its number.
        lock(&story.cluster).edit(Kind::Deployment, "/spec/replicas", Some(json!(5)));
        story.reconciled().await;
        if !is_refused {
            story.deny(Kind::ClusterRole, "clusterroles");
            story.becomes("{ttlSeconds: 7, scaling: {load: {minReplicas: 3, maxReplicas: 9, cpuMillicoresPerReplica: 500}}}");
        }
        for (zero_or, expected) in [(0, 5), (7, 7), (0, 5)] {
            lock(&story.cluster).edit(Kind::Deployment, "/spec/replicas", Some(json!(zero_or)));
            for _ in 0..2 {
                match is_refused {
                    true => _ = story.restored().await,
                    false => _ = story.reconciled().await,
                }
            }
            let replicas = lock(&story.cluster).get(Kind::Deployment, "/spec/replicas");
            assert_eq!(replicas, expected, "refused: {is_refused}");
        }
    }
}

/// A Deployment that waits still has `replicas`, and would be set back each time that the autoscaler has written them.
#[tokio::test]
async fn o12_an_autoscaler_and_a_deployment_with_its_own_size_are_never_there_together() {
    const FIXED: &str = "{scaling: {fixed: {replicas: 12}}}";
    let replicas = |story: &Story| lock(&story.cluster).get(Kind::Deployment, "/spec/replicas");
    let mut story = Story::begun(FIXED).await;
    story.deny(Kind::ClusterRole, "clusterroles");
    story.becomes(BY_LOAD);
    for _ in 0..3 {
        story.reconciled().await;
        assert_eq!(lock(&story.cluster).count(Kind::HorizontalPodAutoscaler), 0, "it waits");
        assert_eq!(replicas(&story), 12);
    }
    let mut story = Story::begun(BY_LOAD).await;
    story.deny(Kind::ClusterRole, "clusterroles");
    story.becomes(FIXED);
    for _ in 0..3 {
        lock(&story.cluster).edit(Kind::Deployment, "/spec/replicas", Some(9.into()));
        story.reconciled().await;
        assert_eq!(replicas(&story), 9, "it is still scaled");
    }
}
