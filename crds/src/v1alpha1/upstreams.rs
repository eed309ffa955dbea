//! What is asked elsewhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Memory, rules};
use crate::bounds;
use crate::config::{Policy, Transport};
use crate::defaults::{self, flag, number};
use crate::names::{DNS_1123_PATTERN, TARGET_PATTERN};

/// The default servers: at most one of servers, fromResolvConf and none.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::upstreams_have_one_source()]))]
pub struct Upstreams {
    /// These servers, 1-15, in this order. Example: [{address: 10.0.0.2}].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::SERVERS))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub servers: Option<Vec<Server>>,

    /// The name servers of the pod's /etc/resolv.conf, which are the node's. The default when nothing is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_resolv_conf: Option<bool>,

    /// No server: names that are neither ours nor below a stub domain are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub none: Option<bool>,

    /// The order in which servers are asked. Random: a fresh order for every question. RoundRobin: as written, starting
    /// one later for every question. Sequential: as written; one that does not answer at all comes last. Fastest: by
    /// measured latency. Default Random.
    #[serde(default)]
    pub policy: Policy,

    /// Random case in the names that are asked over UDP, which makes forged replies harder. Default false.
    #[serde(default)]
    pub case_randomisation: bool,

    /// How much these servers are asked at once, per pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<GroupLimits>,

    /// Bounds of what is cached from these servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<GroupCache>,

    /// Record types that clients do not get from these servers, at most 8. A question for one is answered at once: NOERROR
    /// without records and without an SOA record, and Extended DNS Error 17. No server is asked. The same holds for the
    /// target of a CNAME or ExternalName. Names of the cluster, hosts and records keep theirs. A client that validates
    /// takes such an answer about a signed zone for forged. Names of types, or TYPE65534 (RFC 3597). Example: [AAAA].
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::WITHHELD_TYPES), inner(length(min = 1, max = bounds::RECORD_TYPE)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[schemars(extend("x-kubernetes-validations" = [rules::types_can_be_withheld()]))]
    pub withheld_types: Option<Vec<String>>,
}

/// A suffix with servers of its own.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::stub_domain_is_not_special(), rules::stub_domain_is_not_called_upstreams()]))]
pub struct StubDomain {
    /// The suffix, lower case without a trailing dot; not the cluster domain or below it. Example: corp.example.
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = TARGET_PATTERN))]
    pub domain: String,

    /// Its servers, 1-15, in this order. Example: [{address: 10.20.0.53}].
    #[schemars(length(min = 1, max = bounds::SERVERS))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub servers: Vec<Server>,

    /// The order in which servers are asked: Random, RoundRobin, Sequential or Fastest, as for upstreams. Default Random.
    #[serde(default)]
    pub policy: Policy,

    /// Random case in the names that are asked over UDP, which makes forged replies harder. Default false.
    #[serde(default)]
    pub case_randomisation: bool,

    /// How much these servers are asked at once, per pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<GroupLimits>,

    /// Bounds of what is cached from these servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<GroupCache>,

    /// Record types that clients do not get from these servers, at most 8, as for upstreams. Example: [AAAA]. Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::WITHHELD_TYPES), inner(length(min = 1, max = bounds::RECORD_TYPE)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[schemars(extend("x-kubernetes-validations" = [rules::types_can_be_withheld()]))]
    pub withheld_types: Option<Vec<String>>,
}

/// A DNS server that is asked.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::encrypted_server_has_a_name(), rules::clear_server_has_no_tls()]))]
pub struct Server {
    /// Its IP address; never a name, because a name would need DNS to be found. Example: 10.20.0.53.
    #[schemars(length(min = 2, max = bounds::ADDRESS))]
    #[schemars(extend("x-kubernetes-validations" = [rules::address_is_an_ip(), rules::address_is_reachable()]))]
    pub address: String,

    /// Its port, 1-65535. Default: 53 for UDP and TCP, 853 for TLS and QUIC, 443 for HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,

    /// How it is asked: UDP (TCP where a reply is truncated), TCP, TLS, HTTPS or QUIC. The encrypted ones never fall back
    /// to clear text. Default UDP.
    #[serde(default)]
    pub transport: Transport,

    /// Whom to expect there; needed for TLS, HTTPS and QUIC, and only for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
}

