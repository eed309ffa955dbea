//! The last good content of every manifest file of a folder, kept up to date by scans: only what
//! changed is parsed again. A file that stops parsing keeps what it said before, and so does one of its objects that
//! cannot be read any more.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::scan::{self, Found, Stamp};
use crate::source::objects::assemble::{World, assemble};
use crate::source::objects::documents::{Manifests, ParseError, Syntax, parse};
use crate::status::BadFile;

/// A file younger than this is read again at the next scan: two writes within one tick of the file
/// system's clock leave the same stamp.
const SETTLED: Duration = Duration::from_secs(2);

/// The last good content of every manifest file of a folder, by path.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// By path within the folder, which is also the order in which they apply.
    files: BTreeMap<String, File>,
    /// Paths that the last scan could not read.
    problems: Vec<BadFile>,
}

#[derive(Debug)]
struct File {
    stamp: Stamp,
    /// Nothing can have changed behind the same stamp.
    is_settled: bool,
    /// Of the bytes read last.
    hash: u64,
    /// The last content that could be read: it is served.
    manifests: Manifests,
    /// Why the present content is not used.
    error: Option<String>,
    /// The present content, which is not used, mentions a ClusterDNS.
    hides_configuration: bool,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Folder {
        Folder { root: root.to_owned(), files: BTreeMap::new(), problems: Vec::new() }
    }

    /// Looks at every file and reads those that changed. Returns whether there is anything new.
    /// An unreadable folder changes nothing: what was known stays.
    pub(super) fn scan(&mut self, now: SystemTime) -> bool {
        let mut problems = Vec::new();
        let mut is_changed = false;
        match scan::list(&self.root) {
            Ok(listing) => {
                is_changed |= self.forget_deleted(&listing);
                for found in &listing.files {
                    is_changed |= self.look(found, now);
                }
                problems.extend(listing.unreadable.into_iter().map(|(path, error)| BadFile {
                    path,
                    error: format!("cannot be read: {error}"),
                }));
                if listing.left_out > 0 {
                    let error = format!(
                        "{} files or folders are beyond the limits ({} files, {} folders, {} levels) and \
                         not read, nor what such folders hold: split the folder",
                        listing.left_out,
                        scan::MAX_FILES,
                        scan::MAX_FOLDERS,
                        scan::MAX_DEPTH
                    );
                    problems.push(BadFile { path: ".".into(), error });
                }
            }
            Err(error) => problems.push(BadFile {
                path: ".".into(),
                error: format!("cannot be read: {error}; everything known of it stays in use"),
            }),
        }
        is_changed |= problems != self.problems;
        self.problems = problems;
        is_changed
    }

    fn forget_deleted(&mut self, listing: &scan::Listing) -> bool {
        let before = self.files.len();
        self.files.retain(|name, _| {
            let is_there =
                listing.files.binary_search_by(|found| found.name.as_str().cmp(name)).is_ok();
            // A file or folder that could not be read may still be there.
            is_there
                || listing.unreadable.iter().any(|(unread, _)| name.starts_with(unread.as_str()))
        });
        self.files.len() != before
    }

    /// Reads one file if it may have changed.
    fn look(&mut self, found: &Found, now: SystemTime) -> bool {
        let mut known = self.files.get_mut(&found.name);
        if known.as_ref().is_some_and(|file| file.stamp == found.stamp && file.is_settled) {
            return false;
        }
        let is_settled = now.duration_since(found.stamp.changed()).is_ok_and(|age| age >= SETTLED);
        let content = scan::read(&found.path);
        // A failure may be over at the next look: a full table of descriptors, a network file system.
        let is_settled = is_settled && content.is_ok();
        let hash = hash(&content);
        if let Some(file) = &mut known
            && file.hash == hash
        {
            (file.stamp, file.is_settled) = (found.stamp, is_settled);
            return false;
        }
        let had_content = known.is_some_and(|file| !file.manifests.is_empty());
        let (parsed, hides_configuration) = match content {
            // A writer that truncates first (`kubectl get ... > file`) fills it seconds later;
            // until then every name of it would be a wrong NXDOMAIN.
            Ok(bytes) if bytes.trim_ascii().is_empty() && had_content => {
                (Err("is empty: delete the file if its objects must go".to_owned()), false)
            }
            Ok(bytes) => (understand(&found.path, &bytes), mentions_configuration(&bytes)),
            Err(error) => (Err(error), false),
        };
        let before = self.files.remove(&found.name).map(|file| file.manifests).unwrap_or_default();
        let (manifests, error) = match parsed {
            Ok(mut manifests) => {
                manifests.keep_unread(before);
                (manifests, None)
            }
            Err(error) => (before, Some(error)),
        };
        let hides_configuration = hides_configuration && error.is_some();
        let file =
            File { stamp: found.stamp, is_settled, hash, manifests, error, hides_configuration };
        self.files.insert(found.name.clone(), file);
        true
    }

    /// Everything the folder says; the ClusterDNS named `in_use` stays while it is there.
    pub(super) fn world(&self, in_use: Option<&str>) -> World {
        let files = self.files.iter().map(|(name, file)| (name.as_str(), &file.manifests));
        assemble(files, in_use)
    }

    /// Files whose present content is not used, and why.
    pub(super) fn bad_files(&self) -> Vec<BadFile> {
        let unusable = self.files.iter().filter_map(|(path, file)| {
            let error = file.error.as_ref()?;
            let instead = match file.manifests.is_empty() {
                true => "nothing of it is served",
                false => "its last good content stays in use",
            };
            Some(BadFile { path: path.clone(), error: format!("{error}; {instead}") })
        });
        self.problems.iter().cloned().chain(unusable).collect()
    }

    /// A file that cannot be understood and mentions a ClusterDNS: at start, when there is no last
    /// good content, the configuration is not known.
    pub(super) fn hidden_configuration(&self) -> Option<BadFile> {
        let hidden = self.files.iter().find(|(_, file)| file.hides_configuration);
        hidden.map(|(path, file)| BadFile {
            path: path.clone(),
            error: file.error.clone().unwrap_or_default(),
        })
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }
}

fn understand(path: &Path, bytes: &[u8]) -> Result<Manifests, String> {
    // A byte order mark, as editors of other systems write it.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count() as u64;
        ParseError { line, column: 1, reason: "it is not UTF-8".into() }.to_string()
    })?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let syntax = if is_json { Syntax::Json } else { Syntax::Yaml };
    parse(text, syntax).map_err(|error| error.to_string())
}

/// In any case, as the kind may be misspelled: the group has this word too.
fn mentions_configuration(bytes: &[u8]) -> bool {
    let word = b"ClusterDNS";
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

/// Of the content, or of the reason why there is none.
fn hash(content: &Result<Vec<u8>, String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
