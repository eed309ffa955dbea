//! The pages are true: which package imports which, what each package must not do, where things are, which test keeps
//! which promise. Read from the Cargo files, the sources and the pages themselves.

mod packages;
mod circles;
mod sources;
mod pages;
mod modules;
mod contract;
mod record_types;
mod asked_of_system;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file of the repository, as paths from its root; built files and what is hidden are not part of it.
pub(crate) fn files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            match path.is_dir() {
                true if name.starts_with('.') || name == "target" || name == "artifacts" => {}
                true => folders.push(path),
                false => {
                    let path = path.strip_prefix(root()).unwrap();
                    found.push(path.to_str().expect("a name in UTF-8").to_owned());
                }
            }
        }
    }
    found.sort();
    found
}

/// Every Rust file below this folder; an empty name is the whole repository.
fn rust_files(folder: &str) -> Vec<String> {
    files().into_iter().filter(|path| path.starts_with(folder) && path.ends_with(".rs")).collect()
}

/// The rows of the first table below a heading, cell by cell, without the table's own heading.
pub(crate) fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let text = read(page);
    let below = text
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("{page} has no heading `{heading}`"))
        .1;
    let rows: Vec<Vec<String>> = below
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    assert!(rows.len() > 2, "{page}: no table below `{heading}`");
    rows[2..].to_vec()
}

pub(crate) fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The names of all tests of the workspace that `make test` runs: one that is ignored keeps no promise.
pub(crate) fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in rust_files("") {
        let mut is_test = false;
        for line in read(&path).lines().map(str::trim) {
            if line == "#[test]" || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if line.starts_with("#[ignore") {
                is_test = false;
            } else if let Some(name) = line
                .strip_prefix("fn ")
                .or_else(|| line.strip_prefix("async fn "))
                .filter(|_| is_test)
            {
                names.insert(name.split('(').next().unwrap().to_owned());
                is_test = false;
            }
        }
    }
    names
}
