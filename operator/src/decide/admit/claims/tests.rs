//! Who has a Service that two claim: each test asks both.

use std::sync::Arc;

use super::*;
use crate::fixtures::{dns, from};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

/// A cluster of ClusterDNS and Services.
#[derive(Default)]
struct Cluster {
    all: Vec<ClusterDNS>,
    services: Vec<Service>,
}

impl Cluster {
    /// A ClusterDNS that was created on this day, so that its age is known.
    fn with(mut self, name: &str, day: u32, spec: &str) -> Cluster {
        let mut it = dns(spec);
        let created = format!("2026-01-{day:02}T00:00:00Z");
        it.metadata.creation_timestamp = Some(from(json!(created)));
        (it.metadata.name, it.metadata.uid) = (Some(name.to_owned()), Some(format!("{name}-uid")));
        self.all.push(it);
        self
    }

    fn service(mut self, name: &str, address: &str, metadata: serde_json::Value) -> Cluster {
        let mut service: Service = from(json!({"metadata": metadata, "spec": {
            "clusterIP": address, "clusterIPs": [address], "selector": {"k8s-app": "kube-dns"}}}));
        service.metadata.name = Some(name.to_owned());
        service.metadata.namespace = Some("kube-system".to_owned());
        self.services.push(service);
        self
    }

    /// A Service that the operator made for this one.
    fn owned(self, name: &str, address: &str, by: &str) -> Cluster {
        let owner = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": by, "uid": format!("{by}-uid")});
        self.service(name, address, json!({"ownerReferences": [owner]}))
    }

