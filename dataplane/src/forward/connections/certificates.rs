//! The certificates of one server: checked by rustls, and counted here. QUIC does not say whether a handshake resumed a session,
//! but a certificate comes only where it did not. Whether we offered a session says nothing: the server may refuse it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The check of the certificates of one server.
#[derive(Debug)]
pub(super) struct Certificates {
    check: Arc<WebPkiServerVerifier>,
    came: AtomicU64,
}

impl Certificates {
    /// They must be signed by one of these authorities.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn signed_by(
        authorities: RootCertStore,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Certificates, String> {
        let check =
            WebPkiServerVerifier::builder_with_provider(authorities.into(), Arc::clone(provider));
        let check = check.build().map_err(|error| format!("TLS cannot be used: {error}"))?;
        Ok(Certificates { check, came: AtomicU64::new(0) })
    }

    /// How many came, good and bad.
    pub(super) fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }
}

impl ServerCertVerifier for Certificates {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.came.fetch_add(1, Ordering::Relaxed);
        self.check.verify_server_cert(leaf, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.check.supported_verify_schemes()
    }
}
