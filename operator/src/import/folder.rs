//! Files that a configuration names, where they are found: in a folder on this machine, or in mounted ConfigMaps.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use super::{Files, Text};

/// Where CoreDNS has its files in a container.
const HOME: &str = "/etc/coredns/";
/// Octets of one file.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// Files that one pattern names.
const MAX_MATCHES: usize = 256;
/// Names in a folder that are looked at for a pattern.
const MAX_NAMES: usize = 10_000;

/// Finds files in a folder and below it, never outside of it: paths of a container by what follows `/etc/coredns/`, other
/// absolute ones by their last part, and all files of a folder by the last part of that folder.
pub(super) fn on_disk(folder: &Path, pattern: &str) -> Files {
    let mut files = Files::default();
    let inside = pattern.strip_prefix(HOME).unwrap_or(match pattern.starts_with('/') {
        true => last_part(pattern),
        false => pattern,
    });
    let path = Path::new(inside);
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if inside.is_empty() || !path.components().all(is_inside) {
        return files;
    }
    let mut paths = vec![folder.to_owned()];
    for part in path.components() {
        if let Component::Normal(name) = part {
            let name = name.to_string_lossy();
            paths = paths.into_iter().flat_map(|at| named(&at, &name, &mut files.unread)).collect();
        }
    }
    let is_pattern = is_pattern(inside);
    cut(&mut paths, |path| path.display().to_string(), &mut files.unread);
    for path in paths {
        match read(folder, &path) {
            Ok(Some(text)) => files.found.push(text),
            Ok(None) => {}
            // A star means the folders beside the files too.
            Err(_) if is_pattern && path.is_dir() => {}
            Err(why) => files.unread.push(format!("{}: {why}", path.display())),
        }
    }
    files
}

