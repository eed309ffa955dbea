//! One address type for both families in 16 plain octets, IPv4 before IPv6, and the names that
//! are made of addresses: endpoint names (RR23), pod names (RR50) and reverse names (§3.7).

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::cmp::Ordering;
use core::fmt::Write;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::labels::Labels;
use crate::wire::text::ShortText;

/// IPv4 in its mapped form; IPv4-mapped IPv6 addresses never get here (RR20).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// An IPv4 or IPv6 address in 16 octets; all IPv4 addresses sort before IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address([u8; 16]);

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // One number instead of a length and a list.
        state.write_u128(u128::from_ne_bytes(self.0));
    }
}

impl Address {
    pub(crate) fn is_v4(self) -> bool {
        self.0[..12] == MAPPED
    }

    /// The octets of an IPv4 address.
    pub(crate) fn v4(self) -> Option<[u8; 4]> {
        self.is_v4().then(|| self.last_octets())
    }

    /// The last four octets: all of an IPv4 address.
    pub(crate) fn last_octets(self) -> [u8; 4] {
        let [.., a, b, c, d] = self.0;
        [a, b, c, d]
    }

    /// The octets of an A or AAAA record.
    pub(crate) fn octets(&self) -> &[u8] {
        if self.is_v4() { &self.0[12..] } else { &self.0 }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Address {
        match address {
            IpAddr::V4(v4) => Address(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Address(v6.octets()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> IpAddr {
        IpAddr::from(address.0).to_canonical()
    }
}

impl Ord for Address {
    fn cmp(&self, other: &Address) -> Ordering {
        (!self.is_v4(), u128::from_be_bytes(self.0))
            .cmp(&(!other.is_v4(), u128::from_be_bytes(other.0)))
    }
}

impl PartialOrd for Address {
    fn partial_cmp(&self, other: &Address) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Whether an endpoint may have this address (RR20).
pub(crate) fn is_publishable(address: IpAddr, ipv6: bool) -> bool {
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    address.is_ipv6() == ipv6
        && !mapped
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
}

impl ShortText {
    /// The endpoint name of an address: dots and colons become dashes, and `0` keeps an IPv6 label
    /// from starting or ending with one (RR23).
    pub(crate) fn of(address: Address) -> ShortText {
        let mut label = ShortText::EMPTY;
        if let &[a, b, c, d] = address.octets() {
            label.push_decimal(a);
            for octet in [b, c, d] {
                label.push(b'-');
                label.push_decimal(octet);
            }
        } else {
            // 39 octets of text and two zeros always fit: writing cannot fail.
            let _ = label.write_v6(Ipv6Addr::from(address.0));
        }
        label
    }

    fn write_v6(&mut self, address: Ipv6Addr) -> core::fmt::Result {
        let mut text = ShortText::EMPTY;
        write!(text, "{address}")?;
        if text.as_bytes().first() == Some(&b':') {
            self.write_str("0")?;
        }
        for &octet in text.as_bytes() {
            self.write_char(if octet == b':' { '-' } else { octet as char })?;
        }
        if self.as_bytes().last() == Some(&b'-') {
            self.write_str("0")?;
        }
        Ok(())
    }
}

/// The address that a label spells with dashes, in any spelling (RR50).
pub(crate) fn dashed(label: &[u8]) -> Option<Address> {
    if let Some(v4) = dashed_v4(label) {
        return Some(v4);
    }
    // The longest IPv6 text has 39 octets, or 45 with an embedded IPv4 part, which has dots.
    let mut text = [0; 39];
    let text = text.get_mut(..label.len())?;
    for (to, from) in text.iter_mut().zip(label) {
        *to = if *from == b'-' { b':' } else { *from };
    }
    let v6: Ipv6Addr = core::str::from_utf8(text).ok()?.parse().ok()?;
    (v6.to_ipv4_mapped().is_none() && !label.contains(&b'.')).then(|| IpAddr::V6(v6).into())
}

fn dashed_v4(label: &[u8]) -> Option<Address> {
    let mut octets = [0; 4];
    let mut parts = label.split(|&octet| octet == b'-');
    for octet in &mut octets {
        *octet = decimal(parts.next()?)?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)).into())
}

/// 0 to 255 in decimal without leading zeros.
fn decimal(text: &[u8]) -> Option<u8> {
    let number = match *text {
        [ones @ b'0'..=b'9'] => u16::from(ones - b'0'),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9'] => {
            u16::from(tens - b'0') * 10 + u16::from(ones - b'0')
        }
        [hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            u16::from(hundreds - b'0') * 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0')
        }
        _ => return None,
    };
    u8::try_from(number).ok()
}

fn nibble(text: &[u8]) -> Option<u8> {
    match text {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        [digit @ b'a'..=b'f'] => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A name below `in-addr.arpa.` or `ip6.arpa.`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReverseName {
    /// Address octets from the left; those that no label spells are 0.
    octets: [u8; 16],
    ipv6: bool,
    /// Labels left of the family's zone.
    pub(crate) left: usize,
    /// How many of them, from the right, spell part of an address.
    pub(crate) spelled: usize,
}

impl ReverseName {
    /// Reads a name; `None` when it is not below a reverse zone.
    pub(crate) fn of(name: &Labels) -> Option<ReverseName> {
        // Most names have another end: no label needs to be read.
        if !name.wire().ends_with(b"\x04arpa\0") {
            return None;
        }
        let left = name.count().checked_sub(2)?;
        let ipv6 = match (name.label(left), name.label(left + 1)) {
            (b"in-addr", b"arpa") => false,
            (b"ip6", b"arpa") => true,
            (_, _) => return None,
        };
        let mut reverse = ReverseName { octets: [0; 16], ipv6, left, spelled: 0 };
        for index in 0..left.min(reverse.full()) {
            let label = name.label(left - 1 - index);
            let read = if ipv6 { nibble(label) } else { decimal(label) };
            let Some(number) = read else {
                break;
            };
            match ipv6 {
                false => reverse.octets[index] = number,
                true if index % 2 == 0 => reverse.octets[index / 2] = number << 4,
                true => reverse.octets[index / 2] |= number,
            }
            reverse.spelled += 1;
        }
        Some(reverse)
    }

    /// Labels of a whole address.
    fn full(&self) -> usize {
        if self.ipv6 { 32 } else { 4 }
    }

    /// Bits of the address that one label spells.
    fn bits(&self) -> usize {
        if self.ipv6 { 4 } else { 8 }
    }

    /// The address, when the name is exactly one full address.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        (self.left == self.full() && self.spelled == self.left).then(|| self.prefix())
    }

    /// Whether every label spells part of an address, but not all of it.
    pub(crate) fn is_partial(&self) -> bool {
        self.spelled == self.left && self.left < self.full()
    }

    /// The labels of the zone of loopback addresses that this name is at or below (A41): one for
    /// `127.in-addr.arpa.`, all for the one address of IPv6; `None` if it is not.
    pub(crate) fn loopback_labels(&self) -> Option<usize> {
        match self.prefix() {
            IpAddr::V4(v4) => (self.spelled >= 1 && v4.octets()[0] == 127).then_some(1),
            IpAddr::V6(v6) => (self.spelled == 32 && v6.is_loopback()).then_some(32),
        }
    }

    /// Whether it is 127.0.0.1 or ::1.
    pub(crate) fn is_localhost(&self) -> bool {
        matches!(self.address(), Some(address) if address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST)
    }

    /// The address with unspelled octets 0.
    fn prefix(&self) -> IpAddr {
        if self.ipv6 {
            return IpAddr::from(self.octets);
        }
        let [a, b, c, d, ..] = self.octets;
        IpAddr::from([a, b, c, d])
    }

    /// Whether a range that makes this name ours has all addresses below its apex. A longer one shares the apex with
    /// addresses of others, and with the names of their delegations (RFC 2317).
    pub(crate) fn has_whole_apex(&self, range: &ipnet::IpNet) -> bool {
        self.apex_labels(range)
            .is_some_and(|apex| usize::from(range.prefix_len()) <= apex * self.bits())
    }

    /// The labels of the zone apex that makes this name ours by a range (A2); `None` if it does not.
    pub(crate) fn apex_labels(&self, range: &ipnet::IpNet) -> Option<usize> {
        if range.addr().is_ipv6() != self.ipv6 {
            return None;
        }
        let (shortest, longest) = if self.ipv6 { (4, 31) } else { (1, 3) };
        let apex = usize::from(range.prefix_len()).div_ceil(self.bits()).clamp(shortest, longest);
        if self.spelled < apex {
            return None;
        }
        match (self.spelled == self.full()).then(|| self.prefix()) {
            // A name below the name of a whole address belongs to that address too.
            Some(address) => range.contains(&address),
            None => {
                // Compared on the bits of the apex alone: a range longer than it owns the apex too.
                let bits = (apex * self.bits()) as u8;
                let shorter = ipnet::IpNet::new(range.addr(), bits.min(range.prefix_len())).ok()?;
                shorter.contains(&self.prefix())
            }
        }
        .then_some(apex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::name::Name;

    fn label(text: &str) -> String {
        let address: IpAddr = text.parse().unwrap();
        String::from_utf8(ShortText::of(address.into()).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn endpoint_names_of_addresses() {
        assert_eq!(label("10.244.1.31"), "10-244-1-31");
        assert_eq!(label("fd00:244::"), "fd00-244--0");
        assert_eq!(label("fd00:244::66"), "fd00-244--66");
        assert_eq!(label("::5"), "0--5");
        assert_eq!(label("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").len(), 39);
    }

    #[test]
    fn dashed_addresses_are_read_in_any_spelling() {
        let read = |text: &str| dashed(text.as_bytes()).map(|a| IpAddr::from(a).to_string());
        assert_eq!(read("10-244-1-11").as_deref(), Some("10.244.1.11"));
        assert_eq!(read("fd00-244--11").as_deref(), Some("fd00:244::11"));
        assert_eq!(read("fd00-244-0-0-0-0-0-11").as_deref(), Some("fd00:244::11"));
        for bad in [
            "300-0-0-1",
            "010-0-0-1",
            "cart-a",
            "10-244-1",
            "--ffff-a00-1",
            "1.2.3.4",
            "a--b--c",
            "",
            "--ffff-1.2.3.4",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn ipv4_sorts_before_ipv6() {
        let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
        assert!(address("255.255.255.255") < address("::"));
        assert!(address("::1") < address("fd00::"));
        assert!(address("10.0.0.1") < address("10.0.0.2"));
    }

    #[test]
    fn ranges_own_the_names_of_whole_labels() {
        let apex = |name: &str, range: &str| {
            let labels = Labels::of(&Name::from_text(name).unwrap());
            ReverseName::of(&labels).unwrap().apex_labels(&range.parse().unwrap())
        };
        assert_eq!(apex("1.10.96.10.in-addr.arpa", "10.96.0.0/16"), Some(2));
        assert_eq!(apex("96.10.in-addr.arpa", "10.96.0.0/12"), Some(2));
        assert_eq!(apex("111.10.in-addr.arpa", "10.96.0.0/12"), Some(2));
        assert_eq!(apex("112.10.in-addr.arpa", "10.96.0.0/12"), None);
        assert_eq!(apex("10.in-addr.arpa", "10.96.0.0/12"), None);
        assert_eq!(apex("9.0.0.10.in-addr.arpa", "10.0.0.8/29"), Some(3));
        assert_eq!(apex("99.0.0.10.in-addr.arpa", "10.0.0.8/29"), None);
        assert_eq!(apex("x.99.0.0.10.in-addr.arpa", "10.0.0.8/29"), None);
        assert_eq!(apex("x.9.0.0.10.in-addr.arpa", "10.0.0.8/29"), Some(3));
        assert_eq!(apex("0.0.10.in-addr.arpa", "10.0.0.8/29"), Some(3));
        assert_eq!(apex("foo.96.10.in-addr.arpa", "10.96.0.0/16"), Some(2));
        assert_eq!(apex("01.10.96.10.in-addr.arpa", "10.96.0.0/16"), Some(2));
        assert_eq!(apex("4.4.2.0.0.0.d.f.ip6.arpa", "fd00:244::/32"), Some(8));
    }
}
