//! The parts of a release: the workflows, the pinned tools, and the check that stops a release whose parts do not agree.
//! The release itself is made by `make release`, which takes too long for a test.

mod chart;
mod contents;
mod jobs;
mod layers;
mod machine;
mod page;
mod pages;
mod plugin;
mod publish;
mod runbooks;
mod tools;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use tests::scratch::Scratch;

use crate::architecture::{read, root};

const WORKFLOWS: [&str; 2] = [".github/workflows/test.yml", ".github/workflows/release.yml"];

/// The values of `key:` in a workflow, in the file's order, with or without the dash of a list item.
fn values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    let lines = text.lines().map(str::trim_start);
    let lines = lines.map(|line| line.strip_prefix("- ").unwrap_or(line));
    lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).collect()
}

#[test]
fn p4_workflows_pin_actions_by_digest_and_say_the_version() {
    for workflow in WORKFLOWS {
        let text = read(workflow);
        let uses = values(&text, "uses");
        assert!(!uses.is_empty(), "{workflow} uses no action");
        for action in uses {
            let (pinned, version) = action.split_once(" # v").expect(action);
            let digest = pinned.rsplit('@').next().expect(action);
            assert!(
                digest.len() == 40 && digest.bytes().all(|it| it.is_ascii_hexdigit()),
                "{workflow}: {action}"
            );
            assert!(version.starts_with(|it: char| it.is_ascii_digit()), "{workflow}: {action}");
        }
    }
}

#[test]
fn p4_workflows_get_no_right_that_a_job_does_not_name() {
    for workflow in WORKFLOWS {
        let value: Value = serde_saphyr::from_str(&read(workflow)).expect("YAML");
        let top = serde_json::to_string(&value["permissions"]).expect("JSON");
        assert!(matches!(top.as_str(), "{}" | r#"{"contents":"read"}"#), "{workflow}: {top}");
        assert!(!read(workflow).contains("write-all"), "{workflow}");
    }
}

#[test]
fn each_step_of_a_workflow_is_a_target_that_runs_anywhere() {
    let makefile = read("Makefile");
    let script = read(".ci/release");
    for workflow in WORKFLOWS {
        let text = read(workflow);
        for run in values(&text, "run") {
            let target = run
                .split_whitespace()
                .skip_while(|word| !word.ends_with("make"))
                .find(|word| !word.starts_with('-') && !word.ends_with("make"));
            match target {
                Some(target) if target.starts_with("release-") => {
                    let step = target.trim_start_matches("release-");
                    assert!(script.contains(&format!("\n{step}() {{")), "{workflow}: {run}");
                }
                Some(target) => {
                    assert!(makefile.contains(&format!("\n{target}:")), "{workflow}: {run}")
                }
                None => assert!(
                    root().join(run).is_file(),
                    "{workflow}: {run} is no target and no script"
                ),
            }
        }
    }
}

/// The quoted items of the list that follows `key = [`.
fn list(text: &str, key: &str) -> Vec<String> {
    let from = text.find(&format!("{key} = [")).expect(key);
    let end = text[from..].find("\n]").expect("the end of the list") + from;
    let lines = text[from..end].lines().skip(1).map(str::trim);
    let items = lines.filter(|line| line.starts_with('"'));
    items.map(|line| line.trim_matches(['"', ',']).to_owned()).collect()
}

#[test]
fn p2_the_licence_page_accepts_what_the_tree_may_have() {
    assert_eq!(list(&read(".ci/about.toml"), "accepted"), list(&read("deny.toml"), "allow"));
}

#[test]
fn the_icon_of_the_chart_is_its_file() {
    let text = read("charts/clusterdns/Chart.yaml");
    let encoded =
        text.lines().find_map(|line| line.strip_prefix("icon: data:image/svg+xml;base64,"));
    let file = Command::new("base64")
        .arg("--wrap=0")
        .arg(root().join("charts/clusterdns/icon.svg"))
        .output();
    let file = String::from_utf8(file.expect("coreutils").stdout).expect("text");
    assert_eq!(encoded, Some(file.as_str()));
}

/// A repository with the files that the check reads, all in agreement about version 1.2.3.
struct Tree(Scratch);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(Scratch::new("release").expect("a folder"));
        tree.write(".ci/release", &read(".ci/release"));
        tree.write("Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\n");
        tree.write(
            "charts/clusterdns/Chart.yaml",
            "name: clusterdns\nversion: 1.2.3\nappVersion: 1.2.3\n",
        );
        tree.write(
            "CHANGELOG.md",
            "# Changelog\n\n## [1.2.3] - 2026-11-22\n\n- The first release.\n\n## [1.2.2]\n",
        );
        tree.write("README.md", "# ClusterDNS\n\nInstall it.\n");
        tree.write("crds/examples/minimal.yaml", "spec: {}\n");
        tree.write("crds/tests/formats/1.2.3/minimal.yaml", "spec: {}\n");
        tree.write("tests/golden/flags/1.2.3.txt", "--http\n");
        tree.write("tests/golden/flags/1.2.3.chart.txt", "--http\n");
        tree.git(&["init", "--quiet"]);
        tree.commit();
        tree
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("can be made");
        fs::write(path, text).expect("can be written");
    }

    fn git(&self, arguments: &[&str]) {
        let who = [
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@example.com",
            "-c",
            "commit.gpgsign=false",
        ];
        let output =
            Command::new("git").current_dir(self.path()).args(who).args(arguments).output();
        let output = output.expect("git is installed");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "test"]);
    }

    /// A step of `.ci/release`, ready to run, as on a machine that publishes nothing.
    fn step(&self, step: &str, version: &str) -> Command {
        let mut command = Command::new("sh");
        command.current_dir(self.path()).args([".ci/release", step, version]);
        for name in ["RELEASE_TAG", "REGISTRY", "GITHUB_ACTIONS"] {
            command.env_remove(name);
        }
        command
    }

    /// Whether the check passed, and what it wrote.
    fn check(&self, version: &str) -> (bool, String) {
        ran(&mut self.step("check", version))
    }
}

