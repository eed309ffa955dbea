//! Addresses and ranges of addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::check::violations::{Reason, Violations, shown};

/// The texts that are IP addresses; each other one becomes a violation.
pub(super) fn addresses<'a>(
    texts: impl IntoIterator<Item = &'a String>,
    field: &str,
    violations: &mut Violations,
) -> Vec<IpAddr> {
    let read =
        |(index, text): (usize, &String)| address(text, &format!("{field}[{index}]"), violations);
    texts.into_iter().enumerate().filter_map(read).collect()
}

/// An address as the API server reads one: no zone, no leading zeros, not IPv4-mapped.
pub(super) fn address(text: &str, field: &str, violations: &mut Violations) -> Option<IpAddr> {
    match text.parse::<IpAddr>() {
        Ok(ip) if ip == ip.to_canonical() => Some(ip),
        Ok(ip) => {
            let message = format!(
                "{} is an IPv4 address in IPv6 form: write {}",
                shown(text),
                ip.to_canonical()
            );
            violations.add(field, Reason::InvalidAddress, message);
            None
        }
        Err(_) => {
            let message = format!(
                "{} is not an IP address: write one such as 10.20.0.53 or fd00:20::53, without a name or a port",
                shown(text)
            );
            violations.add(field, Reason::InvalidAddress, message);
            None
        }
    }
}

/// The texts that are address ranges; each other one becomes a violation.
pub(super) fn ranges(
    texts: Option<&[String]>,
    field: &str,
    violations: &mut Violations,
) -> Vec<IpNet> {
    let read =
        |(index, text): (usize, &String)| range(text, &format!("{field}[{index}]"), violations);
    texts.unwrap_or_default().iter().enumerate().filter_map(read).collect()
}

fn range(text: &str, field: &str, violations: &mut Violations) -> Option<IpNet> {
    let message = match parsed(text) {
        Some(range) if range.addr() != range.addr().to_canonical() => {
            format!("{} is an IPv4 range in IPv6 form: write it as IPv4", shown(text))
        }
        Some(range) if range == range.trunc() => return Some(range),
        Some(range) => {
            format!("{} has bits set after its prefix: write {}", shown(text), range.trunc())
        }
        None => {
            let message =
                "is not an address range: write one such as 10.96.0.0/16, without leading zeros";
            format!("{} {message}", shown(text))
        }
    };
    violations.add(field, Reason::InvalidRange, message);
    None
}

/// A range as the API server reads one. The parser of [`IpNet`] takes leading zeros too.
fn parsed(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let is_plain = length.bytes().all(|byte| byte.is_ascii_digit())
        && (length == "0" || !length.starts_with('0'));
    let length = length.parse().ok().filter(|_| is_plain)?;
    IpNet::new(address.parse().ok()?, length).ok()
}

/// RR76: duplicates are dropped; lists are short.
pub(super) fn drop_duplicates<T: PartialEq>(items: &mut Vec<T>) {
    let mut position = 0;
    while position < items.len() {
        if items[..position].contains(&items[position]) {
            items.remove(position);
        } else {
            position += 1;
        }
    }
}
