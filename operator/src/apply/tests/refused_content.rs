//! What is put back while the API server does not take the new content of an object, or while a new workload does not serve yet.

use super::cluster::lock;
use super::held_back::switched;
use super::story::{STABLE, Story};
use super::*;

const OLD: &str = "{scaling: {fixed: {replicas: 2}}}";
const TWO_ADDRESSES: &str =
    "{scaling: {fixed: {replicas: 2}}, service: {clusterIPs: ['10.96.0.10', 'fd00::10']}}";
const ANOTHER_CLASS: &str =
    "{scaling: {fixed: {replicas: 2}}, placement: {priorityClassName: other}}";
const CLASS: &str = "/spec/template/spec/priorityClassName";

/// As an API server without IPv6, and a policy about priorities.
fn is_invalid(sent: &Value) -> bool {
    let addresses = sent["spec"]["clusterIPs"].as_array().map_or(0, Vec::len);
    addresses > 1 || sent.pointer(CLASS).is_some_and(|class| class == "other")
}

#[tokio::test]
async fn o4_what_was_there_is_put_back_while_the_new_content_is_refused() {
    for (spec, refused) in [(TWO_ADDRESSES, Kind::Service), (ANOTHER_CLASS, Kind::Deployment)] {
        let mut story = Story::begun(OLD).await;
        lock(&story.cluster).invalid = Some(is_invalid);
        story.becomes(spec);
        for _ in 0..3 {
            story.break_all();
            let outcome = story.reconciled().await;
            assert!(story.is_whole() && outcome.has_failed(refused), "{outcome:?}");
            let (what, why) = &outcome.applied.failures[0];
            assert!(why.contains("it is invalid") && !what.ends_with("as it was"), "{outcome:?}");
        }
        for kind in [Kind::Service, Kind::Deployment] {
            lock(&story.cluster).delete(kind);
            let outcome = story.reconciled().await;
            assert!(story.is_whole(), "{kind:?} {outcome:?}");
        }
        let families = lock(&story.cluster).get(Kind::Service, "/spec/ipFamilyPolicy");
        assert_eq!(families, "SingleStack", "with the addresses that clients ask");
        lock(&story.cluster).edit(Kind::Service, "/spec/type", Some(json!("ExternalName")));
        lock(&story.cluster).edit(Kind::Service, "/spec/clusterIP", None);
        lock(&story.cluster).edit(Kind::Service, "/spec/clusterIPs", None);
        story.reconciled().await;
        let addresses = lock(&story.cluster).get(Kind::Service, "/spec/clusterIPs");
        assert_eq!(addresses, json!(["10.96.0.10"]));
        // The Service of the last look is remembered once more as it should be.
        story.reconciled().await;
        let written = lock(&story.cluster).written.len();
        story.reconciled().await;
        let again = lock(&story.cluster).written.len() - written;
        assert_eq!(again, 0, "nothing is written without a reason");
        lock(&story.cluster).invalid = None;
        story.ctx.attempts.forget_all();
        let outcome = story.reconciled().await;
        assert!(outcome.is_complete(), "{outcome:?}");
    }
}

#[tokio::test]
async fn o4_where_the_old_content_is_refused_too_that_is_tried_with_patience() {
    let mut story = Story::begun(OLD).await;
    story.becomes(ANOTHER_CLASS);
    lock(&story.cluster).denied.insert("deployments");
    lock(&story.cluster).delete(Kind::Deployment);
    let before = lock(&story.cluster).count(Kind::Deployment);
    for _ in 0..5 {
        let outcome = story.reconciled().await;
        let failed = outcome.applied.failures.iter().map(|(what, _)| what.as_str());
        let name = "Deployment kube-system/clusterdns-default";
        assert_eq!(failed.collect::<Vec<_>>(), [name, &format!("{name} as it was")]);
    }
    assert_eq!(lock(&story.cluster).count(Kind::Deployment) - before, 2, "once each");
}

const BY_LOAD: &str =
    "scaling: {load: {minReplicas: 3, maxReplicas: 9, cpuMillicoresPerReplica: 500}}";

#[tokio::test]
async fn o12_zero_pods_are_put_back_where_a_deployment_with_an_autoscaler_is_refused() {
    let with_class = "placement: {priorityClassName: other}";
    let by_load = format!("{{{BY_LOAD}, {with_class}}}");
    for (spec, is_denied) in [(&*by_load, false), (ANOTHER_CLASS, false), (ANOTHER_CLASS, true)] {
        let mut story = Story::begun(&format!("{{{BY_LOAD}}}")).await;
        story.observed.autoscaler =
            Some(from(json!({"status": {"desiredReplicas": 5, "currentReplicas": 5}})));
        lock(&story.cluster).edit(Kind::Deployment, "/spec/replicas", Some(json!(5)));
        story.reconciled().await;
        lock(&story.cluster).invalid = Some(is_invalid);
        story.becomes(spec);
        if is_denied {
            story.deny(Kind::ClusterRole, "clusterroles");
        }
        for (zero_or, expected) in [(0, 5), (7, 7), (0, 5)] {
            story.reconciled().await;
            lock(&story.cluster).edit(Kind::Deployment, "/spec/replicas", Some(json!(zero_or)));
            let outcome = story.reconciled().await;
            let replicas = lock(&story.cluster).get(Kind::Deployment, "/spec/replicas");
            assert_eq!(replicas, expected, "{spec} {is_denied} {outcome:?}");
        }
    }
}

