//! What we send to clients over IPv4 is not cut by what an ICMP error says. Anyone can write one that says that a path to a client
//! takes only small packets, and the kernel believes it for ten minutes. It would send larger replies in fragments, and these get
//! lost, or are replaced by those of an attacker. So packets have the size of the interface, and a router may cut them. No
//! router does over IPv6, where a reply of the default size fits each path: there the kernel may learn what a path takes.

use std::net::IpAddr;
use std::os::fd::RawFd;

const OPTION: (libc::c_int, libc::c_int) = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);

/// Sets this for a socket of that family. Where the system refuses it, its paths are as large as it believes: the socket serves.
pub(super) fn ignore(descriptor: RawFd, ip: IpAddr) {
    if ip.is_ipv4() {
        let (level, name) = OPTION;
        let _ = super::set(descriptor, level, name, libc::IP_PMTUDISC_OMIT);
    }
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::{Options, Socket};

    #[test]
    fn wr11_an_icmp_error_does_not_make_replies_smaller() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let address: std::net::SocketAddr = address.parse().expect("address");
            let socket = Socket::bind(address, &Options::default()).expect("bound");
            let (level, name) = OPTION;
            let mut value: libc::c_int = -1;
            let mut octets = mem::size_of_val(&value) as libc::socklen_t;
            // SAFETY: the pointers are to `value` and its length in octets; the kernel writes at most that.
            let status = unsafe {
                libc::getsockopt(
                    socket.inner.as_raw_fd(),
                    level,
                    name,
                    (&raw mut value).cast(),
                    &raw mut octets,
                )
            };
            assert_eq!((status, value), (0, libc::IP_PMTUDISC_OMIT), "{address}");
        }
    }
}
