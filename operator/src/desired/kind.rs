//! The kinds of objects that the operator creates.

/// What we create; the order is that of application: rights before what needs them, the configuration before the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ServiceAccount,
    /// What the pods may read of the whole cluster.
    ClusterRole,
    /// Binds the ClusterRole to the pods' ServiceAccount.
    ClusterRoleBinding,
    /// The one ConfigMap the pods may read.
    Role,
    /// Binds the Role to the pods' ServiceAccount.
    RoleBinding,
    ConfigMap,
    /// What clients ask, unless it is adopted.
    Service,
    /// How many pods an eviction may take.
    PodDisruptionBudget,
    /// Who may connect to the pods.
    NetworkPolicy,
    Deployment,
    /// The pods, one per node.
    DaemonSet,
    HorizontalPodAutoscaler,
    /// Makes a Prometheus operator scrape the pods.
    PodMonitor,
    /// The alerts of docs/runbooks.
    PrometheusRule,
}
