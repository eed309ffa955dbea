//! S7: what the operator may not do with the chart's rights, as the API server sees it. That its rights are enough, and
//! that it needs each of them, is tested by `operator_rights`.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use tests::objects::wait_for;

use super::{NAMESPACE, OPERATOR, Site};

/// One verb on one resource, with or without a name, in all namespaces or one: empty is any.
pub(super) struct Right<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Right<'_> {
    pub(super) async fn is_held(&self, client: &Client, user: &str) -> bool {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": {
            "namespace": self.namespace, "group": self.group, "resource": resource, "subresource": subresource,
            "verb": self.verb, "name": self.name}}});
        let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.expect("an answer");
        review.status.expect("an answer").allowed
    }
}

#[tokio::test]
async fn s7_the_operator_is_refused_what_is_not_its_own() {
    let Some(site) = Site::start().await else { return };
    site.helm("install", &[]);
    let admin = site.plane.client().await;
    let right =
        |verb, resource, namespace, name| Right { verb, group: "", resource, namespace, name };
    wait_for("what it may", async || {
        right("patch", "services", "kube-system", "kube-dns")
            .is_held(&admin, OPERATOR)
            .await
            .then_some(())
    })
    .await;
    for (verb, group, resource, namespace, name) in [
        ("get", "", "secrets", "kube-system", ""),
        ("watch", "", "secrets", "kube-system", ""),
        ("list", "", "secrets", NAMESPACE, ""),
        ("list", "", "secrets", "kube-system", ""),
        ("create", "", "pods", "kube-system", ""),
        ("create", "", "pods/exec", "kube-system", "some"),
        ("get", "", "nodes/proxy", "", "some"),
        ("patch", "apps", "deployments", "kube-system", "coredns"),
        ("delete", "", "services", "kube-system", "metrics-server"),
        // An adopted Service is never deleted, and our own is deleted with its ClusterDNS.
        ("delete", "", "services", "kube-system", "kube-dns"),
        ("create", "apps", "deployments", "default", ""),
        ("create", "apps", "deployments", NAMESPACE, ""),
        ("list", "", "configmaps", "", ""),
        ("patch", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"),
        ("patch", "rbac.authorization.k8s.io", "clusterroles", "", "clusterdns:operator"),
        ("escalate", "rbac.authorization.k8s.io", "clusterroles", "", "clusterdns-default"),
        ("bind", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"),
        ("bind", "rbac.authorization.k8s.io", "roles", "kube-system", "clusterdns-default"),
        ("impersonate", "", "users", "", "stranger"),
        ("update", "coordination.k8s.io", "leases", NAMESPACE, "another"),
        ("update", "clusterdns.dev", "clusterdnses", "", "default"),
        ("patch", "clusterdns.dev", "clusterdnses", "", "default"),
        ("delete", "clusterdns.dev", "clusterdnses", "", "default"),
        (
            "patch",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "",
            "clusterdnses.clusterdns.dev",
        ),
    ] {
        let right = Right { verb, group, resource, namespace, name };
        let what = format!("{verb} {resource} {name} in {namespace:?}");
        assert!(!right.is_held(&admin, OPERATOR).await, "the operator may {what}");
    }
}
