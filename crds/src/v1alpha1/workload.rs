//! The Service and the pods behind it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{maps, rules};
use crate::bounds;
use crate::defaults::{self, flag};
use crate::names::{DNS_1123_PATTERN, LABEL_PATTERN};

/// The Service that clients ask.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::service_name_begins_with_a_letter()]))]
pub struct Service {
    /// Its name, with a letter first unless it is adopted. It cannot be changed. Default kube-dns, which is what kubelets and
    /// addons look for.
    #[serde(default = "service_name")]
    #[schemars(length(min = 1, max = bounds::LABEL), regex(pattern = LABEL_PATTERN))]
    pub name: String,

    /// Its namespace, and that of the pods. It cannot be changed. Default kube-system.
    #[serde(default = "service_namespace")]
    #[schemars(length(min = 1, max = bounds::LABEL), regex(pattern = LABEL_PATTERN))]
    pub namespace: String,

    /// Its clusterIPs, at most one per family. Kubelets have them as clusterDNS: those that the Service has cannot be changed,
    /// so write them before the first apply. The other family can be added behind them, and a list shorter than that of the Service takes none away.
    /// Example: [10.96.0.10]. Default: one that the API server chooses, or those of the adopted Service.
    #[serde(rename = "clusterIPs", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::CLUSTER_IPS), inner(length(max = bounds::ADDRESS)))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [rules::every_address_is_an_ip(), rules::one_cluster_ip_per_family()]))]
    pub cluster_ips: Option<Vec<String>>,

    /// Takes over a Service of that name that exists already, such as the kube-dns of another DNS server: its clusterIPs
    /// and ports stay, and it moves to our pods once they are ready. One with internalTrafficPolicy: Local is refused. If you
    /// set this to false again, the Service selects the former pods again. Default false.
    #[serde(default)]
    pub adopt: bool,

    /// The port on which pods listen for UDP and TCP, 1-65535; not 9153. Network policies match this port, so change it
    /// only where a container runtime does not allow 53. From 1024 up pods set no sysctl, so give listeners ports from 1024 up
    /// too. Default 53.
    #[serde(default = "dns_port")]
    #[schemars(range(min = 1, max = 65535))]
    #[schemars(extend("x-kubernetes-validations" = [rules::pod_port_is_free()]))]
    pub pod_port: u16,

    /// Which pods a client's queries prefer.
    // Its description is the comment of its type: values and default are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<TrafficDistribution>,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: service_name(),
            namespace: service_namespace(),
            cluster_ips: None,
            adopt: false,
            pod_port: dns_port(),
            traffic_distribution: None,
        }
    }
}

/// Which pods a client's queries prefer. PreferSameZone: ready pods in its zone, others when there is none. PreferSameNode: the
/// one on its node, then those in its zone. A hint: kube-proxy follows it, a replacement of it may not, such as Cilium without
/// loadBalancer.serviceTopology. The operator does not write it to an adopted Service: set it there yourself. Default:
/// PreferSameNode with scaling.perNode, and no preference otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub enum TrafficDistribution {
    /// Ready pods in the client's zone, others when there is none.
    PreferSameZone,
    /// The one on its node, then those in its zone.
    PreferSameNode,
}

/// Where pods run, and what else is written on them.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Spreads pods over nodes and zones, as far as there are any. It has no effect beside topologySpreadConstraints.
    /// Default true.
    #[serde(default = "flag::<true>")]
    pub topology_spread: bool,

    /// How pods are spread, as in a pod, at most 8, in place of topologySpread. One without a labelSelector gets that of our
    /// pods. It has no effect with scaling.perNode. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::SPREAD_CONSTRAINTS))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,

    /// Only nodes with these labels, at most 32, besides kubernetes.io/os: linux. Example: {pool: infra}.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = bounds::SELECTOR_ENTRIES), transform = maps::bounded_values)]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Taints that pods tolerate, at most 64; these replace CriticalAddonsOnly and the NoSchedule of control planes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::POD_ENTRIES))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Option<Vec<Toleration>>,

    /// Affinity as in a pod. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// The priority class. Default system-cluster-critical.
    #[serde(default = "priority_class")]
    #[schemars(length(min = 1, max = bounds::OBJECT_NAME), regex(pattern = DNS_1123_PATTERN))]
    pub priority_class_name: String,

    /// Labels of the pods, at most 32, besides ours; not of clusterdns.dev.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = bounds::SELECTOR_ENTRIES), transform = maps::bounded_values)]
    #[schemars(extend("x-kubernetes-validations" = [rules::labels_are_not_ours()]))]
    pub pod_labels: Option<BTreeMap<String, String>>,

    /// Annotations of the pods, at most 32. Pods of a Deployment also have cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes
    /// with the value state, unless another value is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = bounds::SELECTOR_ENTRIES), transform = maps::bounded_annotations)]
    pub pod_annotations: Option<BTreeMap<String, String>>,

    /// Secrets with which the image is pulled, at most 64. Example: [{name: registry}].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::POD_ENTRIES))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Option<Vec<LocalReference>>,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            topology_spread: true,
            topology_spread_constraints: None,
            node_selector: None,
            tolerations: None,
            affinity: None,
            priority_class_name: priority_class(),
            pod_labels: None,
            pod_annotations: None,
            image_pull_secrets: None,
        }
    }
}

/// The name of an object in the namespace of the Service.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// metadata.name of the object.
    #[schemars(length(min = 1, max = bounds::OBJECT_NAME), regex(pattern = DNS_1123_PATTERN))]
    pub name: String,
}

fn service_name() -> String {
    defaults::SERVICE_NAME.to_owned()
}

fn service_namespace() -> String {
    defaults::SERVICE_NAMESPACE.to_owned()
}

const fn dns_port() -> u16 {
    defaults::DNS_PORT as u16
}

fn priority_class() -> String {
    defaults::PRIORITY_CLASS.to_owned()
}
