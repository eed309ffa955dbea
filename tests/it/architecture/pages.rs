//! The pages: what they name exists, and what exists is named.

use std::collections::BTreeSet;

use super::{files, quoted, read, root, rust_files, table, tests};

/// Folders of which every module has a line of its own in the layout.
const LISTED_FILE_BY_FILE: [&str; 13] = [
    "crds/src",
    "crds/process/src",
    "operator/src",
    "operator/src/controller",
    "operator/src/observe",
    "operator/src/probe",
    "operator/src/decide",
    "operator/src/apply",
    "operator/src/report",
    "operator/src/runtime",
    "dataplane/src",
    "dataplane/core/src",
    "dataplane/udp/src",
];

#[test]
fn every_invariant_and_every_comparison_names_the_tests_that_keep_it() {
    let (tests, files) = (tests(), files());
    let is_kept = |name: &str| {
        let answers = format!("tests/scenarios/{name}/answers.txt");
        tests.contains(name) || files.contains(&answers)
    };
    for (page, heading) in [
        ("ARCHITECTURE.md", "## Invariants"),
        ("docs/comparison.md", "# Beside CoreDNS and kube-dns"),
    ] {
        for row in table(page, heading) {
            let named = quoted(row.last().unwrap());
            assert!(!named.is_empty(), "{page}: what keeps \"{}\"?", row[0]);
            for name in named {
                assert!(is_kept(name), "{page}: neither a test nor a scenario is called `{name}`");
            }
        }
    }
}

#[test]
fn every_limit_is_a_named_constant() {
    for row in table("docs/limits.md", "# Limits") {
        let named = quoted(&row[2]);
        assert!(!named.is_empty(), "\"{}\" has no name", row[0]);
        for place in named {
            let (path, constant) = place.split_once("::").expect("path::CONSTANT");
            assert!(
                read(path).contains(&format!("const {constant}: ")),
                "{path} has no constant {constant}"
            );
        }
    }
}

#[test]
fn the_layout_is_the_tree() {
    let listed: BTreeSet<String> = table("docs/layout.md", "# Layout")
        .iter()
        .flat_map(|row| quoted(&row[0]).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for path in &listed {
        assert!(root().join(path).exists(), "the layout names {path}, which is not there");
    }
    // The line of a module covers its children.
    for folder in LISTED_FILE_BY_FILE {
        for path in rust_files(&format!("{folder}/")) {
            let inside = path.strip_prefix(folder).unwrap().trim_start_matches('/');
            let module = inside.split('/').next().unwrap().trim_end_matches(".rs");
            let line = match module {
                "bin" => format!("{folder}/{inside}"),
                module => format!("{folder}/{module}.rs"),
            };
            assert!(listed.contains(&line), "the layout does not say what {line} is for");
        }
    }
}

#[test]
fn every_page_of_docs_is_in_the_index() {
    let (files, index) = (files(), read("docs/README.md"));
    for page in files.iter().filter_map(|path| path.strip_prefix("docs/")) {
        let is_page = page.ends_with(".md") && !page.contains('/') && page != "README.md";
        assert!(!is_page || index.contains(&format!("]({page})")), "docs/README.md: {page}");
    }
}

#[test]
fn every_source_that_a_page_names_exists() {
    let files = files();
    let is_source = |name: &&str| {
        name.contains('/')
            && [".rs", ".yaml", ".toml"].iter().any(|end| name.ends_with(end))
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c))
    };
    for page in files.iter().filter(|path| path.ends_with(".md") && *path != "CHANGELOG.md") {
        // A page may leave out the folders that its sentence names.
        for name in quoted(&read(page)).into_iter().filter(is_source) {
            let end = format!("/{name}");
            let exists = files.iter().any(|path| path == name || path.ends_with(&end));
            assert!(exists, "{page} names {name}, which is not there");
        }
    }
}

#[test]
fn what_a_page_links_to_exists() {
    for page in files().iter().filter(|path| path.ends_with(".md")) {
        let folder = root().join(page).parent().unwrap().to_owned();
        for link in read(page).split("](").skip(1) {
            let (target, anchor) =
                link.split(')').next().map(|to| to.split_once('#').unwrap_or((to, ""))).unwrap();
            if target.contains("://") || target.contains(' ') {
                continue;
            }
            let path = if target.is_empty() { root().join(page) } else { folder.join(target) };
            assert!(path.exists(), "{page} links to {target}");
            if !anchor.is_empty() && path.extension().is_some_and(|end| end == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(anchors(&text).contains(anchor), "{page} links to {target}#{anchor}");
            }
        }
    }
}

/// The anchors of a page: those that it writes, and those that a forge makes of its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let written =
        text.split("<a id=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    let of_heading = |line: &str| -> String {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    written.chain(text.lines().filter(|line| line.starts_with('#')).map(of_heading)).collect()
}
