//! The mounted copy of a Secret of type `kubernetes.io/tls`.

use std::path::Path;

use anyhow::Context;
use process::bounded_file;

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
        bounded_file::read(&path, MAX_OCTETS)
            .with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(CertificateFiles { chain: file("tls.crt")?, key: file("tls.key")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_too_large_is_refused_and_not_cut() {
        let folder = std::env::temp_dir().join(format!("large-certificate-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("tls.crt"), vec![b'#'; MAX_OCTETS as usize + 1]).unwrap();
        std::fs::write(folder.join("tls.key"), "").unwrap();
        let error = read(&folder).err().map(|error| format!("{error:#}"));
        std::fs::remove_dir_all(&folder).unwrap();
        let error = error.expect("it is refused");
        assert!(error.contains("tls.crt") && error.contains("it has 1048577 octets"), "{error}");
    }
}
