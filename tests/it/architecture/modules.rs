//! The page of all modules is made of the first sentence of each file, so that a newcomer finds any file by what it is for.

use std::collections::BTreeMap;

use super::{read, root, rust_files};

const PAGE: &str = "docs/modules.md";
const HEAD: &str = "# Modules

For people who look for a file: each source file of each package, with the first sentence of its head. Begin with the \
[layout](layout.md), which says what belongs together. `UPDATE_EXPECT=1 cargo test -p tests --test it architecture::modules` \
writes this page.
";
/// The folders with sources of programs and libraries, in the order in which packages import each other.
const FOLDERS: [&str; 6] = [
    "crds/src/",
    "crds/process/src/",
    "operator/src/",
    "dataplane/src/",
    "dataplane/core/src/",
    "dataplane/udp/src/",
];

/// The first sentence of the `//!` lines.
fn head(path: &str) -> String {
    let text = read(path);
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let said: Vec<&str> = lines.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let said = said.join(" ");
    let end = said.find(". ").map_or(said.len(), |at| at + 1);
    said[..end].replace('|', "\\|")
}

fn wanted() -> String {
    let mut page = HEAD.to_owned();
    for folder in FOLDERS {
        let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in rust_files(folder) {
            let room = path.rsplit_once('/').map_or("", |(room, _)| room).to_owned();
            rooms.entry(room).or_default().push(path);
        }
        for (room, paths) in rooms {
            page += &format!("\n## `{room}`\n\n| File | What it says first |\n|---|---|\n");
            for path in paths {
                page += &format!("| `{path}` | {} |\n", head(&path));
            }
        }
    }
    page
}

#[test]
fn the_page_of_modules_has_every_file_with_its_first_sentence() {
    let wanted = wanted();
    assert!(wanted.matches("\n| `").count() > 500, "files went missing");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(root().join(PAGE), &wanted).expect("the page can be written");
    }
    let page = read(PAGE);
    let line = page.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        page == wanted,
        "{PAGE} is not up to date: {line:?}; run the test with UPDATE_EXPECT=1"
    );
}
