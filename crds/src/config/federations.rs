//! Federations of kube-dns.

use serde::{Deserialize, Serialize};

/// Where the names of a federation lead (RR95-RR97).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Federation {
    /// Its label in `<svc>.<ns>.<name>.svc.<domain>`.
    pub name: String,
    /// The domain with the Services of all its clusters.
    pub domain: String,
    /// Zone of the cluster; `None`: that of the pod's own labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Region of the cluster; `None`: that of the pod's own labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

impl Federation {
    /// Whether zone or region must come from the labels of the pod.
    pub fn needs_labels(&self) -> bool {
        self.zone.is_none() || self.region.is_none()
    }
}
