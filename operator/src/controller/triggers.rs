//! Which ClusterDNS is enqueued when something has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crds::ClusterDNS;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::Value;
use tokio::sync::Notify;

use crate::decide::admit::claimed_ips;
use crate::desired::{Kind, may_select};
use crate::names::{self, SERVICE_NAME};
use crate::observe::ca_bundles;

/// The ClusterDNS to reconcile again. Watches never wait for the controller; many changes that concern one are one entry.
#[derive(Debug, Default)]
pub struct Triggers {
    /// Names of those that exist, so never more than there are.
    concerned: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl Triggers {
    /// Something has changed that concerns these, as far as they exist. The others are left alone: with many ClusterDNS
    /// everything that one of them writes would enqueue all.
    pub fn enqueue(&self, all: &[Arc<ClusterDNS>], names: impl IntoIterator<Item = String>) {
        let exists = |name: &String| all.iter().any(|dns| dns.metadata.name.as_ref() == Some(name));
        let mut concerned = self.concerned.lock().unwrap_or_else(PoisonError::into_inner);
        concerned.extend(names.into_iter().filter(exists));
        if !concerned.is_empty() {
            self.changed.notify_one();
        }
    }

    /// For the controller: each that is concerned, once for all changes so far.
    pub fn stream(self: Arc<Triggers>) -> impl Stream<Item = ObjectRef<ClusterDNS>> + Send {
        let batches = stream::unfold(self, |triggers| async {
            triggers.changed.notified().await;
            let batch = triggers.taken();
            Some((batch, triggers))
        });
        batches.flat_map(|batch| stream::iter(batch.into_iter().map(|name| ObjectRef::new(&name))))
    }

    fn taken(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.concerned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Those that claim the Service of this one, or one of its addresses: what it claims now decides whether they may run.
pub fn rivals(all: &[Arc<ClusterDNS>], dns: &ClusterDNS) -> Vec<String> {
    let ips = claimed_ips(dns);
    those(all, |other| {
        other.metadata.name != dns.metadata.name
            && (names::service(other) == names::service(dns)
                || !claimed_ips(other).is_disjoint(&ips))
    })
}

/// The value of a label.
pub fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The one whose name its label gives.
pub fn by_label(metadata: &ObjectMeta) -> Vec<String> {
    label(metadata, names::INSTANCE).map(str::to_owned).into_iter().collect()
}

/// Those that name the Service of this slice.
pub fn of_slice(all: &[Arc<ClusterDNS>], slice: &EndpointSlice) -> Vec<String> {
    let Some(service) = label(slice.meta(), SERVICE_NAME) else { return Vec::new() };
    let namespace = slice.meta().namespace.as_deref().unwrap_or_default();
    those(all, |dns| names::service(dns) == (namespace.to_owned(), service.to_owned()))
}

/// Those whose objects are in this namespace. Empty: all, because each one needs what has no namespace.
pub fn of_namespace(all: &[Arc<ClusterDNS>], namespace: &str) -> Vec<String> {
    those(all, |dns| namespace.is_empty() || names::service(dns).0 == namespace)
}

/// Those that an object of this kind concerns: its owner, and each ClusterDNS that refers to it.
pub fn of_child(kind: Kind, all: &[Arc<ClusterDNS>], object: &DynamicObject) -> Vec<String> {
    let metadata = object.meta();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let is_here = |dns: &ClusterDNS| names::service(dns).0 == namespace;
    let mut found = by_label(metadata);
    found.extend(match kind {
        Kind::Service => of_service(all, namespace, name, object),
        Kind::ConfigMap => {
            those(all, |dns| is_here(dns) && ca_bundles::of(dns).iter().any(|(map, _)| map == name))
        }
        Kind::PodDisruptionBudget => match match_labels(object) {
            // It selects no pod.
            None => Vec::new(),
            // Its expressions, if it has any, may select every pod.
            Some(labels) if labels.is_empty() => those(all, is_here),
            Some(labels) => those(all, |dns| is_here(dns) && may_select(dns, &labels)),
        },
        Kind::ServiceAccount
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::NetworkPolicy
        | Kind::Deployment
        | Kind::DaemonSet
        | Kind::HorizontalPodAutoscaler
        | Kind::PodMonitor
        | Kind::PrometheusRule => Vec::new(),
    });
    found
}

/// Those that name it, whose pods it would select, and those that write an address that it has: it may be free now, or
/// taken.
fn of_service(
    all: &[Arc<ClusterDNS>],
    namespace: &str,
    name: &str,
    object: &DynamicObject,
) -> Vec<String> {
    let listed = object.data.pointer("/spec/clusterIPs").and_then(|ips| ips.as_array());
    let ips: BTreeSet<IpAddr> =
        listed.into_iter().flatten().filter_map(|ip| ip.as_str()?.parse().ok()).collect();
    let selector = selector(object);
    those(all, |dns| {
        let (its_namespace, its_name) = names::service(dns);
        (its_namespace == namespace && (its_name == name || may_select(dns, &selector)))
            || !claimed_ips(dns).is_disjoint(&ips)
    })
}

/// The selector of a Service.
pub fn selector(service: &DynamicObject) -> BTreeMap<String, String> {
    texts(service, "/spec/selector")
}

/// The labels that a PodDisruptionBudget selects by, besides its expressions; none: it has no selector.
fn match_labels(budget: &DynamicObject) -> Option<BTreeMap<String, String>> {
    budget.data.pointer("/spec/selector")?.as_object()?;
    Some(texts(budget, "/spec/selector/matchLabels"))
}

fn texts(object: &DynamicObject, pointer: &str) -> BTreeMap<String, String> {
    let selector = object.data.pointer(pointer).and_then(|map| map.as_object());
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    selector.into_iter().flatten().filter_map(text).collect()
}

fn those(all: &[Arc<ClusterDNS>], is_meant: impl Fn(&ClusterDNS) -> bool) -> Vec<String> {
    all.iter().filter(|dns| is_meant(dns)).map(|dns| dns.name_any()).collect()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;

    fn dns(name: &str, spec: Value) -> Arc<ClusterDNS> {
        let document = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
            "metadata": {"name": name}, "spec": spec});
        Arc::new(serde_json::from_value(document).unwrap())
    }

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_change_reaches_whom_it_is_about() {
        let server = json!({"address": "192.0.2.1", "transport": "TLS",
            "tls": {"serverName": "dns.example", "caBundle": {"name": "corp-ca"}}});
        let all = [
            dns("a", json!({"stubDomains": [{"domain": "corp.example", "servers": [server]}]})),
            dns("b", json!({"service": {"name": "dns-b", "namespace": "dns"}})),
        ];
        let names =
            |kind, metadata: Value| of_child(kind, &all, &object(json!({"metadata": metadata})));
        let here = |name: &str| json!({"name": name, "namespace": "kube-system"});
        assert_eq!(names(Kind::Service, here("kube-dns")), ["a"]);
        assert_eq!(names(Kind::Service, here("metrics-server")), [] as [&str; 0]);
        let mut other = object(json!({"metadata": here("coredns")}));
        other.data = json!({"spec": {"selector": {"k8s-app": "kube-dns"}}});
        assert_eq!(of_child(Kind::Service, &all, &other), ["a"], "its pods would be behind it");
        other.data = json!({"spec": {"selector": {"clusterdns.dev/instance": "c"}}});
        assert_eq!(of_child(Kind::Service, &all, &other), [] as [&str; 0], "one of ours");
        assert_eq!(names(Kind::ConfigMap, here("corp-ca")), ["a"]);
        assert_eq!(names(Kind::ConfigMap, here("kube-proxy")), [] as [&str; 0]);
        let ours = json!({"name": "clusterdns-b", "labels": {"clusterdns.dev/instance": "b"}});
        assert_eq!(names(Kind::ClusterRole, ours), ["b"]);
        assert_eq!(of_namespace(&all, "dns"), ["b"]);
        assert_eq!(of_namespace(&all, ""), ["a", "b"], "each one needs what has no namespace");
    }

    #[test]
    fn o13_what_selects_the_pods_of_one_of_many_wakes_only_that_one() {
        let all: Vec<_> = (0..200).map(|n| dns(&format!("d{n}"), json!({}))).collect();
        let selector = json!({"clusterdns.dev/instance": "d7"});
        let object = |spec: Value| {
            let mut object = object(json!({"metadata": {"name": "x", "namespace": "kube-system"}}));
            object.data = json!({"spec": spec});
            object
        };
        let budget = object(json!({"selector": {"matchLabels": selector}}));
        assert_eq!(of_child(Kind::PodDisruptionBudget, &all, &budget), ["d7"]);
        let service = object(json!({"selector": selector}));
        assert_eq!(of_child(Kind::Service, &all, &service), ["d7"]);
        let of_others = object(json!({"selector": {"matchLabels": {"k8s-app": "kube-dns"}}}));
        assert_eq!(of_child(Kind::PodDisruptionBudget, &all, &of_others).len(), 200);
    }

    #[test]
    fn o13_a_budget_wakes_only_those_whose_pods_it_may_select() {
        let all = [
            dns("a", json!({})),
            dns("b", json!({"service": {"name": "dns-b"}})),
            dns(
                "c",
                json!({"service": {"name": "dns-c"}, "placement": {"podLabels": {"team": "dns"}}}),
            ),
            dns("d", json!({"service": {"namespace": "elsewhere"}})),
        ];
        let expression = json!([{"key": "k8s-app", "operator": "Exists"}]);
        for (selector, expected) in [
            (json!({"matchLabels": {"app": "web"}}), &[][..]),
            (json!({"matchLabels": {"app": "web"}, "matchExpressions": expression}), &[]),
            (json!(null), &[]),
            (json!({"matchLabels": {"k8s-app": "kube-dns"}}), &["a"]),
            (json!({"matchLabels": {"team": "dns"}}), &["c"]),
            (json!({"matchLabels": {names::MANAGED_BY: names::FIELD_MANAGER}}), &["a", "b", "c"]),
            (json!({}), &["a", "b", "c"]),
            (json!({"matchExpressions": expression}), &["a", "b", "c"]),
        ] {
            let mut budget = object(json!({"metadata": {"name": "x", "namespace": "kube-system"}}));
            budget.data = json!({"spec": {"selector": selector}});
            assert_eq!(of_child(Kind::PodDisruptionBudget, &all, &budget), expected, "{selector}");
        }
    }

    /// What the stream gives to the controller now.
    fn given(triggers: &Arc<Triggers>) -> Vec<String> {
        let mut stream = Box::pin(triggers.clone().stream());
        let mut given = Vec::new();
        // What is ready comes at the first poll.
        while let Some(Some(reference)) = stream.next().now_or_never() {
            given.push(reference.name);
        }
        given
    }

    #[test]
    fn o13_only_those_concerned_are_enqueued_and_many_changes_are_one() {
        let all: Vec<_> = (0..200).map(|n| dns(&format!("d{n}"), json!({}))).collect();
        let triggers = Arc::new(Triggers::default());
        for _ in 0..1_000 {
            triggers.enqueue(&all, ["d7".to_owned(), "d150".to_owned(), "gone".to_owned()]);
        }
        assert_eq!(given(&triggers), ["d150", "d7"]);
        assert_eq!(given(&triggers), [] as [&str; 0], "each name is taken once");
        triggers.enqueue(&all, ["gone".to_owned()]);
        assert_eq!(given(&triggers), [] as [&str; 0]);
        triggers.enqueue(&all, all.iter().map(|dns| dns.name_any()));
        assert_eq!(given(&triggers).len(), 200);
    }

    #[test]
    fn o3_those_that_claim_the_same_service_or_address_are_enqueued() {
        let all = [
            dns("a", json!({})),
            dns("b", json!({"service": {"name": "dns-b", "clusterIPs": ["10.96.0.10"]}})),
            dns("c", json!({"service": {"name": "dns-c"}})),
        ];
        assert_eq!(rivals(&all, &dns("old", json!({}))), ["a"]);
        let same_address = json!({"service": {"name": "x", "clusterIPs": ["10.96.0.10"]}});
        assert_eq!(rivals(&all, &dns("old", same_address)), ["b"]);
        assert_eq!(rivals(&all, &all[0]), [] as [&str; 0], "not itself");
        let service = object(json!({"metadata": {"name": "x", "namespace": "elsewhere"},
            "spec": {"clusterIPs": ["10.96.0.10"]}}));
        assert_eq!(of_child(Kind::Service, &all, &service), ["b"]);
    }
}
