//! The pages: what they name exists, and what exists is named.

use std::collections::BTreeSet;

use crds::between_planes;
use serde_json::Value;

use super::{files, quoted, read, root, rust_files, table, tests};

/// Folders of which every module has a line of its own in the layout.
const LISTED_FILE_BY_FILE: [&str; 13] = [
    "crds/src",
    "crds/process/src",
    "operator/src",
    "operator/src/controller",
    "operator/src/observe",
    "operator/src/ask_pods",
    "operator/src/decide",
    "operator/src/apply",
    "operator/src/report",
    "operator/src/runtime",
    "dataplane/src",
    "dataplane/core/src",
    "dataplane/udp/src",
];

/// Fields that pages name of Services, Pods and other kinds.
const OF_OTHER_KINDS: [&str; 9] = [
    "spec.clusterIPs",
    "spec.driftDetection",
    "spec.driftDetection.ignore",
    "spec.externalName",
    "spec.hostNetwork",
    "spec.selector",
    "spec.type",
    "status.phase",
    "status.podIPs",
];

/// A constant with one of these words in its name is on the page of limits.
const NAMES_OF_LIMITS: [&str; 9] =
    ["MAX", "MOST", "LIMIT", "CAPACITY", "LONGEST", "PATIENCE", "TIMEOUT", "WITHIN", "PAGE"];

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
    for place in limits() {
        let (path, constant) = place.split_once("::").expect("path::CONSTANT");
        assert!(
            read(path).contains(&format!("const {constant}: ")),
            "{path} has no constant {constant}"
        );
    }
}

#[test]
fn every_constant_that_bounds_growth_is_on_the_page() {
    let limits = limits();
    let mut seen = 0;
    for path in rust_files("").into_iter().filter(|path| !needs_no_row(path)) {
        // What follows is for tests only.
        let text = read(&path);
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for name in text.lines().filter_map(name_of_constant).filter(|name| is_named_a_limit(name))
        {
            seen += 1;
            let place = format!("{path}::{name}");
            assert!(limits.contains(&place), "docs/limits.md does not name {place}");
        }
    }
    assert!(seen > 100, "{seen} constants are named like a limit");
}

/// The constants that the tables of docs/limits.md name, each as `path::CONSTANT`.
fn limits() -> BTreeSet<String> {
    let page = read("docs/limits.md");
    let (tables, _) = page.split_once("\n## What one object can cost others\n").unwrap();
    let mut named = BTreeSet::new();
    for row in tables.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| What "))
    {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let places = quoted(last);
        assert!(!places.is_empty(), "no constant is named: {row}");
        named.extend(places.into_iter().map(str::to_owned));
    }
    named
}

/// Tests, and the bounds of what people write: `kubectl explain` is made of those.
fn needs_no_row(path: &str) -> bool {
    path == "crds/src/bounds.rs"
        || path.starts_with("tests/")
        || ["/tests/", "/benches/", "/fuzz/"].iter().any(|folder| path.contains(folder))
        || ["tests.rs", "conformance.rs"].iter().any(|end| path.ends_with(end))
}

fn name_of_constant(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line
        .strip_prefix("pub ")
        .or_else(|| {
            line.split_once(") ").map(|(_, after)| after).filter(|_| line.starts_with("pub("))
        })
        .unwrap_or(line);
    line.strip_prefix("const ")?.split_once(": ").map(|(name, _)| name)
}

/// `MAX_FILES`, `HEAD_WITHIN`: the words of this field for a bound.
fn is_named_a_limit(constant: &str) -> bool {
    constant.split('_').any(|word| NAMES_OF_LIMITS.contains(&word))
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

/// What `dig` shows to a person is on the page that says what to do.
#[test]
fn the_page_on_operating_has_the_text_of_each_failed_lookup() {
    let page = read("docs/operating.md");
    for text in [
        between_planes::NO_SERVER,
        between_planes::SILENCE,
        between_planes::ERRORS,
        between_planes::LIMIT,
    ] {
        assert!(page.contains(&format!(" | `{text}` | ")), "no row for {text}");
    }
}

/// One word of the layout may also be a subcommand, a function or a system call.
const NOT_MODULES: [&str; 9] = [
    "compare",
    "import",
    "reconcile",
    "recvmmsg",
    "respond",
    "route",
    "run",
    "sendmmsg",
    "take_out",
];

#[test]
fn the_layout_names_only_submodules_that_exist() {
    for row in table("docs/layout.md", "# Layout") {
        let (paths, says) = (quoted(&row[0]), quoted(&row[1]));
        let folders = paths.iter().filter_map(|path| path.strip_suffix(".rs"));
        for folder in folders.filter(|folder| !folder.ends_with("/lib")) {
            let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            for word in says.iter().copied().filter(is_word) {
                let is_module = root().join(format!("{folder}/{word}.rs")).exists();
                let is_known = is_module || NOT_MODULES.contains(&word);
                assert!(is_known, "the layout names {word} of {folder}, which is not there");
            }
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
fn every_field_of_the_resource_that_a_page_names_exists() {
    let crd = serde_json::to_value(crds::v1alpha1::crd()).unwrap();
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
    let is_path = |name: &&str| {
        ["spec.", "status."].iter().any(|start| name.starts_with(start))
            && name.chars().all(|c| c.is_ascii_alphanumeric() || ".[]".contains(c))
    };
    let mut seen = 0;
    for page in files().iter().filter(|path| path.ends_with(".md") && *path != "CHANGELOG.md") {
        for path in quoted(&read(page)).into_iter().filter(is_path) {
            seen += 1;
            let exists = OF_OTHER_KINDS.contains(&path) || has_field(schema, path);
            assert!(exists, "{page}: a ClusterDNS has no field {path}");
        }
    }
    assert!(seen > 50, "{seen} fields are named");
}

/// Whether a schema has the field at this path; items of lists are written `servers[]` or `servers[0]`.
fn has_field(schema: &Value, path: &str) -> bool {
    let mut at = schema;
    for step in path.split('.') {
        let name = step.split('[').next().unwrap();
        let inside = at.get("items").unwrap_or(at);
        match inside.get("properties").and_then(|fields| fields.get(name)) {
            Some(field) => at = field,
            None => return false,
        }
    }
    true
}

#[test]
fn o15_pages_name_what_the_operator_writes_of_an_adopted_service() {
    let names = [operator::names::INSTANCE, operator::names::ADOPTED_BY];
    for page in ["docs/switching.md", "docs/gitops.md"] {
        let text = read(page);
        for name in names {
            assert!(text.contains(&format!("`{name}`")), "{page} does not name {name}");
        }
    }
}

/// A selector is one field for the API server, so to hide a difference in it keeps no tool from writing it.
#[test]
fn o15_the_page_on_gitops_names_what_keeps_a_tool_from_writing_the_selector() {
    let text = read("docs/gitops.md");
    for option in ["RespectIgnoreDifferences=true", "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent"]
    {
        assert!(text.contains(option), "{option}");
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
