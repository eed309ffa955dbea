//! Extra records against each other: one entry for one owner and type, nothing beside a CNAME (A32). One pass over all of
//! them with a map, because CEL cannot look at pairs in lists this long.

use std::collections::HashMap;
use std::net::IpAddr;

use super::violations::{Reason, Violations};
use crate::config::{Config, Host, RecordType};

/// The types that one owner has, and where each was written first.
type Owners<'a> = HashMap<&'a str, Vec<(RecordType, String)>>;

/// Adds what does not fit together.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    let mut owners = Owners::new();
    let mut hosts = HashMap::new();
    for (index, host) in config.hosts.iter().enumerate() {
        let field = format!("spec.hosts[{index}]");
        if let Some(first) = hosts.insert(host.name.as_str(), index) {
            let message = format!(
                "{} is spec.hosts[{first}] already: put all of its addresses there",
                host.name
            );
            violations.add(format!("{field}.name"), Reason::Duplicate, message);
            continue;
        }
        for record_type in types(host) {
            add(&mut owners, &host.name, record_type, &field, violations);
        }
    }
    for (index, record) in config.records.iter().enumerate() {
        let field = format!("spec.records[{index}]");
        add(&mut owners, &record.name, record.data.record_type(), &field, violations);
    }
}

fn add<'a>(
    owners: &mut Owners<'a>,
    name: &'a str,
    record_type: RecordType,
    field: &str,
    violations: &mut Violations,
) {
    let present = owners.entry(name).or_default();
    if let Some((_, first)) = present.iter().find(|(present, _)| *present == record_type) {
        let message =
            format!("{name} has records of this type in {first} already: put them in one entry");
        violations.add(format!("{field}.name"), Reason::Duplicate, message);
    } else if let Some((_, first)) = present
        .iter()
        .find(|(present, _)| (*present == RecordType::Cname) != (record_type == RecordType::Cname))
    {
        let message = format!(
            "{name} has {first} too, and a name with a CNAME has nothing else (RFC 1034): keep one of the two"
        );
        violations.add(format!("{field}.name"), Reason::AliasBesideOtherData, message);
    } else {
        present.push((record_type, field.to_owned()));
    }
}

fn types(host: &Host) -> impl Iterator<Item = RecordType> {
    let v4 = host.addresses.iter().any(IpAddr::is_ipv4).then_some(RecordType::A);
    let v6 = host.addresses.iter().any(IpAddr::is_ipv6).then_some(RecordType::Aaaa);
    v4.into_iter().chain(v6)
}
