//! The objects that should exist for one ClusterDNS, in the order in which they are applied. Pure: no Kubernetes object
//! is built anywhere else.

pub mod kind;
mod instance;
mod in_pods;
mod service_account;
mod cluster_role;
mod role;
mod config_map;
mod service;
mod disruption_budget;
mod network_policy;
mod deployment;
mod daemon_set;
mod pod_template;
mod container;
mod volumes;
mod pod_labels;
pub mod ports;
mod autoscaler;
pub mod pod_monitor;
mod prometheus_rule;
pub mod without_effect;
pub mod adopted_service;

pub use crate::names::QUERIES_PER_SECOND;
pub use container::{CONTAINER, FLAGS, LARGE_PAGES, VARIABLES};
pub use kind::Kind;
pub use pod_labels::{
    FOLLOWS_KUBE_DNS, counts_for_own_labels, labels_behind, may_select, own_labels, pod_labels,
    selects, would_join_another,
};
pub(crate) use pod_template::{default_resources, default_tolerations};
pub use service::{as_it_was, not_remembered, older_distribution, with_addresses};
pub use volumes::{CERTIFICATES, CONFIGURATION, STATE};

use crds::{ClusterDNS, Config};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::{DynamicObject, TypeMeta};
use serde::Serialize;
use serde_json::{Value, json};

use crate::decide::plan::{Plan, RolloutPlan, ServicePlan, Size};
use crate::names;
use crate::observe::observed::Observed;
use crate::settings::Settings;
use in_pods::InPods;
use instance::Instance;

/// Every object that should exist, as it is applied.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// Complete objects with apiVersion, kind, labels and owner reference, in the order of [`Kind`].
    pub objects: Vec<(Kind, DynamicObject)>,
}

impl Desired {
    /// What should exist for this ClusterDNS, whose spec means `config`.
    pub fn build(
        dns: &ClusterDNS,
        config: &Config,
        observed: &Observed,
        plan: &Plan,
        settings: &Settings,
    ) -> Desired {
        let name = dns.name_any();
        let child = names::child(&name);
        let service = dns.spec.service.clone().unwrap_or_default();
        let in_pods = InPods::of(config, &plan.rollout);
        let of = &Instance { dns, in_pods, observed, plan, settings, service, name, child };
        let objects = [
            typed(Kind::ServiceAccount, Some(service_account::service_account(of))),
            typed(Kind::ClusterRole, Some(cluster_role::cluster_role(of))),
            typed(Kind::ClusterRoleBinding, Some(cluster_role::cluster_role_binding(of))),
            typed(Kind::Role, Some(role::role(of))),
            typed(Kind::RoleBinding, Some(role::role_binding(of))),
            typed(Kind::ConfigMap, Some(config_map::config_map(of))),
            typed(Kind::Service, service::service(of)),
            typed(Kind::PodDisruptionBudget, disruption_budget::disruption_budget(of)),
            typed(Kind::NetworkPolicy, network_policy::network_policy(of)),
            typed(Kind::Deployment, deployment::deployment(of)),
            typed(Kind::DaemonSet, daemon_set::daemon_set(of)),
            typed(Kind::HorizontalPodAutoscaler, autoscaler::autoscaler(of)),
            typed(Kind::PodMonitor, pod_monitor::pod_monitor(of)),
            typed(Kind::PrometheusRule, prometheus_rule::prometheus_rule(of)),
        ];
        Desired { objects: objects.into_iter().flatten().collect() }
    }

    /// The configuration ConfigMap alone. It needs nothing of the spec but where it is.
    pub fn configuration(
        dns: &ClusterDNS,
        observed: &Observed,
        rollout: RolloutPlan,
        settings: &Settings,
    ) -> DynamicObject {
        let (service, size) = (ServicePlan::Own, Size::Replicas(0));
        let plan = &Plan { service, size, rollout, budget: false };
        let in_pods = InPods::default();
        let name = dns.name_any();
        let child = names::child(&name);
        let service = dns.spec.service.clone().unwrap_or_default();
        let of = &Instance { dns, in_pods, observed, plan, settings, service, name, child };
        object(config_map::config_map(of))
    }

    /// The object of this kind, if there should be one.
    pub fn get(&self, kind: Kind) -> Option<&DynamicObject> {
        self.objects.iter().find(|(other, _)| *other == kind).map(|(_, object)| object)
    }
}

/// One form for all, so that one loop can apply them.
fn typed(kind: Kind, wanted: Option<impl Serialize>) -> Option<(Kind, DynamicObject)> {
    Some((kind, object(wanted?)))
}

fn object(typed: impl Serialize) -> DynamicObject {
    let value = serde_json::to_value(typed).expect("a Kubernetes object is JSON");
    serde_json::from_value(value).expect("a Kubernetes object has kind and metadata")
}

/// An object whose type is not one of Kubernetes itself.
fn with_data(api_version: &str, kind: &str, metadata: ObjectMeta, spec: Value) -> DynamicObject {
    let types = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    DynamicObject { types: Some(types), metadata, data: json!({"spec": spec}) }
}
