//! What is put back while a spec is refused.

use super::cluster::{lock, selector};
use super::story::{STABLE, Story};
use super::*;
use crate::apply::outcome::{PutBack, Restored};

const SPEC: &str = "{scaling: {fixed: {replicas: 2}}}";

#[tokio::test]
async fn o16_a_service_that_cannot_be_created_again_is_tried_at_each_look_and_soon() {
    let mut story = Story::begun(SPEC).await;
    story.deny(Kind::Service, "services");
    let before = lock(&story.cluster).count(Kind::Service);
    for look in 1..4 {
        let PutBack { service, outcome } = story.restored().await;
        assert!(matches!(service, Restored::Failed(_)), "{service:?}");
        assert!(!outcome.is_complete() && outcome.has_failed(Kind::Service));
        let longest = Duration::from_millis(1_250 << (look - 1));
        assert!(outcome.again_in.is_some_and(|again| again <= longest), "{outcome:?}");
        assert_eq!(lock(&story.cluster).count(Kind::Service), before + look);
    }
    lock(&story.cluster).denied.clear();
    let PutBack { service, outcome } = story.restored().await;
    assert_eq!((service, outcome.is_complete()), (Restored::Created, true));
    assert_eq!(lock(&story.cluster).get(Kind::Service, "/spec/clusterIP"), "10.96.0.10");
}

#[tokio::test]
async fn o4_a_leader_that_begins_while_a_spec_is_refused_restores_no_object_in_part() {
    let mut story = Story::begun(SPEC).await;
    {
        // Before it begins, other clients take over what the objects cannot do without.
        let mut cluster = lock(&story.cluster);
        cluster.edit(Kind::Service, "/spec/selector", Some(json!({"app": "theirs"})));
        cluster.edit(Kind::ClusterRole, "/rules", Some(json!([])));
        cluster.edit(Kind::RoleBinding, "/subjects", None);
    }
    story.with_another_leader("clusterdns:test").await;
    story.restored().await;
    let of_service = lock(&story.cluster).get(Kind::Service, "/spec/selector");
    assert_eq!(of_service, selector(), "that of our Service is always the same");
    let kept = story.ctx.memory.kept.of(&story.dns);
    let kept: Vec<Kind> = kept.into_iter().map(|(kind, _)| kind).collect();
    use Kind::{ClusterRoleBinding, Deployment, Role, Service, ServiceAccount};
    assert_eq!(kept, [ServiceAccount, ClusterRoleBinding, Role, Service, Deployment]);
}

#[tokio::test]
async fn o16_a_service_of_ours_that_lost_every_address_is_put_back_with_them() {
    for has_another_leader in [false, true] {
        let mut story = Story::begun(SPEC).await;
        {
            // The API server takes them from an ExternalName.
            let mut cluster = lock(&story.cluster);
            cluster.edit(Kind::Service, "/spec/type", Some(json!("ExternalName")));
            cluster.edit(Kind::Service, "/spec/clusterIP", None);
            cluster.edit(Kind::Service, "/spec/clusterIPs", None);
        }
        if has_another_leader {
            story.with_another_leader("clusterdns:test").await;
        }
        let of_service = |story: &Story| {
            let cluster = lock(&story.cluster);
            ["/spec/type", "/spec/clusterIP", "/spec/clusterIPs"]
                .map(|field| cluster.get(Kind::Service, field))
        };
        let expected = [json!("ClusterIP"), json!("10.96.0.10"), json!(["10.96.0.10"])];
        for look in 0..2 {
            story.restored().await;
            assert_eq!(of_service(&story), expected, "look {look}");
        }
        // The spec is valid again.
        story.reconciled().await;
        assert_eq!(of_service(&story), expected);
    }
}

/// No operator would judge the pod on trial, and it would run that configuration without end.
#[tokio::test]
async fn o7_a_trial_ends_where_nothing_is_managed_any_more_and_nothing_else_is_written() {
    for refused in ["", ", upstreams: {servers: [{address: 10.96.0.10}]}"] {
        let mut story = Story::begun(SPEC).await;
        story.becomes("{ttlSeconds: 7, scaling: {fixed: {replicas: 2}}}");
        story.reconciled().await;
        assert!(story.canary().is_string());
        story.with_another_leader("clusterdns:test").await;
        let unmanaged =
            "{managementState: Unmanaged, ttlSeconds: 7, scaling: {fixed: {replicas: 2}}";
        story.becomes(&format!("{unmanaged}{refused}}}"));
        let theirs = Some(json!({"app": "theirs"}));
        lock(&story.cluster).edit(Kind::Service, "/spec/selector", theirs.clone());
        crate::reconcile::reconcile(&story.dns, &story.ctx, true).await.unwrap();
        assert_eq!(story.canary(), Value::Null, "{refused}");
        assert_eq!(lock(&story.cluster).get(Kind::ConfigMap, STABLE), story.stable());
        let selector = lock(&story.cluster).get(Kind::Service, "/spec/selector");
        assert_eq!(Some(selector), theirs, "{refused}");
    }
}
