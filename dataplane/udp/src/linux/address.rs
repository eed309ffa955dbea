//! Socket addresses as the kernel writes them, and as Rust does.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for either family; 28 octets instead of the 128 of `sockaddr_storage`, so that a batch of them stays in
/// few cache lines.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Name {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    // SAFETY: all variants are plain integers, for which zero is valid.
    pub(super) const ZERO: Self = unsafe { mem::zeroed() };

    /// Size of the buffer, in octets.
    pub(super) const OCTETS: libc::socklen_t = mem::size_of::<Self>() as libc::socklen_t;

    /// The address, if the kernel wrote one of these `octets`.
    pub(super) fn get(&self, octets: libc::socklen_t) -> Option<SocketAddr> {
        if (octets as usize) < mem::size_of::<libc::sockaddr_in>() {
            return None;
        }
        // SAFETY: every variant starts with the family, and every bit pattern is a valid integer.
        let family = libc::c_int::from(unsafe { self.family });
        match family {
            libc::AF_INET => {
                // SAFETY: any bit pattern is a valid sockaddr_in.
                let name = unsafe { self.v4 };
                let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
                Some(SocketAddrV4::new(address, u16::from_be(name.sin_port)).into())
            }
            libc::AF_INET6 if octets as usize >= mem::size_of::<libc::sockaddr_in6>() => {
                // SAFETY: any bit pattern is a valid sockaddr_in6.
                let name = unsafe { self.v6 };
                let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
                let port = u16::from_be(name.sin6_port);
                Some(
                    SocketAddrV6::new(address, port, name.sin6_flowinfo, name.sin6_scope_id).into(),
                )
            }
            _ => None,
        }
    }

    /// Writes an address; returns its octets.
    pub(super) fn set(&mut self, address: SocketAddr) -> libc::socklen_t {
        *self = Self::ZERO;
        match address {
            SocketAddr::V4(address) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                mem::size_of::<libc::sockaddr_in>() as libc::socklen_t
            }
            SocketAddr::V6(address) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_round_trip() {
        for text in ["10.0.0.1:53", "0.0.0.0:0", "[fd00::2]:65535", "[::]:0"] {
            let address: SocketAddr = text.parse().expect("address");
            let mut name = Name::ZERO;
            let octets = name.set(address);
            assert_eq!(name.get(octets), Some(address));
        }
        let scoped = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().expect("v6"), 53, 0, 7));
        let mut name = Name::ZERO;
        let octets = name.set(scoped);
        assert_eq!(name.get(octets), Some(scoped));
    }

    #[test]
    fn nothing_written_is_no_address() {
        assert_eq!(Name::ZERO.get(0), None);
        assert_eq!(Name::ZERO.get(Name::OCTETS), None, "family 0");
        let mut name = Name::ZERO;
        name.set("[::1]:53".parse().expect("address"));
        assert_eq!(name.get(16), None, "an IPv6 address cut to the size of an IPv4 one");
    }
}
