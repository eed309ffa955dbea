//! Extra records against each other: one entry for one owner and type, nothing beside a CNAME (A32), nothing below a DNAME
//! (RR85). One pass over all of
//! them with a map, because CEL cannot look at pairs in lists this long.

use std::collections::HashMap;
use std::net::IpAddr;

use super::violations::{Reason, Violations};
use crate::config::{Config, Host, Record, RecordType};

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
    below_dnames(config, violations);
}

/// RR85: names below a DNAME are led elsewhere, so that a record there would never be answered.
fn below_dnames(config: &Config, violations: &mut Violations) {
    let of_dname = |(index, record): (usize, &'_ Record)| {
        (record.data.record_type() == RecordType::Dname).then_some((record.name.clone(), index))
    };
    let dnames: HashMap<String, usize> =
        config.records.iter().enumerate().filter_map(of_dname).collect();
    if dnames.is_empty() {
        return;
    }
    let hosts = config.hosts.iter().map(|host| host.name.as_str()).enumerate();
    let hosts = hosts.map(|(index, name)| (name, format!("spec.hosts[{index}].name")));
    let records = config.records.iter().map(|record| record.name.as_str()).enumerate();
    let records = records.map(|(index, name)| (name, format!("spec.records[{index}].name")));
    for (name, field) in hosts.chain(records) {
        // Each part of a name is looked up once: a name has 127 labels at most.
        let mut above =
            std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest));
        if let Some(index) = above.by_ref().skip(1).find_map(|above| dnames.get(above)) {
            let message = format!(
                "{name} is below the DNAME of spec.records[{index}], which leads all names there elsewhere: write this \
                 record below its target, or leave one of the two out"
            );
            violations.add(field, Reason::BelowDname, message);
        }
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
