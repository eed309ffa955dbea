//! Reads whole files up to a limit: a file that another process writes, or a mistake in a path, must not take the memory of
//! ours. Only regular files are opened: to open or read a pipe or a device may wait without an end.

use std::fs::{File, FileType};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The most octets of a file of the system, such as the name of the host: all of them are far smaller.
pub const SYSTEM_FILE_OCTETS: u64 = 64 << 10;
/// The most octets of a kubeconfig: one of hundreds of clusters has some hundred KiB.
pub const KUBECONFIG_OCTETS: u64 = 16 << 20;

/// Opens a regular file for reading; links to one are followed.
///
/// # Errors
/// It cannot be opened, or is of another kind; the message then says which.
pub fn open(path: &Path) -> Result<File> {
    // Before it is opened: a pipe waits for a writer then.
    only_regular(path.metadata()?.file_type())?;
    let file = File::open(path)?;
    // Another one may have taken its place meanwhile.
    only_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// The content of a regular file of at most this many octets.
///
/// # Errors
/// It cannot be read, is no regular file, or is larger; the message then has its size, the limit, and what to do.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
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

fn only_regular(kind: FileType) -> Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let message = format!("it is a {}, and only regular files are read", name(kind));
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// What people call a kind of file that is no regular one.
fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        return "folder";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "pipe (FIFO)";
        }
        if kind.is_socket() {
            return "socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "device";
        }
    }
    "file of another kind"
}

fn too_large(size: u64, most: u64) -> Error {
    // While it grows, and of files of the kernel, the system says less.
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
    fn a_file_of_the_kernel_without_a_size_is_read_up_to_its_limit() {
        let words = read(Path::new("/proc/self/status"), 100).unwrap_err().to_string();
        assert!(words.contains("has more than 100 octets"), "{words}");
    }

    /// Without that, this test does not end: no one writes into the pipe.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_no_regular_file_is_refused_at_once_and_says_what_it_is() {
        let folder = std::env::temp_dir().join(format!("no-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (pipe, link, socket) =
            (folder.join("pipe"), folder.join("link"), folder.join("socket"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let device = Path::new("/dev/zero");
        for (path, kind) in [
            (pipe.as_path(), "pipe (FIFO)"),
            (&link, "pipe (FIFO)"),
            (&socket, "socket"),
            (&folder, "folder"),
            (device, "device"),
        ] {
            let error = read(path, 100).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let words = error.to_string();
            assert!(words.contains(&format!("it is a {kind}, and only regular")), "{words}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
