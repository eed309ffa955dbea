//! How a data plane runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Memory, rules};
use crate::bounds;
use crate::config::{LogFormat, LogLevel, QueryLog};
use crate::defaults::{self, flag, number};
use crate::names::DNS_1123_PATTERN;

/// How much at once, per pod.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Forwarded queries in progress, 1-1000000; more are answered SERVFAIL at once. Each group of servers has a limit of its own
    /// (limits.inFlight of spec.upstreams and of a stub domain): raise that one too. Default 4096.
    #[serde(default = "number::<{ defaults::IN_FLIGHT }>")]
    #[schemars(range(min = 1, max = bounds::IN_FLIGHT))]
    pub in_flight: u32,

    /// Forwarded queries of one client address, at most, 1-1000000. A client gets no more than are free of inFlight, and in each
    /// group no more than are free of the group's, so at most half of both. Default 1024.
    #[serde(default = "number::<{ defaults::IN_FLIGHT_PER_CLIENT }>")]
    #[schemars(range(min = 1, max = bounds::IN_FLIGHT))]
    pub in_flight_per_client: u32,

    /// Inbound connections over TCP, TLS, HTTPS and QUIC together, 1-1000000. For a new one the longest idle one is closed,
    /// else the newest of the client with the most. Default 4096.
    #[serde(default = "number::<{ defaults::TCP_CONNECTIONS }>")]
    #[schemars(range(min = 1, max = bounds::TCP_CONNECTIONS))]
    pub tcp_connections: u32,

    /// Inbound connections of one client address, at most, over all of these together, 1-1000000. Default 256.
    #[serde(default = "number::<{ defaults::TCP_CONNECTIONS_PER_CLIENT }>")]
    #[schemars(range(min = 1, max = bounds::TCP_CONNECTIONS))]
    pub tcp_connections_per_client: u32,

    /// Memory of all TCP buffers together, 1Mi-64Gi. Default 32Mi.
    #[serde(default = "tcp_buffers")]
    #[schemars(extend("x-kubernetes-validations" = [rules::tcp_buffers_are_in_range()]))]
    pub tcp_buffers: Memory,

    /// Largest UDP reply in octets, 512-4096, and what is advertised. Default 1232, which fits every path of
    /// 1280 octets.
    #[serde(default = "number::<{ defaults::UDP_PAYLOAD_BYTES }>")]
    #[schemars(range(min = bounds::UDP_PAYLOAD_MIN, max = bounds::UDP_PAYLOAD_MAX))]
    pub udp_payload_bytes: u32,

    /// UDP source ports in use towards upstreams, 1024-65535; each holds a conntrack entry of the node. Default 8192.
    #[serde(default = "number::<{ defaults::UPSTREAM_PORTS }>")]
    #[schemars(range(min = bounds::UPSTREAM_PORTS_MIN, max = bounds::UPSTREAM_PORTS))]
    pub upstream_ports: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight: defaults::IN_FLIGHT,
            in_flight_per_client: defaults::IN_FLIGHT_PER_CLIENT,
            tcp_connections: defaults::TCP_CONNECTIONS,
            tcp_connections_per_client: defaults::TCP_CONNECTIONS_PER_CLIENT,
            tcp_buffers: tcp_buffers(),
            udp_payload_bytes: defaults::UDP_PAYLOAD_BYTES,
            upstream_ports: defaults::UPSTREAM_PORTS,
        }
    }
}

/// Listeners besides UDP and TCP port 53.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::listeners_have_their_own_ports()]))]
pub struct Listeners {
    /// DNS over TLS. Default: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsListener>,

    /// DNS over HTTPS. Default: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https: Option<HttpsListener>,

    /// DNS over QUIC. Default: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic: Option<QuicListener>,
}

/// DNS over TLS.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsListener {
    /// The port, 1-65535; not 53 and not 9153. Default 853.
    #[serde(default = "tls_port")]
    #[schemars(range(min = 1, max = 65535))]
    #[schemars(extend("x-kubernetes-validations" = [rules::port_is_free()]))]
    pub port: u16,

    /// A Secret of type kubernetes.io/tls in the namespace of the Service. It is read again when it changes. While it is
    /// missing or bad, a pod keeps the last good certificate. A pod that never had a good one refuses connections to this
    /// listener; all else is served.
    pub certificate: Certificate,
}

