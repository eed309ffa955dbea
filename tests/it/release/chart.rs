//! The chart and the plain YAML of a release: they name its image, and one commit makes the same octets each time.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::ran;
use super::runbooks::{chart, package, tree};
use crate::charts::helm;

/// The time of the commit, in seconds and in words.
const COMMITTED: (u64, &str) = (1_577_934_245, "2020-01-02 03:04:05");

#[test]
fn what_is_installed_from_a_release_has_the_image_of_that_release() {
    let Some(helm) = helm() else { return };
    let tree = tree();
    let version = env!("CARGO_PKG_VERSION");
    let registry = [("REGISTRY", "registry.example.com:5000/dns")];
    for (variables, image) in
        [(&registry[..], "registry.example.com:5000/dns/clusterdns"), (&[], "clusterdns")]
    {
        let out = chart(&tree, variables);
        let output = Command::new(&helm).args(["template", "x"]).arg(package(&out)).output();
        let rendered = String::from_utf8(output.expect("helm").stdout).expect("text");
        for named in ["image: ", "--dataplane-image="] {
            let named = format!("{named}{image}:{version}\n");
            assert!(rendered.contains(&named), "{named}: {rendered}");
        }
        let plain = fs::read_to_string(out.join("manifests/kustomization.yaml")).expect("a file");
        let plain: Value = serde_saphyr::from_str(&plain).expect("YAML");
        assert_eq!(plain["images"][0]["name"], "clusterdns", "what operator.yaml has");
        assert_eq!(plain["images"][0]["newName"], image);
    }
}

#[test]
fn a_release_stops_where_the_place_of_its_image_is_not_found() {
    if helm().is_none() {
        return;
    }
    for (file, line, says) in [
        ("charts/clusterdns/values.yaml", "  repository: clusterdns\n", "image.repository"),
        ("charts/manifests/kustomization.yaml", "  newName: clusterdns\n", "newName"),
    ] {
        let tree = tree();
        let text = fs::read_to_string(tree.path().join(file)).expect("a file");
        assert!(text.contains(line), "{file}");
        tree.write(file, &text.replace(line, ""));
        let mut step = tree.step("chart", "1.2.3");
        let (passed, text) = ran(step.env("REGISTRY", "registry.example.com/dns"));
        let wanted = format!("look for {says} in {file}");
        assert!(!passed && text.contains(&wanted), "{file}: {text}");
    }
}

#[test]
fn p5_the_chart_of_a_commit_has_the_same_octets_each_time() {
    if helm().is_none() {
        return;
    }
    let tree = tree();
    let amended = Command::new("git")
        .current_dir(tree.path())
        .env("GIT_COMMITTER_DATE", format!("@{} +0000", COMMITTED.0))
        .env("GIT_COMMITTER_NAME", "test")
        .env("GIT_COMMITTER_EMAIL", "test@example.com")
        .args(["-c", "commit.gpgsign=false", "commit", "--quiet", "--amend", "--no-edit"])
        .status();
    assert!(amended.expect("git").success());
    let made = || {
        let package = package(&chart(&tree, &[]));
        // `helm push` writes this time into what it pushes.
        let time = fs::metadata(&package).and_then(|it| it.modified()).expect("a time");
        assert_eq!(time, SystemTime::UNIX_EPOCH + Duration::from_secs(COMMITTED.0));
        package
    };
    let first = fs::read(made()).expect("a file");
    let second = made();
    assert!(first == fs::read(&second).expect("a file"), "of one commit");
    // Both may be made within one second: no file has the time of the run.
    let listed = Command::new("tar")
        .args(["--list", "--verbose", "--full-time", "--utc", "--gzip", "--file"])
        .arg(&second)
        .output();
    let listed = String::from_utf8(listed.expect("tar").stdout).expect("text");
    assert!(listed.lines().count() > 20, "{listed}");
    for line in listed.lines() {
        assert!(line.contains(COMMITTED.1), "{line}");
    }
}
