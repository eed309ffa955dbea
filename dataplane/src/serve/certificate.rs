//! The certificate of an encrypted listener: the mounted copy of a Secret, looked at again and again, because kubelet
//! changes it in place. A bad one leaves the last good one in use and is reported.

#[cfg(test)]
pub(super) mod testing;
mod validity;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwapOption;
use serde::Serialize;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::source::certificate::{CertificateFiles, is_mounted, read};

/// Between two looks at the files.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A look at the files that takes longer is reported: the mount that they are on may hang.
pub(super) const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// What a certificate is for: what is agreed on in the handshake (RFC 7858 and its registry, RFC 9113 §3.2, RFC 9250
/// §4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Tls,
    Https,
    Quic,
}

impl Use {
    fn protocols(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Use::Tls => &[b"dot"],
            Use::Https => &[b"h2", b"http/1.1"],
            Use::Quic => &[b"doq"],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }
}

/// One certificate with its key, as `tls.crt` and `tls.key` in a folder.
pub(super) struct Certificate {
    folders: Mutex<Folders>,
    purpose: Use,
    in_use: ArcSwapOption<ServerConfig>,
    /// How many were taken into use.
    version: AtomicU64,
    /// Held during a look at the files, which may hang: nothing else waits for it.
    looking: Mutex<()>,
    /// The last content, good or bad, or why it could not be read.
    read: Mutex<Option<Result<CertificateFiles, String>>>,
    state: Mutex<CertificateState>,
}

/// Folders of the Secret with the certificate.
#[derive(Clone, Debug)]
struct Folders {
    /// The folder that the configuration names.
    wanted: PathBuf,
    /// The folder that is read: the previous one until the wanted one is mounted.
    read: PathBuf,
}

/// The state of a certificate, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateState {
    /// The Secret that is mounted.
    pub secret: String,
    /// The beginning of the one in use, in seconds since the Unix epoch.
    pub not_before_seconds: Option<i64>,
    /// notAfter of the leaf, Unix seconds.
    pub not_after_seconds: Option<i64>,
    /// Why the mounted certificate is not in use.
    pub trouble: Option<String>,
}

impl Certificate {
    /// Reads the folder for the first time.
    pub(super) fn new(folder: PathBuf, purpose: Use) -> Self {
        let certificate = Self {
            folders: Mutex::new(Folders { wanted: folder.clone(), read: folder }),
            purpose,
            in_use: ArcSwapOption::empty(),
            version: AtomicU64::new(0),
            looking: Mutex::default(),
            read: Mutex::new(None),
            state: Mutex::default(),
        };
        certificate.refresh();
        certificate
    }

    /// What handshakes use now; nothing until there was a good one.
    pub(super) fn config(&self) -> Option<Arc<ServerConfig>> {
        self.in_use.load_full()
    }

