//! What the operator was started with, as far as decisions need it.

/// What the operator was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The data plane's container, as far as the cluster's administrator decides.
    pub dataplane: DataPlane,
    /// What a ClusterDNS may write into pods.
    pub allowed: Allowed,
    /// Namespaces it may manage workloads in; another `service.namespace` is `NamespaceNotManaged`.
    pub workload_namespaces: Vec<String>,
    /// Names of ClusterDNS it may manage; empty: any. Another is `NameNotManaged`.
    pub instances: Vec<String>,
    /// Its own namespace, from which it asks the pods (for the NetworkPolicy); none offline.
    pub own_namespace: Option<String>,
    /// The folder of the runbook pages as a URL, for the links of alerts; none: alerts have no link.
    pub runbooks: Option<String>,
}

/// The data plane's container, as far as the cluster's administrator decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPlane {
    /// The image where `spec.image` names none: the operator's own.
    pub image: String,
    /// When it is pulled; none: the default of the API server.
    pub pull_policy: Option<String>,
    /// Flags after our own.
    pub args: Vec<String>,
    /// Environment variables: name and value.
    pub env: Vec<(String, String)>,
}

/// What a ClusterDNS may write into pods. The right to write one must not give the other rights of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Repositories, and prefixes of repositories that end in `/`; empty: that of the data plane's image.
    pub images: Vec<String>,
    /// Label keys with a prefix, and such prefixes that end in `/`. Keys without a prefix are always allowed.
    pub pod_labels: Vec<String>,
    /// Allowed prefixes and keys of `spec.placement.podAnnotations`.
    pub pod_annotations: Vec<String>,
    /// Secrets that may be certificates of listeners without the label that allows it.
    pub certificates: Vec<String>,
}
