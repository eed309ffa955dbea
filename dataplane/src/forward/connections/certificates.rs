//! The certificates of one server: checked by rustls, and counted here. QUIC does not say whether a handshake resumed a session,
//! but a certificate comes only where it did not. Whether we offered a session says nothing: the server may refuse it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::forward::clock::Clock;

/// The check of the certificates of one server.
#[derive(Debug)]
pub(super) struct Certificates {
    check: Arc<WebPkiServerVerifier>,
    came: AtomicU64,
    /// When the latest good one came, by `clock`; 0 before the first, when there are no sessions.
    good_ms: AtomicU64,
    clock: Clock,
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
        let (came, good_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Certificates { check, came, good_ms, clock: Clock::default() })
    }

    /// How many came, good and bad.
    pub(super) fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// Time since the latest good one came.
    pub(super) fn checked_for(&self) -> Duration {
        let good_ms = self.good_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.clock.now_ms().saturating_sub(good_ms))
    }

    /// The server has proved that the certificate, which was found good before, is its own.
    fn proved<T>(&self, proof: Result<T, Error>) -> Result<T, Error> {
        if proof.is_ok() {
            self.good_ms.store(self.clock.now_ms(), Ordering::Relaxed);
        }
        proof
    }

    /// Lets this time pass.
    #[cfg(test)]
    pub(super) fn pass(&self, time: Duration) {
        self.clock.advance(time);
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
        self.proved(self.check.verify_tls12_signature(message, certificate, signed))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proved(self.check.verify_tls13_signature(message, certificate, signed))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.check.supported_verify_schemes()
    }
}
