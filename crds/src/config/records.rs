//! Extra records: written in the resource instead of derived from Kubernetes (rules §3.9).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults::{RECORD_TTL_SECONDS, flag, is_flag, is_number, number};

/// A name and its addresses: the A and AAAA records of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// The owner name; `*.` in front makes it a wildcard (RR82).
    pub name: String,
    /// IPv4 and IPv6 addresses, without duplicates (RR76).
    pub addresses: Vec<IpAddr>,
    /// TTL of these records (RR80).
    #[serde(
        default = "number::<RECORD_TTL_SECONDS>",
        skip_serializing_if = "is_number::<RECORD_TTL_SECONDS>"
    )]
    pub ttl_seconds: u32,
    /// Gives every address a PTR, unless the owner is a wildcard (RR79).
    #[serde(default = "flag::<true>", skip_serializing_if = "is_flag::<true>")]
    pub reverse: bool,
    /// Replaces what Kubernetes says at this exact name in the cluster domain (A13).
    #[serde(default, skip_serializing_if = "is_flag::<false>")]
    pub override_cluster_zone: bool,
}

/// One RRset of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The owner name; `*.` in front makes it a wildcard (RR82).
    pub name: String,
    /// Type and content.
    pub data: RecordData,
    /// TTL of these records (RR80).
    #[serde(
        default = "number::<RECORD_TTL_SECONDS>",
        skip_serializing_if = "is_number::<RECORD_TTL_SECONDS>"
    )]
    pub ttl_seconds: u32,
    /// Gives every address of an A or AAAA RRset a PTR, unless the owner is a wildcard (RR79).
    #[serde(default = "flag::<true>", skip_serializing_if = "is_flag::<true>")]
    pub reverse: bool,
    /// Replaces what Kubernetes says at this exact name in the cluster domain (A13).
    #[serde(default, skip_serializing_if = "is_flag::<false>")]
    pub override_cluster_zone: bool,
}

/// Type and content of an RRset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordData {
    /// 1-64 addresses, no duplicates (RR76).
    A(Vec<Ipv4Addr>),
    /// 1-64 addresses, no duplicates (RR76).
    #[serde(rename = "AAAA")]
    Aaaa(Vec<Ipv6Addr>),
    /// The canonical name of the owner, as in the resource.
    #[serde(rename = "CNAME")]
    Cname(String),
    /// What takes the place of the owner in names below it (RR85).
    #[serde(rename = "DNAME")]
    Dname(String),
    /// One TXT record of 1-16 character-strings, each at most 255 octets.
    #[serde(rename = "TXT")]
    Txt(Vec<String>),
    /// 1-64 entries; one SRV record each (RFC 2782).
    #[serde(rename = "SRV")]
    Srv(Vec<ServiceTarget>),
}

impl RecordData {
    /// The type of this RRset.
    pub fn record_type(&self) -> RecordType {
        match self {
            Self::A(_) => RecordType::A,
            Self::Aaaa(_) => RecordType::Aaaa,
            Self::Cname(_) => RecordType::Cname,
            Self::Dname(_) => RecordType::Dname,
            Self::Txt(_) => RecordType::Txt,
            Self::Srv(_) => RecordType::Srv,
        }
    }
}

/// Type of an extra record.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum RecordType {
    /// IPv4 addresses (RFC 1035).
    A,
    /// IPv6 addresses (RFC 3596).
    #[serde(rename = "AAAA")]
    Aaaa,
    /// An alias (RFC 1035).
    #[serde(rename = "CNAME")]
    Cname,
    /// An alias for all names below (RFC 6672).
    #[serde(rename = "DNAME")]
    Dname,
    /// Text (RFC 1035).
    #[serde(rename = "TXT")]
    Txt,
    /// The location of a service (RFC 2782).
    #[serde(rename = "SRV")]
    Srv,
}

/// One SRV record (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTarget {
    /// Lower is tried first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u16,
    /// Share among those of one priority.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weight: u16,
    /// The port of the service.
    pub port: u16,
    /// The host that offers it.
    pub target: String,
}

fn is_zero(value: &u16) -> bool {
    *value == 0
}
