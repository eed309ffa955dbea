//! Known vulnerabilities of what is linked in: both lock files against the advisories that `.ci/advisories.yaml` keeps, for
//! machines that cannot fetch the database. Where cargo-deny is installed, `make lint` asks the live one.

use std::collections::BTreeSet;

use semver::{Version, VersionReq};
use serde::Deserialize;

use crate::architecture::read;

const LOCK_FILES: [&str; 2] = ["Cargo.lock", "dataplane/core/fuzz/Cargo.lock"];

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Snapshot {
    /// The day on which pages that quote the database were read.
    seen: String,
    /// The last id that they quote.
    reaches: String,
    /// The date of the newest advisory here.
    newest: String,
    looked_up: BTreeSet<String>,
    advisories: Vec<Advisory>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisory {
    id: String,
    package: String,
    date: String,
    /// Ranges of versions, as Cargo writes them.
    patched: Vec<String>,
    unaffected: Vec<String>,
    what: String,
}

impl Advisory {
    fn affects(&self, name: &str, version: &Version) -> bool {
        let mut without = self.patched.iter().chain(&self.unaffected);
        let is_in = |range: &String| {
            let range: VersionReq =
                range.parse().unwrap_or_else(|error| panic!("{}: {error}", self.id));
            range.matches(version)
        };
        self.package == name && !without.any(is_in)
    }
}

fn snapshot() -> Snapshot {
    serde_saphyr::from_str(&read(".ci/advisories.yaml")).expect("YAML")
}

/// Every crate of a lock file with its version.
fn locked(lock: &str) -> Vec<(&str, Version)> {
    let of = |line: &'_ str, field: &str| -> Option<(usize, usize)> {
        let start = line.strip_prefix(field)?.strip_prefix(" = \"")?;
        Some((line.len() - start.len(), line.len() - 1))
    };
    let mut crates = Vec::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some((start, end)) = of(line, "name") {
            name = &line[start..end];
        } else if let Some((start, end)) = of(line, "version") {
            // The first line of the file is a number, and no text.
            crates.push((name, line[start..end].parse().expect("a version")));
        }
    }
    crates
}

/// What of a lock file an advisory names, with what to do.
fn affected(snapshot: &Snapshot, lock: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, version) in locked(lock) {
        let named = snapshot.advisories.iter().filter(|it| it.affects(name, &version));
        found.extend(named.map(|advisory| {
            let Advisory { id, what, patched, .. } = advisory;
            format!(
                "{name} {version}: {id}, {what}; cargo update -p {name} ({})",
                patched.join(" or ")
            )
        }));
    }
    found
}

#[test]
fn p1_no_locked_crate_has_a_version_that_an_advisory_names() {
    let snapshot = snapshot();
    for file in LOCK_FILES {
        let lock = read(file);
        assert!(locked(&lock).len() > 50, "{file} is read");
        assert_eq!(affected(&snapshot, &lock), Vec::<String>::new(), "{file}");
    }
}

#[test]
fn p1_an_affected_version_is_found_and_says_what_to_do() {
    let snapshot = snapshot();
    let rows = [
        ("h2", "0.4.15", "RUSTSEC-2026-0258"),
        ("h2", "0.4.16", ""),
        ("rustls", "0.23.44", "RUSTSEC-2026-0285"),
        // Before the mistake was made.
        ("rustls", "0.23.12", ""),
        ("quinn-proto", "0.9.5", "RUSTSEC-2026-0037"),
        ("ring", "0.16.20", "RUSTSEC-2025-0010"),
        ("h3", "0.4.15", ""),
    ];
    for (name, version, id) in rows {
        let lock = format!(
            "version = 4\n\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\ndependencies = [\n \"h2 0.1.0\",\n]\n"
        );
        let found = affected(&snapshot, &lock).join("\n");
        assert_eq!(found.contains("RUSTSEC"), !id.is_empty(), "{name} {version}: {found}");
        assert!(found.contains(id), "{name} {version}: {found}");
        assert!(id.is_empty() || found.contains(&format!("cargo update -p {name}")), "{found}");
    }
}

#[test]
fn p1_every_dependency_that_we_name_was_looked_up() {
    let manifest = read("Cargo.toml");
    let table = manifest.split_once("[workspace.dependencies]").expect("a table").1;
    let table = table.split_once("\n[").expect("its end").0;
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.contains("path = "));
    let named: Vec<&str> = lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(named.len() > 40, "{named:?}");
    let snapshot = snapshot();
    let missing: Vec<&&str> =
        named.iter().filter(|name| !snapshot.looked_up.contains(**name)).collect();
    assert_eq!(missing, Vec::<&&str>::new(), ".ci/advisories.yaml says how to look one up");
    for advisory in &snapshot.advisories {
        assert!(snapshot.looked_up.contains(&advisory.package), "{}", advisory.id);
    }
}

#[test]
fn p1_the_date_of_the_advisories_is_where_people_look() {
    let snapshot = snapshot();
    let newest = snapshot.advisories.iter().map(|advisory| advisory.date.as_str()).max();
    assert_eq!(newest, Some(snapshot.newest.as_str()));
    let last = snapshot.advisories.iter().map(|advisory| advisory.id.as_str()).max();
    assert!(last <= Some(snapshot.reaches.as_str()), "{last:?}");
    for page in ["deny.toml", "docs/dependencies.md"] {
        let text = read(page);
        for said in [&snapshot.seen, &snapshot.reaches, &snapshot.newest] {
            assert!(text.contains(said), "{page} does not say {said}");
        }
    }
}
