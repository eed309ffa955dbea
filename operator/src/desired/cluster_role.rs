//! What the pods read of the whole cluster (S6): no Secret, and nothing is written. Pods only while a configuration that
//! is out or on its way has verified pod records.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};

use super::instance::Instance;

pub(super) fn cluster_role(of: &Instance<'_>) -> ClusterRole {
    let mut rules = vec![
        watch("", &["services", "namespaces"]),
        watch("discovery.k8s.io", &["endpointslices"]),
    ];
    if of.plan.rollout.needs_pods {
        rules.push(watch("", &["pods"]));
    }
    ClusterRole { metadata: of.cluster_metadata(), rules: Some(rules), ..ClusterRole::default() }
}

/// It has no namespace, so it is taken over from a deleted ClusterDNS of this name also where that one had another namespace. Its
/// pods may serve clients there, and keep their rights until their workload is deleted.
pub(super) fn cluster_role_binding(of: &Instance<'_>) -> ClusterRoleBinding {
    let left = of.observed.left_in.iter();
    let left = left.map(|there| Subject { namespace: Some(there.clone()), ..the_pods(of) });
    ClusterRoleBinding {
        metadata: of.cluster_metadata(),
        role_ref: role_ref("ClusterRole", of),
        subjects: Some(std::iter::once(the_pods(of)).chain(left).collect()),
    }
}

/// What a binding binds to.
pub(super) fn role_ref(kind: &str, of: &Instance<'_>) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: of.child.clone(),
    }
}

/// The ServiceAccount of the data plane's pods, as a subject.
pub(super) fn the_pods(of: &Instance<'_>) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: of.child.clone(),
        namespace: Some(of.namespace().to_owned()),
        api_group: None,
    }
}

fn watch(group: &str, resources: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(|name| (*name).to_owned()).collect()),
        verbs: vec!["list".to_owned(), "watch".to_owned()],
        ..PolicyRule::default()
    }
}
