//! Names as text: the patterns of the schema, and the same rules in code.
//!
//! Names are lower case without a trailing dot, so that a key of a list-map has one spelling.

use crate::bounds;

/// A host label: letters, digits and hyphens inside (RFC 1123 §2.1).
macro_rules! host_label {
    () => {
        "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
    };
}

/// A label of an owner name: underscores too, for SRV and for names such as `_msdcs`.
macro_rules! owner_label {
    () => {
        "[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?"
    };
}

/// The cluster domain: host labels.
pub const DOMAIN_PATTERN: &str = concat!("^", host_label!(), "(\\.", host_label!(), ")*$");
/// An owner name, with or without a wildcard in front.
pub const OWNER_PATTERN: &str =
    concat!("^(\\*\\.)?", owner_label!(), "(\\.", owner_label!(), ")*$");
/// A name that something points to, or that a suffix has.
pub const TARGET_PATTERN: &str = concat!("^", owner_label!(), "(\\.", owner_label!(), ")*$");
/// The name of a namespace or Service.
pub const LABEL_PATTERN: &str = concat!("^", host_label!(), "$");
/// The label of a probe, as the sidecar of kube-dns took it.
pub const PROBE_LABEL_PATTERN: &str = "^[a-zA-Z0-9_]+$";
/// The name of any other Kubernetes object.
pub const DNS_1123_PATTERN: &str = DOMAIN_PATTERN;

/// How the servers of `spec.upstreams` are called where those of stub domains are called by their domain: metrics, status,
/// `/upstreams`.
pub const DEFAULT_GROUP: &str = "upstreams";

/// Suffixes that extra records may not be in (A31): answered locally, or automatic.
pub const SPECIAL_FOR_RECORDS: [&str; 7] = [
    "localhost",
    "invalid",
    "onion",
    "resolver.arpa",
    "clusterdns-loop",
    "in-addr.arpa",
    "ip6.arpa",
];
/// The reverse name of `::1` (A41).
pub const REVERSE_OF_V6_LOOPBACK: &str =
    "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa";
/// Suffixes that stub domains may not be in (A31): answered locally, so that a stub domain there would never be asked.
pub const SPECIAL_FOR_STUB_DOMAINS: [&str; 7] = [
    "localhost",
    "invalid",
    "onion",
    "resolver.arpa",
    "clusterdns-loop",
    "127.in-addr.arpa",
    REVERSE_OF_V6_LOOPBACK,
];
/// Suffixes that the cluster domain may not be in (A33).
pub const SPECIAL_FOR_DOMAIN: [&str; 5] =
    ["localhost", "invalid", "onion", "clusterdns-loop", "arpa"];
/// Names left of the cluster domain that cannot be overridden (A30), besides the domain itself.
pub const RESERVED_IN_DOMAIN: [&str; 5] = ["svc", "pod", "dns", "ns.dns", "dns-version"];

/// Is `name` the suffix or below it?
pub fn is_at_or_below(name: &str, suffix: &str) -> bool {
    name == suffix || name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
}

/// Is it a cluster domain, a namespace, ... : host labels only?
pub fn is_host_name(name: &str, octets: usize) -> bool {
    is_name(name, octets, is_host_label)
}

/// Is it a name that something points to, or that a suffix has?
pub fn is_target_name(name: &str) -> bool {
    is_name(name, bounds::DOMAIN_NAME, is_owner_label)
}

/// Is it an owner name, with or without a wildcard in front?
pub fn is_owner_name(name: &str) -> bool {
    name.len() <= bounds::DOMAIN_NAME && is_target_name(name.strip_prefix("*.").unwrap_or(name))
}

/// Is it the name of a namespace or Service?
pub fn is_label(name: &str) -> bool {
    is_host_label(name.as_bytes())
}

/// Is it the key of a label or annotation: a name, with or without a domain in front?
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => {
            is_host_name(prefix, bounds::OBJECT_NAME) && !name.is_empty() && is_label_value(name)
        }
        None => !key.is_empty() && is_label_value(key),
    }
}

/// Is it the value of a label?
pub fn is_label_value(value: &str) -> bool {
    let inner = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
    let edge = |octet: Option<&u8>| octet.is_none_or(u8::is_ascii_alphanumeric);
    let octets = value.as_bytes();
    octets.len() <= bounds::LABEL
        && octets.iter().all(inner)
        && edge(octets.first())
        && edge(octets.last())
}

/// Is it a path of HTTP, without a query?
pub fn is_path(path: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '/');
    path.starts_with('/') && path.chars().all(inner)
}

fn is_name(name: &str, octets: usize, is_label: fn(&[u8]) -> bool) -> bool {
    name.len() <= octets && name.split('.').all(|label| is_label(label.as_bytes()))
}

fn is_host_label(label: &[u8]) -> bool {
    let inner = |octet: &u8| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-');
    fits(label) && label.iter().all(inner) && !starts_or_ends_with_hyphen(label)
}

fn is_owner_label(label: &[u8]) -> bool {
    let inner = |octet: &u8| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    fits(label) && label.iter().all(inner) && !starts_or_ends_with_hyphen(label)
}

fn fits(label: &[u8]) -> bool {
    (1..=bounds::LABEL).contains(&label.len())
}

fn starts_or_ends_with_hyphen(label: &[u8]) -> bool {
    label.first() == Some(&b'-') || label.last() == Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_match_on_label_boundaries() {
        assert!(is_at_or_below("a.corp.example", "corp.example"));
        assert!(is_at_or_below("corp.example", "corp.example"));
        assert!(!is_at_or_below("notcorp.example", "corp.example"));
        assert!(!is_at_or_below("example", "corp.example"));
    }

    #[test]
    fn names_are_lower_case_without_a_trailing_dot() {
        for name in [
            "a",
            "corp.example",
            "_ldap._tcp.corp.example",
            "*.corp.example",
            "1st.x",
            "xn--a.example",
        ] {
            assert!(is_owner_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "corp.example.",
            "Corp.example",
            "a..b",
            "-a.b",
            "a-.b",
            "a b",
            "*",
            "a.*.b",
            "**.a",
        ] {
            assert!(!is_owner_name(name), "{name}");
        }
        assert!(!is_host_name("_a.b", bounds::DOMAIN_NAME));
        assert!(is_owner_name(&"a".repeat(63)) && !is_owner_name(&"a".repeat(64)));
        assert!(!is_owner_name(&vec!["a"; 128].join(".")), "255 octets are too many");
        assert!(is_owner_name(&vec!["a"; 127].join(".")), "253 octets fit");
    }
}
