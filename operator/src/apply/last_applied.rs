//! Objects of ours as they were applied last. While a spec is refused, or waits for a right, nothing else says how they should be.
//! Only what clients depend on is here, and no configuration: what pods run is known from the ConfigMap and from pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crds::ClusterDNS;
use kube::ResourceExt;
use kube::core::DynamicObject;

use crate::desired::Kind;
use crate::names;

/// What is kept: without it pods do not run, learn of no change, or are not reached.
pub(super) const KINDS: [Kind; 10] = [
    Kind::ServiceAccount,
    Kind::ClusterRole,
    Kind::ClusterRoleBinding,
    Kind::Role,
    Kind::RoleBinding,
    Kind::Service,
    Kind::NetworkPolicy,
    Kind::Deployment,
    Kind::DaemonSet,
    Kind::HorizontalPodAutoscaler,
];
/// Octets of all texts: those of one ClusterDNS have some 15 KiB. What does not fit is not kept.
const MAX_OCTETS: usize = 8 << 20;

/// The texts of the objects by the name of their ClusterDNS, which has one of each kind.
#[derive(Debug, Default)]
pub(super) struct Kept {
    texts: Mutex<HashMap<String, BTreeMap<Kind, String>>>,
}

impl Kept {
    /// This was applied.
    pub(super) fn applied(&self, kind: Kind, object: &DynamicObject) {
        let instance = object.labels().get(names::INSTANCE).cloned();
        let Some(instance) = instance.filter(|_| KINDS.contains(&kind)) else { return };
        let text = serde_json::to_string(object).expect("a Kubernetes object is JSON");
        let mut texts = self.lock();
        // The one before is outdated.
        texts.entry(instance.clone()).or_default().remove(&kind);
        let octets: usize = texts.values().flat_map(BTreeMap::values).map(String::len).sum();
        if octets + text.len() <= MAX_OCTETS {
            texts.entry(instance).or_default().insert(kind, text);
        }
    }

    /// This is as it was applied: it is kept where it is not yet, because people wrote it themselves meanwhile.
    pub(super) fn is_as_applied(&self, kind: Kind, object: &DynamicObject) {
        let instance = object.labels().get(names::INSTANCE);
        let has = |instance| self.lock().get(instance).is_some_and(|it| it.contains_key(&kind));
        if !instance.is_some_and(has) {
            self.applied(kind, object);
        }
    }

    /// The objects of this ClusterDNS, in the order in which they are applied. Those of one before it of the same name are not
    /// among them.
    pub(super) fn of(&self, dns: &ClusterDNS) -> Vec<(Kind, DynamicObject)> {
        let texts = self.lock();
        let all = texts.get(&dns.name_any()).into_iter().flatten();
        let objects =
            all.filter_map(|(kind, text)| Some((*kind, serde_json::from_str(text).ok()?)));
        let is_its = |object: &DynamicObject| {
            let mut owners = object.owner_references().iter();
            owners.any(|owner| Some(&owner.uid) == dns.metadata.uid.as_ref())
        };
        objects.filter(|(_, object)| is_its(object)).collect()
    }

    /// Only these kinds of it are still wanted.
    pub(super) fn retain(&self, instance: &str, is_wanted: impl Fn(Kind) -> bool) {
        if let Some(texts) = self.lock().get_mut(instance) {
            texts.retain(|kind, _| is_wanted(*kind));
        }
    }

    /// It is gone, or people write its objects themselves.
    pub(super) fn forget(&self, instance: &str) {
        self.lock().remove(instance);
    }

    pub(super) fn forget_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<Kind, String>>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{dns, from};

    fn object(instance: &str, uid: &str, filling: &str) -> DynamicObject {
        from(
            json!({"metadata": {"name": "x", "labels": {names::INSTANCE: instance}, "annotations": {"a": filling},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ClusterDNS", "name": instance, "uid": uid}]}}),
        )
    }

    fn kinds(kept: &Kept) -> Vec<Kind> {
        kept.of(&dns("{}")).into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn o4_what_was_applied_last_is_known_until_it_is_not_wanted_any_more() {
        let kept = Kept::default();
        kept.applied(Kind::Deployment, &object("default", "dns-uid", "first"));
        kept.applied(Kind::ServiceAccount, &object("default", "dns-uid", ""));
        kept.applied(Kind::Deployment, &object("default", "dns-uid", "second"));
        kept.applied(Kind::ConfigMap, &object("default", "dns-uid", ""));
        kept.applied(Kind::Role, &object("other", "dns-uid", ""));
        kept.applied(Kind::RoleBinding, &object("default", "one before", ""));
        assert_eq!(kinds(&kept), [Kind::ServiceAccount, Kind::Deployment]);
        let deployment = kept.of(&dns("{}")).remove(1).1;
        assert_eq!(deployment.annotations()["a"], "second");
        kept.retain("default", |kind| kind != Kind::Deployment);
        assert_eq!(kinds(&kept), [Kind::ServiceAccount]);
        kept.forget("default");
        assert_eq!(kinds(&kept), []);
    }

    #[test]
    fn what_is_kept_of_objects_is_bounded() {
        let (kept, large) = (Kept::default(), "x".repeat(MAX_OCTETS / 2));
        kept.applied(Kind::Role, &object("default", "dns-uid", ""));
        kept.applied(Kind::Deployment, &object("default", "dns-uid", &large));
        kept.applied(Kind::DaemonSet, &object("default", "dns-uid", &large));
        assert_eq!(kinds(&kept), [Kind::Role, Kind::Deployment], "the last does not fit");
        kept.applied(Kind::Role, &object("default", "dns-uid", &large));
        assert_eq!(kinds(&kept), [Kind::Deployment], "the former Role is outdated");
    }
}
