//! The mounted copy of a Secret of type `kubernetes.io/tls`.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::Context;

/// A Secret has at most 1 MiB.
const MAX_OCTETS: u64 = 1 << 20;

/// What the Secret holds, as PEM.
#[derive(PartialEq, Eq)]
pub struct CertificateFiles {
    /// `tls.crt`: the certificate, then those that sign it.
    pub chain: Vec<u8>,
    /// The content of `tls.key`: PEM.
    pub key: Vec<u8>,
}

/// Whether a Secret is mounted in this folder, good or bad.
pub fn is_mounted(folder: &Path) -> bool {
    folder.is_dir()
}

/// Reads both files of a folder.
///
/// # Errors
/// One of them cannot be read; the message names it.
pub fn read(folder: &Path) -> anyhow::Result<CertificateFiles> {
    let file = |name: &str| -> anyhow::Result<Vec<u8>> {
        let path = folder.join(name);
        let mut octets = Vec::new();
        fs::File::open(&path)
            .and_then(|file| file.take(MAX_OCTETS).read_to_end(&mut octets))
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(octets)
    };
    Ok(CertificateFiles { chain: file("tls.crt")?, key: file("tls.key")? })
}
