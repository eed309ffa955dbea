//! An authority of the tests' own and a certificate that it signed.

use std::sync::Arc;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// The certificate and key of one server, and the authority that signed it.
#[derive(Debug)]
pub struct Credentials {
    /// The authority in PEM: what a `caBundle` holds.
    pub authority: String,
    /// The certificate in PEM, for programs that are not ours.
    pub certificate_pem: String,
    pub key_pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// A certificate for this name.
    ///
    /// # Errors
    /// None can be made.
    pub fn of(name: &str) -> Result<Credentials> {
        Credentials::issue(name, |_| {})
    }

    /// The same, which expired long ago.
    ///
    /// # Errors
    /// None can be made.
    pub fn expired(name: &str) -> Result<Credentials> {
        Credentials::issue(name, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    fn issue(name: &str, change: impl Fn(&mut CertificateParams)) -> Result<Credentials> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority of upstreams");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "upstream");
        change(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        let (certificate_pem, key_pem) = (certificate.pem(), key.serialize_pem());
        let certificate = certificate.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let authority = issuer.pem();
        Ok(Credentials { authority, certificate_pem, key_pem, certificate, key })
    }

    /// The TLS configuration of a server with this name.
    ///
    /// # Errors
    /// TLS refuses them.
    pub fn server_config(&self, protocol: &[u8]) -> Result<ServerConfig> {
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}