    /// The last one was acted on (None), or refused for this reason.
    fn reported(mut self, refused: Option<&str>, addresses: &[&str]) -> Cluster {
        let (status, reason) = refused.map_or(("True", "Valid"), |reason| ("False", reason));
        let it = self.all.last_mut().expect("a ClusterDNS");
        it.status = Some(from(
            json!({"clusterIPs": addresses, "conditions": [{"type": "Accepted", "status": status,
            "reason": reason, "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        ));
        self
    }

    fn named(&self, dns: &ClusterDNS) -> Option<Service> {
        let (_, name) = names::service(dns);
        self.services.iter().find(|it| it.metadata.name.as_ref() == Some(&name)).cloned()
    }

    /// What this one sees.
    fn observed(&self, dns: &ClusterDNS) -> Observed {
        let others = self.all.iter().filter(|other| other.metadata.name != dns.metadata.name);
        let mut observed = Observed {
            others: others.cloned().map(Arc::new).collect(),
            service: self.named(dns),
            ..Observed::default()
        };
        for other in &self.all {
            let Some(service) = self.named(other) else { continue };
            let spec = serde_json::to_value(&service.spec).unwrap();
            let named = NamedService::of(&service.metadata, &spec);
            observed.services_of_others.insert(other.metadata.name.clone().unwrap(), named);
        }
        observed
    }

    /// The names of those that are acted on, as each of them sees it.
    fn acted_on(&self) -> Vec<String> {
        let is_free = |dns: &&ClusterDNS| are_free(dns, &self.observed(dns)).is_ok();
        self.all.iter().filter(is_free).filter_map(|dns| dns.metadata.name.clone()).collect()
    }
}

#[test]
fn o3_an_older_one_that_names_the_service_of_a_younger_one_gets_it_not() {
    let named = |spec: &str| {
        let cluster =
            Cluster::default().with("old", 1, spec).with("young", 2, "{service: {name: dns}}");
        cluster.owned("dns", "10.96.0.10", "young")
    };
    for spec in [
        "{service: {name: dns}}",
        "{service: {name: dns, adopt: true}}",
        "{service: {name: x, clusterIPs: [10.96.0.10]}}",
    ] {
        assert_eq!(named(spec).acted_on(), ["young"], "{spec}");
    }
    assert_eq!(named("{service: {name: x}}").acted_on(), ["old", "young"]);
}

#[test]
fn o3_an_adopted_service_is_kept_by_selector_and_by_annotation() {
    let both = |metadata| {
        let adopt = "{service: {adopt: true}}";
        let cluster = Cluster::default().with("old", 1, adopt).with("young", 2, adopt);
        cluster.service("kube-dns", "10.96.0.10", metadata)
    };
    assert_eq!(both(json!({})).acted_on(), ["old"], "none of them has it: the older one");
    let annotated = both(json!({"annotations": {"clusterdns.dev/adopted-by": "young"}}));
    assert_eq!(annotated.acted_on(), ["young"], "another client reset its selector");
    let mut selected = both(json!({"annotations": {"clusterdns.dev/adopted-by": "old"}}));
    let selector = selected.services[0].spec.as_mut().unwrap().selector.as_mut().unwrap();
    selector.insert(names::INSTANCE.to_owned(), "young".to_owned());
    assert_eq!(selected.acted_on(), ["young"], "its pods answer");
}

#[test]
fn o3_a_service_that_was_deleted_stays_with_the_one_that_had_it() {
    let both = |old: Option<&str>, young: Option<&str>| {
        let cluster = Cluster::default().with("old", 1, "{}").reported(old, &[]);
        cluster.with("young", 2, "{}").reported(young, &["10.96.0.10"]).acted_on()
    };
    assert_eq!(both(Some("Conflict"), None), ["young"]);
    assert_eq!(both(Some("Conflict"), Some("OutOfRange")), ["young"], "its next edit is a mistake");
    assert_eq!(both(None, Some("Conflict")), ["old"]);
    // Its namespace cannot be read, and it was edited: nothing says whether its spec is accepted.
    let cluster = Cluster::default().with("old", 1, "{}").reported(Some("Conflict"), &[]);
    let mut cluster = cluster.with("young", 2, "{}").reported(None, &["10.96.0.10"]);
    let status = cluster.all.last_mut().and_then(|it| it.status.as_mut()).expect("a status");
    status.conditions.clear();
    assert_eq!(cluster.acted_on(), ["young"]);
}

#[test]
fn o3_one_that_never_could_be_acted_on_keeps_nothing() {
    let adopt = "{service: {adopt: true}}";
    let both = |old: &str, reason, addresses: &[&str], metadata| {
        let cluster = Cluster::default().with("old", 1, old).reported(reason, addresses);
        cluster.with("young", 2, adopt).service("kube-dns", "10.96.0.10", metadata)
    };
    let refused = both("{}", Some("ServiceExists"), &[], json!({}));
    assert_eq!(refused.acted_on(), ["young"], "the Service is of others, and old adopts it not");
    let released = both("{}", None, &[], json!({}));
    assert_eq!(released.acted_on(), ["young"], "it gave the Service back");
    let leaving = json!({"annotations": {"clusterdns.dev/adopted-by": "old"}});
    assert_eq!(both("{}", None, &[], leaving).acted_on(), ["old"], "not given back yet");
    for reason in ["NameNotManaged", "NamespaceNotManaged"] {
        let unmanaged = both(adopt, Some(reason), &[], json!({}));
        assert_eq!(unmanaged.acted_on(), ["young"], "no operator runs old: {reason}");
        let neither = Cluster::default().with("old", 1, "{}").reported(Some(reason), &[]);
        assert_eq!(neither.with("young", 2, "{}").acted_on(), ["young"], "no Service: {reason}");
    }
    // Nothing shows whose a deleted Service was.
    let deleted = |addresses: &[&str]| {
        let cluster = Cluster::default().with("old", 1, "{}").reported(Some("Conflict"), &[]);
        let cluster = cluster.with("young", 2, "{}").reported(Some("OutOfRange"), addresses);
        cluster.acted_on()
    };
    assert_eq!(
        (deleted(&["10.96.0.10"]), deleted(&[])),
        (vec!["young".to_owned()], vec!["old".to_owned()])
    );
}

#[test]
fn o3_the_text_says_has_only_where_the_service_shows_it() {
    let message = |cluster: &Cluster, dns: usize| {
        are_free(&cluster.all[dns], &cluster.observed(&cluster.all[dns])).unwrap_err().message
    };
    let both = Cluster::default().with("old", 1, "{}").with("young", 2, "{}");
    let text = message(&both, 1);
    assert!(
        text.starts_with("ClusterDNS old is older and claims Service kube-system/kube-dns:"),
        "{text}"
    );
    assert!(text.contains("create it with another service.name"), "its name cannot change: {text}");
    let text = message(&both.owned("kube-dns", "10.96.0.10", "young"), 0);
    assert!(text.starts_with("ClusterDNS young has Service kube-system/kube-dns:"), "{text}");
    let waits = Cluster::default().with("old", 1, "{}").reported(Some("Conflict"), &[]);
    let text = message(&waits.with("young", 2, "{}").reported(None, &["10.96.0.10"]), 0);
    assert!(text.starts_with("ClusterDNS young claims Service kube-system/kube-dns:"), "{text}");
}

#[test]
fn o3_of_any_that_conflict_one_is_acted_on_and_no_two() {
    // Each served at the address of the next one.
    let mut circle = Cluster::default();
    for (n, next) in [(1, 2), (2, 3), (3, 1)] {
        let (name, address) = (format!("d{n}"), format!("10.96.0.{next}"));
        circle = circle.with(&name, n, &format!("{{service: {{name: dns-{n}}}}}"));
        circle = circle.reported(None, &[&address]);
        circle = circle.owned(&format!("dns-{n}"), &format!("10.96.0.{n}"), &name);
    }
    assert_eq!(circle.acted_on(), ["d1"]);
    // One that is refused itself keeps nothing from the next one.
    let chain = Cluster::default()
        .with("first", 1, "{service: {name: a, clusterIPs: [10.96.0.1]}}")
        .with("second", 2, "{service: {name: b, clusterIPs: [10.96.0.1]}}")
        .with("third", 3, "{service: {name: b}}");
    assert_eq!(chain.acted_on(), ["first", "third"]);
}

#[test]
fn o3_an_address_that_its_service_cannot_get_is_left_to_another() {
    let moved = Cluster::default()
        .with("old", 1, "{service: {name: dns, clusterIPs: [10.96.0.10]}}")
        .reported(Some("ClusterIPsDiffer"), &["10.96.0.77"])
        .with("young", 2, "{service: {name: second, clusterIPs: [10.96.0.10]}}");
    let both = ["old", "young"];
    assert_eq!(moved.acted_on(), both, "the Service of old comes back with the address before");
    let moved = moved.owned("dns", "10.96.0.77", "old");
    assert_eq!(moved.acted_on(), both);
    assert_eq!(moved.owned("second", "10.96.0.10", "young").acted_on(), both);
    let crosswise = Cluster::default()
        .with("old", 1, "{service: {name: a, clusterIPs: [10.96.0.2]}}")
        .owned("a", "10.96.0.1", "old")
        .with("young", 2, "{service: {name: b, clusterIPs: [10.96.0.1]}}")
        .owned("b", "10.96.0.2", "young");
    assert_eq!(crosswise.acted_on(), both);
    let second_family = Cluster::default()
        .with("old", 1, "{service: {name: a, clusterIPs: [10.96.0.1, \"fd00::a\"]}}")
        .owned("a", "10.96.0.1", "old")
        .with("young", 2, "{service: {name: b, clusterIPs: [\"fd00::a\"]}}");
    assert_eq!(second_family.acted_on(), ["old"], "Kubernetes can add it");
}

#[test]
fn o3_a_service_that_was_replaced_stays_with_the_one_that_served_there() {
    let replaced = |refused: Option<&str>| {
        let cluster = Cluster::default().with("old", 1, "{}").reported(refused, &["10.96.0.10"]);
        let cluster = cluster.with("young", 2, "{service: {adopt: true}}");
        let cluster = cluster.reported(Some("Conflict"), &[]);
        cluster.service("kube-dns", "10.96.0.10", json!({})).acted_on()
    };
    assert_eq!(replaced(None), ["old"], "nothing on the Service shows whose it is");
    assert_eq!(replaced(Some("ServiceReplaced")), ["young"], "it is another object");
}

#[test]
fn o3_two_owners_of_one_service_go_to_the_one_that_it_serves() {
    let mut both = Cluster::default().with("old", 1, "{}").with("young", 2, "{}");
    both = both.owned("kube-dns", "10.96.0.10", "young");
    let mut old = both.services[0].metadata.owner_references.clone().unwrap().remove(0);
    (old.name, old.uid) = ("old".to_owned(), "old-uid".to_owned());
    both.services[0].metadata.owner_references.as_mut().unwrap().push(old);
    assert_eq!(both.acted_on(), ["old"], "nothing else differs");
    let selector = both.services[0].spec.as_mut().unwrap().selector.as_mut().unwrap();
    selector.insert(names::INSTANCE.to_owned(), "young".to_owned());
    assert_eq!(both.acted_on(), ["young"]);
}

#[test]
fn o3_a_conflict_with_one_that_is_being_deleted_names_its_finalizers() {
    let mut cluster = Cluster::default().with("old", 1, "{}").with("young", 2, "{}");
    let message = |cluster: &Cluster| {
        let young = &cluster.all[1];
        are_free(young, &cluster.observed(young)).unwrap_err().message
    };
    assert!(message(&cluster).ends_with("or delete that one"), "{}", message(&cluster));
    let old = &mut cluster.all[0].metadata;
    old.deletion_timestamp = Some(from(json!("2026-01-03T00:00:00Z")));
    old.finalizers = Some(vec!["a/b".to_owned(), "c/d".to_owned()]);
    let expected = "and is being deleted, which waits for the finalizers a/b, c/d: delete this one and create it with another \
                    service.name, or wait until that one is gone";
    assert!(message(&cluster).ends_with(expected), "{}", message(&cluster));
}
