//! An authority of the tests' own and a certificate that it signed.

use std::sync::Arc;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ALL_VERSIONS, ServerConfig, SupportedProtocolVersion, crypto};

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
    versions: &'static [&'static SupportedProtocolVersion],
}

/// Presents its certificate whether or not the key is that of it.
#[derive(Debug)]
struct Presented(Arc<CertifiedKey>);

impl ResolvesServerCert for Presented {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
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

    /// The certificate of a server with this name, and a key that is not its own: what someone has who copied the certificate
    /// from a handshake. This version of TLS alone is spoken.
    ///
    /// # Errors
    /// None can be made.
    pub fn forged(
        name: &str,
        versions: &'static [&'static SupportedProtocolVersion],
    ) -> Result<Credentials> {
        let (real, other) = (Credentials::of(name)?, Credentials::of(name)?);
        Ok(Credentials { key: other.key, key_pem: other.key_pem, versions, ..real })
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
        let versions = ALL_VERSIONS;
        Ok(Credentials { authority, certificate_pem, key_pem, certificate, key, versions })
    }

    /// The TLS configuration of a server with this name.
    ///
    /// # Errors
    /// TLS refuses them.
    pub fn server_config(&self, protocol: &[u8]) -> Result<ServerConfig> {
        let provider = Arc::new(crypto::ring::default_provider());
        let key = provider.key_provider.load_private_key(self.key.clone_key())?;
        let presented = Presented(CertifiedKey::new(vec![self.certificate.clone()], key).into());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(presented));
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}
