//! Reverse names (docs/dns.md §3.7): the part of an address that a name below `in-addr.arpa.` or `ip6.arpa.` spells, and
//! the ranges that make such a name ours.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::wire::address::{Address, decimal};
use crate::wire::labels::Labels;

/// The number that a label of one hexadecimal digit spells.
fn nibble(&[length, digit, ..]: &[u8; 4]) -> Option<u8> {
    match (length, digit) {
        (1, b'0'..=b'9') => Some(digit - b'0'),
        (1, b'a'..=b'f') => Some(digit - b'a' + 10),
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
    left: u8,
    /// How many of them, from the right, spell part of an address.
    spelled: u8,
}

impl ReverseName {
    /// Reads a name; `None` when it is not below a reverse zone.
    #[inline]
    pub(crate) fn of(name: &Labels) -> Option<ReverseName> {
        // Most names have another end: no label needs to be read.
        if name.wire().ends_with(b"\x04arpa\0") { ReverseName::below_arpa(name) } else { None }
    }

    fn below_arpa(name: &Labels) -> Option<ReverseName> {
        let left = name.count().checked_sub(2)?;
        let ipv6 = match name.suffix(left) {
            b"\x07in-addr\x04arpa\0" => false,
            b"\x03ip6\x04arpa\0" => true,
            _ => return None,
        };
        // A name has 127 labels at most.
        let mut reverse = ReverseName { octets: [0; 16], ipv6, left: left as u8, spelled: 0 };
        // More octets follow each label: those of the zone.
        let labels = (0..left).rev().map_while(|index| name.beginning(index));
        match ipv6 {
            false => reverse.read_v4(labels),
            true => reverse.read_v6(labels),
        }
        Some(reverse)
    }

    fn read_v4<'a>(&mut self, labels: impl Iterator<Item = &'a [u8; 4]>) {
        for (octet, label) in self.octets[..4].iter_mut().zip(labels) {
            let Some(number) = decimal(label) else {
                return;
            };
            *octet = number;
            self.spelled += 1;
        }
    }

    fn read_v6<'a>(&mut self, labels: impl Iterator<Item = &'a [u8; 4]>) {
        for (index, label) in labels.take(32).enumerate() {
            let Some(number) = nibble(label) else {
                return;
            };
            self.octets[index / 2] |= if index % 2 == 0 { number << 4 } else { number };
            self.spelled += 1;
        }
    }

    /// Labels left of the family's zone.
    pub(crate) fn left(&self) -> usize {
        usize::from(self.left)
    }

    /// Labels of a whole address.
    fn full(&self) -> u8 {
        if self.ipv6 { 32 } else { 4 }
    }

    /// The address, when the name is exactly one full address.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        (self.left == self.full() && self.spelled == self.left).then(|| self.prefix())
    }

    /// The same as objects have it; none has an IPv4-mapped address, which is not equal to the IPv4 address inside (RR20).
    pub(crate) fn publishable(&self) -> Option<Address> {
        if self.left != self.full() || self.spelled != self.left {
            return None;
        }
        if self.ipv6 {
            return Address::of_v6(self.octets);
        }
        let [a, b, c, d, ..] = self.octets;
        Some(Address::of_v4([a, b, c, d]))
    }

    /// Whether every label spells part of an address, but not all of it.
    pub(crate) fn is_partial(&self) -> bool {
        self.spelled == self.left && self.left < self.full()
    }

    /// The labels of the zone of loopback addresses that this name is at or below (A41): one for
    /// `127.in-addr.arpa.`, all for the one address of IPv6; `None` if it is not.
    pub(crate) fn loopback_labels(&self) -> Option<usize> {
        match self.ipv6 {
            // An octet that is not spelled is 0.
            false => (self.octets[0] == 127).then_some(1),
            true => (self.spelled == 32 && Ipv6Addr::from(self.octets).is_loopback()).then_some(32),
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
}

/// A range of addresses whose reverse names are ours (A2), compiled: it is compared with each reverse name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReverseRange {
    ipv6: bool,
    /// Labels of the zone's apex.
    apex: usize,
    /// Octets from the left, as [`ReverseName`] has them, and which of their bits all addresses of the range share.
    bits: u128,
    mask: u128,
    /// Those of them that the labels of the apex spell.
    apex_mask: u128,
    /// Whether all addresses below the apex are in the range. A longer one shares the apex with addresses of others, and
    /// with the names of their delegations (RFC 2317).
    pub(crate) has_whole_apex: bool,
}

