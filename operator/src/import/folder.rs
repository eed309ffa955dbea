//! Files that a configuration names, where they are found: in a folder on this machine, or in mounted ConfigMaps.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::Text;

/// Where CoreDNS has its files in a container.
const HOME: &str = "/etc/coredns/";
/// Octets of one file.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// Files that one pattern names.
const MAX_MATCHES: usize = 256;
/// Names in a folder that are looked at for a pattern.
const MAX_NAMES: usize = 10_000;

/// Finds files in a folder and below it, never outside of it: paths of a container by what follows `/etc/coredns/`, other
/// absolute ones by their last part.
pub(super) fn on_disk(folder: &Path, pattern: &str) -> Vec<Text> {
    let inside = pattern.strip_prefix(HOME).unwrap_or(match pattern.starts_with('/') {
        true => pattern.rsplit('/').next().unwrap_or_default(),
        false => pattern,
    });
    let path = PathBuf::from(inside);
    if inside.is_empty()
        || path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return Vec::new();
    }
    let (Some(parent), Some(last)) = (path.parent(), path.file_name().and_then(|it| it.to_str()))
    else {
        return Vec::new();
    };
    let within = folder.join(parent);
    let mut names: Vec<String> = match last.contains(['*', '?']) {
        false => vec![last.to_owned()],
        true => {
            let entries = std::fs::read_dir(&within).into_iter().flatten().take(MAX_NAMES);
            let names = entries.filter_map(|it| it.ok()?.file_name().into_string().ok());
            names.filter(|name| matches(last, name)).collect()
        }
    };
    names.sort();
    names.into_iter().take(MAX_MATCHES).filter_map(|name| read(&within.join(name))).collect()
}

fn read(path: &Path) -> Option<Text> {
    let size = std::fs::metadata(path).ok().filter(|it| it.is_file())?.len();
    let text = std::fs::read_to_string(path).ok().filter(|_| size <= MAX_BYTES)?;
    Some(Text { file: path.display().to_string(), line: 1, text, map: None })
}

/// Finds files among those that are mounted, by their path in the container.
pub(super) fn mounted(files: &BTreeMap<String, Text>, pattern: &str) -> Vec<Text> {
    let path = match pattern.starts_with('/') {
        true => pattern.to_owned(),
        false => format!("{HOME}{}", pattern.trim_start_matches("./")),
    };
    let Some((folder, last)) = path.rsplit_once('/') else { return Vec::new() };
    let is_found = |file: &&String| {
        file.rsplit_once('/').is_some_and(|(at, name)| at == folder && matches(last, name))
    };
    files.keys().filter(is_found).take(MAX_MATCHES).map(|file| files[file].clone()).collect()
}

/// Does a name match a pattern with at most one star? A question mark matches one character.
fn matches(pattern: &str, name: &str) -> bool {
    let is_same = |pattern: &str, name: &str| {
        pattern.chars().count() == name.chars().count()
            && pattern.chars().zip(name.chars()).all(|(wanted, is)| wanted == '?' || wanted == is)
    };
    let Some((start, end)) = pattern.split_once('*') else { return is_same(pattern, name) };
    // Names with a dot in front are internal files of mounted ConfigMaps.
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let count = name.chars().count();
    let (before, after) = (start.chars().count(), end.chars().count());
    if count < before + after {
        return false;
    }
    let first: String = name.chars().take(before).collect();
    let last: String = name.chars().skip(count - after).collect();
    is_same(start, &first) && is_same(end, &last)
}

#[cfg(test)]
mod tests {
    use super::{matches, on_disk};

    #[test]
    fn patterns_have_one_star() {
        for (pattern, name, expected) in [
            ("*.override", "a.override", true),
            ("*.override", "a.server", false),
            ("*", ".hidden", false),
            ("NodeHosts", "NodeHosts", true),
            ("a*a", "a", false),
            ("a?c", "abc", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let folder = std::env::temp_dir();
        for pattern in ["../../etc/hosts", "a/../../b", "/etc/coredns/../../etc/hosts", "", "/"] {
            assert_eq!(on_disk(&folder, pattern), Vec::new(), "{pattern}");
        }
    }
}
