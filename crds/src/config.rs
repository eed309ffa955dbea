//! [`Config`]: what a data plane runs. Typed, versioned, with a content revision; written as JSON, never as a text
//! template.
//!
//! Names are lower case without a trailing dot. Fields at their default are left out when written, so that a new version
//! of the software alone keeps the revision.

mod answers;
mod exposure;
mod records;
mod upstreams;
mod federations;
mod running;

pub use answers::{Access, EndpointNames, Identity, PodRecords, ServiceAddresses, ServiceName};
pub use exposure::{Exposure, LabelRequirement, LabelSelector, SelectorOperator};
pub use federations::Federation;
pub use records::{Host, Record, RecordData, RecordType, ServiceTarget};
pub use running::{
    Dnstap, HttpsListener, Limits, Listeners, LogFormat, LogLevel, Logging, MetricNames, Metrics,
    Probe, ProbeType, QueryLog, QuicListener, TlsListener, WarmStart,
};
pub use upstreams::{
    CaBundle, Cache, Group, GroupCache, GroupLimits, GroupOptions, Policy, Server, ServerTls,
    StubDomain, Transport, Upstreams,
};

use std::fmt::{self, Display, Write as _};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::defaults::{self, is_default, is_flag, is_number};

/// The highest `format` this version reads, and the one it writes. It grows only when an old reader would misunderstand
/// a document; a field that old readers may ignore does not change it.
pub const FORMAT: u32 = 1;

/// Longest document that is read: what a ConfigMap can hold.
pub const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

/// Unknown fields that are listed by name; all of them are counted.
pub const MAX_LISTED_FIELDS: usize = 32;

/// What a data plane runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The form of this document, see [`FORMAT`].
    pub format: u32,
    /// The cluster domain `Z` (A1), such as `cluster.local`.
    #[serde(skip_serializing_if = "is_default_domain")]
    pub domain: String,
    /// TTL of records derived from Kubernetes.
    #[serde(skip_serializing_if = "is_number::<{ defaults::TTL_SECONDS }>")]
    pub ttl_seconds: u32,
    /// Names made of pod addresses.
    #[serde(skip_serializing_if = "is_default")]
    pub pod_records: PodRecords,
    /// How endpoints without a hostname are named (RR23).
    #[serde(skip_serializing_if = "is_default")]
    pub endpoint_names: EndpointNames,
    /// A ClusterIP Service without published endpoints does not exist (RR15).
    #[serde(skip_serializing_if = "is_flag::<false>")]
    pub hide_empty_services: bool,
    /// Ranges whose reverse names are ours even on a miss (A2), as written: host bits are zero.
    #[serde(rename = "reverseCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub reverse_cidrs: Vec<IpNet>,
    /// What `ns.dns.<domain>` points to.
    #[serde(skip_serializing_if = "is_default")]
    pub service_addresses: ServiceAddresses,
    /// Our own Service, where the resource lists addresses, which need not be its own: pods look at each other by it (O20).
    /// Without it, the Service that `service_addresses` names, or that has one of these addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_service: Option<ServiceName>,
    /// Which namespaces and Services are visible (N40).
    #[serde(skip_serializing_if = "is_default")]
    pub exposure: Exposure,
    /// Names with addresses, and with PTR records unless `reverse` is false.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// Records of the other types (docs/dns.md §3.9).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
    /// Federations of kube-dns (RR95).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub federations: Vec<Federation>,
    /// Where names go that are neither ours nor below a stub domain.
    #[serde(skip_serializing_if = "is_default")]
    pub upstreams: Upstreams,
    /// Suffixes with their own servers, as written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stub_domains: Vec<StubDomain>,
    /// Bounds of the forward cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache: Cache,
    /// Client ranges that get answers; others get REFUSED.
    #[serde(skip_serializing_if = "is_default")]
    pub access: Access,
    /// Bounds of clients, connections and lookups.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: Limits,
    /// What the server reveals about itself.
    #[serde(skip_serializing_if = "is_default")]
    pub identity: Identity,
    /// Listeners besides UDP and TCP.
    #[serde(skip_serializing_if = "is_default")]
    pub listeners: Listeners,
    /// Starting from a snapshot.
    #[serde(skip_serializing_if = "is_default")]
    pub warm_start: WarmStart,
    /// Form and level of log lines, and the query log.
    #[serde(skip_serializing_if = "is_default")]
    pub logging: Logging,
    /// Whose metric names are offered besides ours.
    #[serde(skip_serializing_if = "is_default")]
    pub metrics: Metrics,
}

impl Default for Config {
    /// What an empty spec means.
    fn default() -> Self {
        Self {
            format: FORMAT,
            domain: defaults::DOMAIN.to_owned(),
            ttl_seconds: defaults::TTL_SECONDS,
            pod_records: PodRecords::default(),
            endpoint_names: EndpointNames::default(),
            hide_empty_services: false,
            reverse_cidrs: Vec::new(),
            service_addresses: ServiceAddresses::default(),
            own_service: None,
            exposure: Exposure::default(),
            hosts: Vec::new(),
            records: Vec::new(),
            federations: Vec::new(),
            upstreams: Upstreams::default(),
            stub_domains: Vec::new(),
            cache: Cache::default(),
            access: Access::default(),
            limits: Limits::default(),
            identity: Identity::default(),
            listeners: Listeners::default(),
            warm_start: WarmStart::default(),
            logging: Logging::default(),
            metrics: Metrics::default(),
        }
    }
}

impl Config {
    /// The document, one line, keys sorted: the same content gives the same octets.
    ///
    /// # Panics
    /// Never: every configuration has string keys and finite numbers only.
    pub fn to_json(&self) -> String {
        let value =
            serde_json::to_value(self).expect("a Config has string keys and finite numbers only");
        canonical(&value)
    }

    /// Names this content: the first 12 hex digits of the SHA-256 of [`Config::to_json`].
    pub fn revision(&self) -> String {
        revision_of(&self.to_json())
    }
}

/// This document as [`Config::to_json`] writes it, with all of its fields.
pub fn canonical(document: &serde_json::Value) -> String {
    let mut text = String::new();
    write_canonical(document, &mut text);
    text
}

/// The revision of a document that [`Config::to_json`] wrote, in any version: a reader that knows fewer fields would
/// write, and so name, another one.
pub fn revision_of(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest[..6].iter().fold(String::with_capacity(12), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// Fields of a document that this version does not know: the first ones by path, and how many in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields {
    /// Paths such as `stubDomains.0.colour`, at most [`MAX_LISTED_FIELDS`].
    pub paths: Vec<String>,
    /// All of them, also those that are not named.
    pub count: usize,
}

impl UnknownFields {
    pub(crate) fn add(&mut self, path: String) {
        self.count += 1;
        if self.paths.len() < MAX_LISTED_FIELDS {
            // serde_ignored writes `.?` for a step into an optional section.
            self.paths.push(path.replace(".?", ""));
        }
    }

    /// True if this version knows every field of the document.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Display for UnknownFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.paths.join(", "))?;
        match self.count - self.paths.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Compact JSON with sorted keys, with any map type of `serde_json`.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (position, (key, value)) in fields.into_iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                let _ = write!(text, "{}:", Value::from(key.as_str()));
                write_canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(text, "{value}");
        }
    }
}

fn is_default_domain(domain: &str) -> bool {
    domain == defaults::DOMAIN
}
