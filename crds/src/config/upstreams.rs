//! Where names that are not ours are asked: default upstreams, stub domains, their servers, and the cache of their
//! answers.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults::{self, is_bytes, is_default, is_flag, is_number};
use crate::rrtype::RrType;

/// Where names go that are neither ours nor below a stub domain (A19, A20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Upstreams {
    /// To the name servers of the pod's resolv.conf (FW3).
    FromResolvConf(GroupOptions),
    /// Forward them to this group.
    Servers(Group),
    /// Forward nothing: names that are not ours get REFUSED (N15).
    None,
}

impl Default for Upstreams {
    fn default() -> Self {
        Self::FromResolvConf(GroupOptions::default())
    }
}

impl Upstreams {
    /// How the servers are used, if there are any.
    pub fn options(&self) -> Option<&GroupOptions> {
        match self {
            Self::FromResolvConf(options) => Some(options),
            Self::Servers(group) => Some(&group.options),
            Self::None => None,
        }
    }
}

/// A suffix with its own servers (A18).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StubDomain {
    /// Names at and below this domain are asked at `group` only.
    pub domain: String,
    /// The servers that are asked for them.
    pub group: Group,
}

/// The ordered servers of one route, with one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// 1-15 servers in the order of the resource, which `Sequential` follows.
    pub servers: Vec<Server>,
    /// Policy, limits and transport of the group.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: GroupOptions,
}

/// How the servers of a group are used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupOptions {
    /// The order in which they are asked (FW22).
    #[serde(skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// Random case in the names that are asked over UDP (FW14).
    #[serde(skip_serializing_if = "is_flag::<false>")]
    pub case_randomisation: bool,
    /// Most forwarded queries of this group in progress.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: GroupLimits,
    /// Bounds of the cached answers of this group, within those of the whole cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache: GroupCache,
    /// Types that the servers are never asked for; at most 8 (FW45).
    #[serde(skip_serializing_if = "is_default")]
    pub withheld_types: Vec<RrType>,
}

/// How much a group is asked at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupLimits {
    /// Forwarded queries in progress (FW52).
    #[serde(skip_serializing_if = "is_number::<{ defaults::GROUP_IN_FLIGHT }>")]
    pub in_flight: u32,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self { in_flight: defaults::GROUP_IN_FLIGHT }
    }
}

/// Bounds of the cached answers of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupCache {
    /// Upper bound of cached TTLs; absent: that of the whole cache.
    #[serde(rename = "maxTTLSeconds", skip_serializing_if = "is_default")]
    pub max_ttl_seconds: Option<u32>,
}

/// The order in which the servers of a group are asked (FW22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Policy {
    /// A fresh random order for every lookup.
    #[default]
    Random,
    /// As written, starting one later for every lookup.
    RoundRobin,
    /// In the order of `servers`; the next one when a server fails.
    Sequential,
    /// The server with the lowest smoothed latency first.
    Fastest,
}

/// A DNS server that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Its address; never a name.
    pub ip: IpAddr,
    /// Its port, always written: 53, 853 or 443 by transport when the resource has none.
    pub port: u16,
    /// UDP with TCP for truncated replies, or one stream transport.
    #[serde(default, skip_serializing_if = "is_default")]
    pub transport: Transport,
    /// Whom to expect there; present exactly for TLS, HTTPS and QUIC.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: Option<ServerTls>,
}

/// How a server is asked (FW2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Transport {
    /// UDP, and TCP where the reply is truncated.
    #[default]
    #[serde(rename = "UDP")]
    Udp,
    /// TCP only (RFC 7766); never falls back to UDP.
    #[serde(rename = "TCP")]
    Tcp,
    /// DNS over TLS only (RFC 7858); never falls back to clear text.
    #[serde(rename = "TLS")]
    Tls,
    /// DNS over HTTPS only (RFC 8484); never falls back to clear text.
    #[serde(rename = "HTTPS")]
    Https,
    /// DNS over QUIC only (RFC 9250); never falls back to clear text.
    #[serde(rename = "QUIC")]
    Quic,
}

impl Transport {
    /// The port of this transport where none is written.
    pub const fn default_port(self) -> u16 {
        let port = match self {
            Self::Udp | Self::Tcp => defaults::DNS_PORT,
            Self::Tls | Self::Quic => defaults::TLS_PORT,
            Self::Https => defaults::HTTPS_PORT,
        };
        port as u16
    }

    /// Does it need to know whom to expect?
    pub const fn is_encrypted(self) -> bool {
        match self {
            Self::Udp | Self::Tcp => false,
            Self::Tls | Self::Https | Self::Quic => true,
        }
    }
}

/// Whom to expect at a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerTls {
    /// The name its certificate must have.
    pub server_name: String,
    /// Who may have signed it; absent: the public authorities.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ca_bundle: Option<CaBundle>,
}

/// Authorities that may sign the certificate of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CaBundle {
    /// A key of a ConfigMap beside the Service. The operator replaces it by its content before a data plane reads it.
    ConfigMap {
        /// `metadata.name` of the ConfigMap.
        name: String,
        /// The key that holds the PEM text.
        key: String,
    },
    /// The PEM text itself.
    Pem(String),
}

/// Bounds of the forward cache; no memory or no entries: no cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cache {
    /// Octets of memory for all entries, at most.
    #[serde(skip_serializing_if = "is_bytes::<{ defaults::CACHE_BYTES }>")]
    pub memory_bytes: u64,
    /// Replies that are kept, at most.
    #[serde(skip_serializing_if = "is_number::<{ defaults::CACHE_ENTRIES }>")]
    pub entries: u32,
    /// Upper bound of the TTL of cached answers.
    #[serde(
        rename = "maxTTLSeconds",
        skip_serializing_if = "is_number::<{ defaults::MAX_TTL_SECONDS }>"
    )]
    pub max_ttl_seconds: u32,
    /// Upper bound of the TTL of cached negative answers.
    #[serde(
        rename = "maxNegativeTTLSeconds",
        skip_serializing_if = "is_number::<{ defaults::MAX_NEGATIVE_TTL_SECONDS }>"
    )]
    pub max_negative_ttl_seconds: u32,
    /// How long expired answers may still be served when upstreams fail; 0: never (CA40).
    #[serde(skip_serializing_if = "is_number::<{ defaults::STALE_SECONDS }>")]
    pub stale_seconds: u32,
    /// Asks again for popular answers shortly before they expire (CA30).
    #[serde(skip_serializing_if = "is_flag::<true>")]
    pub prefetch: bool,
    /// Shows what is kept at `/cache`.
    #[serde(skip_serializing_if = "is_flag::<false>")]
    pub expose: bool,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            memory_bytes: defaults::CACHE_BYTES,
            entries: defaults::CACHE_ENTRIES,
            max_ttl_seconds: defaults::MAX_TTL_SECONDS,
            max_negative_ttl_seconds: defaults::MAX_NEGATIVE_TTL_SECONDS,
            stale_seconds: defaults::STALE_SECONDS,
            prefetch: true,
            expose: false,
        }
    }
}
