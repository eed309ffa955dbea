//! What a ClusterDNS of the same name that was deleted left behind in other namespaces: its pods may serve clients there, and
//! nothing of them is taken over.

use std::collections::BTreeSet;

use crds::ClusterDNS;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Subject};
use kube::ResourceExt;
use kube::core::DynamicObject;

use super::caches::Caches;
use super::{is_left_behind, typed};
use crate::desired::Kind;
use crate::names;

/// Namespaces whose pods keep their rights: with such a workload, and with a subject of the ClusterRoleBinding that exists. Who may
/// create a Deployment in a namespace can give it our name and our labels, and gets no right by it.
pub(super) fn namespaces(caches: &Caches, dns: &ClusterDNS) -> BTreeSet<String> {
    let name = names::child(&dns.name_any());
    let binding = caches.object(Kind::ClusterRoleBinding, "", &name);
    let binding = typed::<ClusterRoleBinding>(binding).ok().flatten();
    let has_left = |(kind, namespace): &(Kind, String)| {
        let object = caches.object(*kind, namespace, &name);
        object.is_some_and(|object| keeps_rights(&object, binding.as_ref(), dns))
    };
    let places = caches.places().into_iter();
    let workloads = places.filter(|(kind, _)| matches!(kind, Kind::Deployment | Kind::DaemonSet));
    workloads.filter(has_left).map(|(_, namespace)| namespace).collect()
}

fn keeps_rights(
    workload: &DynamicObject,
    binding: Option<&ClusterRoleBinding>,
    dns: &ClusterDNS,
) -> bool {
    let Some(namespace) = workload.namespace().filter(|it| *it != names::service(dns).0) else {
        return false;
    };
    let is_its = |subject: &Subject| {
        subject.kind == "ServiceAccount"
            && subject.name == names::child(&dns.name_any())
            && subject.namespace.as_ref() == Some(&namespace)
    };
    let mut subjects = binding.iter().flat_map(|binding| binding.subjects.iter().flatten());
    is_left_behind(workload, dns) && subjects.any(is_its)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{dns, from};
    use serde_json::json;

    const OWN: &str = "clusterdns-default";

    fn binding(kind: &str, name: &str, namespace: &str) -> ClusterRoleBinding {
        let subject = |name: &str, namespace: &str| json!({"kind": kind, "name": name, "namespace": namespace});
        from(
            json!({"metadata": {"name": OWN}, "subjects": [subject(OWN, "kube-system"), subject(name, namespace)],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OWN}}),
        )
    }

    #[test]
    fn s6_a_forged_workload_of_a_deleted_clusterdns_gets_no_right() {
        let labels = json!(names::labels("default"));
        let keeps = |namespace: &str, binding: Option<&ClusterRoleBinding>| {
            let metadata = json!({"name": OWN, "namespace": namespace, "labels": labels});
            keeps_rights(&from(json!({"metadata": metadata})), binding, &dns("{}"))
        };
        let before = binding("ServiceAccount", OWN, "elsewhere");
        assert!(keeps("elsewhere", Some(&before)), "its pods had the right");
        assert!(!keeps("kube-system", Some(&before)), "there it is taken over");
        assert!(!keeps("forged", Some(&before)));
        assert!(!keeps("elsewhere", None));
        for (kind, name) in [("User", OWN), ("ServiceAccount", "other")] {
            assert!(!keeps("elsewhere", Some(&binding(kind, name, "elsewhere"))), "{kind} {name}");
        }
        let unlabelled = from(json!({"metadata": {"name": OWN, "namespace": "elsewhere"}}));
        assert!(!keeps_rights(&unlabelled, Some(&before), &dns("{}")));
    }
}
