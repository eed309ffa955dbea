//! What is asked: names that must be right whatever the change was. They follow from the configuration on trial, so that
//! what was taken out of it on purpose is not missed.

use std::net::IpAddr;

use crds::Config;
use crds::config::{Exposure, RecordData, Upstreams};
use hickory_proto::rr::{Name, RecordType};

use crate::adoption::cluster_ips;
use crate::observed::Observed;

/// Exists always, and is nobody's (RFC 2606).
const EXTERNAL: &str = "example.com";

/// One question and what a right reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) name: Name,
    pub(super) kind: RecordType,
    pub(super) expects: Expects,
    /// Only some clients are answered, and the operator may be none of them.
    pub(super) may_be_refused: bool,
}

/// What makes a reply right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expects {
    /// NOERROR with records of that type.
    Records,
    /// NOERROR with this address among them.
    Address(IpAddr),
    /// What a server elsewhere says: NOERROR, or NXDOMAIN where the other pod has that too.
    Reply,
}

/// All of them: at most two Services, one PTR, one extra record, one for each stub domain, one name of the world.
pub(super) fn questions(config: &Config, observed: &Observed) -> Vec<Question> {
    let may_be_refused = !config.access.clients.is_empty();
    let mut list = Vec::new();
    let mut add = |name: &str, kind: RecordType, expects: Expects| {
        if let Ok(name) = Name::from_ascii(format!("{name}.")) {
            list.push(Question { name, kind, expects, may_be_refused });
        }
    };
    let domain = &config.domain;
    let own =
        observed.service.as_ref().and_then(|service| Some((service, cluster_ips(service).next()?)));
    let kind = own.as_ref().map_or(RecordType::A, |(_, ip)| address_type(*ip));
    if shows(&config.exposure, "default")
        && is_untouched(config, &format!("kubernetes.default.svc.{domain}"))
    {
        add(&format!("kubernetes.default.svc.{domain}"), kind, Expects::Records);
    }
    if let Some((service, ip)) = own {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let owner = format!("{name}.{namespace}.svc.{domain}");
        if shows(&config.exposure, namespace) && is_untouched(config, &owner) {
            add(&owner, kind, Expects::Address(ip));
            add(&reverse(ip), RecordType::PTR, Expects::Records);
        }
    }
    if let Some((name, ip)) = extra_record(config) {
        add(name, address_type(ip), Expects::Address(ip));
    }
    for stub in &config.stub_domains {
        add(&stub.domain, RecordType::SOA, Expects::Reply);
    }
    let is_stub =
        config.stub_domains.iter().any(|stub| crds::names::is_at_or_below(EXTERNAL, &stub.domain));
    if config.upstreams != Upstreams::None && !is_stub {
        add(EXTERNAL, RecordType::A, Expects::Reply);
    }
    list
}

/// The first name with an address of its own.
fn extra_record(config: &Config) -> Option<(&str, IpAddr)> {
    let hosts =
        config.hosts.iter().map(|host| (host.name.as_str(), host.addresses.first().copied()));
    let records = config.records.iter().map(|record| {
        let ip = match &record.data {
            RecordData::A(ips) => ips.first().map(|ip| IpAddr::V4(*ip)),
            RecordData::Aaaa(ips) => ips.first().map(|ip| IpAddr::V6(*ip)),
            RecordData::Cname(_) | RecordData::Txt(_) | RecordData::Srv(_) => None,
        };
        (record.name.as_str(), ip)
    });
    hosts
        .chain(records)
        .filter(|(name, _)| !name.starts_with('*'))
        .find_map(|(name, ip)| Some((name, ip?)))
}

/// Is the Service of this namespace certainly visible? Labels of namespaces are not known here.
fn shows(exposure: &Exposure, namespace: &str) -> bool {
    let Exposure { namespaces, namespace_selector, service_selector } = exposure;
    (namespaces.is_empty() || namespaces.iter().any(|shown| shown == namespace))
        && namespace_selector.is_empty()
        && service_selector.is_empty()
}

/// Is nothing written over this name (A13)?
fn is_untouched(config: &Config, name: &str) -> bool {
    !config.hosts.iter().any(|host| host.name == name)
        && !config.records.iter().any(|record| record.name == name)
}

fn address_type(ip: IpAddr) -> RecordType {
    match ip {
        IpAddr::V4(_) => RecordType::A,
        IpAddr::V6(_) => RecordType::AAAA,
    }
}

/// The name below which the PTR of an address is, without the last dot.
fn reverse(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let nibbles = ip.octets().into_iter().rev().flat_map(|octet| [octet & 15, octet >> 4]);
            let labels: Vec<String> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}