#[tokio::test]
async fn o4_a_workload_is_put_back_until_the_one_that_replaces_it_serves() {
    for is_refused in [false, true] {
        let mut story = Story::begun(OLD).await;
        story.becomes("{scaling: {perNode: {}}}");
        if is_refused {
            lock(&story.cluster).denied.insert("daemonsets");
        }
        for _ in 0..2 {
            story.reconciled().await;
            story.break_all();
            let outcome = story.reconciled().await;
            assert!(story.is_whole(), "{outcome:?}");
            lock(&story.cluster).delete(Kind::Deployment);
            let outcome = story.reconciled().await;
            assert!(story.is_whole(), "{outcome:?}");
        }
        assert_eq!(lock(&story.cluster).get(Kind::DaemonSet, "/metadata").is_null(), is_refused);
    }
}

#[tokio::test]
async fn o12_a_deployment_with_an_autoscaler_keeps_its_pods_until_a_daemonset_serves() {
    for is_refused in [false, true] {
        let mut story = Story::begun(&format!("{{{BY_LOAD}}}")).await;
        story.observed.autoscaler =
            Some(from(json!({"status": {"desiredReplicas": 5, "currentReplicas": 5}})));
        lock(&story.cluster).edit(Kind::Deployment, "/spec/replicas", Some(json!(5)));
        story.reconciled().await;
        story.becomes("{scaling: {perNode: {}}}");
        if is_refused {
            lock(&story.cluster).denied.insert("daemonsets");
        }
        let replicas = |story: &Story| lock(&story.cluster).get(Kind::Deployment, "/spec/replicas");
        for _ in 0..2 {
            story.reconciled().await;
            lock(&story.cluster).edit(Kind::Deployment, "/spec/replicas", Some(json!(0)));
            let outcome = story.reconciled().await;
            assert_eq!(replicas(&story), 5, "{is_refused} {outcome:?}");
            lock(&story.cluster).delete(Kind::Deployment);
            lock(&story.cluster).delete(Kind::HorizontalPodAutoscaler);
            let outcome = story.reconciled().await;
            assert_eq!(replicas(&story), 5, "{is_refused} {outcome:?}");
            let autoscaler = lock(&story.cluster).get(Kind::HorizontalPodAutoscaler, "/spec");
            assert_eq!(autoscaler["maxReplicas"], 9, "it is put back too");
        }
    }
}

#[tokio::test]
async fn o4_a_new_leader_knows_the_workload_that_serves_until_another_replaces_it() {
    for (spec, has_autoscaler) in [(OLD.to_owned(), false), (format!("{{{BY_LOAD}}}"), true)] {
        let mut story = Story::begun(&spec).await;
        story.becomes("{scaling: {perNode: {}}}");
        story.with_another_leader("clusterdns:test").await;
        story.reconciled().await;
        let kept = story.ctx.memory.kept.of(&story.dns);
        let has = |wanted| kept.iter().any(|(kind, _)| *kind == wanted);
        assert!(has(Kind::Deployment) && has(Kind::DaemonSet));
        assert_eq!(has(Kind::HorizontalPodAutoscaler), has_autoscaler);
    }
}

const ANOTHER_TTL: &str = "{ttlSeconds: 7, scaling: {fixed: {replicas: 2}}}";

/// As a policy that takes no configuration on trial.
fn is_trial(sent: &Value) -> bool {
    sent["data"]["canary.json"].is_string()
}

#[tokio::test]
async fn o4_a_new_leader_puts_the_configuration_back_while_a_new_one_is_refused() {
    let mut story = Story::begun(OLD).await;
    lock(&story.cluster).invalid = Some(is_trial);
    story.becomes(ANOTHER_TTL);
    story.break_all();
    story.with_another_leader("clusterdns:test").await;
    let outcome = story.reconciled().await;
    assert!(outcome.has_failed(Kind::ConfigMap), "{outcome:?}");
    let stable = lock(&story.cluster).get(Kind::ConfigMap, STABLE);
    assert_ne!(stable, "{}", "{outcome:?}");
}

#[tokio::test]
async fn o15_the_switch_of_an_adopted_service_does_not_wait_for_a_refused_document() {
    for has_another_leader in [false, true] {
        let mut story = Story::begun(OLD).await;
        lock(&story.cluster).invalid = Some(is_trial);
        story.becomes(ANOTHER_TTL);
        if has_another_leader {
            story.with_another_leader("clusterdns:test").await;
        }
        story.observe();
        let outcome = switched(&story).await;
        assert!(outcome.has_failed(Kind::ConfigMap), "{outcome:?}");
        let state = lock(&story.cluster).get(Kind::ConfigMap, "/data/rollout.json");
        let is_remembered = state.as_str().unwrap().contains("isMade");
        assert_eq!((outcome.switched, is_remembered), (Some(true), true));
    }
}
