//! Which files an argument names: a file, a folder with all manifests below it, or a pattern with `*`, `?` and `**` for
//! shells that expand none.

use std::path::{Path, PathBuf};

/// Files that one run reads.
const MAX_FILES: usize = 100_000;
/// Folders below each other.
const MAX_DEPTH: usize = 64;
/// The endings of names of manifests.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// All of them, each argument's in order.
///
/// # Errors
/// What cannot be read, or names no file.
pub(crate) fn named_files(arguments: &[PathBuf]) -> Vec<Result<PathBuf, String>> {
    let mut all = Vec::new();
    for argument in arguments {
        let found = match argument {
            path if path == Path::new("-") => Ok(vec![path.clone()]),
            path if path.is_dir() => below(path, 0).map(|mut files| {
                files.retain(|file| is_manifest(file));
                files
            }),
            path if !path.exists() && is_pattern(path) => matching(path),
            path => Ok(vec![path.clone()]),
        };
        match found {
            Ok(files) if files.is_empty() => {
                all.push(Err(format!(
                    "{}: names no manifest (.yaml, .yml, .json)",
                    argument.display()
                )));
            }
            Ok(files) => all.extend(files.into_iter().map(Ok)),
            Err(why) => all.push(Err(why)),
        }
    }
    if all.len() > MAX_FILES {
        all.truncate(MAX_FILES);
        all.push(Err(format!("more than {MAX_FILES} files: the rest was not read")));
    }
    all
}

fn is_manifest(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// All files below a folder, without hidden files. Links to folders are not followed, because they can form loops.
fn below(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, String> {
    let cannot = |error: std::io::Error| format!("{}: cannot be read: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(cannot)?;
    let mut entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(cannot)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().map_err(cannot)?);
        if is_hidden(&path) || files.len() > MAX_FILES {
            continue;
        }
        if kind.is_dir() {
            if depth < MAX_DEPTH {
                files.extend(below(&path, depth + 1)?);
            }
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?'])
}

/// The files that a pattern names, looked for below its last folder without a wildcard.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let plain: PathBuf =
        pattern.components().take_while(|step| !is_pattern(Path::new(step))).collect();
    let root = if plain.as_os_str().is_empty() { Path::new(".") } else { &plain };
    let steps = |path: &Path| -> Vec<String> {
        let steps = path.components().map(|step| step.as_os_str().to_string_lossy().into_owned());
        steps.filter(|step| step != ".").collect()
    };
    let wanted = steps(pattern);
    let files = below(root, 0)?;
    Ok(files.into_iter().filter(|file| fits(&wanted, &steps(file))).collect())
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

/// `*` is any text without a slash, `?` one octet. Linear but for one step back per star.
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
}
