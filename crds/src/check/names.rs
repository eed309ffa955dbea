//! Names: well formed, not special, not inside the cluster domain (A30-A33).

use std::collections::HashSet;
use std::net::IpAddr;

use super::violations::{Reason, Violations, shown};
use crate::bounds as limit;
use crate::config::{
    CaBundle, Config, Group, LabelSelector, RecordData, SelectorOperator, Upstreams,
};
use crate::names::{
    DEFAULT_GROUP, RESERVED_IN_DOMAIN, SPECIAL_FOR_DOMAIN, SPECIAL_FOR_RECORDS,
    SPECIAL_FOR_STUB_DOMAINS, is_at_or_below, is_host_name, is_label, is_label_key, is_label_value,
    is_owner_name, is_path, is_target_name,
};
use crate::punycode::to_ascii;

/// Adds what is wrong with names.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    domain(&config.domain, violations);
    for (index, host) in config.hosts.iter().enumerate() {
        let field = format!("spec.hosts[{index}].name");
        owner(&host.name, host.override_cluster_zone, &config.domain, &field, violations);
    }
    for (index, record) in config.records.iter().enumerate() {
        let field = format!("spec.records[{index}]");
        owner(
            &record.name,
            record.override_cluster_zone,
            &config.domain,
            &format!("{field}.name"),
            violations,
        );
        targets(&record.name, &record.data, &field, violations);
    }
    stub_domains(config, violations);
    exposure(config, violations);
    server_names(config, violations);
    listeners(config, violations);
}

/// A33: the cluster domain itself.
fn domain(domain: &str, violations: &mut Violations) {
    if !is_host_name(domain, limit::DOMAIN) {
        let message = format!(
            "{} is not a cluster domain: write a name such as cluster.local, at most {} characters of a-z, 0-9, '-' and \
             '.', lower case, without a trailing dot",
            shown(domain),
            limit::DOMAIN
        );
        violations.add("spec.domain", Reason::InvalidName, in_punycode(message, domain));
    } else if domain.parse::<IpAddr>().is_ok() {
        let message = format!("{domain} is an address: write a domain name such as cluster.local");
        violations.add("spec.domain", Reason::InvalidName, message);
    } else if let Some(special) = special(domain, &SPECIAL_FOR_DOMAIN) {
        let message = format!(
            "names in {special} have a meaning of their own: use a domain such as cluster.local"
        );
        violations.add("spec.domain", Reason::SpecialName, message);
    }
}

/// A30, A31, A32: the owner of an extra record.
fn owner(name: &str, overrides: bool, domain: &str, field: &str, violations: &mut Violations) {
    let (reason, message) = if !is_owner_name(name) {
        let message = format!(
            "{} is not a domain name: write one such as registry.corp.example, lower case, without a trailing dot",
            shown(name)
        );
        (Reason::InvalidName, in_punycode(message, name))
    } else if name.parse::<IpAddr>().is_ok() {
        let message = format!("{name} is an address: write the name that has it");
        (Reason::InvalidName, message)
    } else if let Some(special) = special(name, &SPECIAL_FOR_RECORDS) {
        let what = if special.ends_with("arpa") && special != "resolver.arpa" {
            "reverse names follow from the addresses of hosts and records: leave this one out"
        } else {
            "names there are answered locally: use another name"
        };
        (Reason::SpecialName, format!("{name} is in {special}; {what}"))
    } else if name.starts_with("*.") && name.split('.').count() < 3 {
        let message = format!(
            "{name} would replace a whole top-level domain: a wildcard needs two labels or more after '*.'"
        );
        (Reason::WildcardTooWide, message)
    } else if !is_at_or_below(name, domain) {
        return;
    } else if name.starts_with('*') {
        let message = format!(
            "{name} would answer names of {domain} that do not exist: write single names with overrideClusterZone: true"
        );
        (Reason::WildcardInClusterDomain, message)
    } else if is_reserved(name, domain) {
        (
            Reason::ReservedName,
            format!("{name} is needed by {domain} itself and cannot be replaced: use another name"),
        )
    } else if !overrides {
        let message = format!(
            "{name} is in the cluster domain {domain}: use another name, or set overrideClusterZone: true"
        );
        (Reason::UnderClusterDomain, message)
    } else {
        return;
    };
    violations.add(field, reason, message);
}

fn is_reserved(name: &str, domain: &str) -> bool {
    match name.strip_suffix(domain) {
        Some("") => true,
        Some(rest) => {
            rest.strip_suffix('.').is_some_and(|labels| RESERVED_IN_DOMAIN.contains(&labels))
        }
        None => false,
    }
}

