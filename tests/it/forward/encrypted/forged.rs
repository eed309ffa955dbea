//! A server with the certificate of another one (FW2): everyone who has asked that one has its certificate. It is refused for
//! the signature that it cannot make, and for nothing else.

use tokio_rustls::rustls::SupportedProtocolVersion;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::*;

#[tokio::test]
async fn f22_fw2_a_server_with_the_certificate_of_another_gets_no_query() {
    const OLDER: &[&SupportedProtocolVersion] = &[&TLS12];
    const NEWER: &[&SupportedProtocolVersion] = &[&TLS13];
    for (over, versions) in [
        (UpstreamTransport::Tls, OLDER),
        (UpstreamTransport::Tls, NEWER),
        (UpstreamTransport::Https, OLDER),
        (UpstreamTransport::Https, NEWER),
        (UpstreamTransport::Quic, NEWER),
    ] {
        let credentials = Credentials::forged(NAME, versions).unwrap();
        let forged = stage(Encrypted { credentials, ..named(over) }, ANSWERS);
        refused(forged, "certificate_authority").await;
    }
}
