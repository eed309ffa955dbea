//! Where the alerts and the pictures of a release lead: to the pages of its version, wherever that is published.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Tree;
use crate::architecture::root;
use crate::charts::helm;

/// A tree with what the step `chart` reads.
pub(super) fn tree() -> Tree {
    let tree = Tree::new();
    for folder in ["charts/clusterdns", "charts/manifests", "tests/tools"] {
        let to = tree.path().join(folder);
        fs::create_dir_all(to.parent().expect("a folder")).expect("can be made");
        let _ = fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-R").arg(root().join(folder)).arg(&to).status();
        assert!(copied.expect("coreutils").success());
    }
    tree
}

/// Makes the chart of version 1.2.3 with these variables of the forge; the folder with it.
pub(super) fn chart(tree: &Tree, variables: &[(&str, &str)]) -> PathBuf {
    let out = tree.path().join("target/release-1.2.3");
    let _ = fs::remove_dir_all(&out);
    let output = tree
        .step("chart", "1.2.3")
        .env_remove("RUNBOOKS_URL")
        .env_remove("GITHUB_SERVER_URL")
        .env_remove("GITHUB_REPOSITORY")
        .envs(variables.iter().copied())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// The packaged chart in that folder.
pub(super) fn package(out: &Path) -> PathBuf {
    out.join(format!("chart/clusterdns-{}.tgz", env!("CARGO_PKG_VERSION")))
}

/// What Artifact Hub shows of a chart is at an address that the release has.
#[test]
fn pictures_of_a_release_are_those_of_its_version() {
    let Some(helm) = helm() else { return };
    let tree = tree();
    let shown = |variables: &[(&str, &str)]| {
        let package = package(&chart(&tree, variables));
        let output = Command::new(&helm).args(["show", "chart"]).arg(package).output();
        let text = String::from_utf8(output.expect("helm").stdout).expect("text");
        let chart: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(
            chart["annotations"]["artifacthub.io/category"], "networking",
            "the others stay"
        );
        let pictures = &chart["annotations"]["artifacthub.io/screenshots"];
        pictures.as_str().map(|text| serde_saphyr::from_str::<Value>(text).expect("YAML"))
    };
    assert_eq!(shown(&[]), None, "no address is known");
    let forge = [
        ("GITHUB_SERVER_URL", "https://forge.example.com"),
        ("GITHUB_REPOSITORY", "dns/clusterdns"),
    ];
    let pictures = shown(&forge).expect("pictures");
    let pictures = pictures.as_array().expect("a list");
    assert!(!pictures.is_empty());
    for picture in pictures {
        assert!(picture["title"].as_str().is_some_and(|title| !title.is_empty()), "{picture}");
        let url = picture["url"].as_str().expect("an address");
        let file = url.strip_prefix("https://forge.example.com/dns/clusterdns/raw/v1.2.3/");
        assert!(root().join(file.expect("of this version")).is_file(), "{url}");
    }
}

/// What an alert of a release links to is where that release is published.
#[test]
fn alerts_of_a_release_link_to_the_pages_of_its_version() {
    let Some(helm) = helm() else { return };
    let tree = tree();
    let github = "https://forge.example.com/dns/clusterdns/blob/v1.2.3/docs/runbooks";
    let own = "https://docs.example.com/runbooks";
    let server = ("GITHUB_SERVER_URL", "https://forge.example.com");
    let repository = ("GITHUB_REPOSITORY", "dns/clusterdns");
    for (variables, link) in [
        (&[server, repository][..], Some(github)),
        (&[("RUNBOOKS_URL", "https://docs.example.com/runbooks/"), repository], Some(own)),
        (&[], None),
    ] {
        let out = chart(&tree, variables);
        let plain = fs::read_to_string(out.join("manifests/operator.yaml")).expect("plain YAML");
        let flag = link.map(|link| format!("        - \"--runbook-base-url={link}\"\n"));
        match &flag {
            Some(flag) => assert!(plain.contains(flag), "{plain}"),
            None => assert!(!plain.contains("runbook"), "{plain}"),
        }
        let output = Command::new(&helm)
            .args(["template", "x"])
            .arg(package(&out))
            .args(["--set", "metrics.prometheusRule=true"])
            .output();
        let rendered = String::from_utf8(output.expect("helm").stdout).expect("text");
        let of_alert = link.map(|link| format!("runbook_url: {link}/ClusterDNSNotReady.md"));
        match of_alert {
            Some(of_alert) => assert!(rendered.contains(&of_alert), "{rendered}"),
            None => assert!(!rendered.contains("runbook_url"), "{rendered}"),
        }
        assert!(flag.is_none_or(|flag| rendered.contains(&flag)), "{rendered}");
        assert!(rendered.contains("runbook: docs/runbooks/ClusterDNSNotReady.md"), "{rendered}");
    }
}
