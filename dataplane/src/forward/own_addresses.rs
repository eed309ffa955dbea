//! Which upstreams are this process itself (A34): a query would come back, each attempt would be forwarded again, and
//! all places would be full until the last budget ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use dataplane_udp::wildcard;

#[derive(Debug)]
pub(super) struct OwnAddresses(Vec<SocketAddr>);

impl OwnAddresses {
    pub(super) fn new(addresses: &[SocketAddr]) -> OwnAddresses {
        OwnAddresses(addresses.to_vec())
    }

    /// Whether this address leads to us. A wildcard listener has every address of the machine.
    pub(super) fn contains(&self, server: SocketAddr) -> bool {
        let server = SocketAddr::new(server.ip().to_canonical(), server.port());
        self.0.iter().any(|own| {
            let is_everywhere = || {
                own.ip().is_unspecified()
                    && own.is_ipv4() == server.is_ipv4()
                    && is_local(server.ip(), can_bind, source_towards)
            };
            own.port() == server.port() && (own.ip() == server.ip() || is_everywhere())
        })
    }
}

/// TEST-NET-1 (RFC 5737) and the prefix for documentation (RFC 3849): no machine has these addresses.
const OF_NO_MACHINE: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
);

/// Only addresses of the machine can be bound, unless programs may bind any address (`ip_nonlocal_bind`, which keepalived
/// needs). Then every upstream would be ourselves, so there the source towards the address counts. Towards a second address of
/// an interface it is the first one: that loop is left to the probe (FW50).
fn is_local(
    ip: IpAddr,
    can_bind: impl Fn(IpAddr) -> bool,
    source_towards: impl Fn(IpAddr) -> Option<IpAddr>,
) -> bool {
    let no_address = if ip.is_ipv4() { OF_NO_MACHINE.0 } else { OF_NO_MACHINE.1 };
    can_bind(ip) && (!can_bind(no_address) || ip.is_loopback() || source_towards(ip) == Some(ip))
}

fn can_bind(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The address that the system sends from; nothing is sent.
fn source_towards(ip: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((wildcard(ip), 0)).ok()?;
    socket.connect((ip, 53)).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a34_an_upstream_that_is_ourselves_is_known() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let own = OwnAddresses::new(&[at("127.0.0.1:5300"), at("0.0.0.0:53")]);
        let rows = [
            ("127.0.0.1:5300", true),
            ("[::ffff:127.0.0.1]:5300", true),
            ("127.0.0.1:5301", false),
            ("127.0.0.2:5300", false),
            ("127.0.0.2:53", true),
            // TEST-NET-1 (RFC 5737): no machine has the address.
            ("192.0.2.1:53", false),
            ("[::1]:53", false),
        ];
        for (server, expected) in rows {
            assert_eq!(own.contains(at(server)), expected, "{server}");
        }
    }

    #[test]
    fn a34_an_upstream_is_not_ourselves_because_any_address_can_be_bound() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let source =
            |to: IpAddr| Some(if to.is_loopback() { ip("127.0.0.1") } else { ip("10.0.0.4") });
        for (upstream, expected) in [
            ("10.0.0.4", true),
            ("127.0.0.53", true),
            ("8.8.8.8", false),
            ("2001:4860::8888", false),
        ] {
            assert_eq!(is_local(ip(upstream), |_| true, source), expected, "{upstream}");
        }
        // A second address, where only those of the machine can be bound.
        assert!(is_local(ip("10.0.0.5"), |bound| bound == ip("10.0.0.5"), source));
        assert_eq!(source_towards(ip("127.0.0.1")), Some(ip("127.0.0.1")));
    }
}
