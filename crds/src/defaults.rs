//! Every default, once: the schema, serde and the configuration all name these constants.
//!
//! Numbers are `u32` (bytes `u64`) so that one generic serde function can take any of them as a const parameter.

/// Cluster domain (`Z` of the rules), without a trailing dot.
pub const DOMAIN: &str = "cluster.local";
/// TTL in seconds of records derived from Kubernetes.
pub const TTL_SECONDS: u32 = 5;
/// TTL in seconds of host records and other extra records (RR80).
pub const RECORD_TTL_SECONDS: u32 = 30;

/// Bytes of the forward cache.
pub const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// [`CACHE_BYTES`] as people write it.
pub const CACHE_MEMORY: &str = "16Mi";
/// Entries of the forward cache.
pub const CACHE_ENTRIES: u32 = 16_384;
/// Upper bound in seconds of the TTL of cached answers.
pub const MAX_TTL_SECONDS: u32 = 3_600;
/// Upper bound in seconds of the TTL of cached negative answers.
pub const MAX_NEGATIVE_TTL_SECONDS: u32 = 30;
/// How long in seconds expired answers may still be served when upstreams fail (CA40).
pub const STALE_SECONDS: u32 = 86_400;

/// Forwarded queries in progress, in all.
pub const IN_FLIGHT: u32 = 4_096;
/// Forwarded queries in progress per group of upstreams.
pub const GROUP_IN_FLIGHT: u32 = 2_048;
/// Forwarded queries in progress per client address.
pub const IN_FLIGHT_PER_CLIENT: u32 = 1_024;
/// Default of `limits.tcpConnections`, all stream transports together.
pub const TCP_CONNECTIONS: u32 = 4_096;
/// Inbound TCP connections per client address.
pub const TCP_CONNECTIONS_PER_CLIENT: u32 = 256;
/// Bytes of all TCP buffers together (WR44).
pub const TCP_BUFFER_BYTES: u64 = 32 * 1024 * 1024;
/// [`TCP_BUFFER_BYTES`] as people write it.
pub const TCP_BUFFERS: &str = "32Mi";
/// Largest UDP reply in octets, and what is advertised (RFC 9715 gives 1232).
pub const UDP_PAYLOAD_BYTES: u32 = 1_232;
/// UDP source ports that are open or were closed less than 30 s ago (FW10).
pub const UPSTREAM_PORTS: u32 = 8_192;

/// Port of DNS over UDP and TCP.
pub const DNS_PORT: u32 = 53;
/// Port of DNS over TLS (RFC 7858) and over QUIC (RFC 9250).
pub const TLS_PORT: u32 = 853;
/// Port of a reader of dnstap; none is registered, and this one is what its documentation uses.
pub const DNSTAP_PORT: u32 = 6000;
/// Port of DNS over HTTPS (RFC 8484).
pub const HTTPS_PORT: u32 = 443;
/// Path of DNS over HTTPS (RFC 8484 §4.1.1 uses it in every example).
pub const HTTPS_PATH: &str = "/dns-query";

/// Age in seconds up to which a snapshot is used at start (E41).
pub const WARM_START_MAX_AGE_SECONDS: u32 = 86_400;
/// Seconds during which everything is answered after SIGTERM (E45).
pub const DRAIN_SECONDS: u32 = 20;

/// The Service that clients ask.
pub const SERVICE_NAME: &str = "kube-dns";
/// Default of `service.namespace`, the place of kube-dns.
pub const SERVICE_NAMESPACE: &str = "kube-system";

/// Port of `/livez`, `/readyz`, `/metrics` and `/config`: the metrics port that existing kube-dns Services carry.
pub const HTTP_PORT: u32 = 9_153;
/// The key of a ConfigMap that holds certificates.
pub const CA_KEY: &str = "ca.crt";
/// Priority class of the pods.
pub const PRIORITY_CLASS: &str = "system-cluster-critical";
/// Seconds a canary is observed.
pub const OBSERVE_SECONDS: u32 = 30;
/// Seconds between two questions of a probe: the default of the sidecar of kube-dns.
pub const PROBE_SECONDS: u32 = 5;

/// Cores for which one pod is enough.
pub const CORES_PER_REPLICA: u32 = 1_024;
/// Nodes for which one pod is enough.
pub const NODES_PER_REPLICA: u32 = 64;
/// Fewest pods: one may be restarted without a gap.
pub const MIN_REPLICAS: u32 = 2;
/// Default of `scaling.proportional.maxReplicas`.
pub const MAX_REPLICAS: u32 = 32;
/// CPU in thousandths of a core that a pod should use on average when pods follow load.
pub const CPU_MILLICORES_PER_REPLICA: u32 = 300;

/// Seconds that a pod has after the drain period: to write the last snapshot, to answer what is in progress, and to close (D7).
pub const GRACE_AFTER_DRAIN_SECONDS: u32 = 10;

/// What a pod asks for and may have: (resource, request, limit).
pub const RESOURCES: [(&str, &str, Option<&str>); 2] =
    [("cpu", "50m", None), ("memory", "64Mi", Some("256Mi"))];

/// Serde: the number `N`.
pub(crate) fn number<const N: u32>() -> u32 {
    N
}

/// Serde: is it the number `N`?
pub(crate) fn is_number<const N: u32>(value: &u32) -> bool {
    *value == N
}

/// Serde: is it the number of bytes `N`?
pub(crate) fn is_bytes<const N: u64>(value: &u64) -> bool {
    *value == N
}

/// Serde: the flag `B`.
pub(crate) fn flag<const B: bool>() -> bool {
    B
}

/// Serde: is it the flag `B`?
pub(crate) fn is_flag<const B: bool>(value: &bool) -> bool {
    *value == B
}

/// Serde: is it what its type starts as?
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
