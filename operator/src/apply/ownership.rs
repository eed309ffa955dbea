//! Whether an object of the name that we want is ours to apply. Pure.

use crds::ClusterDNS;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};

use crate::observe::{is_left_behind, is_owned};

/// Who owns an object: this ClusterDNS, one before it, or others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// It belongs to this ClusterDNS, or to a former one of the same name that was deleted without its children: we
    /// take it over.
    Ours,
    /// It belongs to a former ClusterDNS of the same name: the garbage collector is about to delete it.
    Previous,
    /// No ClusterDNS owns it.
    Theirs,
}

pub(super) fn ownership(live: &DynamicObject, dns: &ClusterDNS) -> Ownership {
    if is_owned(live, dns) {
        return Ownership::Ours;
    }
    let kind = ClusterDNS::kind(&());
    if live
        .owner_references()
        .iter()
        .any(|owner| owner.kind == kind && owner.name == dns.name_any())
    {
        return Ownership::Previous;
    }
    match is_left_behind(live, dns) {
        true => Ownership::Ours,
        false => Ownership::Theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_what_is_ours_is_applied() {
        let mut dns = ClusterDNS::default();
        (dns.metadata.name, dns.metadata.uid) = (Some("a".into()), Some("new".into()));
        let owner = |uid: &str| json!([{"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "a", "uid": uid}]);
        let labels = json!({"app.kubernetes.io/managed-by": "clusterdns-operator", "clusterdns.dev/instance": "a"});
        let case = |owners: Value, labels: &Value| {
            let object = json!({"metadata": {"name": "clusterdns-a", "ownerReferences": owners, "labels": labels}});
            ownership(&serde_json::from_value(object).unwrap(), &dns)
        };
        assert_eq!(case(owner("new"), &labels), Ownership::Ours);
        assert_eq!(case(owner("old"), &labels), Ownership::Previous);
        assert_eq!(case(json!([]), &labels), Ownership::Ours);
        assert_eq!(case(json!([]), &json!({})), Ownership::Theirs);
        let stranger = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]);
        assert_eq!(case(stranger, &labels), Ownership::Theirs);
    }
}
