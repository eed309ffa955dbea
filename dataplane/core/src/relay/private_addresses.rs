//! Which addresses no name of the public DNS should have (FW43): those of private networks, of the machine and of the link, and
//! those of the ranges whose reverse names are ours.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::wire::message::rtype;
use crate::wire::name::MAX_LABEL;

/// Shorter prefixes than these hold addresses of others: they say nothing about who has an address.
const WIDEST_V4: u8 = 8;
const WIDEST_V6: u8 = 16;

/// The ranges of our Services and pods, which need not be private ones: the first and the last address of each, in order. None
/// meets another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnRanges(Option<Arc<[(IpAddr, IpAddr)]>>);

impl OwnRanges {
    /// No range.
    pub const NONE: OwnRanges = OwnRanges(None);

    /// Those of `reverseCIDRs`.
    pub fn of(ranges: &[IpNet]) -> OwnRanges {
        let is_narrow = |range: &&IpNet| match range {
            IpNet::V4(range) => range.prefix_len() >= WIDEST_V4,
            IpNet::V6(range) => range.prefix_len() >= WIDEST_V6,
        };
        let ranges = ranges.iter().filter(is_narrow);
        let mut all: Vec<(IpAddr, IpAddr)> =
            ranges.map(|range| (range.network(), range.broadcast())).collect();
        // Of two that have an address in common, one has all of the other: the wider one comes first.
        all.sort_unstable_by_key(|(first, last)| (*first, Reverse(*last)));
        all.dedup_by(|next, before| next.0 <= before.1);
        OwnRanges((!all.is_empty()).then(|| all.into()))
    }

    fn has(&self, address: IpAddr) -> bool {
        let Some(ranges) = self.0.as_deref() else { return false };
        let behind = ranges.partition_point(|(first, _)| *first <= address);
        let range = behind.checked_sub(1).and_then(|place| ranges.get(place));
        range.is_some_and(|(_, last)| address <= *last)
    }

    /// Whether a record has an address that no name of the public DNS should have.
    pub(super) fn is_private(&self, rtype: u16, rdata: &[u8]) -> bool {
        let is_private = |address| self.is_private_address(address);
        match rtype {
            rtype::A | rtype::AAAA => address(rdata).is_some_and(is_private),
            // A client may read what we cannot, such as a TargetName that is compressed.
            rtype::SVCB | rtype::HTTPS => has_private_hint(rdata, is_private).unwrap_or(true),
            _ => false,
        }
    }

    fn is_private_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_private = match address {
            IpAddr::V4(v4) => is_private_v4(v4),
            IpAddr::V6(v6) => match translated(v6) {
                Translated::Not => is_private_v6(v6),
                Translated::To(v4) => is_private_v6(v6) || is_private_v4(v4) || self.has(v4.into()),
                Translated::OfOwnPrefix(octets) => self.may_be_private(octets),
            },
        };
        is_private || self.has(address)
    }

    /// Whether a translator with a prefix in `64:ff9b:1::/48` may make a private address of this one, or none that anything has.
    /// Where the IPv4 address is depends on the length of the prefix (RFC 6052 §2.2), which is not known here. Behind it should be
    /// zeros, but translators do not look: so each length counts that ends where there is something.
    fn may_be_private(&self, octets: [u8; 16]) -> bool {
        let [.., a6, a7, u, a9, a10, a11, a12, a13, a14, a15] = octets;
        let last = octets.iter().rposition(|octet| *octet != 0).unwrap_or_default();
        let of_96 = Ipv4Addr::new(a12, a13, a14, a15);
        let has = |v4: Ipv4Addr| self.has(v4.into());
        // Octet 8 is 0 for each length.
        if u != 0 {
            return true;
        }
        if [a9, a10, a11] == [0; 3] && last > 12 {
            return is_private_v4(of_96) || has(of_96);
        }
        let of_48 = Ipv4Addr::new(a6, a7, a9, a10);
        let of_56 = Ipv4Addr::new(a7, a9, a10, a11);
        let of_64 = Ipv4Addr::new(a9, a10, a11, a12);
        let readings = [(10, of_48), (11, of_56), (12, of_64), (15, of_96)];
        // What begins with 0 is the number of a network, and no IPv4 address.
        let mut readings = readings.iter().filter(|(_, v4)| v4.octets()[0] != 0);
        let is_likely = |(end, _): &&(usize, Ipv4Addr)| *end <= last;
        let has_any = readings.clone().any(|reading| is_likely(&reading));
        !has_any
            || readings.any(|reading @ (_, v4)| match is_likely(&reading) {
                true => is_private_v4(*v4) || has(*v4),
                // It ends with 0, as few addresses of machines do.
                false => v4.is_private() || v4.is_link_local() || has(*v4),
            })
    }
}

