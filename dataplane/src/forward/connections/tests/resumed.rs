//! Which handshakes over QUIC count as resumed (E55): what the server did counts, not what was offered to it.

use std::net::Ipv4Addr;

use crds::config::{CaBundle, ServerTls, Transport};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, ServerConfig};
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::version::TLS13;

use super::*;
use crate::forward::server_identity::ServerIdentity;

/// As a server that has just started: it knows no session.
pub(super) fn of_server(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> ServerConfig {
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_protocol_versions(&[&TLS13]).unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"doq".to_vec()];
    ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(config).unwrap()))
}

/// How such a server is asked.
pub(super) fn client_of(
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
    address: SocketAddr,
) -> Option<Client> {
    let tls = ServerTls {
        server_name: "dns.example".to_owned(),
        ca_bundle: Some(CaBundle::Pem(made.cert.pem())),
    };
    let identity = ServerIdentity { address, transport: Transport::Quic, tls: Some(tls) };
    Client::new(&identity).unwrap()
}

#[tokio::test]
async fn e55_a_session_that_a_server_refuses_counts_as_a_full_handshake() {
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    let listener = Endpoint::server(of_server(&made), (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(echo_quic(listener.clone(), Arc::default()));
    let client = client_of(&made, address);
    let connections = Arc::new(Connections::new(address, client, Arc::default()));
    let handshakes = || {
        let counted = connections.counted(now());
        (counted.full, counted.resumed)
    };
    for (is_restarted, expected) in [(false, (1, 0)), (false, (1, 1)), (true, (2, 1))] {
        if is_restarted {
            listener.set_server_config(Some(of_server(&made)));
        }
        let connection = Arc::clone(&connections).connect().await.unwrap();
        assert_eq!(handshakes(), expected);
        // Behind its reply are the tickets of the session.
        let place = connection.place(query, now()).unwrap();
        place.reply().await.unwrap();
        connection.close();
    }
}
