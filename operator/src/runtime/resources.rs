//! Where each kind of child lives in the API.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use crate::desired::Kind;

/// Kinds that every API server has and that live in a namespace.
pub const NAMESPACED: [Kind; 10] = [
    Kind::ServiceAccount,
    Kind::Role,
    Kind::RoleBinding,
    Kind::ConfigMap,
    Kind::Service,
    Kind::PodDisruptionBudget,
    Kind::NetworkPolicy,
    Kind::Deployment,
    Kind::DaemonSet,
    Kind::HorizontalPodAutoscaler,
];

/// Kinds without a namespace.
pub const CLUSTER: [Kind; 2] = [Kind::ClusterRole, Kind::ClusterRoleBinding];

/// Kinds that exist where the Prometheus operator is installed.
pub const MONITORING: [Kind; 2] = [Kind::PodMonitor, Kind::PrometheusRule];

/// Its name, as in `kind:`.
pub const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::ServiceAccount => "ServiceAccount",
        Kind::ClusterRole => "ClusterRole",
        Kind::ClusterRoleBinding => "ClusterRoleBinding",
        Kind::Role => "Role",
        Kind::RoleBinding => "RoleBinding",
        Kind::ConfigMap => "ConfigMap",
        Kind::Service => "Service",
        Kind::PodDisruptionBudget => "PodDisruptionBudget",
        Kind::NetworkPolicy => "NetworkPolicy",
        Kind::Deployment => "Deployment",
        Kind::DaemonSet => "DaemonSet",
        Kind::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
        Kind::PodMonitor => "PodMonitor",
        Kind::PrometheusRule => "PrometheusRule",
    }
}

/// Its group, version and plural.
pub fn resource(kind: Kind) -> ApiResource {
    match kind {
        Kind::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
        Kind::ClusterRole => ApiResource::erase::<ClusterRole>(&()),
        Kind::ClusterRoleBinding => ApiResource::erase::<ClusterRoleBinding>(&()),
        Kind::Role => ApiResource::erase::<Role>(&()),
        Kind::RoleBinding => ApiResource::erase::<RoleBinding>(&()),
        Kind::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        Kind::Service => ApiResource::erase::<Service>(&()),
        Kind::PodDisruptionBudget => ApiResource::erase::<PodDisruptionBudget>(&()),
        Kind::NetworkPolicy => ApiResource::erase::<NetworkPolicy>(&()),
        Kind::Deployment => ApiResource::erase::<Deployment>(&()),
        Kind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        Kind::HorizontalPodAutoscaler => ApiResource::erase::<HorizontalPodAutoscaler>(&()),
        Kind::PodMonitor => monitoring("PodMonitor"),
        Kind::PrometheusRule => monitoring("PrometheusRule"),
    }
}

fn monitoring(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("monitoring.coreos.com", "v1", kind))
}

/// Its objects; an empty namespace: those without one.
pub fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    let resource = resource(kind);
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_api() {
        for kind in NAMESPACED.into_iter().chain(CLUSTER).chain(MONITORING) {
            assert_eq!(resource(kind).kind, name(kind));
        }
        assert_eq!(resource(Kind::PodMonitor).plural, "podmonitors");
        assert_eq!(resource(Kind::PrometheusRule).plural, "prometheusrules");
        assert_eq!(resource(Kind::NetworkPolicy).plural, "networkpolicies");
    }
}