/// Whom to expect at a server.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerTls {
    /// The name its certificate must have. Example: dns.secure.example.
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = TARGET_PATTERN))]
    pub server_name: String,

    /// A ConfigMap in the namespace of the Service with the authorities that may have signed it, in PEM. Each server has a copy of
    /// them in the configuration, which may have 400 KiB. Default: the public authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<CaBundle>,
}

/// A key of a ConfigMap in the namespace of the Service.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaBundle {
    /// The name of the ConfigMap. Example: corp-ca.
    #[schemars(length(min = 1, max = bounds::OBJECT_NAME), regex(pattern = DNS_1123_PATTERN))]
    pub name: String,

    /// The key that holds the certificates. Default ca.crt.
    #[serde(default = "ca_key")]
    #[schemars(length(min = 1, max = bounds::OBJECT_NAME), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// How much a group of servers is asked at once.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupLimits {
    /// Forwarded queries in progress, 1-1000000; more are answered SERVFAIL at once. Never above spec.limits.inFlight. Beside other
    /// groups it gets no more than are free of that, so at most half of it. Default 2048.
    #[serde(default = "number::<{ defaults::GROUP_IN_FLIGHT }>")]
    #[schemars(range(min = 1, max = bounds::IN_FLIGHT))]
    pub in_flight: u32,
}

/// Bounds of what is cached from a group of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupCache {
    /// Upper bound in seconds of cached TTLs, those of negative answers too, 0-86400; 0 caches nothing. Never above
    /// spec.cache.maxTTLSeconds. Default: that one.
    #[serde(rename = "maxTTLSeconds", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = bounds::RECORD_TTL_SECONDS))]
    pub max_ttl_seconds: Option<u32>,
}

/// Bounds of the cache of what upstreams answered.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cache {
    /// Memory of the cache per pod, at most 64Gi; 0 is no cache. Default 16Mi.
    #[serde(default = "cache_memory")]
    #[schemars(extend("x-kubernetes-validations" = [rules::cache_memory_is_in_range()]))]
    pub memory: Memory,

    /// Entries of the cache per pod, at most 10000000; 0 is no cache. Default 16384.
    #[serde(default = "number::<{ defaults::CACHE_ENTRIES }>")]
    #[schemars(range(min = 0, max = bounds::CACHE_ENTRIES))]
    pub entries: u32,

    /// Upper bound in seconds of the TTL of cached answers, 0-86400. Negative ones have maxNegativeTTLSeconds. Default 3600.
    #[serde(rename = "maxTTLSeconds", default = "number::<{ defaults::MAX_TTL_SECONDS }>")]
    #[schemars(range(min = 0, max = bounds::RECORD_TTL_SECONDS))]
    pub max_ttl_seconds: u32,

    /// Upper bound in seconds of the TTL of cached negative answers, 0-86400. Default 30.
    #[serde(
        rename = "maxNegativeTTLSeconds",
        default = "number::<{ defaults::MAX_NEGATIVE_TTL_SECONDS }>"
    )]
    #[schemars(range(min = 0, max = bounds::RECORD_TTL_SECONDS))]
    pub max_negative_ttl_seconds: u32,

    /// Seconds for which expired answers are still served while upstreams fail, 0-604800; 0 is never. Default 86400.
    #[serde(default = "number::<{ defaults::STALE_SECONDS }>")]
    #[schemars(range(min = 0, max = bounds::WEEK_SECONDS))]
    pub stale_seconds: u32,

    /// Asks again for popular answers shortly before they expire. Default true.
    #[serde(default = "flag::<true>")]
    pub prefetch: bool,

    /// Shows at /cache of the HTTP port of each pod what the cache holds, which is what clients asked. Every client that
    /// reaches this port can read it. Default false.
    #[serde(default)]
    pub expose: bool,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            memory: cache_memory(),
            entries: defaults::CACHE_ENTRIES,
            max_ttl_seconds: defaults::MAX_TTL_SECONDS,
            max_negative_ttl_seconds: defaults::MAX_NEGATIVE_TTL_SECONDS,
            stale_seconds: defaults::STALE_SECONDS,
            prefetch: true,
            expose: false,
        }
    }
}

fn cache_memory() -> Memory {
    Memory::of(defaults::CACHE_MEMORY)
}

fn ca_key() -> String {
    defaults::CA_KEY.to_owned()
}
