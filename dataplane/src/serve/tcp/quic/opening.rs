//! Opens a listener for QUIC. It has its certificate before its socket is read: quinn answers the first packet of a client with
//! a stateless reset (RFC 9000 §10.3) where it has none, and a client that sends no second one waits for nothing.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{Endpoint, ServerConfig};

use super::super::super::Deadlines;
use super::super::super::certificate::Certificate;
use super::super::TcpServer;
use super::entrance::config;
use super::resets::endpoint_config;
use crate::quic_sockets::OneByOne;

/// An open listener.
pub(in super::super) struct Opened {
    pub(super) local: SocketAddr,
    pub(super) endpoint: Endpoint,
    pub(super) sockets: OneByOne,
    /// What it begins with; nothing where there is no good certificate yet.
    pub(super) config: Option<ServerConfig>,
}

/// Its tasks are those of the thread of handshakes.
pub(in super::super) fn open(
    server: &TcpServer,
    socket: UdpSocket,
    certificate: &Certificate,
    deadlines: &Deadlines,
) -> io::Result<Opened> {
    let local = socket.local_addr()?;
    let sockets = OneByOne::default();
    let config = config(certificate, deadlines, None);
    let _there = server.handshake_thread.enter();
    let runtime = Arc::new(sockets.clone());
    let shared = endpoint_config(certificate.key().as_deref());
    let endpoint = Endpoint::new(shared, config.clone(), socket, runtime)?;
    Ok(Opened { local, endpoint, sockets, config })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::super::super::super::certificate::testing::signed_there;
    use super::super::super::tests::{patient, with_handshake_thread};
    use super::super::entrance::tests::client_of;
    use super::*;

    #[test]
    fn t8_a_listener_for_quic_takes_the_first_packet_that_comes() {
        let (tls, chain, _) = signed_there(b"doq");
        with_handshake_thread(patient(), async move |server| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = socket.local_addr().unwrap();
            let certificate = Certificate::of(tls);
            let opened = open(&server, socket, &certificate, &patient().deadlines).unwrap();
            let client = client_of(&chain);
            let _connecting = client.connect(address, "dns.example").unwrap();
            let incoming = opened.endpoint.accept();
            let incoming = tokio::time::timeout(Duration::from_secs(30), incoming).await;
            assert!(incoming.is_ok_and(|it| it.is_some()), "it was refused");
        });
    }
}
