//! The part of each Kubernetes object that DNS reads (docs/dns.md §3), and nothing else:
//! fields that are not listed here are skipped while decoding and never held in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Kubernetes writes an absent list as `null` as often as it leaves it out.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    value: D,
) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// `metadata` of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: String,
    /// Its namespace; empty when not written.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// Identity over delete and re-create; absent in files.
    pub uid: Option<String>,
    /// Opaque by contract, a growing number in fact; absent in files.
    pub resource_version: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// Set once deletion was asked for.
    pub deletion_timestamp: Option<String>,
    /// When what a slice follows from changed last, RFC 3339; the only annotation that is kept.
    #[serde(rename = "annotations", deserialize_with = "last_change")]
    pub last_change: Option<String>,
}

/// Set by the slice controller.
const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Reads one annotation; the others may be a megabyte, and are passed over (K20).
fn last_change<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    struct Annotations;
    impl<'de> Visitor<'de> for Annotations {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                if key == LAST_CHANGE {
                    found = map.next_value()?;
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    value.deserialize_any(Annotations)
}

#[derive(Clone, Debug, Deserialize)]
pub struct Service {
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// ClusterIP when absent.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The first of `clusterIPs`, on its own in hand-written manifests.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    /// One or two addresses, or `None`.
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    pub cluster_ips: Vec<String>,
    /// Target of an ExternalName Service.
    pub external_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    /// Which Pods are behind it; read only to derive slices from a folder's Pods.
    #[serde(deserialize_with = "or_default")]
    pub selector: BTreeMap<String, String>,
    /// As `selector`.
    #[serde(deserialize_with = "or_default")]
    pub ip_families: Vec<String>,
    /// As `selector`: the slice controller reads it, DNS never does (RR21).
    #[serde(deserialize_with = "or_default")]
    pub publish_not_ready_addresses: bool,
}

/// One of `spec.ports` of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Absent when the only port has no name.
    pub name: Option<String>,
    /// The Service's own port.
    pub port: i64,
    /// TCP when absent.
    pub protocol: Option<String>,
    /// Port of the Pods, by number or by name; `port` when absent.
    pub target_port: Option<TargetPort>,
}

/// A number, or the name of a container port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    Number(i64),
    Name(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    #[serde(default)]
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(default)]
    pub address_type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub endpoints: Vec<SliceEndpoint>,
    /// Ports, of every endpoint alike.
    #[serde(default, deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

/// One of `endpoints` of an EndpointSlice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    /// Addresses; by convention only the first is used, we use all (RR22).
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: EndpointConditions,
    /// One label, given by the Pod's hostname and subdomain.
    pub hostname: Option<String>,
    pub target_ref: Option<ObjectReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// Absent means ready (RR20).
    pub ready: Option<bool>,
}

/// A reference to another object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ObjectReference {
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// One of `ports` of an EndpointSlice or of an Endpoints subset.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    /// Null means unnamed (RR35).
    pub name: Option<String>,
    /// Null means "all ports": gives no SRV (RR35).
    pub port: Option<i64>,
    /// Null means TCP (RR35).
    pub protocol: Option<String>,
}

/// Endpoints, the older form of EndpointSlices.
#[derive(Clone, Debug, Deserialize)]
pub struct Endpoints {
    /// Metadata; the name is that of the Service.
    #[serde(default)]
    pub metadata: Metadata,
    /// Groups of addresses that share ports.
    #[serde(default, deserialize_with = "or_default")]
    pub subsets: Vec<Subset>,
}

/// One of `subsets` of Endpoints.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// Ready addresses; the others are not decoded here.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "or_default")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

/// One address of a subset.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    #[serde(deserialize_with = "or_default")]
    pub ip: String,
    /// As [`SliceEndpoint::hostname`].
    pub hostname: Option<String>,
    /// As [`SliceEndpoint::target_ref`].
    pub target_ref: Option<ObjectReference>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Namespace {
    #[serde(default)]
    pub metadata: Metadata,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default, deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// `spec` of a Pod. All but `hostNetwork` is read only to derive slices from a folder's Pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Shares the node's address.
    #[serde(deserialize_with = "or_default")]
    pub host_network: bool,
    /// With `subdomain`, the name of its endpoint.
    #[serde(deserialize_with = "or_default")]
    pub hostname: String,
    /// Name of the headless Service that gives `hostname` its name.
    #[serde(deserialize_with = "or_default")]
    pub subdomain: String,
    /// Containers, for the names of their ports.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Sidecars may hold a port too.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
}

/// One container of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ContainerPort>,
}

/// One of `ports` of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// What a Service's `targetPort` may say.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub container_port: i64,
    /// TCP when absent.
    pub protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// The first of `podIPs`, on its own in hand-written manifests.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// One per family.
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pub pod_ips: Vec<PodIp>,
    /// Pending, Running, Succeeded, Failed or Unknown.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// Conditions; only `Ready` is read.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<PodCondition>,
}

/// One of `podIPs`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodIp {
    #[serde(deserialize_with = "or_default")]
    pub ip: String,
}

/// One of `conditions` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}
