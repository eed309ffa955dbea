//! The archives of the plugin for kubectl, and the manifest by which krew installs them.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{Tree, ran};
use crate::architecture::read;

/// The manifest of krew for programs that are only text, as `make release-plugin` fills it in.
pub(super) fn krew(tree: &Tree) -> Value {
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
    let releases = "https://forge.example.com/dns/releases/download";
    let (passed, text) = ran(tree.step("plugin", "1.2.3").env("RELEASES_URL", releases));
    assert!(passed, "{text}");
    let manifest = tree.path().join("target/release-1.2.3/plugin/krew.yaml");
    serde_saphyr::from_str(&fs::read_to_string(manifest).expect("a manifest")).expect("YAML")
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