    /// The private key of the one in use, as it is mounted: every process that has it mounted knows it, and no one else. None
    /// where what is mounted now is not in use.
    pub(super) fn key(&self) -> Option<Vec<u8>> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = self.in_use.load().is_some() && self.state().trouble.is_none();
        match &*read {
            Some(Ok(files)) if is_good => Some(files.key.clone()),
            Some(Ok(_) | Err(_)) | None => None,
        }
    }

    /// Another number whenever another one is in use.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Its state, for people.
    pub(super) fn state(&self) -> CertificateState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From here on another Secret is named, once it is mounted.
    pub(super) fn set_folder(&self, folder: PathBuf) {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).wanted = folder;
        self.refresh();
    }

    /// Where to read now. What is mounted in a pod is fixed for its life: a Secret that it does not have comes with the pod
    /// that replaces it, and until then the one before is still renewed.
    fn folder(&self) -> PathBuf {
        let Folders { wanted, read } = self.folders();
        // It looks at the file system, which may hang.
        if read == wanted || !is_mounted(&wanted) {
            return read;
        }
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).read.clone_from(&wanted);
        wanted
    }

    fn folders(&self) -> Folders {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the folder again, and uses what is there if it is good. A problem is reported once, until another one
    /// takes its place. Where a look is in progress already, this does nothing: that one may hang, and the next one comes.
    pub(super) fn refresh(&self) {
        let _looking = match self.looking.try_lock() {
            Ok(looking) => looking,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let folder = self.folder();
        let files = read(&folder).map_err(|error| format!("{error:#}"));
        self.take(&folder, files);
    }

    /// A look has taken longer than [`LOOK_WITHIN`]. This is reported until a look ends.
    pub(super) fn is_late(&self) {
        let folder = self.folders().read;
        let trouble = format!(
            "{} cannot be read in time: a look at it has lasted for {} s, as on a mount that hangs",
            folder.display(),
            LOOK_WITHIN.as_secs()
        );
        self.take(&folder, Err(trouble));
    }

    /// Uses what was read in this folder if it is good, and reports it if it is not.
    fn take(&self, folder: &Path, files: Result<CertificateFiles, String>) {
        let mut last = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.secret = secret(folder);
        if last.as_ref() == Some(&files) {
            return;
        }
        let made = match &files {
            Ok(files) => config(files, self.purpose).map_err(|error| format!("{error:#}")),
            Err(error) => Err(error.clone()),
        };
        let folder = folder.display();
        match made {
            Ok((config, validity_s)) => {
                self.in_use.store(Some(Arc::new(config)));
                self.version.fetch_add(1, Ordering::Release);
                state.not_before_seconds = validity_s.map(|(begin, _)| begin);
                state.not_after_seconds = validity_s.map(|(_, end)| end);
                state.trouble = None;
                tracing::info!(%folder, "a certificate is in use");
            }
            Err(error) => {
                let has_one = self.in_use.load().is_some();
                let instead = match has_one {
                    true => "the last good one stays in use",
                    false => "and its listener is off",
                };
                tracing::warn!(%folder, has_one, "a certificate cannot be used, {instead}: {error}");
                state.trouble = Some(error);
            }
        }
        *last = Some(files);
    }
}

/// A Secret is mounted in a folder of its name.
fn secret(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What handshakes need, and when the certificate begins and ends.
fn config(
    files: &CertificateFiles,
    purpose: Use,
) -> anyhow::Result<(ServerConfig, Option<(i64, i64)>)> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&files.chain)
        .collect::<Result<_, _>>()
        .context("tls.crt is not PEM")?;
    // Of the leaf only: some authorities send an expired certificate at the end of the chain, which clients do not need.
    let validity_s = chain.first().and_then(|first| validity::validity_s(first));
    let key = PrivateKeyDer::from_pem_slice(&files.key).context("tls.key has no private key")?;
    let versions: &[_] = match purpose {
        Use::Tls | Use::Https => &[&TLS13, &TLS12],
        // QUIC has no older version (RFC 9001 §4.2).
        Use::Quic => &[&TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("certificate and key do not fit")?;
    config.alpn_protocols = purpose.protocols();
    // No early data: it can be replayed, and nothing is gained on connections that stay.
    config.max_early_data_size = 0;
    Ok((config, validity_s))
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("folders", &self.folders).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{made, mount};
    use super::*;

    /// Without an error at once, this test does not end: no one writes into the pipe.
    #[test]
    fn t8_a_pipe_in_place_of_a_key_is_named_and_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("clusterdns-pipe-{}", std::process::id()));
        let (chain, key) = made();
        mount(&folder, &chain, &key);
        let certificate = Certificate::new(folder.clone(), Use::Tls);
        assert_eq!(certificate.state().trouble, None);
        let file = folder.join("tls.key");
        std::fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
        certificate.refresh();
        let trouble = certificate.state().trouble.expect("it is reported");
        assert!(trouble.contains("tls.key: it is a pipe"), "{trouble}");
        assert!(certificate.config().is_some(), "the last good one");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &key).unwrap();
        certificate.refresh();
        assert_eq!(certificate.state().trouble, None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn t8_another_secret_is_used_once_it_is_mounted() {
        let base = std::env::temp_dir().join(format!("clusterdns-swap-{}", std::process::id()));
        let (old, new) = (base.join("old"), base.join("new"));
        let ((first, first_key), (second, second_key)) = (made(), made());
        mount(&old, &first, &first_key);
        let certificate = Certificate::new(old.clone(), Use::Tls);
        let before = certificate.config().expect("a good one");
        certificate.set_folder(new.clone());
        assert!(Arc::ptr_eq(&certificate.config().unwrap(), &before), "this pod does not have it");
        let state = certificate.state();
        assert_eq!((state.secret.as_str(), state.trouble), ("old", None));
        mount(&old, &second, &second_key);
        certificate.refresh();
        let renewed = certificate.config().unwrap();
        assert!(!Arc::ptr_eq(&renewed, &before), "the one before is renewed meanwhile");
        mount(&new, &first, "not PEM");
        certificate.refresh();
        let state = certificate.state();
        assert_eq!((state.secret.as_str(), state.trouble.is_some()), ("new", true));
        assert!(Arc::ptr_eq(&certificate.config().unwrap(), &renewed), "the last good one");
        mount(&new, &first, &first_key);
        certificate.refresh();
        assert!(!Arc::ptr_eq(&certificate.config().unwrap(), &renewed));
        certificate.set_folder(old);
        let state = certificate.state();
        assert_eq!((state.secret.as_str(), state.trouble), ("old", None), "and back, at once");
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn t8_a_bad_certificate_leaves_the_last_good_one_in_use() {
        let folder = std::env::temp_dir().join(format!("clusterdns-bad-{}", std::process::id()));
        let certificate = Certificate::new(folder.clone(), Use::Tls);
        assert!(certificate.config().is_none(), "nothing is mounted");
        assert_eq!(certificate.key(), None);
        let ((chain, key), (other_chain, other_key)) = (made(), made());
        mount(&folder, &chain, &key);
        certificate.refresh();
        let first = certificate.config().expect("a good one");
        assert_eq!(certificate.key().as_deref(), Some(key.as_bytes()));
        let good = certificate.state();
        assert!(good.trouble.is_none() && good.not_after_seconds.is_some(), "{good:?}");
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
            assert_eq!(certificate.key(), None, "no secret may be made of what is bad");
            let state = certificate.state();
            assert!(state.trouble.is_some(), "it is visible: {chain:.20} {key:.20}");
            assert_eq!(state.not_after_seconds, good.not_after_seconds, "of the one in use");
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
