//! The document that every pod runs, as the ConfigMap had it last: another client may write over it, and pods take what is
//! there at once. Lost with the process: pods that refuse what they were given still know what they run.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crds::{ClusterDNS, config};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::core::DynamicObject;

use crate::decide::config_map::{self, CANARY, ROLLOUT, STABLE};
use crate::names;
use crate::observe::{believed, is_owned};

/// Octets of all documents that are remembered: most have some kilobytes, the largest 1 MiB.
const MAX_OCTETS: usize = 8 << 20;

/// `stable.json` and `rollout.json` of one ConfigMap.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    /// uid of the ClusterDNS: another one of this name has a state of its own.
    uid: String,
    stable: String,
    rollout: String,
}

impl Known {
    fn octets(&self) -> usize {
        self.stable.len() + self.rollout.len()
    }
}

/// By the name of the ClusterDNS.
#[derive(Debug, Default)]
pub struct LastDocuments {
    kept: Mutex<HashMap<String, Known>>,
}

impl LastDocuments {
    /// The configuration ConfigMap to decide from: the one that is there, with the state that an operator wrote, which is remembered.
    /// Where another client deleted it, what is remembered. `service` is the one that it names.
    pub fn believed(
        &self,
        dns: &ClusterDNS,
        map: Option<ConfigMap>,
        service: Option<&Service>,
    ) -> Option<ConfigMap> {
        let Some(map) = map else { return self.deleted(dns) };
        let (instance, _) = whose(dns);
        let map = believed(self.with_own_state(instance, map), dns, service);
        // The one of a ClusterDNS before it is deleted with that one: the state in it must not outlive it.
        let stable = config_map::whole(Some(&map)).filter(|_| is_owned(&map, dns));
        if let Some(stable) = stable {
            let rollout = config_map::text(Some(&map), ROLLOUT).unwrap_or_default();
            self.seen(whose(dns), stable, rollout);
        }
        Some(map)
    }

    /// The ConfigMap of the ClusterDNS of this name and uid has this document and this state, and no other client wrote them.
    pub fn seen(&self, (instance, uid): (&str, &str), stable: &str, rollout: &str) {
        let mut kept = self.lock();
        let is_known = |known: &Known| {
            (&*known.uid, &*known.stable, &*known.rollout) == (uid, stable, rollout)
        };
        if kept.get(instance).is_some_and(is_known) {
            return;
        }
        kept.remove(instance);
        let octets: usize = kept.values().map(Known::octets).sum();
        if octets + stable.len() + rollout.len() > MAX_OCTETS {
            kept.clear();
        }
        let known =
            Known { uid: uid.to_owned(), stable: stable.to_owned(), rollout: rollout.to_owned() };
        kept.insert(instance.to_owned(), known);
    }

    /// The document of this revision, if it is remembered.
    pub fn of(&self, instance: &str, revision: &str) -> Option<String> {
        let kept = self.lock();
        let known = kept.get(instance).map(|known| &known.stable);
        known.filter(|text| config::revision_of(text) == revision).cloned()
    }

    /// The ConfigMap with the state that is remembered, where another client wrote `rollout.json` or removed it. A backup
    /// that is restored has a `rollout.json` that fits its `stable.json`: without this, it would be no edit, and a way
    /// around the trial. `canary.json` of that client is left out.
    pub fn with_own_state(&self, instance: &str, mut map: ConfigMap) -> ConfigMap {
        if has_own_state(&map) {
            return map;
        }
        let kept = self.lock();
        let known = kept.get(instance).filter(|known| !known.rollout.is_empty());
        let data = map.data.get_or_insert_default();
        if let Some(known) = known.filter(|known| data.get(ROLLOUT) != Some(&known.rollout)) {
            data.insert(ROLLOUT.to_owned(), known.rollout.clone());
            data.remove(CANARY);
        }
        drop(kept);
        map
    }

    /// We have just written this ConfigMap: it may be deleted before a watch shows it.
    pub fn written(&self, dns: &ClusterDNS, map: &DynamicObject) {
        let text = |key| map.data["data"][key].as_str();
        if let Some((stable, rollout)) = text(STABLE).zip(text(ROLLOUT)) {
            self.seen(whose(dns), stable, rollout);
        }
    }

