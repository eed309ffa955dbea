//! What the operator reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

/// State of the ClusterDNS, written by the operator.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDNSStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The cluster domain that is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::DOMAIN))]
    pub domain: Option<String>,

    /// The clusterIPs of the Service.
    #[serde(default, rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = bounds::CLUSTER_IPS), inner(length(max = bounds::ADDRESS)))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_ips: Vec<String>,

    /// Content revisions of the configuration, 12 hex digits each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,

    /// Number of pods: wanted, ready, and as text for kubectl get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,

    /// Accepted: the spec is valid, and acted on while Managed. Ready: DNS answers for the clients of the Service, also if the answers are
    /// those of an earlier spec. UpToDate: every ready pod runs this spec, or the Service is given back. Progressing: the pods are
    /// on their way there. Degraded: something stands in the way, and the message says what to do. Two more are for tools that read kstatus, and
    /// there only while they are true: Stalled: it waits for a change by people. Reconciling: it is still at work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// What is wrong with the spec, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = bounds::REPORTED))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub violations: Vec<Violation>,

    /// Objects that the data planes could not serve, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = bounds::REPORTED))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub skipped_objects: Vec<SkippedObject>,
}

/// Content revisions of the configuration (a hash of its content, not the resourceVersion).
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// What the spec asks for.
    #[serde(default)]
    #[schemars(length(max = 12))]
    pub desired: String,
    /// Revision that all pods run, except for a canary.
    #[serde(default)]
    #[schemars(length(max = 12))]
    pub stable: String,
    /// What one pod tries out; empty: nothing.
    #[serde(default)]
    #[schemars(length(max = 12))]
    pub canary: String,
}

/// Pods that run for this ClusterDNS.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replicas {
    /// How many there should be.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub desired: u32,
    /// Pods whose condition Ready is True.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub ready: u32,
    /// How many run the stable revision.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub on_stable_revision: u32,
    /// Ready and desired as text. Example: 3/3.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub summary: String,
}

/// One thing that is wrong with the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// Path of the field that breaks a rule. Example: spec.stubDomains[1].domain.
    #[schemars(length(max = bounds::MESSAGE))]
    pub field: String,
    /// What kind of mistake, for programs. Example: UnderClusterDomain.
    #[schemars(length(max = bounds::LABEL))]
    pub reason: String,
    /// What is wrong and what to write instead.
    #[schemars(length(max = bounds::MESSAGE))]
    pub message: String,
}

/// An object that the data planes could not serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedObject {
    /// Kind of the object. Example: Service.
    #[schemars(length(max = bounds::LABEL))]
    pub kind: String,
    /// Its namespace; empty for kinds without.
    #[serde(default)]
    #[schemars(length(max = bounds::LABEL))]
    pub namespace: String,
    /// metadata.name of the object.
    #[schemars(length(max = bounds::OBJECT_NAME))]
    pub name: String,
    /// Why it, or a part of it, is not served.
    #[schemars(length(max = bounds::MESSAGE))]
    pub reason: String,
}