/// The last part of an absolute path, with its folder where that part names every file.
fn last_part(path: &str) -> &str {
    let folder = path.strip_suffix("/*").unwrap_or(path);
    folder.rfind('/').map_or(path, |at| &path[at + 1..])
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// What a folder has by this name or pattern, in the order of names.
fn named(folder: &Path, name: &str, unread: &mut Vec<String>) -> Vec<PathBuf> {
    if !is_pattern(name) {
        return vec![folder.join(name)];
    }
    let mut names = Vec::new();
    for (count, entry) in fs::read_dir(folder).into_iter().flatten().flatten().enumerate() {
        if count >= MAX_NAMES {
            let folder = folder.display();
            unread.push(format!(
                "{folder}: it has more than {MAX_NAMES} names, and files beyond these are not looked at: put the files of \
                 this pattern into a folder of their own"
            ));
            break;
        }
        if matches(name, &entry.file_name().to_string_lossy()) {
            names.push(entry.path());
        }
    }
    names.sort();
    names
}

/// No more than are read of one pattern; each of the others is named.
fn cut<T>(matches: &mut Vec<T>, name: impl Fn(&T) -> String, unread: &mut Vec<String>) {
    let beyond = matches.split_off(matches.len().min(MAX_MATCHES));
    unread.extend(beyond.iter().map(|file| {
        let file = name(file);
        format!(
            "{file}: it is not read, as {MAX_MATCHES} files of one pattern are the most: name it by itself, or join files"
        )
    }));
}

/// A file, where there is one. Links lead within the folder, as those of mounted ConfigMaps do: who wrote it must not choose
/// which other files of this machine are read and quoted.
///
/// # Errors
/// Why it is not read.
fn read(folder: &Path, path: &Path) -> Result<Option<Text>, String> {
    let unreadable = |error: Error| format!("it cannot be read: {error}");
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    if !real.starts_with(fs::canonicalize(folder).map_err(unreadable)?) {
        return Err(
            "it is a link out of the folder, so nothing of it is read: copy the file".to_owned()
        );
    }
    // Before it is opened, which waits for a writer where it is a pipe.
    if !fs::metadata(&real).is_ok_and(|it| it.is_file()) {
        return Err("it is no file, so nothing of it is read: name the files in it".to_owned());
    }
    let file = fs::File::open(&real).map_err(unreadable)?;
    let mut octets = Vec::new();
    let whole = file.take(MAX_BYTES + 1).read_to_end(&mut octets);
    whole.map_err(|error| format!("it cannot be read: {error}"))?;
    if octets.len() as u64 > MAX_BYTES {
        let most = MAX_BYTES >> 20;
        return Err(format!(
            "it is larger than {most} MiB, so nothing of it is read: split it, and name each part"
        ));
    }
    let text = String::from_utf8(octets)
        .map_err(|_| "it is not UTF-8, so nothing of it is read: convert it".to_owned())?;
    Ok(Some(Text { file: path.display().to_string(), line: 1, text, map: None }))
}

/// Finds files among those that are mounted, by their path in the container.
pub(super) fn mounted(files: &BTreeMap<String, Text>, pattern: &str) -> Files {
    let path = match pattern.starts_with('/') {
        true => pattern.to_owned(),
        false => format!("{HOME}{}", pattern.trim_start_matches("./")),
    };
    let is_found = |file: &&String| {
        file.split('/').count() == path.split('/').count()
            && file.split('/').zip(path.split('/')).all(|(name, part)| matches(part, name))
    };
    let mut unread = Vec::new();
    let mut names: Vec<&String> = files.keys().filter(is_found).collect();
    cut(&mut names, |name| (*name).clone(), &mut unread);
    Files { found: names.into_iter().map(|file| files[file].clone()).collect(), unread }
}

/// Does a name match a pattern with at most one star? A question mark matches one character.
fn matches(pattern: &str, name: &str) -> bool {
    let is_same = |pattern: &str, name: &str| {
        pattern.chars().count() == name.chars().count()
            && pattern.chars().zip(name.chars()).all(|(wanted, is)| wanted == '?' || wanted == is)
    };
    let Some((start, end)) = pattern.split_once('*') else { return is_same(pattern, name) };
    // Names with two dots in front are internal files of mounted ConfigMaps. CoreDNS reads others with a dot in front.
    if name.starts_with("..") && !pattern.starts_with('.') {
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
    use super::*;

    #[test]
    fn patterns_have_one_star() {
        for (pattern, name, expected) in [
            ("*.override", "a.override", true),
            ("*.override", "a.server", false),
            ("*", ".hidden", true),
            ("*", "..data", false),
            ("NodeHosts", "NodeHosts", true),
            ("a*a", "a", false),
            ("a?c", "abc", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn all_files_of_another_folder_are_those_below_its_name() {
        for (path, expected) in [
            ("/etc/hosts.d/*", "hosts.d/*"),
            ("/etc/hosts.d/extra", "extra"),
            ("/opt/*.conf", "*.conf"),
            ("/*", "/*"),
        ] {
            assert_eq!(last_part(path), expected, "{path}");
        }
    }

    #[test]
    fn a_link_out_of_the_folder_is_not_read() {
        let scratch = std::env::temp_dir().join(format!("clusterdns-links-{}", std::process::id()));
        let (inside, outside) = (scratch.join("inside"), scratch.join("outside"));
        fs::create_dir_all(inside.join("..data")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("secret"), "password").unwrap();
        fs::write(inside.join("..data/file"), "ours").unwrap();
        std::os::unix::fs::symlink("../outside/secret", inside.join("link")).unwrap();
        std::os::unix::fs::symlink("..data/file", inside.join("file")).unwrap();
        std::os::unix::fs::symlink("../outside", inside.join("folder")).unwrap();
        for pattern in ["link", "folder/secret", "folder/*"] {
            let Files { found, unread } = on_disk(&inside, pattern);
            assert_eq!(found, [], "{pattern}");
            assert!(unread[0].contains("a link out of the folder"), "{pattern}: {unread:?}");
        }
        assert_eq!(on_disk(&inside, "file").found[0].text, "ours", "as a mounted ConfigMap has it");
        fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let folder = std::env::temp_dir();
        for pattern in ["../../etc/hosts", "a/../../b", "/etc/coredns/../../etc/hosts", "", "/"] {
            assert_eq!(on_disk(&folder, pattern), Files::default(), "{pattern}");
        }
    }
}
