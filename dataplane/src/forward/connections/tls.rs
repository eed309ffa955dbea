//! Which name an encrypted server must have, and how it must prove it (RFC 8310 §5: the strict profile). Sessions are
//! kept in the configuration of the server, so that later handshakes resume them.

use std::sync::Arc;

use crds::config::{CaBundle, Transport};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::Failure;
use super::certificates::Certificates;
use super::sessions::Sessions;
use crate::forward::server_identity::ServerIdentity;

/// Our side of handshakes with one server.
#[derive(Clone, Debug)]
pub(in crate::forward) struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    pub(super) spoken: Spoken,
    certificates: Arc<Certificates>,
}

/// The protocol inside TLS.
#[derive(Clone, Debug)]
pub(super) enum Spoken {
    Tls,
    Https { uri: Arc<str> },
    Quic(quinn::ClientConfig),
}

impl Client {
    /// For this server; none where it is asked in clear text.
    ///
    /// # Errors
    /// The name or the authorities cannot be used; what and why, for a person.
    pub(in crate::forward) fn new(identity: &ServerIdentity) -> Result<Option<Client>, String> {
        let (versions, protocol): (&[_], &[u8]) = match identity.transport {
            Transport::Udp | Transport::Tcp => return Ok(None),
            Transport::Tls => (&[&TLS13, &TLS12], b"dot"),
            Transport::Https => (&[&TLS13, &TLS12], b"h2"),
            Transport::Quic => (&[&TLS13], b"doq"),
        };
        let tls = identity.tls.as_ref().ok_or("tls.serverName is missing")?;
        let written = tls.server_name.trim_end_matches('.');
        let name = ServerName::try_from(written.to_owned()).map_err(|_| {
            format!("tls.serverName {written} is no name that a certificate can have")
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| format!("TLS cannot be used: {error}"))?;
        let roots = authorities(tls.ca_bundle.as_ref())?;
        let certificates = Arc::new(Certificates::signed_by(roots, &provider)?);
        // They are checked as usual, counted, and asked for again after a while.
        let builder = builder.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::clone(&certificates) as _);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::store(Arc::new(Sessions::of(&certificates)));
        // Early data can be copied and sent again (RFC 8446 §8), and kept connections need none.
        config.enable_early_data = false;
        let config = Arc::new(config);
        let spoken = match identity.transport {
            Transport::Https => Spoken::Https { uri: uri(written, identity.address.port()) },
            Transport::Quic => Spoken::Quic(super::quic::config(&config)?),
            Transport::Udp | Transport::Tcp | Transport::Tls => Spoken::Tls,
        };
        Ok(Some(Client { config, name, spoken, certificates }))
    }

    /// The name that the server must prove.
    pub(super) fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    /// Handshakes in which a certificate came.
    pub(super) fn full_handshakes(&self) -> u64 {
        self.certificates.came()
    }

    /// Lets this time pass since the latest certificate.
    #[cfg(test)]
    pub(super) fn pass(&self, time: std::time::Duration) {
        self.certificates.pass(time);
    }

    /// Begins TLS on a connection.
    ///
    /// # Errors
    /// The server does not prove its name, or does not speak TLS as we do.
    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await;
        stream.map_err(|error| Failure::handshake(&error))
    }
}

/// Where DNS is served over HTTPS: the path that RFC 8484 §4.1.1 uses, which public resolvers serve.
fn uri(name: &str, port: u16) -> Arc<str> {
    match port {
        443 => format!("https://{name}/dns-query").into(),
        port => format!("https://{name}:{port}/dns-query").into(),
    }
}

/// The authorities that may have signed the certificate: those of the bundle only, or the public ones.
fn authorities(bundle: Option<&CaBundle>) -> Result<RootCertStore, String> {
    match bundle {
        None => Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }),
        Some(CaBundle::Pem(text)) => {
            let mut roots = RootCertStore::empty();
            let certificates =
                CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok);
            let (read, _) = roots.add_parsable_certificates(certificates);
            let none =
                "tls.caBundle holds no certificate that can be read: write the authority in PEM";
            (read > 0).then_some(roots).ok_or_else(|| none.to_owned())
        }
        Some(CaBundle::ConfigMap { name, key }) => Err(format!(
            "tls.caBundle names ConfigMap {name}, key {key}, which only the operator reads"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw2_beside_the_authorities_of_a_bundle_none_is_trusted() {
        let authority = rcgen::generate_simple_self_signed(["ca.example".to_owned()]).unwrap();
        let bundle = CaBundle::Pem(authority.cert.pem());
        assert_eq!(authorities(Some(&bundle)).unwrap().len(), 1);
        let public = authorities(None).unwrap();
        assert_eq!(public.len(), webpki_roots::TLS_SERVER_ROOTS.len());
    }
}
