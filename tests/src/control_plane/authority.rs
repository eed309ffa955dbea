//! A certificate authority of the tests: it signs what an API server, or a proxy in front of one, shows to its clients.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// Signs server certificates. A new one for each use, so that nothing trusts it by accident.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) certificate: rcgen::Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Authority, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Authority { issuer })
    }

    /// The authority's own certificate, for those who should trust it.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The TLS configuration of a server with these host names and addresses.
    pub(crate) fn acceptor(&self, hosts: &[&str]) -> anyhow::Result<TlsAcceptor> {
        let server = self.issue(hosts)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server.key.serialize_der()));
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![server.certificate.der().clone()], key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// A server certificate for these host names and addresses.
    pub(crate) fn issue(&self, hosts: &[&str]) -> Result<Certificate, rcgen::Error> {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, "server");
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Certificate { certificate, key })
    }
}
