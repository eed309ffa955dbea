//! Which files an argument names: a file, a folder with all manifests below it, or a pattern with `*`, `?` and `**` for
//! shells that expand none.

use std::collections::HashSet;
use std::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};

use crate::printable::plain_value;

/// Files that one run reads.
const MAX_FILES: usize = 100_000;
/// Folders below each other.
const MAX_DEPTH: usize = 64;
/// The endings of names of manifests.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// All of them, each argument's in order, and beside them what cannot be read, or names no file.
pub(crate) fn named_files(arguments: &[PathBuf]) -> Vec<Result<PathBuf, String>> {
    let mut all = Vec::new();
    for argument in arguments {
        let found = match argument {
            path if path == Path::new("-") => vec![Ok(path.clone())],
            path if path.is_dir() => Walk::of(path, None),
            path if !path.exists() && is_pattern(path) => matching(path),
            path => vec![Ok(path.clone())],
        };
        if found.is_empty() {
            all.push(Err(format!(
                "{}: names no manifest (.yaml, .yml, .json)",
                plain_value(&argument.to_string_lossy())
            )));
        }
        all.extend(found);
    }
    if all.len() > MAX_FILES {
        all.truncate(MAX_FILES);
        all.push(Err(format!("more than {MAX_FILES} files: the rest was not read")));
    }
    all
}

/// In any case, as a data plane takes them.
fn is_manifest(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Files below a folder, without hidden ones.
struct Walk<'a> {
    /// The steps of the pattern that files must fit; without one, all manifests are looked for.
    pattern: Option<&'a [String]>,
    /// Folders that were listed: links can form loops.
    seen: HashSet<PathBuf>,
    found: Vec<Result<PathBuf, String>>,
}

impl Walk<'_> {
    fn of(root: &Path, pattern: Option<&[String]>) -> Vec<Result<PathBuf, String>> {
        let mut walk = Walk { pattern, seen: HashSet::new(), found: Vec::new() };
        walk.seen.extend(root.canonicalize());
        walk.folder(root, 0);
        walk.found
    }

    /// What cannot be read does not hide the rest.
    fn folder(&mut self, folder: &Path, depth: usize) {
        if let Err(error) = self.entries(folder, depth) {
            self.found.push(Err(unreadable(folder, &error)));
        }
    }

    fn entries(&mut self, folder: &Path, depth: usize) -> io::Result<()> {
        let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            if self.found.len() > MAX_FILES {
                break;
            }
            if is_hidden(&path) || !self.is_wanted(&path) && !self.may_be_entered(&path, kind) {
                continue;
            }
            match std::fs::metadata(&path) {
                Ok(found) if found.is_dir() => {
                    let is_entered = self.may_be_entered(&path, kind) && depth < MAX_DEPTH;
                    if is_entered && self.is_new(&path) {
                        self.folder(&path, depth + 1);
                    }
                }
                Ok(found) if found.is_file() && self.is_wanted(&path) => self.found.push(Ok(path)),
                Ok(_) => {}
                // Gone since the listing, or a link to nothing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.found.push(Err(unreadable(&path, &error))),
            }
        }
        Ok(())
    }

    /// A folder is entered where files below it may be wanted. Links to folders are followed as a data plane follows them,
    /// but not for a pattern: the path that it wants could be another one than that of the first link.
    fn may_be_entered(&self, path: &Path, kind: FileType) -> bool {
        match self.pattern {
            Some(pattern) => kind.is_dir() && leads_on(pattern, &steps(path)),
            None => kind.is_dir() || kind.is_symlink(),
        }
    }

    fn is_new(&mut self, folder: &Path) -> bool {
        // One that cannot be found is an error when it is read.
        folder.canonicalize().map_or(true, |canonical| self.seen.insert(canonical))
    }

    fn is_wanted(&self, file: &Path) -> bool {
        match self.pattern {
            Some(pattern) => fits(pattern, &steps(file)),
            None => is_manifest(file),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{}: cannot be read: {error}", plain_value(&path.to_string_lossy()))
}

fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?'])
}

/// The files that a pattern names, looked for below its last folder without a wildcard.
fn matching(pattern: &Path) -> Vec<Result<PathBuf, String>> {
    let plain: PathBuf =
        pattern.components().take_while(|step| !is_pattern(Path::new(step))).collect();
    let root = if plain.as_os_str().is_empty() { Path::new(".") } else { &plain };
    Walk::of(root, Some(&steps(pattern)))
}

fn steps(path: &Path) -> Vec<String> {
    let steps = path.components().map(|step| step.as_os_str().to_string_lossy().into_owned());
    steps.filter(|step| step != ".").collect()
}

