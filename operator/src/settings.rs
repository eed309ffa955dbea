//! What the operator was started with, as far as decisions need it.

/// What the operator was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The image of the data plane where `spec.image` names none: the operator's own.
    pub dataplane_image: String,
    /// Namespaces it may manage workloads in; another `service.namespace` is `NamespaceNotManaged`.
    pub workload_namespaces: Vec<String>,
    /// Names of ClusterDNS it may manage; empty: any. Another is `NameNotManaged`.
    pub instances: Vec<String>,
    /// Its own namespace, from which it asks the pods (for the NetworkPolicy); none offline.
    pub own_namespace: Option<String>,
}
