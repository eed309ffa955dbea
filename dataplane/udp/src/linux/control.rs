//! Ancillary data: the address a datagram was sent to, when the kernel took it in, and the address a reply leaves
//! from.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::stamps::unix_time;
use crate::Local;

/// Room for what we ask for: a header and an in6_pktinfo (40 octets), a header and a timespec (32), rounded up.
const OCTETS: usize = 96;

/// One datagram's ancillary data, aligned as `cmsghdr` demands.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; OCTETS]);

/// What a received datagram's ancillary data says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The address it was sent to; only wildcard sockets ask.
    pub(super) local: Option<Local>,
    /// When the kernel took it in, since the Unix epoch.
    pub(super) at: Option<Duration>,
}

impl Control {
    pub(super) const ZERO: Self = Self([0; OCTETS]);

    /// Size of the buffer, in octets.
    pub(super) const OCTETS: usize = OCTETS;

    /// Reads the first `octets`, as the kernel wrote them.
    pub(super) fn get(&self, octets: usize) -> Received {
        let mut received = Received::default();
        // SAFETY: msghdr is plain integers and pointers, for which zero is valid.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_control = (&raw const self.0).cast_mut().cast();
        let available = octets.min(OCTETS);
        header.msg_controllen = available as _;
        // SAFETY: the CMSG functions stay within `msg_controllen` octets from `msg_control`, which are ours, and
        // return null at their end.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
        while !next.is_null() {
            // SAFETY: `next` is not null, so a whole cmsghdr is there; `self` is aligned for it and the kernel
            // keeps the ones that follow aligned.
            let head = unsafe { next.read() };
            // SAFETY: the data of a header that is within the buffer starts within it or at its end.
            let data = unsafe { libc::CMSG_DATA(next) };
            let room = header.msg_control as usize + available - data as usize;
            let length =
                (head.cmsg_len as usize).saturating_sub(data as usize - next as usize).min(room);
            // SAFETY: `data` and the `length` octets from it are within `self`, by the two minima above.
            let data = unsafe { std::slice::from_raw_parts(data, length) };
            received.take(head.cmsg_level, head.cmsg_type, data);
            // Nothing follows a header that says it ends past the buffer: CMSG_NXTHDR adds to its length unchecked.
            if head.cmsg_len as usize > header.msg_control as usize + available - next as usize {
                break;
            }
            // SAFETY: as for CMSG_FIRSTHDR; `next` came from it.
            next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
        }
        received
    }

    /// Writes the address a reply must leave from; returns the octets to hand to the kernel, 0 to let it choose.
    pub(super) fn set_source(&mut self, from: Local) -> usize {
        if from.address.is_unspecified() {
            return 0;
        }
        match from.address {
            IpAddr::V4(address) => {
                let source = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from(address).to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.set(libc::IPPROTO_IP, libc::IP_PKTINFO, source)
            }
            IpAddr::V6(address) => {
                let source = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                    ipi6_ifindex: from.interface as _,
                };
                self.set(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, source)
            }
        }
    }

    /// Writes one header with this data; returns the octets it takes.
    fn set<T>(&mut self, level: libc::c_int, kind: libc::c_int, data: T) -> usize {
        let length = mem::size_of::<T>() as libc::c_uint;
        // SAFETY: pure arithmetic.
        let (space, total) = unsafe { (libc::CMSG_SPACE(length), libc::CMSG_LEN(length)) };
        let space = space as usize;
        assert!(space <= OCTETS, "the two kinds of data we write fit");
        // SAFETY: cmsghdr is plain integers, for which zero is valid.
        let mut head: libc::cmsghdr = unsafe { mem::zeroed() };
        head.cmsg_len = total as _;
        head.cmsg_level = level;
        head.cmsg_type = kind;
        let start: *mut libc::cmsghdr = (&raw mut self.0).cast();
        // SAFETY: `start` is aligned (repr above) and `space` octets from it are ours (assertion above): a header,
        // and `data` behind it at the offset CMSG_DATA says, written without assuming its alignment.
        unsafe {
            start.write(head);
            libc::CMSG_DATA(start).cast::<T>().write_unaligned(data);
        }
        space
    }
}

