//! Reads whole files up to a limit: a file that another process writes, or a mistake in a path, must not take the memory of
//! ours.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The most octets of a file of the system, such as the name of the host: all of them are far smaller.
pub const SYSTEM_FILE_OCTETS: u64 = 64 << 10;
/// The most octets of a kubeconfig: one of hundreds of clusters has some hundred KiB.
pub const KUBECONFIG_OCTETS: u64 = 16 << 20;

/// The content of a file of at most this many octets.
///
/// # Errors
/// It cannot be read, or is larger; the message then has its size, the limit, and what to do.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut octets = Vec::new();
    (&file).take(most.saturating_add(1)).read_to_end(&mut octets)?;
    if octets.len() as u64 > most {
        return Err(too_large(file.metadata().map_or(0, |it| it.len()), most));
    }
    Ok(octets)
}

/// The same for text in UTF-8.
///
/// # Errors
/// The same, or it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    let octets = read(path, most)?;
    String::from_utf8(octets).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Checks the size of a file that a library reads as a whole.
///
/// # Errors
/// It is larger; a file that cannot be looked at is left to the library.
pub fn check_size(path: &Path, most: u64) -> Result<()> {
    match path.metadata() {
        Ok(found) if found.len() > most => Err(too_large(found.len(), most)),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn too_large(size: u64, most: u64) -> Error {
    // Of a pipe, or while it grows, the system says less.
    let size = if size > most { size.to_string() } else { format!("more than {most}") };
    let message = format!(
        "it has {size} octets, and at most {most} are read: is it the right file? Make it smaller"
    );
    Error::new(ErrorKind::FileTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_refused_with_its_size_above() {
        let path = std::env::temp_dir().join(format!("bounded-file-{}", std::process::id()));
        std::fs::write(&path, "12345678").unwrap();
        assert_eq!(read_text(&path, 8).unwrap(), "12345678");
        assert!(check_size(&path, 8).is_ok());
        for error in [read(&path, 7).unwrap_err(), check_size(&path, 7).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            let words = error.to_string();
            assert!(
                words.contains("has 8 octets, and at most 7") && words.contains("smaller"),
                "{words}"
            );
        }
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 8).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path, 8).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_an_end_is_refused() {
        let words = read(Path::new("/dev/zero"), 100).unwrap_err().to_string();
        assert!(words.contains("has more than 100 octets"), "{words}");
    }
}
