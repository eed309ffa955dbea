//! The rights of the pods (S6): exactly those of the data plane's own manifests.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject,
};

use super::*;

fn rules_of(file: &str) -> Vec<PolicyRule> {
    let text = fs::read_to_string(folder("../dataplane/rbac").join(file)).unwrap();
    let role: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    serde_json::from_value(role["rules"].clone()).unwrap()
}

#[test]
fn s6_pods_have_the_rights_of_the_data_planes_manifests() {
    for needs_pods in [false, true] {
        let desired = desired(&dns("{}"), &observed(), |plan| plan.rollout.needs_pods = needs_pods);
        let mut expected = rules_of("clusterrole.yaml");
        if needs_pods {
            expected.extend(rules_of("clusterrole-verified-pods.yaml"));
        }
        let role: ClusterRole = object(&desired, Kind::ClusterRole);
        assert_eq!(role.rules, Some(expected));
    }
    let desired = desired(&dns("{}"), &observed(), |_| ());
    let mut expected = rules_of("role.yaml");
    // Theirs is called `clusterdns`; ours after its ClusterDNS.
    expected[0].resource_names = Some(vec!["clusterdns-default".to_owned()]);
    let role: Role = object(&desired, Kind::Role);
    assert_eq!(role.rules, Some(expected));
}

#[test]
fn s6_no_right_is_given_to_anyone_but_the_pods() {
    let desired = desired(&dns("{}"), &observed(), |_| ());
    let cluster: ClusterRoleBinding = object(&desired, Kind::ClusterRoleBinding);
    let namespaced: RoleBinding = object(&desired, Kind::RoleBinding);
    assert_eq!(cluster.role_ref.kind, "ClusterRole");
    assert_eq!(namespaced.role_ref.kind, "Role");
    let account = pod(&desired).service_account_name;
    for subjects in [cluster.subjects, namespaced.subjects] {
        let [subject] = &subjects.unwrap()[..] else { panic!("one subject") };
        assert_eq!(
            (subject.kind.as_str(), Some(&subject.name)),
            ("ServiceAccount", account.as_ref())
        );
        assert_eq!(subject.namespace.as_deref(), Some("kube-system"));
    }
}

#[test]
fn s6_pods_that_a_deleted_clusterdns_left_in_another_namespace_keep_their_rights() {
    let mut looked = observed();
    looked.left_in.insert("dns".to_owned());
    let desired = desired(&dns("{}"), &looked, |_| ());
    let namespaces = |subjects: Option<Vec<Subject>>| {
        let subjects = subjects.into_iter().flatten();
        subjects.map(|it| (it.name, it.namespace.unwrap_or_default())).collect::<Vec<_>>()
    };
    let account = |namespace: &str| ("clusterdns-default".to_owned(), namespace.to_owned());
    let cluster: ClusterRoleBinding = object(&desired, Kind::ClusterRoleBinding);
    assert_eq!(namespaces(cluster.subjects), [account("kube-system"), account("dns")]);
    let namespaced: RoleBinding = object(&desired, Kind::RoleBinding);
    assert_eq!(namespaces(namespaced.subjects), [account("kube-system")], "theirs is there still");
}
