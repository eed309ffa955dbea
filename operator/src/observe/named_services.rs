//! Whose a Service is and at which addresses clients ask it: enough to see which of two ClusterDNS has it (O3). This is read from
//! the objects, so that another operator sees the same. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::names::{ADOPTED_BY, INSTANCE};

/// The Service that a ClusterDNS names, as far as it shows which ClusterDNS has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedService {
    /// uids of the ClusterDNS that own it.
    pub owners: BTreeSet<String>,
    /// The ClusterDNS to whose pods its selector leads.
    pub leads_to: Option<String>,
    /// The ClusterDNS that its annotation names.
    pub adopted_by: Option<String>,
    /// Its clusterIPs.
    pub addresses: BTreeSet<IpAddr>,
}

impl NamedService {
    pub fn of(metadata: &ObjectMeta, spec: &Value) -> NamedService {
        let listed = spec.get("clusterIPs").and_then(Value::as_array).into_iter().flatten();
        // A headless Service has the text "None" there.
        let address = |text: &Value| text.as_str()?.parse().ok();
        let owners = metadata.owner_references.iter().flatten();
        let annotations = metadata.annotations.as_ref();
        NamedService {
            owners: owners
                .filter(|owner| owner.kind == "ClusterDNS")
                .map(|owner| owner.uid.clone())
                .collect(),
            leads_to: spec
                .get("selector")
                .and_then(|selector| selector.get(INSTANCE)?.as_str())
                .map(str::to_owned),
            adopted_by: annotations.and_then(|all| all.get(ADOPTED_BY)).cloned(),
            addresses: listed.chain(spec.get("clusterIP")).filter_map(address).collect(),
        }
    }
}