/// Can what is below this folder match a pattern?
fn leads_on(pattern: &[String], folder: &[String]) -> bool {
    match (pattern.split_first(), folder.split_first()) {
        (Some((first, _)), _) if first == "**" => true,
        (Some((first, rest)), Some((step, below))) => {
            fits_step(first.as_bytes(), step.as_bytes()) && leads_on(rest, below)
        }
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Do these steps of a path match a pattern? `**` matches any number of folders.
fn fits(pattern: &[String], path: &[String]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "**" => {
            fits(rest, path) || path.split_first().is_some_and(|(_, below)| fits(pattern, below))
        }
        (Some((first, rest)), Some((step, below))) => {
            fits_step(first.as_bytes(), step.as_bytes()) && fits(rest, below)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// `*` is any text without a slash, `?` one octet. Linear except for one step back per star.
fn fits_step(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut here, mut star) = (0, 0, None);
    while here < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(b'?') => (at, here) = (at + 1, here + 1),
            Some(octet) if *octet == text[here] => (at, here) = (at + 1, here + 1),
            _ => match star {
                Some((of, taken)) => {
                    star = Some((of, taken + 1));
                    (at, here) = (of + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|octet| *octet == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_as_in_a_shell() {
        let steps = |text: &str| -> Vec<String> { text.split('/').map(str::to_owned).collect() };
        for (pattern, path, expected) in [
            ("a/*.yaml", "a/dns.yaml", true),
            ("a/*.yaml", "a/b/dns.yaml", false),
            ("a/**/*.yaml", "a/b/c/dns.yaml", true),
            ("a/**/*.yaml", "a/dns.yaml", true),
            ("a/d?s-*-x.yaml", "a/dns-1-2-x.yaml", true),
            ("a/d?s.yaml", "a/ds.yaml", false),
            ("**", "a/b", true),
        ] {
            assert_eq!(fits(&steps(pattern), &steps(path)), expected, "{pattern} {path}");
        }
    }
    /// A folder of its own, removed at the end.
    struct Disk(PathBuf);

    impl Disk {
        fn new(name: &str, files: &[&str]) -> Disk {
            let name = format!("clusterdns-named-{}-{name}", std::process::id());
            let disk = Disk(std::env::temp_dir().join(name));
            for file in files {
                let path = disk.0.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            disk
        }

        /// The files that this argument names, and the number of errors.
        fn named(&self, argument: &str) -> (Vec<String>, usize) {
            let all = named_files(&[self.0.join(argument)]);
            let within = |path: &PathBuf| path.strip_prefix(&self.0).unwrap().display().to_string();
            let files: Vec<String> = all.iter().flatten().map(within).collect();
            let errors = all.len() - files.len();
            (files, errors)
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_has_the_files_that_a_data_plane_would_read_of_it() {
        let disk = Disk::new("folder", &["a.YAML", "b/c.yml", "d.txt", ".e/f.yaml"]);
        let elsewhere = Disk::new("elsewhere", &["g.Json"]);
        std::os::unix::fs::symlink(&elsewhere.0, disk.0.join("linked")).unwrap();
        std::os::unix::fs::symlink(".", disk.0.join("b/loop")).unwrap();
        let expected = ["a.YAML", "b/c.yml", "linked/g.Json"].map(str::to_owned).to_vec();
        assert_eq!(disk.named(""), (expected, 0));
    }

    #[cfg(unix)]
    #[test]
    fn what_cannot_be_read_hides_nothing_beside_it_and_a_pattern_does_not_look_there() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let disk = Disk::new("unread", &["a/x.yaml", "b/y.yaml", "c/z.yaml"]);
        symlink("loop", disk.0.join("loop")).unwrap();
        assert_eq!(disk.named("").0.len(), 3);
        assert_eq!(disk.named("").1, 1);
        assert_eq!(disk.named("?/*.yaml").1, 0);
        let closed = disk.0.join("b");
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
        // The administrator may read it nevertheless.
        let is_closed = std::fs::read_dir(&closed).is_err();
        let found = [disk.named("").0, disk.named("**/*.yaml").0, disk.named("c/*.yaml").0];
        let errors = disk.named("c/*.yaml").1;
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(found.map(|files| files.len()), if is_closed { [2, 2, 1] } else { [3, 3, 1] });
        assert_eq!(errors, 0);
    }

    #[test]
    fn a_folder_is_entered_where_the_pattern_has_a_further_step() {
        let steps = |text: &str| -> Vec<String> { text.split('/').map(str::to_owned).collect() };
        for (pattern, folder, expected) in [
            ("a/*.yaml", "a", true),
            ("a/*.yaml", "a/b", false),
            ("a/*/dns.yaml", "a/b", true),
            ("a/x*/dns.yaml", "a/b", false),
            ("a/**/dns.yaml", "a/b/c", true),
            ("**", "a", true),
        ] {
            assert_eq!(leads_on(&steps(pattern), &steps(folder)), expected, "{pattern} {folder}");
        }
    }
}
