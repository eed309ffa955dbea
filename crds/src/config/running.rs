//! How a data plane runs: limits, listeners, snapshots, logs.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults::{self, is_bytes, is_default, is_number};

/// How much at once. Every queue and table of the data plane has its bound here or beside its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Forwarded queries in progress (FW52).
    #[serde(skip_serializing_if = "is_number::<{ defaults::IN_FLIGHT }>")]
    pub in_flight: u32,
    /// Of these, per client address.
    #[serde(skip_serializing_if = "is_number::<{ defaults::IN_FLIGHT_PER_CLIENT }>")]
    pub in_flight_per_client: u32,
    /// Most open connections over TCP, TLS, HTTPS and QUIC together.
    #[serde(skip_serializing_if = "is_number::<{ defaults::TCP_CONNECTIONS }>")]
    pub tcp_connections: u32,
    /// Of these, per client address.
    #[serde(skip_serializing_if = "is_number::<{ defaults::TCP_CONNECTIONS_PER_CLIENT }>")]
    pub tcp_connections_per_client: u32,
    /// All TCP buffers together (WR44).
    #[serde(skip_serializing_if = "is_bytes::<{ defaults::TCP_BUFFER_BYTES }>")]
    pub tcp_buffer_bytes: u64,
    /// Largest UDP reply, and what is advertised: 512-4096.
    #[serde(skip_serializing_if = "is_number::<{ defaults::UDP_PAYLOAD_BYTES }>")]
    pub udp_payload_bytes: u32,
    /// UDP source ports in use towards upstreams (FW10).
    #[serde(skip_serializing_if = "is_number::<{ defaults::UPSTREAM_PORTS }>")]
    pub upstream_ports: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight: defaults::IN_FLIGHT,
            in_flight_per_client: defaults::IN_FLIGHT_PER_CLIENT,
            tcp_connections: defaults::TCP_CONNECTIONS,
            tcp_connections_per_client: defaults::TCP_CONNECTIONS_PER_CLIENT,
            tcp_buffer_bytes: defaults::TCP_BUFFER_BYTES,
            udp_payload_bytes: defaults::UDP_PAYLOAD_BYTES,
            upstream_ports: defaults::UPSTREAM_PORTS,
        }
    }
}

/// Listeners besides UDP and TCP; absent ones are off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listeners {
    /// DNS over TLS (RFC 7858).
    #[serde(skip_serializing_if = "is_default")]
    pub tls: Option<TlsListener>,
    /// DNS over HTTPS (RFC 8484).
    #[serde(skip_serializing_if = "is_default")]
    pub https: Option<HttpsListener>,
    /// DNS over QUIC (RFC 9250).
    #[serde(skip_serializing_if = "is_default")]
    pub quic: Option<QuicListener>,
}

impl Listeners {
    /// The Secrets that listeners name; one may come more than once.
    pub fn certificates(&self) -> impl Iterator<Item = &str> {
        let Listeners { tls, https, quic } = self;
        let tls = tls.as_ref().map(|tls| tls.certificate.as_str());
        let https = https.as_ref().map(|https| https.certificate.as_str());
        let quic = quic.as_ref().map(|quic| quic.certificate.as_str());
        tls.into_iter().chain(https).chain(quic)
    }
}

/// The listener for DNS over TLS (RFC 7858).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsListener {
    /// TCP port in the pod; the default 853 is written out.
    pub port: u16,
    /// Name of the Secret (type `kubernetes.io/tls`) whose mounted copy is read, and re-read on change.
    pub certificate: String,
}

/// The listener for DNS over HTTPS (RFC 8484).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpsListener {
    /// TCP port in the pod; the default 443 is written out.
    pub port: u16,
    /// Path of the URI; the default /dns-query is written out.
    pub path: String,
    /// Name of the Secret (type `kubernetes.io/tls`) whose mounted copy is read, and re-read on change.
    pub certificate: String,
}

/// The listener for DNS over QUIC (RFC 9250).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuicListener {
    /// The port, always written; of UDP.
    pub port: u16,
    /// Name of the Secret (type `kubernetes.io/tls`) whose mounted copy is read, and re-read on change.
    pub certificate: String,
}

/// Starting from a snapshot (E40-E46).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WarmStart {
    /// Older snapshots are ignored; 0: always.
    #[serde(skip_serializing_if = "is_number::<{ defaults::WARM_START_MAX_AGE_SECONDS }>")]
    pub max_age_seconds: u32,
}

impl Default for WarmStart {
    fn default() -> Self {
        Self { max_age_seconds: defaults::WARM_START_MAX_AGE_SECONDS }
    }
}

/// Under which names metrics are shown besides our own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// Servers whose names and labels are shown as well, each once.
    pub compatibility: Vec<MetricNames>,
    /// Probes of the sidecar of kube-dns, where the list has it; empty: those of its manifests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { compatibility: vec![MetricNames::CoreDNS], probes: Vec::new() }
    }
}

/// A question that a data plane asks itself again and again, as `--probe` of the sidecar of kube-dns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// The end of `/healthcheck/<label>` and a part of the names of its metrics.
    pub label: String,
    /// The name that is asked.
    pub name: String,
    /// The type that is asked.
    #[serde(rename = "type")]
    pub qtype: ProbeType,
    /// Seconds between two questions.
    pub interval_seconds: u32,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            label: String::new(),
            name: String::new(),
            qtype: ProbeType::default(),
            interval_seconds: defaults::PROBE_SECONDS,
        }
    }
}

/// The types that the sidecar of kube-dns could ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProbeType {
    /// IPv4 addresses.
    #[default]
    A,
    /// IPv6 addresses.
    AAAA,
    /// Services.
    SRV,
    /// Any: one HINFO record (RFC 8482).
    ANY,
}

/// A DNS server whose metric names and labels we can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MetricNames {
    /// CoreDNS: `coredns_*`.
    CoreDNS,
    /// kube-dns: `skydns_*` and `kubedns_*`, and its ports 8081, 10054 and 10055.
    KubeDNS,
}

/// The query log, its form, the level of log lines, and dnstap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    /// Which queries get a line.
    #[serde(skip_serializing_if = "is_default")]
    pub queries: QueryLog,
    /// The form of a line.
    #[serde(skip_serializing_if = "is_default")]
    pub format: LogFormat,
    /// Lines of this level and above are written.
    #[serde(skip_serializing_if = "is_default")]
    pub level: LogLevel,
    /// Who reads dnstap messages; absent: none are sent.
    #[serde(skip_serializing_if = "is_default")]
    pub dnstap: Option<Dnstap>,
}

/// A reader of dnstap messages over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dnstap {
    /// IP address of the dnstap reader.
    pub ip: IpAddr,
    /// TCP port of the dnstap reader; the default is written out.
    pub port: u16,
}

/// Which queries get a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QueryLog {
    /// No query.
    #[default]
    None,
    /// Queries answered SERVFAIL, FORMERR, NOTIMP or BADVERS.
    Errors,
    /// The same and those answered REFUSED or NXDOMAIN.
    Denials,
    /// All queries.
    All,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    #[serde(rename = "JSON")]
    Json,
    /// Text for people.
    Text,
}

/// Log lines of this level and above are written.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum LogLevel {
    /// Only errors.
    Error,
    /// Errors and warnings.
    Warn,
    /// The same and state changes.
    #[default]
    Info,
    /// The same and details for debugging.
    Debug,
    /// Debug lines of libraries as well.
    Trace,
}
