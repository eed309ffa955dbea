//! What goes to a registry: to one that can be used, which the workflow looks at first, and only what arrived counts.

use std::fs;

use serde_json::{Value, json};

use super::{Tree, ran};
use crate::architecture::read;

/// Notes the digest of what it copies where `publish` looks for it.
const SKOPEO: &str =
    r#"for word in "$@"; do case $word in */publish/image) echo sha256:1d >"$word" ;; esac; done"#;

#[test]
fn a_workflow_stops_at_once_without_a_registry_that_can_be_used() {
    let tree = Tree::new();
    let check = |registry: Option<&str>| {
        let mut check = tree.step("check", "1.2.3");
        ran(check.env("GITHUB_ACTIONS", "true").envs(registry.map(|it| ("REGISTRY", it))))
    };
    for (registry, says) in [
        (None, "REGISTRY is not set"),
        (Some(""), "REGISTRY is not set"),
        (Some("https://registry.example.com/dns"), "without https://"),
        (Some("registry.example.com/dns/"), "without the / at its end"),
        (Some("registry.example.com/Some-One/DNS"), "write registry.example.com/some-one/dns"),
        (Some("docker.io/someone"), "names in Docker Hub have two parts only"),
    ] {
        let (passed, text) = check(registry);
        assert!(!passed && text.contains(says), "{registry:?}: {text}");
    }
    let (passed, text) = check(Some("registry.example.com:5000/some-one/dns"));
    assert!(passed, "{text}");
    let (passed, text) = tree.check("1.2.3");
    assert!(passed, "without a workflow nothing is published: {text}");
}

#[test]
fn the_workflow_of_a_release_checks_before_it_tests() {
    let workflow: Value =
        serde_saphyr::from_str(&read(".github/workflows/release.yml")).expect("YAML");
    let jobs = &workflow["jobs"];
    let needs = ["deny", "test", "release"].map(|job| &jobs[job]["needs"]);
    assert_eq!(needs, [&json!("check"), &json!("check"), &json!(["deny", "test"])]);
    assert_eq!(jobs["check"]["needs"], Value::Null);
    let steps = jobs["check"]["steps"].as_array().expect("steps");
    let check = steps.last().expect("a step");
    assert!(check["run"].as_str().is_some_and(|run| run.starts_with("make release-check ")));
    for (name, value) in
        [("RELEASE_TAG", "${{ github.ref_name }}"), ("REGISTRY", "${{ vars.REGISTRY }}")]
    {
        assert_eq!(check["env"][name], value);
    }
}

/// Runs `publish` with this helm: whether it passed, what it wrote, and which digest of the chart it took.
fn published(helm: &str) -> (bool, String, String) {
    let tree = Tree::new();
    tree.write("target/release-1.2.3/image-digest.txt", "sha256:1d\n");
    tree.executable("tests/tools/build", "echo helm");
    let mut publish = tree.step_with(&[("skopeo", SKOPEO), ("helm", helm)], "publish");
    let (passed, text) = ran(publish.env("REGISTRY", "registry.example.com/dns"));
    let digest = tree.path().join("target/release-1.2.3/publish/chart");
    (passed, text, fs::read_to_string(digest).unwrap_or_default())
}

#[test]
fn a_chart_that_the_registry_does_not_take_stops_the_release() {
    let (passed, text, _) = published("echo 'Error: denied: who are you?' >&2; exit 1");
    assert!(!passed && text.contains("does not push the chart to oci://registry.example.com/dns"));
    assert!(text.contains("denied: who are you?"), "{text}");
    let (passed, text, _) = published("echo 'Pushed: something'");
    assert!(!passed && text.contains("which digest") && text.contains("Pushed: something"));
    let (passed, text, digest) = published("echo Pushed: something; echo Digest: sha256:2e >&2");
    assert!(passed && text.contains("chart sha256:2e"), "{text}");
    assert_eq!(digest, "sha256:2e\n");
}

/// Nodes that have an image do not pull it again, so a tag that was moved must not change it.
#[test]
fn a_version_that_is_published_is_never_published_from_another_commit() {
    let tree = Tree::new();
    tree.write("target/release-1.2.3/image-digest.txt", "sha256:1d\n");
    tree.executable("tests/tools/build", "echo helm");
    let helm = ("helm", "echo Digest: sha256:2e");
    let published = |there: &str| {
        let skopeo = format!("[ \"$1\" != inspect ] || {{ {there}; exit; }}\n{SKOPEO}\necho $1");
        let mut publish = tree.step_with(&[("skopeo", skopeo.as_str()), helm], "publish");
        ran(publish.env("REGISTRY", "registry.example.com/dns"))
    };
    let (passed, text) = published("echo 0123abcd");
    assert!(!passed && text.contains("is published already, from commit 0123abcd"), "{text}");
    assert!(!text.contains("copy"), "nothing is pushed: {text}");
    let (passed, text) = published("git rev-parse HEAD");
    assert!(passed, "a run that is started again: {text}");
    let (passed, text) = published("echo 'manifest unknown' >&2; false");
    assert!(passed, "{text}");
}