/// Whether records of this type have addresses, which rebind protection looks at.
pub(super) fn has_addresses(rtype: u16) -> bool {
    matches!(rtype, rtype::A | rtype::AAAA | rtype::SVCB | rtype::HTTPS)
}

fn is_private_v4(v4: Ipv4Addr) -> bool {
    let is_special = match v4.octets() {
        // "This network" (RFC 791): some systems take all of it for themselves. 0.0.0.0 is in it.
        [0, ..] => true,
        // Shared address space (RFC 6598), and the range for benchmarks (RFC 2544): clouds have pods and metadata there.
        [100, second, ..] => second & 0xc0 == 64,
        [198, second, ..] => second & 0xfe == 18,
        // Reserved (RFC 1112), which some clouds give to pods, and broadcast.
        [first, ..] => first >= 240,
    };
    is_special || v4.is_private() || v4.is_loopback() || v4.is_link_local()
}

fn is_private_v6(v6: Ipv6Addr) -> bool {
    v6.is_unique_local()
        || v6.is_loopback()
        || v6.is_unicast_link_local()
        || v6.is_unspecified()
        // Site-local (RFC 3879).
        || v6.segments()[0] & 0xffc0 == 0xfec0
}

/// The IPv4 address that a translator makes of an IPv6 one.
enum Translated {
    Not,
    To(Ipv4Addr),
    /// One that the length of its prefix decides.
    OfOwnPrefix([u8; 16]),
}

/// What a translator makes of an address in its usual prefixes: the well-known one, `64:ff9b::/96`, which no private address
/// should be in (RFC 6052 §3.1), and those of networks of their own in `64:ff9b:1::/48` (RFC 8215). And where a tunnel sends it:
/// of 6to4, `2002::/16` (RFC 3056 §2), and of IPv4-compatible addresses, `::/96` (RFC 4291 §2.5.5.1). Both are out of use, and
/// kernels have them.
fn translated(v6: Ipv6Addr) -> Translated {
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => {
            Translated::To(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        [0x64, 0xff9b, 1, ..] => Translated::OfOwnPrefix(v6.octets()),
        _ => Translated::Not,
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        16 => octets.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

/// Whether a client that connects without asking for addresses may connect to a private one: by the SvcParams `ipv4hint` (4) and
/// `ipv6hint` (6) (RFC 9460 §7.3). None where the RDATA cannot be read.
fn has_private_hint(rdata: &[u8], is_private: impl Fn(IpAddr) -> bool) -> Option<bool> {
    // SvcPriority, then TargetName, which is not compressed (RFC 9460 §2.2).
    let mut rest = rdata.get(2..)?;
    loop {
        let (length, behind) = rest.split_first()?;
        let length = usize::from(*length);
        if length > MAX_LABEL {
            return None;
        }
        rest = behind.get(length..)?;
        if length == 0 {
            break;
        }
    }
    let mut is_any = false;
    while !rest.is_empty() {
        let ([key @ .., high, low], behind) = rest.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, behind) = behind.split_at_checked(length)?;
        rest = behind;
        let octets = match u16::from_be_bytes(*key) {
            4 => 4,
            6 => 16,
            _ => continue,
        };
        let addresses = value.chunks_exact(octets);
        if !addresses.remainder().is_empty() {
            return None;
        }
        is_any |= addresses.filter_map(address).any(&is_private);
    }
    Some(is_any)
}