impl Received {
    fn take(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                if let Some(info) = read::<libc::in_pktinfo>(data) {
                    let address = Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr));
                    self.local = Some(Local::from(IpAddr::V4(address)));
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let Some(info) = read::<libc::in6_pktinfo>(data) {
                    let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    let link_local = address.is_unicast_link_local();
                    self.local = Some(Local {
                        address: IpAddr::V6(address),
                        // Only there: elsewhere the reply may have to leave by another interface.
                        interface: if link_local { info.ipi6_ifindex as _ } else { 0 },
                    });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                if let Some(time) = read::<libc::timespec>(data) {
                    self.at = unix_time(time);
                }
            }
            _ => {}
        }
    }
}

/// Plain kernel structures: any bit pattern is a valid value.
trait Plain: Copy {}
impl Plain for libc::in_pktinfo {}
impl Plain for libc::in6_pktinfo {}
impl Plain for libc::timespec {}

fn read<T: Plain>(data: &[u8]) -> Option<T> {
    if data.len() < mem::size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough octets, any of which make a valid `T` (Plain), and no alignment is assumed.
    Some(unsafe { data.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_reply_reads_as_the_address_asked() {
        for text in ["127.0.0.2", "fd00::2"] {
            let local = Local::from(text.parse::<IpAddr>().expect("address"));
            let mut control = Control::ZERO;
            let octets = control.set_source(local);
            assert_eq!(control.get(octets).local, Some(local));
        }
    }

    #[test]
    fn an_interface_is_kept_for_link_local_addresses_only() {
        for (text, interface) in [("fe80::1", 3), ("fd00::2", 0)] {
            let mut control = Control::ZERO;
            let octets =
                control.set_source(Local { address: text.parse().expect("address"), interface: 3 });
            let local = control.get(octets).local.expect("local");
            assert_eq!(local.interface, interface, "{text}");
        }
    }

    #[test]
    fn an_unspecified_source_is_left_to_the_kernel() {
        let mut control = Control::ZERO;
        let from = Local::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        assert_eq!(control.set_source(from), 0);
    }

    #[test]
    fn ancillary_data_cut_short_says_nothing() {
        let mut control = Control::ZERO;
        let octets = control.set_source(Local::from(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        for octets in 0..octets {
            // The header promises more than there is: nothing is read past what the kernel says it wrote.
            let got = control.get(octets).local;
            assert!(got.is_none() || octets >= 28, "{octets} octets gave {got:?}");
        }
    }

    /// A control of 64-bit words, each the length, level and kind of a header or its data.
    fn control(words: [u64; OCTETS / 8]) -> Control {
        let mut control = Control::ZERO;
        for (octets, word) in control.0.chunks_exact_mut(8).zip(words) {
            octets.copy_from_slice(&word.to_ne_bytes());
        }
        control
    }

    /// Run by MIRI too (`make miri`), which sees any octet read outside of the buffer or before it was written.
    #[test]
    fn no_header_leads_out_of_the_buffer_with_any_length() {
        let kinds = [
            (libc::IPPROTO_IP, libc::IP_PKTINFO),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS),
            (-1, -1),
        ];
        let lengths =
            [0, 1, 15, 16, 17, 24, 28, 32, 36, 80, 95, 96, 97, 1 << 31, u64::MAX - 7, u64::MAX];
        for (level, kind) in kinds {
            let what = u64::from(level as u32) | u64::from(kind as u32) << 32;
            for first in lengths {
                for second in lengths {
                    // The second header stands where the first says that it is, if it says 32 octets.
                    let mut words = [u64::MAX; OCTETS / 8];
                    (words[0], words[1], words[4], words[5]) = (first, what, second, what);
                    for octets in [0, 1, 16, 31, 32, 40, 47, 48, OCTETS - 1, OCTETS, OCTETS + 1] {
                        // Only that it returns is tested, not what.
                        let received = control(words).get(octets);
                        assert!(octets >= 16 || received == Received::default());
                    }
                }
            }
        }
    }
}
