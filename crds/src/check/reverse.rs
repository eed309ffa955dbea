//! Stub domains against the reverse zones we own (A33): inside them A16 would silently win.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::violations::{Reason, Violations};
use crate::config::Config;

/// Adds stub domains that would never be asked, and ranges that are there twice.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    for (field, ranges) in [
        ("spec.reverseCIDRs", &config.reverse_cidrs),
        ("spec.access.clients", &config.access.clients),
    ] {
        for (index, range) in
            ranges.iter().enumerate().filter(|(index, range)| ranges[..*index].contains(range))
        {
            violations.add(
                format!("{field}[{index}]"),
                Reason::Duplicate,
                format!("{range} is there twice: leave one out"),
            );
        }
    }
    for (index, stub) in config.stub_domains.iter().enumerate() {
        let Some(network) = network_of(&stub.domain) else { continue };
        if let Some(range) = config.reverse_cidrs.iter().find(|range| owns(range, &network)) {
            let message = format!(
                "the reverse names of {range} are answered here, so {} would never be asked: leave this stub domain out, or \
                 take {range} out of spec.reverseCIDRs",
                stub.domain
            );
            violations.add(
                format!("spec.stubDomains[{index}].domain"),
                Reason::UnderReverseZone,
                message,
            );
        }
    }
}

/// Is this network, which some reverse name means, at or below a zone cut from `range` (A2)? Zones are cut at the
/// octet or nibble at or after the prefix, never above /8 or /16; a longer prefix than /24 or /124 has the zone above
/// it as its apex, but owns only that name and its own addresses there. The rest is asked, as of RFC 2317 delegations (RR67).
fn owns(range: &IpNet, network: &IpNet) -> bool {
    let (step, highest, lowest) = match range {
        IpNet::V4(_) => (8, 8, 24),
        IpNet::V6(_) => (4, 16, 124),
    };
    let cut = range.prefix_len().div_ceil(step) * step;
    network.prefix_len() >= cut.clamp(highest, lowest) && range.contains(network)
}

/// The network that a reverse name, or the reverse name at its end, means: `96.10.in-addr.arpa` is 10.96.0.0/16.
fn network_of(name: &str) -> Option<IpNet> {
    if let Some(labels) = name.strip_suffix(".in-addr.arpa") {
        let octets: Vec<u8> = labels.rsplit('.').map_while(octet).take(4).collect();
        let mut address = [0; 4];
        address[..octets.len()].copy_from_slice(&octets);
        IpNet::new(IpAddr::V4(Ipv4Addr::from(address)), u8::try_from(octets.len() * 8).ok()?).ok()
    } else if let Some(labels) = name.strip_suffix(".ip6.arpa") {
        let nibbles: Vec<u8> = labels.rsplit('.').map_while(nibble).take(32).collect();
        let mut address = [0; 16];
        for (index, nibble) in nibbles.iter().enumerate() {
            address[index / 2] |= nibble << (4 * (1 - index % 2));
        }
        IpNet::new(IpAddr::V6(Ipv6Addr::from(address)), u8::try_from(nibbles.len() * 4).ok()?).ok()
    } else {
        None
    }
}

fn octet(label: &str) -> Option<u8> {
    // "01" is another name than "1", and not a reverse name of an address.
    label.parse().ok().filter(|octet: &u8| octet.to_string() == label)
}

fn nibble(label: &str) -> Option<u8> {
    let digit = label.chars().next().filter(|_| label.len() == 1)?;
    u8::try_from(digit.to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn would_never_be_asked(range: &str, stub: &str) -> bool {
        network_of(stub).is_some_and(|network| owns(&range.parse().expect(range), &network))
    }

    #[test]
    fn a33_stub_domains_at_or_below_an_owned_reverse_zone() {
        for (range, stub, expected) in [
            ("10.96.0.0/16", "96.10.in-addr.arpa", true),
            ("10.96.0.0/16", "5.96.10.in-addr.arpa", true),
            ("10.96.0.0/16", "1.5.96.10.in-addr.arpa", true),
            ("10.96.0.0/16", "x.96.10.in-addr.arpa", true),
            ("10.96.0.0/16", "10.in-addr.arpa", false),
            ("10.96.0.0/16", "97.10.in-addr.arpa", false),
            ("10.96.0.0/16", "corp.example", false),
            // Cut at the octet after the prefix: 96.10 to 111.10.
            ("10.96.0.0/12", "111.10.in-addr.arpa", true),
            ("10.96.0.0/12", "112.10.in-addr.arpa", false),
            ("10.96.0.0/12", "10.in-addr.arpa", false),
            // Longer than /24: the apex is ours, other addresses and names below it are not.
            ("10.1.2.0/26", "2.1.10.in-addr.arpa", false),
            ("10.1.2.0/26", "64-127.2.1.10.in-addr.arpa", false),
            ("10.1.2.0/26", "x.3.2.1.10.in-addr.arpa", true),
            ("10.1.2.0/26", "3.2.1.10.in-addr.arpa", true),
            ("10.1.2.0/26", "200.2.1.10.in-addr.arpa", false),
            // Never above /8 and /16.
            ("0.0.0.0/0", "in-addr.arpa", false),
            ("0.0.0.0/0", "10.in-addr.arpa", true),
            (
                "fd00:96::/112",
                "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa",
                true,
            ),
            ("fd00:96::/32", "6.9.0.0.0.0.d.f.ip6.arpa", true),
            ("fd00:96::/32", "9.0.0.0.0.d.f.ip6.arpa", false),
            ("fd00::/8", "d.f.ip6.arpa", false),
            ("fd00::/8", "0.0.d.f.ip6.arpa", true),
        ] {
            assert_eq!(would_never_be_asked(range, stub), expected, "{range} {stub}");
        }
    }
}
