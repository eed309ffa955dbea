//! What is answered from the cluster, to whom, and what the server reveals about itself.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults::{self, is_flag};

/// Names made of pod addresses, `10-244-1-11.shop.pod.<domain>` (RR50-RR55).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodRecords {
    /// `<ip>.<ns>.pod` names do not exist (RR52).
    Disabled,
    /// Any address in any visible namespace.
    #[default]
    Insecure,
    /// Only addresses of pods in that namespace; the data plane then watches Pods.
    Verified,
}

/// The name of an endpoint that has no hostname (RR23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EndpointNames {
    /// Its address, `10-244-1-31`.
    #[default]
    Address,
    /// The name of its pod, where there is one.
    PodName,
}

/// What `ns.dns.<domain>` points to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAddresses {
    /// These addresses: written in the resource, or the clusterIPs written there.
    Listed(Vec<IpAddr>),
    /// The clusterIPs of this Service, as watched.
    OfService {
        /// `metadata.namespace` of the Service.
        namespace: String,
        /// `metadata.name` of the Service.
        name: String,
    },
}

/// The name of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceName {
    /// `metadata.namespace` of the Service.
    pub namespace: String,
    /// `metadata.name` of the Service.
    pub name: String,
}

impl Default for ServiceAddresses {
    fn default() -> Self {
        Self::OfService {
            namespace: defaults::SERVICE_NAMESPACE.to_owned(),
            name: defaults::SERVICE_NAME.to_owned(),
        }
    }
}

/// Who may ask, and what they may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Access {
    /// Ranges allowed to ask (N7); empty: everyone. IPv4 clients are compared as IPv4, never IPv4-mapped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<IpNet>,
    /// Removes private addresses from answers of the default upstreams (FW43).
    #[serde(skip_serializing_if = "is_flag::<false>")]
    pub rebind_protection: bool,
}

/// What the server reveals about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// Answers the CHAOS names (A50-A55).
    #[serde(skip_serializing_if = "is_flag::<true>")]
    pub chaos: bool,
    /// Answers the NSID option (WR13).
    #[serde(skip_serializing_if = "is_flag::<true>")]
    pub nsid: bool,
}

impl Default for Identity {
    fn default() -> Self {
        Self { chaos: true, nsid: true }
    }
}