fn targets(owner: &str, data: &RecordData, field: &str, violations: &mut Violations) {
    match data {
        RecordData::Cname(target) => {
            target_name(target, &format!("{field}.target"), violations);
            if target == owner {
                let message =
                    format!("{owner} is an alias of itself: write the name that has the addresses");
                violations.add(format!("{field}.target"), Reason::PointsToItself, message);
            }
        }
        RecordData::Dname(target) => dname(owner, target, field, violations),
        RecordData::Srv(services) => {
            for (index, service) in services.iter().enumerate() {
                target_name(
                    &service.target,
                    &format!("{field}.services[{index}].target"),
                    violations,
                );
            }
        }
        RecordData::A(_) | RecordData::Aaaa(_) | RecordData::Txt(_) => {}
    }
}

/// RR85: a DNAME leads names below its owner to those below its target.
fn dname(owner: &str, target: &str, field: &str, violations: &mut Violations) {
    target_name(target, &format!("{field}.target"), violations);
    if is_at_or_below(target, owner) {
        let message = format!(
            "{target} is {owner} or below it, so names would lead back: write a name elsewhere"
        );
        violations.add(format!("{field}.target"), Reason::PointsToItself, message);
    }
    if let Some(name) = owner.strip_prefix("*.") {
        let message = format!("a DNAME record is for all names below its own: write {name}");
        violations.add(format!("{field}.name"), Reason::InvalidName, message);
    } else if owner == "arpa" {
        let message = "reverse names are below arpa and follow from the addresses: leave this out";
        violations.add(format!("{field}.name"), Reason::SpecialName, message);
    }
}

fn target_name(name: &str, field: &str, violations: &mut Violations) {
    if !is_target_name(name) {
        let message = format!(
            "{} is not a domain name: write one such as ldap.corp.example, lower case, without a trailing dot",
            shown(name)
        );
        violations.add(field, Reason::InvalidName, in_punycode(message, name));
    } else if name.parse::<IpAddr>().is_ok() {
        let message = format!("{name} is an address: write the name that has it");
        violations.add(field, Reason::InvalidName, message);
    }
}

/// The form in punycode of a name with letters beyond ASCII, as DNS has it (RFC 5891 §5.5).
fn in_punycode(message: String, name: &str) -> String {
    match to_ascii(name) {
        Some(ascii) => format!("{message}; in DNS this name is {ascii}"),
        None => message,
    }
}

/// A31, A33: stub domains.
fn stub_domains(config: &Config, violations: &mut Violations) {
    let mut seen = HashSet::new();
    for (index, stub) in config.stub_domains.iter().enumerate() {
        let field = format!("spec.stubDomains[{index}].domain");
        let name = stub.domain.as_str();
        if !is_target_name(name) {
            let message = format!(
                "{} is not a domain name: write one such as corp.example, lower case, without a trailing dot; for \
                 everything else there is spec.upstreams",
                shown(name)
            );
            violations.add(field, Reason::InvalidName, in_punycode(message, name));
        } else if name.parse::<IpAddr>().is_ok() {
            let message = format!(
                "{name} is an address: write a domain name; its reverse names are a stub domain such as 20.10.in-addr.arpa"
            );
            violations.add(field, Reason::InvalidName, message);
        } else if is_at_or_below(name, &config.domain) {
            let message = format!(
                "{name} is in the cluster domain {}, whose names are answered here and never asked elsewhere: leave it \
                 out, or use records with overrideClusterZone for single names",
                config.domain
            );
            violations.add(field, Reason::UnderClusterDomain, message);
        } else if let Some(special) = special(name, &SPECIAL_FOR_STUB_DOMAINS) {
            let message = format!(
                "names in {special} are answered locally and never asked elsewhere: leave it out"
            );
            violations.add(field, Reason::SpecialName, message);
        } else if name == DEFAULT_GROUP {
            let message = format!(
                "{name} is the name of the servers of spec.upstreams in metrics, status and /upstreams: use a longer name"
            );
            violations.add(field, Reason::SpecialName, message);
        } else if !seen.insert(name) {
            let message = format!("{name} is there twice: put all of its servers in one entry");
            violations.add(field, Reason::Duplicate, message);
        }
    }
}

fn special<'a>(name: &str, suffixes: &[&'a str]) -> Option<&'a str> {
    suffixes.iter().copied().find(|suffix| is_at_or_below(name, suffix))
}

fn exposure(config: &Config, violations: &mut Violations) {
    let exposure = &config.exposure;
    for (index, name) in exposure.namespaces.iter().enumerate().filter(|(_, name)| !is_label(name))
    {
        let message =
            format!("{} is not the name of a namespace: write one such as shop", shown(name));
        violations.add(format!("spec.exposure.namespaces[{index}]"), Reason::InvalidName, message);
    }
    let mut seen = HashSet::new();
    for (index, name) in exposure.namespaces.iter().enumerate() {
        if !seen.insert(name) {
            let message = format!("{} is there twice: leave one out", shown(name));
            violations.add(
                format!("spec.exposure.namespaces[{index}]"),
                Reason::Duplicate,
                message,
            );
        }
    }
    selector(&exposure.namespace_selector, "spec.exposure.namespaceSelector", violations);
    selector(&exposure.service_selector, "spec.exposure.serviceSelector", violations);
}