/// DNS over HTTPS.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpsListener {
    /// The port, 1-65535; not 53 and not 9153. Default 443.
    #[serde(default = "https_port")]
    #[schemars(range(min = 1, max = 65535))]
    #[schemars(extend("x-kubernetes-validations" = [rules::port_is_free()]))]
    pub port: u16,

    /// The path, beginning with a slash. Default /dns-query.
    #[serde(default = "https_path")]
    #[schemars(length(min = 1, max = bounds::HTTPS_PATH), regex(pattern = "^/[-._~/a-zA-Z0-9]*$"))]
    pub path: String,

    /// A Secret of type kubernetes.io/tls in the namespace of the Service. It is read again when it changes. While it is
    /// missing or bad, a pod keeps the last good certificate. A pod that never had a good one refuses connections to this
    /// listener; all else is served.
    pub certificate: Certificate,
}

/// DNS over QUIC.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuicListener {
    /// The UDP port, 1-65535; not 53 and not 9153. Default 853.
    #[serde(default = "tls_port")]
    #[schemars(range(min = 1, max = 65535))]
    #[schemars(extend("x-kubernetes-validations" = [rules::port_is_free()]))]
    pub port: u16,

    /// A Secret of type kubernetes.io/tls in the namespace of the Service. It is read again when it changes. While it is
    /// missing or bad, a pod keeps the last good certificate. A pod that never had a good one refuses connections to this
    /// listener; all else is served.
    pub certificate: Certificate,
}

/// A Secret of type kubernetes.io/tls in the namespace of the Service.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Name of the Secret. Example: dns-tls.
    #[schemars(length(min = 1, max = bounds::OBJECT_NAME), regex(pattern = DNS_1123_PATTERN))]
    pub name: String,
}

/// How a changed configuration reaches the pods.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Gives a changed configuration to one pod first, watches how it answers, and takes it back when it answers worse
    /// than the others. A canary needs two ready pods. Default true.
    #[serde(default = "flag::<true>")]
    pub canary: bool,

    /// Seconds the canary is watched, 5-3600. A trial in progress keeps the number that it began with. Default 30.
    #[serde(default = "number::<{ defaults::OBSERVE_SECONDS }>")]
    #[schemars(range(min = bounds::OBSERVE_SECONDS_MIN, max = bounds::OBSERVE_SECONDS_MAX))]
    pub observe_seconds: u32,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { canary: true, observe_seconds: defaults::OBSERVE_SECONDS }
    }
}

/// Starting from a snapshot on disk.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WarmStart {
    /// Age in seconds up to which a snapshot is used, 0-604800; 0 is never. Default 86400.
    #[serde(default = "number::<{ defaults::WARM_START_MAX_AGE_SECONDS }>")]
    #[schemars(range(min = 0, max = bounds::WEEK_SECONDS))]
    pub max_age_seconds: u32,
}

impl Default for WarmStart {
    fn default() -> Self {
        Self { max_age_seconds: defaults::WARM_START_MAX_AGE_SECONDS }
    }
}

/// What the pods log: queries, form and level of lines, dnstap.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Logging {
    /// Which queries get a line: None, Errors (SERVFAIL, FORMERR, NOTIMP, BADVERS), Denials (these, REFUSED and
    /// NXDOMAIN) or All. These lines are always JSON, on standard output. Default None.
    #[serde(default)]
    pub queries: QueryLog,

    /// The form of all other lines, on standard error: JSON or Text. It changes without a restart. Default JSON.
    #[serde(default)]
    pub format: LogFormat,

    /// Which lines are written: Error, Warn (errors and warnings), Info (the same and state changes), Debug (the same and
    /// details) or Trace (everything). It changes without a restart. Default Info.
    #[serde(default)]
    pub level: LogLevel,

    /// Sends every query and reply, of clients and to upstreams, as dnstap messages to a reader. It shows what every
    /// client asks. Default: none are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dnstap: Option<Dnstap>,
}

/// A reader of dnstap messages (Frame Streams over TCP). Messages that it does not take in time are lost and counted.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dnstap {
    /// Its IP address; never a name, because a name would need DNS to be found. Example: 10.20.0.60.
    #[schemars(length(min = 2, max = bounds::ADDRESS))]
    #[schemars(extend("x-kubernetes-validations" = [rules::address_is_an_ip(), rules::address_is_reachable()]))]
    pub address: String,

    /// Its TCP port, 1-65535. Default 6000.
    #[serde(default = "dnstap_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

fn tcp_buffers() -> Memory {
    Memory::of(defaults::TCP_BUFFERS)
}

const fn tls_port() -> u16 {
    defaults::TLS_PORT as u16
}

const fn dnstap_port() -> u16 {
    defaults::DNSTAP_PORT as u16
}

const fn https_port() -> u16 {
    defaults::HTTPS_PORT as u16
}

fn https_path() -> String {
    defaults::HTTPS_PATH.to_owned()
}
