//! What a folder holds now: its manifest files and the stamps that show whether they changed.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files of one folder that are read, first by path; what is beyond is reported.
pub(super) const MAX_FILES: usize = 10_000;
/// Longest file that is read: a dump of 100,000 endpoints as YAML has some 30 MiB.
pub(super) const MAX_FILE_BYTES: u64 = 128 * 1024 * 1024;
/// How deep folders within folders are read.
const MAX_DEPTH: usize = 16;

/// The time, size and inode of a file. The time alone is not enough: tools for reproducible builds give every file
/// the same time, and versions often differ in one digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) modified: SystemTime,
    pub(super) bytes: u64,
    /// Device, inode, and the time of its last change, which programs cannot set; zeros elsewhere.
    identity: (u64, u64, i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Stamp {
        #[cfg(unix)]
        let identity = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
        };
        #[cfg(not(unix))]
        let identity = (0, 0, 0, 0);
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Stamp { modified, bytes: metadata.len(), identity }
    }

    /// When the file last changed in any way.
    pub(super) fn changed(&self) -> SystemTime {
        let (.., seconds, nanoseconds) = self.identity;
        let (seconds, nanoseconds) = (u64::try_from(seconds), u32::try_from(nanoseconds));
        let since = Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0));
        self.modified.max(SystemTime::UNIX_EPOCH + since)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Path within the folder, for people; also the order in which files apply.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
}

#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Sorted by path.
    pub(super) files: Vec<Found>,
    /// Names of folders and files that could not be looked at, and why: what was known of them stays.
    pub(super) unreadable: Vec<(String, String)>,
    /// More files than [`MAX_FILES`], or folders deeper than [`MAX_DEPTH`].
    pub(super) left_out: usize,
}

/// Lists the manifest files below `root`, hidden ones left out (a mounted ConfigMap keeps its older
/// generations in them). Fails only when `root` itself cannot be read.
pub(super) fn list(root: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    let mut seen = HashSet::new();
    seen.extend(root.canonicalize());
    walk(root, "", 0, &mut seen, &mut listing)?;
    listing.files.sort_by(|a, b| a.name.cmp(&b.name));
    listing.left_out += listing.files.len().saturating_sub(MAX_FILES);
    listing.files.truncate(MAX_FILES);
    Ok(listing)
}

fn walk(
    folder: &Path,
    prefix: &str,
    depth: usize,
    seen: &mut HashSet<PathBuf>,
    listing: &mut Listing,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let file_name = file_name.to_string_lossy();
        if file_name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{file_name}");
        let path = entry.path();
        // Follows links: the files of a mounted ConfigMap are links.
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // Gone since the listing, or a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                listing.unreadable.push((name, error.to_string()));
                continue;
            }
        };
        if metadata.is_dir() {
            visit(&path, &name, depth + 1, seen, listing);
        } else if metadata.is_file() && is_manifest(&path) {
            let stamp = Stamp::of(&metadata);
            listing.files.push(Found { name, path, stamp });
        }
    }
    Ok(())
}

/// A folder within: each once, also if several links lead to it, and not without end.
fn visit(
    path: &Path,
    name: &str,
    depth: usize,
    seen: &mut HashSet<PathBuf>,
    listing: &mut Listing,
) {
    if depth > MAX_DEPTH || listing.files.len() > MAX_FILES {
        listing.left_out += 1;
        return;
    }
    let result = path.canonicalize().and_then(|canonical| match seen.insert(canonical) {
        true => walk(path, &format!("{name}/"), depth, seen, listing),
        false => Ok(()),
    });
    if let Err(error) = result {
        listing.unreadable.push((format!("{name}/"), error.to_string()));
    }
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Reads one file, if it is not too long.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "is longer than {} MiB: split it into several files",
            MAX_FILE_BYTES / (1024 * 1024)
        ));
    }
    Ok(bytes)
}