impl ReverseRange {
    /// The range with this many leading bits.
    pub(crate) fn new(range: &IpNet) -> ReverseRange {
        // An apex is of whole labels, and not so short that it is of many owners, nor of one address.
        let (ipv6, (bits_of_label, shortest, longest)) = match range {
            IpNet::V4(_) => (false, (8, 1, 3)),
            IpNet::V6(_) => (true, (4, 4, 31)),
        };
        let prefix = usize::from(range.prefix_len());
        let apex = prefix.div_ceil(bits_of_label).clamp(shortest, longest);
        let mut octets = [0; 16];
        match range.addr() {
            IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => octets = v6.octets(),
        }
        let mask = |bits: usize| match bits {
            0 => 0,
            _ => u128::MAX << (128 - bits),
        };
        ReverseRange {
            ipv6,
            apex,
            bits: u128::from_be_bytes(octets),
            mask: mask(prefix),
            apex_mask: mask(prefix.min(apex * bits_of_label)),
            has_whole_apex: prefix <= apex * bits_of_label,
        }
    }

    /// The labels of the zone apex that makes this name ours (A2); `None` if the range does not.
    pub(crate) fn apex_labels(&self, name: &ReverseName) -> Option<usize> {
        // A name below the name of a whole address belongs to that address too. Of a shorter name the bits of the apex
        // alone are compared: a range longer than it owns the apex too.
        let mask = if name.spelled == name.full() { self.mask } else { self.apex_mask };
        let is_within = (u128::from_be_bytes(name.octets) ^ self.bits) & mask == 0;
        (name.ipv6 == self.ipv6 && usize::from(name.spelled) >= self.apex && is_within)
            .then_some(self.apex)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::name::Name;

    fn read(name: &str) -> Option<ReverseName> {
        ReverseName::of(&Labels::of(&Name::from_text(name).unwrap()))
    }

    #[test]
    fn ranges_own_the_names_of_whole_labels() {
        let apex = |name: &str, range: &str| {
            ReverseRange::new(&range.parse().unwrap()).apex_labels(&read(name).unwrap())
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

    #[test]
    fn labels_that_spell_no_octet_end_the_address() {
        let spelled =
            |name: &str| read(name).map(|name| (usize::from(name.spelled), name.address()));
        let whole = Some("10.96.200.9".parse().unwrap());
        assert_eq!(spelled("9.200.96.10.in-addr.arpa"), Some((4, whole)));
        for (name, count) in [
            ("in-addr.arpa", 0),
            ("x.9.200.96.10.in-addr.arpa", 4),
            ("256.200.96.10.in-addr.arpa", 3),
            ("999.200.96.10.in-addr.arpa", 3),
            ("09.200.96.10.in-addr.arpa", 3),
            ("009.200.96.10.in-addr.arpa", 3),
            ("00.96.10.in-addr.arpa", 2),
            ("1a.96.10.in-addr.arpa", 2),
            ("1/a.96.10.in-addr.arpa", 2),
            ("1:.96.10.in-addr.arpa", 2),
            ("0001.96.10.in-addr.arpa", 2),
            ("a.in-addr.arpa", 0),
            ("g.f.ip6.arpa", 1),
            ("10.f.ip6.arpa", 1),
        ] {
            assert_eq!(spelled(name), Some((count, None)), "{name}");
        }
        assert_eq!(spelled("10.arpa"), None);
        assert_eq!(spelled("10.xin-addr.arpa"), None);
        assert_eq!(spelled("10.ip6.xarpa"), None);
    }

    /// Whether a range has an address, by the crate that reads configurations.
    fn owns(range: &IpNet, address: IpAddr) -> bool {
        range.contains(&address)
    }

    proptest! {
        #[test]
        fn an_address_is_read_and_owned_as_written(
            v6 in any::<bool>(), address in prop_oneof![any::<u128>(), 0xffff_0000_0000..0xffff_ffff_ffff_u128], flip in 0_u32..128, length in 0_u8..=128,
        ) {
            let (address, other): (IpAddr, IpAddr) = match v6 {
                true => (Ipv6Addr::from(address).into(), Ipv6Addr::from(address ^ 1 << flip).into()),
                false => {
                    let other = address as u32 ^ 1 << (flip % 32);
                    (Ipv4Addr::from(address as u32).into(), Ipv4Addr::from(other).into())
                }
            };
            let name = match address {
                IpAddr::V4(v4) => {
                    let [a, b, c, d] = v4.octets();
                    format!("{d}.{c}.{b}.{a}.in-addr.arpa")
                }
                IpAddr::V6(v6) => {
                    let digits = v6.octets().into_iter().flat_map(|octet| [octet >> 4, octet & 15]);
                    let labels: Vec<String> = digits.map(|digit| format!("{digit:x}.")).collect();
                    labels.into_iter().rev().chain(["ip6.arpa".to_owned()]).collect()
                }
            };
            let name = read(&name).unwrap();
            prop_assert_eq!(name.address(), Some(address));
            let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
            prop_assert_eq!(name.publishable(), (!is_mapped).then(|| address.into()));
            prop_assert_eq!(name.loopback_labels().is_some(), address.is_loopback());
            let length = if v6 { length } else { length % 33 };
            let range = IpNet::new(other, length).unwrap();
            let owned = ReverseRange::new(&range).apex_labels(&name).is_some();
            prop_assert_eq!(owned, owns(&range, address));
        }
    }
}
