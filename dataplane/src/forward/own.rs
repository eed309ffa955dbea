//! Which upstreams are this process itself (A34): a query would come back, each attempt would be forwarded again, and
//! all places would be full until the last budget ends.

use std::net::{SocketAddr, UdpSocket};

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
            let is_everywhere =
                own.ip().is_unspecified() && own.is_ipv4() == server.is_ipv4() && is_local(server);
            own.port() == server.port() && (own.ip() == server.ip() || is_everywhere)
        })
    }
}

/// Only addresses of the machine can be bound.
fn is_local(server: SocketAddr) -> bool {
    UdpSocket::bind((server.ip(), 0)).is_ok()
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
}
