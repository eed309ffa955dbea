//! Which ClusterDNS looks again when something has changed.

use std::sync::Arc;

use crds::ClusterDNS;
use futures::Stream;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use tokio::sync::Notify;

use crate::desired::Kind;
use crate::names;
use crate::observe::authorities;

/// On an EndpointSlice: whose it is.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Says that something has changed. Watches never wait for the controller, which waits for them at the start; many
/// changes are one. Every ClusterDNS then looks again: a cluster has one or a few, and a look asks nobody.
#[derive(Debug, Default)]
pub struct Triggers {
    changed: Notify,
}

impl Triggers {
    /// Something has changed that these are about, as far as they exist.
    pub fn notify(&self, all: &[Arc<ClusterDNS>], names: impl IntoIterator<Item = String>) {
        let exists = |name: String| all.iter().any(|dns| dns.metadata.name.as_ref() == Some(&name));
        if names.into_iter().any(exists) {
            self.changed.notify_one();
        }
    }

    /// For the controller.
    pub fn stream(self: Arc<Triggers>) -> impl Stream<Item = ()> + Send {
        futures::stream::unfold(self, |triggers| async {
            triggers.changed.notified().await;
            Some(((), triggers))
        })
    }
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

/// Those that something of this kind is about: its owner, and whoever refers to it.
pub fn of_child(kind: Kind, all: &[Arc<ClusterDNS>], object: &DynamicObject) -> Vec<String> {
    let metadata = object.meta();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let is_here = |dns: &ClusterDNS| names::service(dns).0 == namespace;
    let mut found = by_label(metadata);
    found.extend(match kind {
        Kind::Service => those(all, |dns| is_here(dns) && names::service(dns).1 == name),
        Kind::ConfigMap => those(all, |dns| {
            is_here(dns) && authorities::of(dns).iter().any(|(map, _)| map == name)
        }),
        Kind::PodDisruptionBudget => those(all, is_here),
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

fn those(all: &[Arc<ClusterDNS>], is_meant: impl Fn(&ClusterDNS) -> bool) -> Vec<String> {
    all.iter().filter(|dns| is_meant(dns)).map(|dns| dns.name_any()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        assert_eq!(names(Kind::ConfigMap, here("corp-ca")), ["a"]);
        assert_eq!(names(Kind::ConfigMap, here("kube-proxy")), [] as [&str; 0]);
        assert_eq!(
            names(Kind::PodDisruptionBudget, json!({"name": "x", "namespace": "dns"})),
            ["b"]
        );
        let ours = json!({"name": "clusterdns-b", "labels": {"clusterdns.dev/instance": "b"}});
        assert_eq!(names(Kind::ClusterRole, ours), ["b"]);
    }
}
