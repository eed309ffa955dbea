//! The certificate of an encrypted listener: the mounted copy of a Secret, looked at again and again, because kubelet
//! changes it in place. A bad one leaves the last good one in use and is reported.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwapOption;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::source::certificate::{Files, read};

/// Between two looks at the files.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);
/// DNS over TLS in the handshake (RFC 7858 section 3.1 and its registry).
const PROTOCOL: &[u8] = b"dot";

/// One certificate with its key, as `tls.crt` and `tls.key` in a folder.
pub(super) struct Certificate {
    folder: PathBuf,
    in_use: ArcSwapOption<ServerConfig>,
    /// What was read last, good or bad.
    read: Mutex<Option<Files>>,
}

impl Certificate {
    /// Reads the folder for the first time.
    pub(super) fn new(folder: PathBuf) -> Self {
        let certificate = Self { folder, in_use: ArcSwapOption::empty(), read: Mutex::new(None) };
        certificate.refresh();
        certificate
    }

    /// What handshakes use now; nothing until there was a good certificate.
    pub(super) fn config(&self) -> Option<Arc<ServerConfig>> {
        self.in_use.load_full()
    }

    /// Reads the folder again, and uses what is there if it is good. A trouble is reported once.
    pub(super) fn refresh(&self) {
        let files = read(&self.folder);
        let mut last = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.folder.display();
        let has_one = self.in_use.load().is_some();
        let files = match files {
            Ok(files) => files,
            Err(error) => {
                if last.take().is_some() || !has_one {
                    tracing::warn!(%folder, has_one, "a certificate cannot be read: {error:#}");
                }
                return;
            }
        };
        if last.as_ref() == Some(&files) {
            return;
        }
        match config(&files) {
            Ok(config) => {
                self.in_use.store(Some(Arc::new(config)));
                tracing::info!(%folder, "a certificate is in use");
            }
            Err(error) => {
                tracing::warn!(%folder, has_one, "a certificate is bad, the last good one stays: {error:#}");
            }
        }
        *last = Some(files);
    }
}

fn config(files: &Files) -> anyhow::Result<ServerConfig> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&files.chain)
        .collect::<Result<_, _>>()
        .context("tls.crt is not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(&files.key).context("tls.key has no private key")?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("certificate and key do not fit")?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // No early data: it can be replayed, and nothing is gained on connections that stay.
    config.max_early_data_size = 0;
    Ok(config)
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("folder", &self.folder).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces what is mounted.
    fn mount(folder: &std::path::Path, chain: &str, key: &str) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("tls.crt"), chain).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
    }

    #[test]
    fn t8_a_bad_certificate_leaves_the_last_good_one_in_use() {
        let folder = std::env::temp_dir().join(format!("clusterdns-bad-{}", std::process::id()));
        let made = || {
            let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let certificate = Certificate::new(folder.clone());
        assert!(certificate.config().is_none(), "nothing is mounted");
        let ((chain, key), (other_chain, other_key)) = (made(), made());
        mount(&folder, &chain, &key);
        certificate.refresh();
        let first = certificate.config().expect("a good one");
        for (chain, key) in [
            ("", ""),
            ("not PEM", &key),
            (&chain, "not PEM"),
            (&chain, &other_key),
            (&other_chain, &key),
            (&chain, &chain),
        ] {
            mount(&folder, chain, key);
            certificate.refresh();
            let now = certificate.config().expect("the last good one");
            assert!(Arc::ptr_eq(&now, &first), "{chain:.20} {key:.20}");
        }
        std::fs::remove_file(folder.join("tls.key")).unwrap();
        certificate.refresh();
        assert!(Arc::ptr_eq(&certificate.config().unwrap(), &first), "a missing key");
        mount(&folder, &other_chain, &other_key);
        certificate.refresh();
        assert!(!Arc::ptr_eq(&certificate.config().unwrap(), &first), "the next good one");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
