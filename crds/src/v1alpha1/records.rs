//! Extra records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::bounds;
use crate::config::RecordType;
use crate::defaults::{RECORD_TTL_SECONDS, flag, number};
use crate::names::{OWNER_PATTERN, TARGET_PATTERN};

/// A name and its addresses.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::owner_is_not_special(), rules::wildcard_has_two_labels()]))]
pub struct Host {
    /// The name, lower case without a trailing dot; "*." in front makes it a wildcard for everything below.
    /// Example: registry.corp.example.
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = OWNER_PATTERN))]
    pub name: String,

    /// IPv4 and IPv6 addresses, 1-64. Example: [10.20.0.5, "fd00:20::5"].
    #[schemars(length(min = 1, max = bounds::RECORD_ADDRESSES), inner(length(max = bounds::ADDRESS)))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [rules::every_address_is_an_ip()]))]
    pub addresses: Vec<String>,

    /// TTL in seconds, 0-86400. Default 30.
    #[serde(default = "number::<RECORD_TTL_SECONDS>")]
    #[schemars(range(min = 0, max = bounds::RECORD_TTL_SECONDS))]
    pub ttl_seconds: u32,

    /// Gives every address a PTR record to this name, unless it is a wildcard. Default true.
    #[serde(default = "flag::<true>")]
    pub reverse: bool,

    /// Lets this one exact name lie inside the cluster domain and replace what Kubernetes says there. Default false.
    #[serde(default)]
    pub override_cluster_zone: bool,
}

/// Records of one name and type.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::owner_is_not_special(), rules::wildcard_has_two_labels(), rules::record_has_the_content_of_its_type(), rules::record_has_no_content_of_another_type(), rules::record_addresses_are_of_its_family(), rules::alias_is_not_of_itself(), rules::dname_is_of_names_below()]))]
pub struct Record {
    /// The name, lower case without a trailing dot; "*." in front makes it a wildcard for everything below.
    /// Example: "*.apps.corp.example".
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = OWNER_PATTERN))]
    pub name: String,

    /// The type: A and AAAA need addresses, CNAME and DNAME a target, TXT strings, SRV services. A DNAME leads all names
    /// below its own to those below its target.
    #[serde(rename = "type")]
    pub record_type: RecordType,

    /// Addresses of an A or AAAA record, 1-64. Example: [10.20.0.80].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::RECORD_ADDRESSES), inner(length(max = bounds::ADDRESS)))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Option<Vec<String>>,

    /// The canonical name of a CNAME record, or the name below which a DNAME record leads. Example: registry.corp.example.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = TARGET_PATTERN))]
    pub target: Option<String>,

    /// The strings of one TXT record, 1-16 of at most 255 octets. Example: ["v=spf1 -all"].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::TEXT_STRINGS), inner(length(max = bounds::TEXT_OCTETS)))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub strings: Option<Vec<String>>,

    /// The services of an SRV record, 1-64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = bounds::RECORD_ADDRESSES))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub services: Option<Vec<ServiceTarget>>,

    /// TTL in seconds, 0-86400. Default 30.
    #[serde(default = "number::<RECORD_TTL_SECONDS>")]
    #[schemars(range(min = 0, max = bounds::RECORD_TTL_SECONDS))]
    pub ttl_seconds: u32,

    /// Gives every address of an A or AAAA record a PTR record to this name, unless it is a wildcard. Default true.
    #[serde(default = "flag::<true>")]
    pub reverse: bool,

    /// Lets this one exact name lie inside the cluster domain and replace what Kubernetes says there; a DNAME also replaces all
    /// names below it. Default false.
    #[serde(default)]
    pub override_cluster_zone: bool,
}

/// One SRV record (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTarget {
    /// Lower is tried first, 0-65535. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 65535))]
    pub priority: u16,

    /// Share among services of one priority, 0-65535. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 65535))]
    pub weight: u16,

    /// The port of the service, 0-65535. Example: 389.
    #[schemars(range(min = 0, max = 65535))]
    pub port: u16,

    /// The host that offers it. Example: ldap.corp.example.
    #[schemars(length(min = 1, max = bounds::DOMAIN_NAME), regex(pattern = TARGET_PATTERN))]
    pub target: String,
}
