//! Which package imports which, from the Cargo files: Cargo keeps the boundaries of the picture.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::{quoted, read, root, table};

/// The left package may use those on the right, and no other of ours; `tests` may use all.
const MAY_IMPORT: [(&str, &[&str]); 6] = [
    ("crds", &[]),
    ("process", &[]),
    ("dataplane-core", &[]),
    ("dataplane-udp", &[]),
    ("dataplane", &["crds", "process", "dataplane-core", "dataplane-udp"]),
    ("operator", &["crds", "process"]),
];
/// All that DNS decisions need besides `core` and `alloc`: hashing, tables, and ranges of addresses.
const CORE_MAY_USE: [&str; 3] = ["foldhash", "hashbrown", "ipnet"];

struct Package {
    manifest: String,
    /// Kind (empty for an ordinary one) and name.
    dependencies: Vec<(String, String)>,
}

/// Every package by name, as Cargo reads its Cargo.toml.
fn packages() -> BTreeMap<String, Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let package = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let dependencies = dependencies.iter().map(|d| (text(&d["kind"]), text(&d["name"])));
        let path = text(&package["manifest_path"]);
        let manifest = std::fs::read_to_string(&path).expect("a manifest");
        (text(&package["name"]), Package { manifest, dependencies: dependencies.collect() })
    };
    metadata["packages"].as_array().expect("packages").iter().map(package).collect()
}

#[test]
fn each_package_imports_only_what_the_picture_allows() {
    let packages = packages();
    for (name, package) in packages.iter().filter(|(name, _)| *name != "tests") {
        let (_, allowed) = MAY_IMPORT
            .iter()
            .find(|(importer, _)| importer == name)
            .unwrap_or_else(|| panic!("package {name} has no place in the picture yet"));
        for (_, dependency) in &package.dependencies {
            assert!(
                !packages.contains_key(dependency) || allowed.contains(&dependency.as_str()),
                "{name} imports {dependency}"
            );
        }
    }
}

#[test]
fn the_core_depends_on_nothing_that_could_wait_or_fail() {
    let packages = packages();
    let core = packages["dataplane-core"].dependencies.iter();
    let needed: Vec<_> = core.filter(|(kind, _)| kind.is_empty()).map(|(_, name)| name).collect();
    assert_eq!(needed, CORE_MAY_USE);
}

#[test]
fn every_package_takes_the_lints_of_the_workspace() {
    for (name, package) in packages() {
        assert!(package.manifest.contains("\n[lints]\nworkspace = true\n"), "{name}");
    }
    assert!(read("Cargo.toml").contains("\nunsafe_code = \"deny\"\n"));
}

#[test]
fn the_pinned_tests_of_kubernetes_are_of_the_version_of_the_pinned_programs() {
    let version = |folder: &str| {
        let pins = read(&format!("tests/tools/{folder}/go.mod"));
        let pin = pins.lines().find_map(|line| line.trim().split_once("k8s.io/kubernetes v"));
        let (_, version) = pin.expect("a version of Kubernetes");
        version.split(" //").next().unwrap_or_default().to_owned()
    };
    assert_eq!(version("conformance"), version("kubernetes"));
}

#[test]
fn p2_every_dependency_has_its_reason_and_every_reason_a_dependency() {
    let packages = packages();
    let used: BTreeSet<&str> = packages
        .values()
        .flat_map(|package| &package.dependencies)
        .map(|(_, name)| name.as_str())
        .filter(|name| !packages.contains_key(*name))
        .collect();
    let rows = table("docs/dependencies.md", "# Dependencies");
    let explained: BTreeSet<&str> = rows.iter().flat_map(|row| quoted(&row[0])).collect();
    let missing: Vec<_> = used.difference(&explained).collect();
    let unused: Vec<_> = explained.difference(&used).collect();
    assert!(
        missing.is_empty(),
        "docs/dependencies.md does not say why these are here: {missing:?}"
    );
    assert!(unused.is_empty(), "no package uses these: {unused:?}");
    assert!(rows.iter().all(|row| !row[1].is_empty()));
}

/// Tests and benchmarks of the package `tests` build the programs while they run, `--offline`.
#[test]
fn targets_that_build_while_they_run_fetch_every_crate_first() {
    let makefile = read("Makefile").replace("\\\n", " ").replace("$(LOAD)", "--package tests");
    // A rule is a line with its dependencies, and the lines of its recipe.
    let (mut rule, mut found) = ("", 0);
    for line in makefile.lines() {
        match line.strip_prefix('\t') {
            None if line.contains(':') && !line.starts_with('#') => rule = line,
            Some(step) if step.contains("--package tests ") => {
                found += 1;
                assert!(rule.split(' ').any(|it| it == "crates"), "{rule}\n{step}");
            }
            None | Some(_) => {}
        }
    }
    assert!(found >= 7, "only {found} such steps were found");
}