fn selector(selector: &LabelSelector, field: &str, violations: &mut Violations) {
    for (what, count) in [
        ("matchLabels", selector.match_labels.len()),
        ("matchExpressions", selector.match_expressions.len()),
    ] {
        if count > limit::SELECTOR_ENTRIES {
            let message =
                format!("{count} entries; at most {} are served", limit::SELECTOR_ENTRIES);
            violations.add(format!("{field}.{what}"), Reason::TooMany, message);
        }
    }
    for (key, value) in &selector.match_labels {
        label(key, [value.as_str()], &format!("{field}.matchLabels"), violations);
    }
    for (index, requirement) in selector.match_expressions.iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        label(&requirement.key, requirement.values.iter().map(String::as_str), &field, violations);
        let needs_values = match requirement.operator {
            SelectorOperator::In | SelectorOperator::NotIn => true,
            SelectorOperator::Exists | SelectorOperator::DoesNotExist => false,
        };
        if needs_values == requirement.values.is_empty() {
            let message = "In and NotIn need values; Exists and DoesNotExist have none";
            violations.add(format!("{field}.values"), Reason::InvalidSelector, message);
        }
        if requirement.values.len() > limit::SELECTOR_VALUES {
            let message = format!(
                "{} values; at most {} are served",
                requirement.values.len(),
                limit::SELECTOR_VALUES
            );
            violations.add(format!("{field}.values"), Reason::TooMany, message);
        }
    }
}

/// Is the prefix of this label key that of ClusterDNS?
pub(super) fn is_ours(key: &str) -> bool {
    key.split_once('/').is_some_and(|(prefix, _)| prefix == crate::GROUP)
}

/// The key and values of one label.
pub(super) fn label<'a>(
    key: &str,
    values: impl IntoIterator<Item = &'a str>,
    field: &str,
    violations: &mut Violations,
) {
    if !is_label_key(key) {
        let message = format!(
            "{} is not the key of a label: write one such as team or example.com/team",
            shown(key)
        );
        violations.add(field, Reason::InvalidLabel, message);
    }
    for value in values.into_iter().filter(|value| !is_label_value(value)) {
        let message = format!(
            "{} is not the value of a label: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a \
             letter or digit",
            shown(value)
        );
        violations.add(field, Reason::InvalidLabel, message);
    }
}

fn server_names(config: &Config, violations: &mut Violations) {
    if let Upstreams::Servers(group) = &config.upstreams {
        group_names(group, "spec.upstreams", violations);
    }
    for (index, stub) in config.stub_domains.iter().enumerate() {
        group_names(&stub.group, &format!("spec.stubDomains[{index}]"), violations);
    }
}

fn group_names(group: &Group, field: &str, violations: &mut Violations) {
    for (index, server) in group.servers.iter().enumerate() {
        let Some(tls) = &server.tls else { continue };
        let field = format!("{field}.servers[{index}].tls");
        if !is_target_name(&tls.server_name) {
            let message = format!(
                "{} is not a domain name: write the name in the server's certificate, such as dns.secure.example",
                shown(&tls.server_name)
            );
            violations.add(format!("{field}.serverName"), Reason::InvalidName, message);
        }
        match &tls.ca_bundle {
            Some(CaBundle::ConfigMap { name, key }) => {
                object_name(name, &format!("{field}.caBundle.name"), "ConfigMap", violations);
                let of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                if key.is_empty() || key.len() > limit::OBJECT_NAME || !key.chars().all(of_key) {
                    let message = format!(
                        "{} is not a key of a ConfigMap: write one such as ca.crt",
                        shown(key)
                    );
                    violations.add(format!("{field}.caBundle.key"), Reason::InvalidName, message);
                }
            }
            Some(CaBundle::Pem(_)) | None => {}
        }
    }
}

fn listeners(config: &Config, violations: &mut Violations) {
    let listeners = &config.listeners;
    if let Some(quic) = &listeners.quic {
        let field = "spec.listeners.quic.certificate.name";
        object_name(&quic.certificate, field, "Secret", violations);
    }
    if let Some(tls) = &listeners.tls {
        object_name(&tls.certificate, "spec.listeners.tls.certificate.name", "Secret", violations);
    }
    if let Some(https) = &listeners.https {
        object_name(
            &https.certificate,
            "spec.listeners.https.certificate.name",
            "Secret",
            violations,
        );
        if https.path.len() > limit::HTTPS_PATH || !is_path(&https.path) {
            let message =
                format!("{} is not a path: write one such as /dns-query", shown(&https.path));
            violations.add("spec.listeners.https.path", Reason::InvalidPath, message);
        }
    }
}

/// The name of an object other than a namespace or Service.
pub(super) fn object_name(name: &str, field: &str, kind: &str, violations: &mut Violations) {
    if !is_host_name(name, limit::OBJECT_NAME) {
        let message = format!(
            "{} is not the name of a {kind}: letters a-z, digits, '-' and '.'",
            shown(name)
        );
        violations.add(field, Reason::InvalidName, message);
    }
}
