//! Extra records: each has the content of its type, and addresses of its family.

use std::net::IpAddr;

use super::addresses::{address, addresses, drop_duplicates};
use crate::check::violations::{Reason, Violations};
use crate::config::{self, RecordData, RecordType};
use crate::v1alpha1;

/// A host, with the addresses that are.
pub(super) fn host(
    host: &v1alpha1::Host,
    index: usize,
    violations: &mut Violations,
) -> config::Host {
    let field = format!("spec.hosts[{index}].addresses");
    let mut found = addresses(&host.addresses, &field, violations);
    drop_duplicates(&mut found);
    config::Host {
        name: host.name.clone(),
        addresses: found,
        ttl_seconds: host.ttl_seconds,
        reverse: host.reverse,
        override_cluster_zone: host.override_cluster_zone,
    }
}

/// A record, if it has the content of its type.
pub(super) fn record(
    record: &v1alpha1::Record,
    index: usize,
    violations: &mut Violations,
) -> Option<config::Record> {
    let field = format!("spec.records[{index}]");
    let data = record_data(record, &field, violations)?;
    Some(config::Record {
        name: record.name.clone(),
        data,
        ttl_seconds: record.ttl_seconds,
        reverse: record.reverse,
        override_cluster_zone: record.override_cluster_zone,
    })
}

fn record_data(
    record: &v1alpha1::Record,
    field: &str,
    violations: &mut Violations,
) -> Option<RecordData> {
    let given = [
        ("addresses", record.addresses.is_some()),
        ("target", record.target.is_some()),
        ("strings", record.strings.is_some()),
        ("services", record.services.is_some()),
    ];
    let (needed, example) = match record.record_type {
        RecordType::A => ("addresses", "[10.20.0.80]"),
        RecordType::Aaaa => ("addresses", "[\"fd00:20::80\"]"),
        RecordType::Cname => ("target", "registry.corp.example"),
        RecordType::Dname => ("target", "new.corp.example"),
        RecordType::Txt => ("strings", "[hello]"),
        RecordType::Srv => ("services", "[{port: 389, target: ldap.corp.example}]"),
    };
    let kind = serde_json::to_value(record.record_type).unwrap_or_default();
    let kind = kind.as_str().unwrap_or_default();
    // As the letters are spoken.
    let article = match record.record_type {
        RecordType::A | RecordType::Aaaa | RecordType::Srv => "an",
        RecordType::Cname | RecordType::Dname | RecordType::Txt => "a",
    };
    for (content, is_given) in given {
        let at = format!("{field}.{content}");
        if content == needed && !is_given {
            violations.add(
                at,
                Reason::Missing,
                format!("{article} {kind} record needs {needed}, such as {needed}: {example}"),
            );
        } else if content != needed && is_given {
            let message = format!(
                "{article} {kind} record has {needed} only: write another record for {content}"
            );
            violations.add(at, Reason::MoreThanOneMember, message);
        }
    }
    match record.record_type {
        RecordType::A => {
            let family = |ip| if let IpAddr::V4(v4) = ip { Some(v4) } else { None };
            Some(RecordData::A(of_family(
                record.addresses.as_ref()?,
                field,
                "A",
                "IPv4",
                family,
                violations,
            )))
        }
        RecordType::Aaaa => {
            let family = |ip| if let IpAddr::V6(v6) = ip { Some(v6) } else { None };
            Some(RecordData::Aaaa(of_family(
                record.addresses.as_ref()?,
                field,
                "AAAA",
                "IPv6",
                family,
                violations,
            )))
        }
        RecordType::Cname => record.target.clone().map(RecordData::Cname),
        RecordType::Dname => record.target.clone().map(RecordData::Dname),
        RecordType::Txt => record.strings.clone().map(RecordData::Txt),
        RecordType::Srv => record.services.as_ref().map(|services| {
            RecordData::Srv(
                services
                    .iter()
                    .map(|service| config::ServiceTarget {
                        priority: service.priority,
                        weight: service.weight,
                        port: service.port,
                        target: service.target.clone(),
                    })
                    .collect(),
            )
        }),
    }
}

fn of_family<T: PartialEq>(
    texts: &[String],
    field: &str,
    kind: &str,
    family: &str,
    convert: impl Fn(IpAddr) -> Option<T>,
    violations: &mut Violations,
) -> Vec<T> {
    let mut found = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let field = format!("{field}.addresses[{index}]");
        let Some(ip) = address(text, &field, violations) else { continue };
        match convert(ip) {
            Some(ip) => found.push(ip),
            None => {
                let message = format!(
                    "{kind} records hold {family} addresses: put {ip} in a record of the other type, or use hosts"
                );
                violations.add(field, Reason::WrongFamily, message);
            }
        }
    }
    drop_duplicates(&mut found);
    found
}
