//! What a folder holds now: its manifest files and the stamps that show whether they changed.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files that are read, of each folder the first by name; what is beyond is reported.
pub(super) const MAX_FILES: usize = 10_000;
/// Folders that are listed, with the one that holds them all.
pub(super) const MAX_FOLDERS: usize = 10_000;
/// Longest file that is read: a dump of 100,000 endpoints as YAML has some 30 MiB.
pub(super) const MAX_FILE_BYTES: u64 = 128 * 1024 * 1024;
/// How deep folders within folders are read.
pub(super) const MAX_DEPTH: usize = 16;

/// The time, size and inode of a file. The time alone is not enough: tools for reproducible builds give every file
/// the same time, and versions often differ in one digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) modified: SystemTime,
    pub(super) bytes: u64,
    /// Device, inode, and the time of its last change, which programs cannot set.
    identity: (u64, u64, i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Stamp {
        let identity = (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
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
    /// Beyond [`MAX_FILES`], [`MAX_FOLDERS`] or [`MAX_DEPTH`]; what they hold is not counted.
    pub(super) left_out: usize,
}

/// Lists the manifest files below `root`, hidden ones left out (a mounted ConfigMap keeps its older
/// generations in them). Fails only when `root` itself cannot be read.
pub(super) fn list(root: &Path) -> io::Result<Listing> {
    list_within(root, MAX_FILES, MAX_FOLDERS)
}

fn list_within(root: &Path, files: usize, folders: usize) -> io::Result<Listing> {
    let mut walk = Walk { files, folders, seen: HashSet::new(), listing: Listing::default() };
    walk.seen.extend(root.canonicalize());
    walk.folder(root, "", 0)?;
    let mut listing = walk.listing;
    listing.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listing)
}

/// A listing in progress.
struct Walk {
    /// How many more files it may have.
    files: usize,
    /// How many folders it may have.
    folders: usize,
    /// Folders that were listed.
    seen: HashSet<PathBuf>,
    listing: Listing,
}

impl Walk {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        for file_name in self.names(folder)? {
            let path = folder.join(&file_name);
            let name = format!("{prefix}{}", file_name.to_string_lossy());
            // Follows links: the files of a mounted ConfigMap are links.
            let metadata = match fs::metadata(&path) {
                Ok(metadata) => metadata,
                // Gone since the listing, or a link to nothing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.listing.unreadable.push((name, error.to_string()));
                    continue;
                }
            };
            if metadata.is_dir() {
                self.visit(&path, &name, depth + 1);
            } else if metadata.is_file() && is_manifest(&path) {
                if self.files == 0 {
                    self.listing.left_out += 1;
                    continue;
                }
                self.files -= 1;
                let stamp = Stamp::of(&metadata);
                self.listing.files.push(Found { name, path, stamp });
            }
        }
        Ok(())
    }

    /// The names in a folder that may be manifests or folders, sorted, without hidden ones. Where there are more than the limits
    /// of files and folders allow, only the first ones: the others are neither kept nor looked at.
    fn names(&mut self, folder: &Path) -> io::Result<BTreeSet<OsString>> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            // Files that are no manifests are not looked at. Links may lead to folders.
            let is_other = entry.file_type().is_ok_and(|kind| kind.is_file())
                && !is_manifest(Path::new(&name));
            if is_other || name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            names.insert(name);
            if names.len() > self.files + self.folders.saturating_sub(self.seen.len()) {
                names.pop_last();
                self.listing.left_out += 1;
            }
        }
        Ok(names)
    }

    /// A folder within: each once, also if several links lead to it, and not without end.
    fn visit(&mut self, path: &Path, name: &str, depth: usize) {
        let result = path.canonicalize().and_then(|canonical| {
            if self.seen.contains(&canonical) {
                return Ok(());
            }
            if depth > MAX_DEPTH || self.seen.len() >= self.folders {
                self.listing.left_out += 1;
                return Ok(());
            }
            self.seen.insert(canonical);
            self.folder(path, &format!("{name}/"), depth)
        });
        if let Err(error) = result {
            self.listing.unreadable.push((format!("{name}/"), error.to_string()));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::Folder;

    fn names(listing: &Listing) -> Vec<&str> {
        listing.files.iter().map(|found| found.name.as_str()).collect()
    }

    #[test]
    fn of_a_folder_with_too_many_files_the_others_are_not_looked_at() {
        let folder = Folder::new();
        for name in ["a.yaml", "b.yaml", "c.md", "d/e.yaml", "f/g.yaml", "x.yaml", "y.yaml"] {
            let path = folder.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        // Who looks at it gets an error.
        std::os::unix::fs::symlink("z.yaml", folder.0.join("z.yaml")).unwrap();
        let all = list_within(&folder.0, 9, 9).unwrap();
        assert_eq!(names(&all), ["a.yaml", "b.yaml", "d/e.yaml", "f/g.yaml", "x.yaml", "y.yaml"]);
        assert_eq!((all.unreadable.len(), all.left_out), (1, 0));
        let few_files = list_within(&folder.0, 3, 9).unwrap();
        assert_eq!(names(&few_files), ["a.yaml", "b.yaml", "d/e.yaml"]);
        assert_eq!((few_files.unreadable.len(), few_files.left_out), (1, 3), "f/g, x, y");
        let few = list_within(&folder.0, 3, 3).unwrap();
        assert_eq!(names(&few), ["a.yaml", "b.yaml", "d/e.yaml"]);
        assert_eq!(
            (few.unreadable.len(), few.left_out),
            (0, 4),
            "f/g, x; y and z are not looked at"
        );
        // Folders take no places of files, nor what is no manifest.
        let just_enough = list_within(&folder.0, 6, 3).unwrap();
        assert_eq!((just_enough.files.len(), just_enough.left_out), (6, 0));
        let few_folders = list_within(&folder.0, 9, 2).unwrap();
        assert_eq!(names(&few_folders), ["a.yaml", "b.yaml", "d/e.yaml", "x.yaml", "y.yaml"]);
        assert_eq!(few_folders.left_out, 1, "f");
    }
}
