//! Every bound of what people write, once: the schema, the CEL rules and the checks all name these constants.
//!
//! A bound says what a field may be at most. What it is if it is not written is the constant of `defaults` with the same
//! name, where there is one: `bounds::CACHE_ENTRIES` is 10 million, `defaults::CACHE_ENTRIES` 16,384.
//!
//! Bounds on lists and strings also keep the CEL rules within the API server's cost budget (10 million units a rule).

/// Octets of `metadata.name`: children are called `clusterdns-<name>-...` and names of Services end at 63.
pub const NAME: usize = 40;
/// The one `metadata.name` that is reserved: its children would be called `clusterdns-operator`, as the operator's own.
pub const RESERVED_NAME: &str = "operator";
/// Octets of the cluster domain: leaves 133 of 253 to `_port._proto.service.namespace.svc.`, which has up to 155. No
/// known cluster has a domain that is nearly as long; below such a domain, the longest names would have no SRV
/// record.
pub const DOMAIN: usize = 120;
/// Octets of a domain name as text without a trailing dot; 255 on the wire (RFC 1035 §3.1).
pub const DOMAIN_NAME: usize = 253;
/// Octets of a label (RFC 1035 §3.1), of a Kubernetes namespace or Service name, of a label value.
pub const LABEL: usize = 63;
/// Octets of the name of an object that may have dots.
pub const OBJECT_NAME: usize = 253;
/// Octets of a label key: a prefix of 253, a slash, a name of 63.
pub const LABEL_KEY: usize = 317;
/// Octets of an IP address as text: eight groups of four digits. IPv4-mapped ones would be longer and are refused.
pub const ADDRESS: usize = 39;
/// Octets of an address range as text.
pub const CIDR: usize = 43;
/// Octets of a quantity as text.
pub const QUANTITY: usize = 16;
/// Octets of an image reference.
pub const IMAGE: usize = 512;

/// Seconds of the TTL of records derived from Kubernetes.
pub const TTL_SECONDS: u32 = 3_600;
/// Seconds of the TTL of extra records (RR80), and of anything cached.
pub const RECORD_TTL_SECONDS: u32 = 86_400;
/// Seconds of a week: stale answers, snapshots.
pub const WEEK_SECONDS: u32 = 604_800;

/// Servers whose metric names are shown.
pub const METRIC_NAMES: usize = 4;
/// Most entries of `metrics.probes`: each asks a question every few seconds and has metrics of its own.
pub const PROBES: usize = 8;
/// The ports of kube-dns that pods serve where `metrics.compatibility` has KubeDNS.
pub const KUBE_DNS_PORTS: [u16; 3] = [8_081, 10_054, 10_055];
/// Most entries of `reverseCIDRs` (A2).
pub const REVERSE_CIDRS: usize = 64;
/// Most addresses of `ns.dns.<domain>` (`serviceAddresses.fixed`).
pub const SERVICE_ADDRESSES: usize = 8;
/// ClusterIPs of a Service: one per family.
pub const CLUSTER_IPS: usize = 2;
/// Most entries of `access.clients`.
pub const CLIENTS: usize = 256;
/// Most namespaces in `exposure.namespaces`.
pub const NAMESPACES: usize = 1_024;
/// Entries of a label selector, of a node selector.
pub const SELECTOR_ENTRIES: usize = 32;
/// Values of one requirement of a label selector.
pub const SELECTOR_VALUES: usize = 64;

/// Extra records, hosts and others together.
pub const EXTRA_RECORDS: usize = 4_096;
/// Addresses of one owner (RR76), services of one SRV RRset (RR78).
pub const RECORD_ADDRESSES: usize = 64;
/// Character-strings of one TXT record (RR78).
pub const TEXT_STRINGS: usize = 16;
/// Octets of a character-string (RFC 1035 §3.3).
pub const TEXT_OCTETS: usize = 255;

/// Most entries of `federations` (RR95): clusters had one or a few, and all are compared for a name that Kubernetes lacks.
pub const FEDERATIONS: usize = 16;

/// Most entries of `stubDomains` (A31).
pub const STUB_DOMAINS: usize = 100;
/// Servers of a group (A34).
pub const SERVERS: usize = 15;
/// Types that a group withholds (FW45): clusters withhold one or two, and each question that is forwarded is compared with all.
pub const WITHHELD_TYPES: usize = 8;
/// Octets of a record type as text: `TYPE65535`.
pub const RECORD_TYPE: usize = 9;

/// Largest `limits.inFlight`, in queries.
pub const IN_FLIGHT: u32 = 1_000_000;
/// Highest `limits.tcpConnections`: inbound connections at a time.
pub const TCP_CONNECTIONS: u32 = 1_000_000;
/// UDP source ports: at most one address has.
pub const UPSTREAM_PORTS: u32 = 65_535;
/// Smallest number of UDP source ports (FW10 draws among at least 1,024).
pub const UPSTREAM_PORTS_MIN: u32 = 1_024;
/// Octets of a UDP reply: smallest (RFC 1035) and largest.
pub const UDP_PAYLOAD_MIN: u32 = 512;
/// See [`UDP_PAYLOAD_MIN`].
pub const UDP_PAYLOAD_MAX: u32 = 4_096;
/// Entries of the forward cache.
pub const CACHE_ENTRIES: u32 = 10_000_000;
/// Bytes of the forward cache, and of the TCP buffers.
pub const MEMORY_BYTES: u64 = 64 * 1024 * 1024 * 1024;
/// Smallest bytes of the TCP buffers: one message of 64 KiB each way for a handful of connections.
pub const TCP_BUFFERS_MIN: u64 = 1024 * 1024;
/// Octets of the path of DNS over HTTPS.
pub const HTTPS_PATH: usize = 128;

/// Seconds of the drain period.
pub const DRAIN_SECONDS: u32 = 600;
/// Seconds a canary is observed: least.
pub const OBSERVE_SECONDS_MIN: u32 = 5;
/// Seconds a canary is observed: most.
pub const OBSERVE_SECONDS_MAX: u32 = 3_600;
/// Most pods of one ClusterDNS: `scaling.fixed.replicas`, maxReplicas, rows of the ladders.
pub const REPLICAS: u32 = 1_000;
/// Cores, nodes, queries per second in a scaling rule.
pub const SCALE: u32 = 10_000_000;
/// Steps of `scaling.ladder`, by nodes and by cores each.
pub const LADDER_STEPS: usize = 64;
/// Pod labels, pod annotations, tolerations, pull secrets.
pub const POD_ENTRIES: usize = 64;
/// Constraints on how pods are spread.
pub const SPREAD_CONSTRAINTS: usize = 8;
/// Longest `metrics.intervalSeconds`, in seconds.
pub const SCRAPE_SECONDS: u32 = 3_600;
/// Octets of one annotation value.
pub const ANNOTATION: usize = 4_096;

/// Violations, and skipped objects, listed in a status.
pub const REPORTED: usize = 20;
/// Octets of a message in a status, and of a field path.
pub const MESSAGE: usize = 1_024;
/// Bytes of a configuration as JSON, before certificates are copied in: a ConfigMap holds 1 MiB and carries two.
pub const CONFIG_BYTES: usize = 400 * 1024;
