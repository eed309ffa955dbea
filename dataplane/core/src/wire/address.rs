//! One address type for both families in 16 plain octets, IPv4 before IPv6, and the labels that
//! are made of addresses: endpoint names (RR23) and pod names (RR50).

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::cmp::Ordering;
use core::fmt::Write;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

    /// Sixteen octets from the left, as an IPv6 address has them.
    pub(crate) fn of_v6(octets: [u8; 16]) -> Option<Address> {
        let address = Address(octets);
        (!address.is_v4()).then_some(address)
    }

    pub(crate) fn of_v4([a, b, c, d]: [u8; 4]) -> Address {
        Address([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
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
        if let Some(v4) = address.v4() {
            label.push_decimals(v4, b'-');
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
        let part = parts.next()?;
        let mut label = [part.len() as u8, 0, 0, 0];
        label.get_mut(1..=part.len())?.copy_from_slice(part);
        *octet = decimal(&label)?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)).into())
}

/// The number that a label spells, 0 to 255 in decimal without leading zeros. The label begins with its length, and what
/// follows its end is not read.
// Without a branch by the length, which no processor can foresee.
#[inline(always)]
pub(crate) fn decimal(&[length, first, second, third]: &[u8; 4]) -> Option<u8> {
    let length = usize::from(length);
    let least = *[0, 10, 100].get(length.wrapping_sub(1))?;
    // The last digit becomes the third octet, and zeros stand before the first one.
    let digits = u32::from_le_bytes([first, second, third, 0]) << (8 * (3 - length));
    let digits = (digits & 0xff_ffff | 0x30_3030 >> (8 * length)) ^ 0x30_3030;
    // Adding 0x76 carries into the highest bit of each octet above 9.
    let are_digits = ((digits + 0x76_7676) | digits) & 0x80_8080 == 0;
    let [a, b, c, _] = digits.to_le_bytes().map(u32::from);
    let number = 100 * a + 10 * b + c;
    (are_digits && (least..=255).contains(&number)).then_some(number as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