/// Whether a command succeeded, and what it wrote.
fn ran(command: &mut Command) -> (bool, String) {
    let Output { status, stdout, stderr } = command.output().expect("a shell");
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// The check refuses, and names each of these.
fn refused(tree: &Tree, version: &str, words: &[&str]) {
    let (passed, text) = tree.check(version);
    assert!(!passed, "version {version:?} passed: {text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn a_release_whose_parts_agree_passes_the_check() {
    let tree = Tree::new();
    tree.git(&["tag", "v1.2.3"]);
    let (passed, text) = tree.check("1.2.3");
    assert!(passed, "{text}");
}

#[test]
fn a_release_stops_when_a_version_differs_and_says_what_to_do() {
    refused(&Tree::new(), "v1.2.3", &["no version", "without a v"]);
    refused(
        &Tree::new(),
        "1.2.4",
        &["Cargo.toml has version 1.2.3, not 1.2.4", "set workspace.package.version"],
    );
    let tree = Tree::new();
    tree.write("charts/clusterdns/Chart.yaml", "version: 1.2.3\nappVersion: 1.2.2\n");
    tree.commit();
    refused(&tree, "1.2.3", &["appVersion 1.2.2, not 1.2.3", "make manifests"]);
}

#[test]
fn a_release_stops_without_a_section_in_the_changelog() {
    let tree = Tree::new();
    tree.write(
        "CHANGELOG.md",
        "# Changelog\n\n## [Unreleased]\n\n- All.\n\n## [1.2.3]\n\n## [1.2.2]\n\n- Old.\n",
    );
    tree.commit();
    refused(&tree, "1.2.3", &["no section [1.2.3]", "rename [Unreleased]"]);
}

/// GitHub refuses a page that is longer, after image and chart are published.
#[test]
fn a_release_stops_when_its_notes_do_not_fit_the_release_page() {
    let tree = Tree::new();
    let changelog = |size: usize| format!("## [1.2.3]\n\n{}\n", "long\n".repeat(size / 5));
    tree.write("CHANGELOG.md", &changelog(119_990));
    tree.commit();
    let (passed, text) = tree.check("1.2.3");
    assert!(passed, "{text}");
    tree.write("CHANGELOG.md", &changelog(120_000));
    tree.commit();
    refused(&tree, "1.2.3", &["[1.2.3] of CHANGELOG.md has 120002 octets", "shorten it"]);
}

#[test]
fn a_release_stops_when_pages_install_another_version_or_from_another_registry() {
    let tree = Tree::new();
    let line = "$ REGISTRY=registry.example.com/dns VERSION=1.2.3\n";
    tree.write("README.md", line);
    tree.write(
        "docs/install.md",
        "$ make image IMAGE=REGISTRY/clusterdns:1.2.3     # with docker\n",
    );
    tree.commit();
    let check = |registry: &str| ran(tree.step("check", "1.2.3").env("REGISTRY", registry));
    let (passed, text) = check("registry.example.com/dns");
    assert!(passed, "{text}");
    let (passed, text) = check("ghcr.io/someone");
    assert!(!passed && text.contains("README.md says REGISTRY=registry.example.com/dns"), "{text}");
    tree.write("README.md", &line.replace("1.2.3", "1.2.2"));
    tree.commit();
    refused(&tree, "1.2.3", &["README.md says VERSION=1.2.2, not 1.2.3"]);
    tree.write("README.md", line);
    tree.write("docs/install.md", "$ make image IMAGE=REGISTRY/clusterdns:1.2.2\n");
    tree.commit();
    refused(&tree, "1.2.3", &["docs/install.md says /clusterdns:1.2.2, not 1.2.3"]);
}

#[test]
fn a_release_stops_when_documents_of_an_older_one_have_changed() {
    let tree = Tree::new();
    tree.write("crds/tests/formats/1.2.2/minimal.json", "{}\n");
    tree.commit();
    tree.git(&["tag", "v1.2.2"]);
    // What an older version does not know grows.
    tree.write("crds/tests/formats/1.2.2/ignores.txt", "hosts\n");
    tree.commit();
    let (passed, text) = tree.check("1.2.3");
    assert!(passed, "{text}");
    tree.write("crds/tests/formats/1.2.2/minimal.json", "{\"hosts\":[]}\n");
    tree.commit();
    let says = ["documents of version 1.2.2", "git checkout v1.2.2 -- ", "1.2.2/minimal.json"];
    refused(&tree, "1.2.3", &says);
}

#[test]
fn a_release_stops_with_changes_that_are_in_no_commit() {
    let tree = Tree::new();
    tree.write("new.txt", "new");
    refused(&tree, "1.2.3", &["in no commit", "new.txt"]);
}

#[test]
fn a_release_stops_at_a_tag_of_another_version() {
    let tree = Tree::new();
    tree.git(&["tag", "v1.2.4"]);
    refused(&tree, "1.2.3", &["the tag v1.2.4 is not v1.2.3"]);
}

#[test]
fn a_release_stops_without_the_documents_that_later_versions_are_tested_against() {
    let tree = Tree::new();
    tree.write("crds/examples/minimal.yaml", "spec: {ttlSeconds: 6}\n");
    tree.commit();
    refused(&tree, "1.2.3", &["crds/tests/formats/1.2.3", "minimal.yaml", "UPDATE_EXPECT=1"]);
    let tree = Tree::new();
    tree.git(&["rm", "--quiet", "tests/golden/flags/1.2.3.txt"]);
    tree.commit();
    refused(&tree, "1.2.3", &["no tests/golden/flags/1.2.3.txt", "UPDATE_EXPECT=1", "help::"]);
}

/// What <https://artifacthub.io/docs/topics/annotations/helm> asks of the annotations of a chart.
#[test]
fn artifact_hub_can_read_what_the_chart_says_about_itself() {
    let chart: Value = serde_saphyr::from_str(&read("charts/clusterdns/Chart.yaml")).expect("YAML");
    let said = |name: &str| {
        let value = &chart["annotations"][format!("artifacthub.io/{name}")];
        value.as_str().unwrap_or_else(|| panic!("no text at {name}")).to_owned()
    };
    assert_eq!(said("category"), "networking", "one of eight");
    assert!(read("Cargo.toml").contains(&format!("\nlicense = \"{}\"\n", said("license"))));
    let levels =
        ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
    assert!(levels.contains(&said("operatorCapabilities").as_str()));
    let version = env!("CARGO_PKG_VERSION");
    let is_early = (version.starts_with("0.") || version.contains('-')).to_string();
    assert_eq!((said("operator"), said("prerelease")), ("true".to_owned(), is_early));
    let crds: Value = serde_saphyr::from_str(&said("crds")).expect("YAML");
    let crd: Value = serde_saphyr::from_str(&read("crds/clusterdns.yaml")).expect("YAML");
    let [described] = &crds.as_array().expect("a list")[..] else { panic!("{crds}") };
    assert_eq!(described["name"], crd["metadata"]["name"]);
    assert_eq!(described["kind"], crd["spec"]["names"]["kind"]);
    assert_eq!(described["version"], crd["spec"]["versions"][0]["name"]);
    for field in ["displayName", "description"] {
        assert!(described[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    let examples: Vec<Value> = serde_saphyr::from_str(&said("crdsExamples")).expect("YAML");
    assert!(!examples.is_empty());
    for example in examples {
        let (resource, unknown) =
            crds::manifest::read(&example.to_string(), "crdsExamples").expect("read");
        assert!(unknown.is_empty(), "{unknown}");
        crds::check_resource(&resource).expect("accepted");
    }
    assert!(chart["keywords"].as_array().is_some_and(|keywords| keywords.len() > 2));
}
