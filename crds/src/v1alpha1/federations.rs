//! Federations of kube-dns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::names::{DOMAIN_PATTERN, LABEL_PATTERN};

/// A federation of kube-dns: <service>.<namespace>.<name>.svc.<domain of the cluster> is an alias of the Service of this
/// cluster if it has ready endpoints, else of <service>.<namespace>.<name>.svc.<zone>.<region>.<domain>.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Federation {
    /// Its name, one label. Example: west.
    #[schemars(length(min = 1, max = bounds::LABEL), regex(pattern = LABEL_PATTERN))]
    pub name: String,

    /// The domain that has the Services of all its clusters; not in the cluster domain. Example: west.example.com.
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = DOMAIN_PATTERN))]
    pub domain: String,

    /// The zone of this cluster, as in the names of the domain. Default: the label topology.kubernetes.io/zone of the pod
    /// that answers, which Kubernetes 1.35 and later copies from its node. Example: us-west1-b.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::LABEL), regex(pattern = DOMAIN_PATTERN))]
    pub zone: Option<String>,

    /// The region of this cluster. Default: the label topology.kubernetes.io/region of the pod that answers.
    /// Example: us-west1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::LABEL), regex(pattern = DOMAIN_PATTERN))]
    pub region: Option<String>,
}
