//! Certificates for tests: files of one, and one that records which thread uses it, for tests of where handshakes are computed.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::{Certificate, Use};

impl Certificate {
    /// A certificate that is not read from a file.
    pub(in super::super) fn of(config: ServerConfig) -> Certificate {
        let certificate = Certificate::new(PathBuf::new(), Use::Tls);
        certificate.in_use.store(Some(Arc::new(config)));
        certificate.version.fetch_add(1, Ordering::Release);
        certificate
    }
}

/// The chain and the key of another certificate, as its files have them.
pub(in super::super) fn made() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// Mounts a chain and a key in the folder, as kubelet does.
pub(in super::super) fn mount(folder: &Path, chain: &str, key: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("tls.crt"), chain).unwrap();
    std::fs::write(folder.join("tls.key"), key).unwrap();
}

/// The names of the threads that chose the certificate, in order.
type Threads = Arc<Mutex<Vec<String>>>;

/// Notes which thread chooses a certificate: it signs with it at once.
#[derive(Debug)]
struct Noting(Arc<CertifiedKey>, Threads);

impl ResolvesServerCert for Noting {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.1.lock().unwrap().push(name);
        Some(Arc::clone(&self.0))
    }
}

/// What serves this protocol, what its clients trust, and the threads that signed.
pub(in super::super) fn signed_there(
    protocol: &[u8],
) -> (ServerConfig, CertificateDer<'static>, Threads) {
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    let (chain, threads) = (made.cert.der().clone(), Threads::default());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let provider = Arc::new(ring::default_provider());
    let key = CertifiedKey::from_der(vec![chain.clone()], key, &provider).unwrap();
    let resolver = Arc::new(Noting(Arc::new(key), Arc::clone(&threads)));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![protocol.to_vec()];
    (config, chain, threads)
}

/// A client of this protocol that trusts this certificate.
pub(in super::super) fn trusting(
    certificate: &CertificateDer<'static>,
    protocol: &[u8],
) -> ClientConfig {
    trusting_with(ring::default_provider(), certificate, protocol)
}

/// The same of one that encrypts like this.
pub(in super::super) fn trusting_with(
    provider: CryptoProvider,
    certificate: &CertificateDer<'static>,
    protocol: &[u8],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}
