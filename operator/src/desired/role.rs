//! The one ConfigMap that the pods read. List and watch are narrowed by name only for requests with a field selector,
//! as the data plane's are.

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};

use super::cluster_role::{role_ref, the_pods};
use super::instance::Instance;

pub(super) fn role(of: &Instance<'_>) -> Role {
    let configuration = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".to_owned()]),
        resource_names: Some(vec![of.child.clone()]),
        verbs: ["get", "list", "watch"].map(str::to_owned).to_vec(),
        non_resource_urls: None,
    };
    Role { metadata: of.metadata(), rules: Some(vec![configuration]) }
}

pub(super) fn role_binding(of: &Instance<'_>) -> RoleBinding {
    RoleBinding {
        metadata: of.metadata(),
        role_ref: role_ref("Role", of),
        subjects: Some(vec![the_pods(of)]),
    }
}
