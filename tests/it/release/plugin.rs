//! The archives of the plugin for kubectl, and the manifest by which krew installs them.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{Tree, ran};
use crate::architecture::read;

/// Fills in the manifest of krew for programs that are only text, with these variables; what `make release-plugin` wrote.
fn filled(tree: &Tree, variables: &[(&str, &str)]) -> (Value, String) {
    for file in [".ci/krew.yaml", "operator/src/plugin/completion/kubectl_complete-clusterdns"] {
        tree.write(file, &read(file));
    }
    tree.write("LICENSE", "licence\n");
    tree.commit();
    tree.write("target/release-1.2.3/THIRD-PARTY.html", "licences of others\n");
    for architecture in ["amd64", "arm64"] {
        let program = format!("target/release-1.2.3/programs/{architecture}/kubectl-clusterdns");
        tree.write(&program, architecture);
    }
    let mut plugin = tree.step("plugin", "1.2.3");
    for name in ["RELEASES_URL", "GITHUB_REPOSITORY", "GITHUB_SERVER_URL"] {
        plugin.env_remove(name);
    }
    let (passed, text) = ran(plugin.envs(variables.iter().copied()));
    assert!(passed, "{text}");
    let manifest = tree.path().join("target/release-1.2.3/plugin/krew.yaml");
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    (serde_saphyr::from_str(&manifest).expect("YAML"), text)
}

const RELEASES: (&str, &str) = ("RELEASES_URL", "https://forge.example.com/dns/releases/download");

/// That manifest for a release page that is known.
pub(super) fn krew(tree: &Tree) -> Value {
    filled(tree, &[RELEASES]).0
}

#[test]
fn a_manifest_that_no_one_can_install_from_is_made_with_a_warning() {
    let repository = ("GITHUB_REPOSITORY", "dns/of-a-fork");
    for (variables, home, uri, warns) in [
        (
            &[][..],
            "https://forge.example.com/clusterdns/clusterdns",
            "https://forge.example.com/clusterdns/clusterdns/releases/download/v1.2.3/",
            true,
        ),
        (
            &[("RELEASES_URL", "https://a.example/b/c/releases/download/")],
            "https://a.example/b/c",
            "https://a.example/b/c/releases/download/v1.2.3/",
            false,
        ),
        (
            &[repository],
            "https://github.com/dns/of-a-fork",
            "https://github.com/dns/of-a-fork/releases/download/v1.2.3/",
            false,
        ),
        (
            &[repository, ("RELEASES_URL", "https://files.example")],
            "https://github.com/dns/of-a-fork",
            "https://files.example/v1.2.3/",
            false,
        ),
    ] {
        let (manifest, text) = filled(&Tree::new(), variables);
        assert_eq!(manifest["spec"]["homepage"], home);
        let named = manifest["spec"]["platforms"][0]["uri"].as_str().expect("an address");
        assert!(named.starts_with(&format!("{uri}kubectl-clusterdns-")), "{named}");
        assert_eq!(text.contains("WARNING: krew.yaml names forge.example.com"), warns, "{text}");
    }
}

/// What krew's own validation asks of a manifest (internal/index/validation), field by field.
#[test]
fn the_plugin_has_a_manifest_that_krew_takes_and_archives_that_it_names() {
    let tree = Tree::new();
    let manifest = krew(&tree);
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!(
        (&manifest["kind"], &manifest["metadata"]["name"]),
        (&"Plugin".into(), &"clusterdns".into())
    );
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], "v1.2.3", "a semantic version with a v");
    let short = spec["shortDescription"].as_str().expect("text");
    assert!(!short.is_empty() && !short.contains('\n') && short.len() <= 50, "{short}");
    assert!(spec["homepage"].as_str().is_some_and(|it| it.starts_with("https://")), "{spec}");
    let platforms = spec["platforms"].as_array().expect("a list");
    assert_eq!(platforms.len(), 2);
    for (platform, architecture) in platforms.iter().zip(["amd64", "arm64"]) {
        let labels = &platform["selector"]["matchLabels"];
        assert_eq!((&labels["os"], &labels["arch"]), (&"linux".into(), &architecture.into()));
        let name = format!("kubectl-clusterdns-1.2.3-linux-{architecture}.tar.gz");
        let uri = format!("https://forge.example.com/dns/releases/download/v1.2.3/{name}");
        assert_eq!(platform["uri"], uri);
        let archive = tree.path().join("target/release-1.2.3/plugin").join(name);
        let printed = |program: &str, more: &[&str]| {
            let output = Command::new(program).args(more).arg(&archive).output();
            String::from_utf8(output.expect("coreutils and tar").stdout).expect("text")
        };
        let digest = printed("sha256sum", &[]);
        assert_eq!(platform["sha256"].as_str(), digest.split(' ').next());
        let held = printed("tar", &["--list", "--file"]);
        for file in platform["files"].as_array().expect("files") {
            let from = file["from"].as_str().expect("a path");
            assert!(held.lines().any(|it| it.trim_start_matches("./") == from), "{from}: {held}");
            assert!(file["to"].as_str().is_some_and(|to| !to.is_empty()));
        }
        // The program is one of those files, and begins as kubectl asks of a plugin.
        assert_eq!(platform["bin"], "kubectl-clusterdns");
        assert!(held.contains("kubectl_complete-clusterdns"), "{held}");
        // Most licences of what is linked in ask that their text is beside the program.
        for licence in ["LICENSE", "THIRD-PARTY.html"] {
            let taken = platform["files"].as_array().expect("files").iter();
            assert!(taken.map(|file| &file["from"]).any(|from| from == licence), "{licence}");
        }
    }
}
