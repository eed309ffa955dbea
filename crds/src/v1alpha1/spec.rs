//! The resource and the top of its spec.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;
use crate::bounds;
use crate::config::{EndpointNames, PodRecords};
use crate::defaults::{self, number};
use crate::names::DOMAIN_PATTERN;

/// ClusterDNS says what the DNS of a cluster should be: what is answered from the cluster, what is asked elsewhere, who
/// may ask, and how the service runs. An empty spec is valid: every field has a default.
#[derive(Clone, Debug, PartialEq, CustomResource, JsonSchema, Serialize, Deserialize)]
#[kube(
    group = "clusterdns.dev",
    version = "v1alpha1",
    kind = "ClusterDNS",
    plural = "clusterdnses",
    singular = "clusterdns",
    shortname = "cdns",
    category = "dns",
    status = "ClusterDNSStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The DNS of a cluster: its own names answered from memory, everything else asked elsewhere.",
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Degraded","type":"string","jsonPath":".status.conditions[?(@.type==\"Degraded\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Degraded\")].reason"}"#,
    printcolumn = r#"{"name":"Pods","type":"string","jsonPath":".status.replicas.summary"}"#,
    printcolumn = r#"{"name":"Running","type":"string","jsonPath":".status.revision.stable"}"#,
    printcolumn = r#"{"name":"Desired","type":"string","jsonPath":".status.revision.desired"}"#,
    printcolumn = r#"{"name":"Domain","type":"string","priority":1,"jsonPath":".status.domain"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Degraded\")].message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::service_name_is_immutable(), rules::service_namespace_is_immutable(), rules::hosts_in_the_cluster_domain(), rules::records_in_the_cluster_domain(), rules::stub_domains_in_the_cluster_domain(), rules::upstreams_are_not_ourselves(), rules::stub_domains_are_not_ourselves(), rules::listeners_are_not_on_the_pod_port()]))]
pub struct ClusterDNSSpec {
    /// Whether the operator acts on this resource. Managed: it creates and updates everything. Unmanaged: it writes
    /// nothing but status; the running objects stay. A trial that is in progress ends first. Default Managed.
    #[serde(default)]
    pub management_state: ManagementState,

    /// The cluster domain: names of Services end in svc.<domain>. Lower case, no trailing dot, at most 120 characters.
    /// It cannot be changed; kubelets have it in every pod's search path. Default cluster.local.
    #[serde(default = "domain")]
    #[schemars(length(min = 1, max = bounds::DOMAIN), regex(pattern = DOMAIN_PATTERN))]
    #[schemars(extend("x-kubernetes-validations" = [rules::domain_is_immutable(), rules::domain_is_not_special(), rules::domain_is_no_address()]))]
    pub domain: String,

    /// TTL in seconds of records derived from Kubernetes, 0-3600. Default 5.
    #[serde(default = "number::<{ defaults::TTL_SECONDS }>")]
    #[schemars(range(min = 0, max = bounds::TTL_SECONDS))]
    pub ttl_seconds: u32,

    /// Names made of pod addresses such as 10-244-1-11.shop.pod.cluster.local. Disabled: none. Insecure: any address in
    /// any visible namespace, as the Kubernetes DNS specification has it. Verified: only addresses of pods in that
    /// namespace; the data planes then watch Pods, which costs memory. Default Insecure.
    #[serde(default)]
    pub pod_records: PodRecords,

    /// How an endpoint without a hostname is named below its Service. Address: 10-244-1-31. PodName: the name of its pod.
    /// Default Address.
    #[serde(default)]
    pub endpoint_names: EndpointNames,

    /// A Service with a clusterIP but without ready endpoints does not exist in DNS until it has one. Default false.
    #[serde(default)]
    pub hide_empty_services: bool,

    /// Address ranges whose reverse names are answered here even when nothing is known about an address, at most 64;
    /// normally the Service and pod ranges. Host bits must be zero. Example: [10.96.0.0/16, "fd00:96::/112"]. Default none.
    #[serde(default, rename = "reverseCIDRs", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::REVERSE_CIDRS), inner(length(max = bounds::CIDR)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[schemars(extend("x-kubernetes-validations" = [rules::every_cidr_is_a_range()]))]
    pub reverse_cidrs: Option<Vec<String>>,

    /// IP addresses of ns.dns.<domain>, at most 8. Example: [10.96.0.10]. Default: service.clusterIPs, or, where these are
    /// not written, those that the Service has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::SERVICE_ADDRESSES), inner(length(max = bounds::ADDRESS)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[schemars(extend("x-kubernetes-validations" = [rules::every_address_is_an_ip()]))]
    pub service_addresses: Option<Vec<String>>,

    /// Which namespaces and Services have names. What is hidden is answered as if it did not exist. Default: everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposure: Option<Exposure>,

    /// Extra host records: names and their addresses. Pods get a change after its trial (spec.rollout). Hosts and records
    /// together: at most 4096. A list-map by name: several owners can apply their own entries. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::EXTRA_RECORDS))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub hosts: Option<Vec<Host>>,

    /// Other extra records: A, AAAA, CNAME, TXT and SRV, also of wildcards, and DNAME. A list-map by name and type. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::EXTRA_RECORDS))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "type"]))]
    pub records: Option<Vec<Record>>,

    /// Federations of kube-dns, at most 16, for clusters that used them. A list-map by name. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::FEDERATIONS))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub federations: Option<Vec<Federation>>,

    /// The servers that are asked for names that are neither ours nor below a stub domain. Default: those of the pod's
    /// /etc/resolv.conf, which are the node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstreams: Option<Upstreams>,

    /// Suffixes with servers of their own, at most 100; the longest one that matches is used, and a failure of its
    /// servers is never retried at the default upstreams. A list-map by domain. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::STUB_DOMAINS))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["domain"]))]
    pub stub_domains: Option<Vec<StubDomain>>,

    /// Bounds of the cache of what upstreams answered. Records of the cluster are never cached: they are in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,

    /// Who may ask, and which addresses are removed from answers of the default upstreams. Default: everyone, and none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,

    /// How much at once, per pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,

    /// What the server reveals about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,

    /// Listeners besides UDP and TCP port 53. Adding or removing one rolls the pods. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Listeners>,

    /// The Service that clients ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,

    /// How many pods run: at most one of fixed, proportional, ladder, load and perNode. Default: proportional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,

    /// How a changed configuration reaches the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,

    /// Starting from a snapshot on disk while the API server is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_start: Option<WarmStart>,

    /// Seconds during which a pod that was asked to stop still answers everything, 0-600. Kube-proxy needs a few seconds to
    /// stop sending it queries. Default 20.
    #[serde(default = "number::<{ defaults::DRAIN_SECONDS }>")]
    #[schemars(range(min = 0, max = bounds::DRAIN_SECONDS))]
    pub drain_seconds: u32,

    /// Where pods run, and what else is written on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,

    /// How many pods a drain may take at once. Default: one; with scaling.perNode there is no budget unless minAvailable is a
    /// number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<PodDisruptionBudget>,

    /// Compute resources of a pod. Default: requests of 50m CPU and 64Mi memory, a memory limit of 256Mi, no CPU limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<k8s_openapi::api::core::v1::ResourceRequirements>,

    /// The image of the data plane, for those who upgrade it apart from the operator. Default: the operator's own.
    /// Example: registry.example/clusterdns:0.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::IMAGE), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,

    /// What the pods log: queries, form and level of lines, dnstap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,

    /// Metrics: under which names pods show them, and what is created for Prometheus where its kinds exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,

    /// Creates a NetworkPolicy that admits DNS from everywhere, and HTTP from the namespace of the operator, from pods whose
    /// label app.kubernetes.io/name is prometheus, vmagent, alloy, grafana-agent or opentelemetry-collector, and from
    /// namespaces with the label clusterdns.dev/scrapes: "true". Kubelet reaches the pods of its own node in any case. It has
    /// no egress rules. Default false.
    #[serde(default)]
    pub network_policy: bool,
}

impl Default for ClusterDNSSpec {
    /// What an empty spec means.
    fn default() -> Self {
        Self {
            management_state: ManagementState::default(),
            domain: domain(),
            ttl_seconds: defaults::TTL_SECONDS,
            pod_records: PodRecords::default(),
            endpoint_names: EndpointNames::default(),
            hide_empty_services: false,
            reverse_cidrs: None,
            service_addresses: None,
            exposure: None,
            hosts: None,
            records: None,
            federations: None,
            upstreams: None,
            stub_domains: None,
            cache: None,
            access: None,
            limits: None,
            identity: None,
            listeners: None,
            service: None,
            scaling: None,
            rollout: None,
            warm_start: None,
            drain_seconds: defaults::DRAIN_SECONDS,
            placement: None,
            pod_disruption_budget: None,
            resources: None,
            image: None,
            logging: None,
            metrics: None,
            network_policy: false,
        }
    }
}

/// Whether the operator acts on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ManagementState {
    /// It creates and updates everything.
    #[default]
    Managed,
    /// It writes nothing but status, once a trial that is in progress has ended.
    Unmanaged,
}

fn domain() -> String {
    defaults::DOMAIN.to_owned()
}