    /// What is remembered of the ConfigMap of this ClusterDNS, which another client deleted: the state without the documents.
    /// What failed must not look new, and what was done to a Service must stay known.
    pub(crate) fn deleted(&self, dns: &ClusterDNS) -> Option<ConfigMap> {
        let (instance, uid) = whose(dns);
        let kept = self.lock();
        let known = kept.get(instance).filter(|known| known.uid == uid)?;
        let rollout = Some(known.rollout.clone()).filter(|rollout| !rollout.is_empty())?;
        let data = [(ROLLOUT.to_owned(), rollout)].into();
        Some(ConfigMap { data: Some(data), ..ConfigMap::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name and uid.
pub fn whose(dns: &ClusterDNS) -> (&str, &str) {
    let (name, uid) = (dns.metadata.name.as_deref(), dns.metadata.uid.as_deref());
    (name.unwrap_or_default(), uid.unwrap_or_default())
}

/// Did an operator write `rollout.json` as it is? The API server takes a field from its owner when another client changes
/// it. True where it keeps no owners.
fn has_own_state(map: &ConfigMap) -> bool {
    let owners = map.metadata.managed_fields.as_deref().unwrap_or_default();
    let is_own = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:data"));
        entry.manager.as_deref() == Some(names::FIELD_MANAGER)
            && fields.is_some_and(|data| data.get(format!("f:{ROLLOUT}")).is_some())
    };
    owners.is_empty() || owners.iter().any(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::rollout;
    use crate::fixtures::{at, deploy, dns, from};
    use crate::observe::observed::Observed;
    use serde_json::json;

    #[test]
    fn o4_the_last_document_is_known_by_its_revision_and_memory_is_bounded() {
        let documents = LastDocuments::default();
        documents.seen(("a", "u"), "one", "");
        documents.seen(("a", "u"), "two", "");
        documents.seen(("b", "u"), "three", "");
        let of = |instance: &str, text: &str| documents.of(instance, &config::revision_of(text));
        assert_eq!(of("a", "one"), None, "it was replaced");
        assert_eq!(of("a", "two").as_deref(), Some("two"));
        assert_eq!(of("a", "three"), None, "that is the one of another ClusterDNS");
        assert_eq!(documents.of("a", ""), None);
        let large = "x".repeat(MAX_OCTETS / 2);
        for name in ["c", "d", "e"] {
            documents.seen((name, "u"), &large, "{}");
        }
        let octets: usize = documents.kept.lock().unwrap().values().map(Known::octets).sum();
        assert!(octets <= MAX_OCTETS, "{octets}");
        assert_eq!(of("e", &large), Some(large.clone()));
    }

    #[test]
    fn o4_the_state_of_a_deleted_configuration_is_known_for_its_own_clusterdns() {
        let documents = LastDocuments::default();
        let mut dns = dns("{}");
        assert!(documents.deleted(&dns).is_none(), "nothing was seen");
        let state = json!({"stable": config::revision_of("{}"), "failed": "f"}).to_string();
        let map = from(json!({"metadata": {"name": "clusterdns-default"},
            "data": {"stable.json": "{}", "rollout.json": state, "canary.json": "{}"}}));
        documents.written(&dns, &map);
        let deleted = documents.deleted(&dns).unwrap();
        assert_eq!(config_map::state_in(Some(&deleted)).failed, "f");
        assert_eq!(deleted.data.map(|data| data.len()), Some(1), "documents are no state");
        assert_eq!(documents.of("default", &config::revision_of("{}")).as_deref(), Some("{}"));
        dns.metadata.uid = Some("another".to_owned());
        assert!(documents.deleted(&dns).is_none(), "it was made again with that name");
        // One whose state was not there.
        documents.seen(whose(&dns), "{}", "");
        assert!(documents.deleted(&dns).is_none());
    }

    #[test]
    fn o4_a_clusterdns_made_again_has_no_configuration_or_failure_of_the_one_before() {
        for spec in ["{ttlSeconds: 7}", "{ttlSeconds: 7, scaling: {fixed: {replicas: 1}}}"] {
            let (before, mut again) = (dns("{ttlSeconds: 5}"), dns(spec));
            again.metadata.uid = Some("another".to_owned());
            let (old, new) = (crate::fixtures::config(&before), crate::fixtures::config(&again));
            let state =
                json!({"stable": old.revision(), "failed": new.revision(), "failure": "no"});
            let map: ConfigMap = from(json!({"metadata": {"name": "clusterdns-default",
                "ownerReferences": [{"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
                    "name": "default", "uid": "dns-uid"}]},
                "data": {"stable.json": old.to_json(), "rollout.json": state.to_string()}}));
            let documents = LastDocuments::default();
            documents.believed(&before, Some(map.clone()), None);
            let failed = |map: Option<ConfigMap>| config_map::state_in(map.as_ref()).failed;
            assert_eq!(failed(documents.believed(&before, None, None)), new.revision(), "its own");
            let left = documents.believed(&again, Some(map), None);
            assert_eq!(failed(left), new.revision(), "its pods are still there");
            // The garbage collector deletes the ConfigMap.
            let config_map = documents.believed(&again, None, None);
            let stable = config_map::state_in(config_map.as_ref()).stable;
            let lost_document = documents.of("default", &stable);
            assert_eq!((&config_map, &lost_document), (&None, &None), "{spec}");
            let mut observed = Observed { config_map, lost_document, ..Observed::default() };
            deploy(&mut observed, 1);
            let plan = rollout::plan(&again, &new, &observed, at(0));
            assert_eq!((plan.stable, plan.canary), (new.to_json(), None), "{spec}");
            assert_eq!((plan.state.failed.as_str(), plan.state.failed_earlier), ("", Vec::new()));
        }
    }

    /// A ConfigMap with this document and the state that fits it. The state belongs to this client.
    fn written(by: &str, text: &str, failed: &str) -> ConfigMap {
        let state = json!({"stable": config::revision_of(text), "failed": failed}).to_string();
        from(json!({"data": {"stable.json": text, "rollout.json": state, "canary.json": "{}"},
            "metadata": {"name": "clusterdns-a", "managedFields": [
                {"manager": by, "operation": "Update", "fieldsV1": {"f:data": {"f:rollout.json": {}}}},
                {"manager": "clusterdns-operator", "operation": "Apply", "fieldsV1": {"f:metadata": {}}}]}}))
    }

    #[test]
    fn o4_a_restored_backup_of_the_whole_configuration_counts_as_an_edit() {
        let documents = LastDocuments::default();
        let read = |map: &ConfigMap| {
            let map = documents.with_own_state("a", map.clone());
            let whole = config_map::whole(Some(&map)).map(str::to_owned);
            (whole, config_map::state_in(Some(&map)))
        };
        // The first one is believed, also if a backup brought it: nothing else is known.
        let old = written("velero", "old", "new");
        assert_eq!(read(&old).0.as_deref(), Some("old"));
        let ours = written("clusterdns-operator", "new", "");
        let (whole, state) = read(&ours);
        assert_eq!(whole.as_deref(), Some("new"));
        let rollout = config_map::text(Some(&ours), ROLLOUT).unwrap_or_default();
        documents.seen(("a", "u"), "new", rollout);

        let (whole, restored) = read(&old);
        assert_eq!(
            (whole, &restored),
            (None, &state),
            "neither its document nor its failure counts"
        );
        assert_eq!(documents.of("a", &restored.stable).as_deref(), Some("new"));
        let mut without = old;
        without.data.as_mut().unwrap().remove(ROLLOUT);
        assert_eq!(read(&without), (None, state));
        assert_eq!(documents.with_own_state("a", without).data.unwrap().get(CANARY), None);
        // What an operator wrote is believed: another one may have led meanwhile.
        let later = written("clusterdns-operator", "later", "");
        assert_eq!(read(&later).0.as_deref(), Some("later"));
        let mut unknown = written("velero", "old", "");
        unknown.metadata.managed_fields = None;
        assert_eq!(read(&unknown).0.as_deref(), Some("old"), "the API server keeps no owners");
    }
}
