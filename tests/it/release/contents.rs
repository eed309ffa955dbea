//! What a release says about what it holds: the SBOM of the image, what Artifact Hub reads, what krew says about the plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tests::control_plane::{not_run, path_of};

use super::plugin::krew;
use super::tools::pinned;
use super::{Tree, ran};
use crate::architecture::{read, root};

const LIBRARY: &str = "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36\n12.2.0\n";
const DIGEST: &str = "sha256:00000000000000000000000000000000000000000000000000000000000000";

/// Whether a program is there. If not, the test did not run; where CI is set that is a failure.
pub(super) fn has(program: &Path, how: &str) -> bool {
    if program.exists() {
        return true;
    }
    not_run(&format!("{}; {how}", program.display()));
    false
}

pub(super) fn installed(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("a path");
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.exists());
    found.unwrap_or_else(|| name.into())
}

/// A tree with the pins of the tools, so that its steps find those that are built.
fn with_tools(tree: Tree) -> Tree {
    let to = tree.path().join("tests");
    fs::create_dir_all(&to).expect("can be made");
    let copied = Command::new("cp").arg("-R").arg(root().join("tests/tools")).arg(&to).status();
    assert!(copied.expect("coreutils").success());
    tree
}

/// A program with the list of its crates inside, as cargo-auditable writes it: JSON in a stream of zlib, here not compressed.
fn program(tree: &Tree, file: &str, packages: &Value) {
    let list = json!({ "packages": packages }).to_string();
    let length = u16::try_from(list.len()).expect("a short list");
    let mut section = vec![0x78, 0x01, 0x01];
    section.extend(length.to_le_bytes());
    section.extend((!length).to_le_bytes());
    section.extend(list.as_bytes());
    section.extend([0; 4]);
    tree.write("section", "");
    let section_file = tree.path().join("section");
    fs::write(&section_file, section).expect("can be written");
    tree.write(file, "");
    let added = Command::new("objcopy")
        .arg(format!("--add-section=.dep-v0={}", section_file.display()))
        .arg(installed("true"))
        .arg(tree.path().join(file))
        .status();
    assert!(added.expect("binutils").success());
}

/// The document of one program, as cargo-cyclonedx writes it, with these crates.
fn document(name: &str, crates: &[&str]) -> String {
    let of =
        |name: &str| json!({"type": "library", "bom-ref": name, "name": name, "version": "1.0.0"});
    let all: Vec<Value> = crates.iter().map(|name| of(name)).collect();
    let value = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.3", "version": 1,
        "metadata": {"timestamp": "2026-11-25T00:00:00Z", "tools": [], "component": of(name)},
        "components": all,
        "dependencies": [{"ref": name, "dependsOn": crates}],
    });
    value.to_string()
}

/// A release whose programs have `serde`, and the data plane `ring` besides; its SBOM of the image for arm64.
fn image_sbom(data_plane: &[&str]) -> (bool, String, Tree) {
    let tree = Tree::new();
    tree.write(".ci/contents.jq", &read(".ci/contents.jq"));
    tree.write("LICENSE", "licence\n");
    let write = |file: &str, text: &str| tree.write(&format!("target/release-1.2.3/{file}"), text);
    write("THIRD-PARTY.html", "licences\n");
    write("image-digest.txt", "sha256:1d\n");
    let of =
        |name: &str| json!({"digest": DIGEST, "platform": {"os": "linux", "architecture": name}});
    let index = json!({"manifests": [of("amd64"), of("arm64")]});
    write("image/blobs/sha256/1d", &index.to_string());
    for architecture in ["amd64", "arm64"] {
        for (name, crates, listed) in [
            ("operator", &["serde"][..], &["serde"][..]),
            ("dataplane", &["serde", "ring"], data_plane),
        ] {
            let packages: Vec<Value> =
                crates.iter().map(|it| json!({"name": it, "version": "1.0.0"})).collect();
            let build = json!({"name": "cc", "version": "1.0.0", "kind": "build"});
            let packages = [packages, vec![build]].concat();
            let file = format!("target/release-1.2.3/programs/{architecture}/clusterdns-{name}");
            program(&tree, &file, &packages.into());
            write(
                &format!("sbom/clusterdns-{name}-{architecture}.cdx.json"),
                &document(name, listed),
            );
        }
        write(&format!("library-{architecture}.txt"), LIBRARY);
    }
    let (passed, text) = ran(&mut tree.step("contents", "1.2.3"));
    (passed, text, tree)
}

#[test]
fn p3_the_sbom_of_the_image_names_programs_crates_files_and_what_else_is_linked_in() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let (passed, text, tree) = image_sbom(&["serde", "ring"]);
    assert!(passed, "{text}");
    let file = tree.path().join("target/release-1.2.3/sbom/clusterdns-image-arm64.cdx.json");
    let sbom: Value =
        serde_json::from_str(&fs::read_to_string(file).expect("a document")).expect("JSON");
    let image = &sbom["metadata"]["component"];
    assert_eq!((&image["type"], &image["version"]), (&"container".into(), &"1.2.3".into()));
    let purl = image["purl"].as_str().expect("text");
    assert!(purl.contains("arch=arm64") && purl.contains(&DIGEST[7..]), "{purl}");
    let components = sbom["components"].as_array().expect("a list");
    let names: Vec<_> = components.iter().filter_map(|it| it["name"].as_str()).collect();
    let files = ["/clusterdns-operator", "/clusterdns-dataplane", "/THIRD-PARTY.html", "/LICENSE"];
    assert_eq!(
        names,
        [&["operator", "dataplane", "ring", "serde", "glibc", "libgcc", "rust"][..], &files]
            .concat()
    );
    let rust = pinned("rust");
    for (name, version) in [("glibc", "2.36"), ("libgcc", "12.2.0"), ("rust", rust.as_str())] {
        assert!(components.iter().any(|it| it["name"] == name && it["version"] == version));
    }
    // Each dependency is one of the components.
    let dependencies = sbom["dependencies"].as_array().expect("a list");
    let named = dependencies.iter().flat_map(|it| it["dependsOn"].as_array().expect("a list"));
    for name in named {
        assert!(components.iter().any(|it| &it["bom-ref"] == name), "{name}");
    }
    let of_image = dependencies.iter().find(|it| it["ref"] == "image").expect("the image");
    assert_eq!(of_image["dependsOn"].as_array().map(Vec::len), Some(2 + files.len()));
}

#[test]
fn p3_an_sbom_without_a_crate_that_is_in_a_program_stops_the_release() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let (passed, text, _tree) = image_sbom(&["serde"]);
    assert!(!passed && text.contains("lacks what is in clusterdns-dataplane"), "{text}");
    assert!(text.contains("ring 1.0.0") && !text.contains("cc 1.0.0"), "{text}");
}

#[test]
fn p3_the_c_library_is_the_one_that_was_linked_or_the_release_stops() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let (passed, text, tree) = image_sbom(&["serde", "ring"]);
    assert!(passed, "{text}");
    fs::remove_file(tree.path().join("target/release-1.2.3/library-arm64.txt"))
        .expect("it is there");
    let (passed, text) = ran(&mut tree.step("contents", "1.2.3"));
    assert!(!passed && text.contains("make release-programs VERSION=1.2.3"), "{text}");
}

#[test]
fn what_artifact_hub_reads_has_the_types_that_it_asks_for_and_goes_beside_the_chart() {
    if !has(&path_of("oras"), "`tests/tools/build oras` builds it") {
        return;
    }
    let tree = with_tools(Tree::new());
    let hub = read("charts/artifacthub-repo.yml");
    tree.write("charts/artifacthub-repo.yml", &hub);
    tree.commit();
    let made = || {
        let (passed, text) = ran(&mut tree.step("artifacthub", "1.2.3"));
        assert!(passed, "{text}");
        let layout = tree.path().join("target/release-1.2.3/artifacthub");
        let json = |file: &str| -> Value {
            let text = fs::read_to_string(layout.join(file)).expect("a file of the layout");
            serde_json::from_str(&text).expect("JSON")
        };
        let blob =
            |digest: &Value| digest.as_str().expect("a digest").replace("sha256:", "blobs/sha256/");
        let index = json("index.json");
        let [manifest] = &index["manifests"].as_array().expect("a list")[..] else {
            panic!("{index}")
        };
        assert_eq!(manifest["annotations"]["org.opencontainers.image.ref.name"], "artifacthub.io");
        let digest = manifest["digest"].clone();
        let manifest = json(&blob(&digest));
        let types = [&manifest["config"], &manifest["layers"][0]].map(|it| &it["mediaType"]);
        assert_eq!(types[0], "application/vnd.cncf.artifacthub.config.v1+yaml");
        assert_eq!(types[1], "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml");
        assert_ne!(manifest["config"]["size"], 0, "Harbor refuses a configuration without octets");
        let layer = layout.join(blob(&manifest["layers"][0]["digest"]));
        assert_eq!(fs::read_to_string(layer).expect("the layer"), hub);
        digest
    };
    assert_eq!(made(), made(), "of one commit");

    tree.write("target/release-1.2.3/image-digest.txt", "sha256:1d\n");
    let skopeo = r#"[ "$1" != inspect ] || { echo manifest unknown >&2; exit 1; }; echo "$@"; for word in "$@"; do case $word in */publish/image) echo sha256:1d >"$word" ;; esac; done"#;
    tree.executable("tests/tools/build", "echo helm");
    let to = "docker://registry.example.com/dns/charts/clusterdns:artifacthub.io";
    let helm = ("helm", "echo Digest: sha256:2e");
    let published = |skopeo: &str| {
        let mut publish = tree.step_with(&[("skopeo", skopeo), helm], "publish");
        ran(publish.env("REGISTRY", "registry.example.com/dns"))
    };
    let pushes = |text: &str| {
        let mut lines = text.lines();
        lines.any(|line| line.contains("/artifacthub:artifacthub.io ") && line.ends_with(to))
    };
    let (passed, text) = published(skopeo);
    assert!(passed && pushes(&text), "{text}");
    // A registry that does not take it stops nothing: image and chart are there.
    let refuses = format!("{skopeo}\ncase \"$*\" in *artifacthub*) exit 1 ;; esac");
    let (passed, text) = published(&refuses);
    assert!(passed && text.contains("Artifact Hub shows no owner"), "{text}");
    // What an older version says about the repository is not what holds.
    tree.git(&["tag", "v1.2.3"]);
    tree.git(&["tag", "v1.3.0-rc.1"]);
    let (passed, text) = published(skopeo);
    assert!(passed && !pushes(&text), "{text}");
    tree.git(&["tag", "--delete", "v1.3.0-rc.1"]);
    tree.git(&["tag", "v1.2.3-rc.1"]);
    let (passed, text) = published(skopeo);
    assert!(passed && pushes(&text), "{text}");
}

#[test]
fn krew_itself_takes_the_manifest_and_installs_both_archives() {
    let tools = ["krew", "validate-krew-manifest"];
    if !tools
        .iter()
        .all(|it| has(&path_of(it), "`tests/tools/build krew validate-krew-manifest` builds it"))
    {
        return;
    }
    let tree = with_tools(Tree::new());
    krew(&tree);
    let (passed, text) = ran(&mut tree.step("krew", "1.2.3"));
    assert!(passed && text.contains("installs the archives for amd64 arm64"), "{text}");

    let manifest = tree.path().join("target/release-1.2.3/plugin/krew.yaml");
    let good = fs::read_to_string(&manifest).expect("a manifest");
    for (right, wrong, says) in [
        ("arch: arm64", "arch: amd64", "overlapping"),
        ("version: v1.2.3", "version: 1.2.3", "not starting with 'v'"),
        ("bin: kubectl-clusterdns", "bin: ../kubectl-clusterdns", "installs something else"),
    ] {
        fs::write(&manifest, good.replace(right, wrong)).expect("can be written");
        let (passed, text) = ran(&mut tree.step("krew", "1.2.3"));
        assert!(!passed && text.contains(says), "{wrong}: {text}");
    }
}

#[test]
fn p4_what_is_in_the_image_is_attested_for_each_architecture() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let (passed, text, tree) = image_sbom(&["serde", "ring"]);
    assert!(passed, "{text}");
    for name in ["image", "chart"] {
        tree.write(&format!("target/release-1.2.3/publish/{name}"), &format!("sha256:{name}"));
    }
    let mut sign = tree.step_with(&[("cosign", r#"echo "$@""#)], "sign");
    let (passed, text) = ran(sign.env("REGISTRY", "registry.example.com/dns"));
    assert!(passed, "{text}");
    for architecture in ["amd64", "arm64"] {
        let sbom = tree
            .path()
            .join(format!("target/release-1.2.3/sbom/clusterdns-image-{architecture}.cdx.json"));
        let wanted = format!(
            "attest --yes --type cyclonedx --predicate {} registry.example.com/dns/clusterdns@{DIGEST}\n",
            sbom.display()
        );
        assert!(text.contains(&wanted), "{wanted} is not in: {text}");
    }
    assert!(
        text.contains("sign --yes --recursive registry.example.com/dns/clusterdns@sha256:image\n"),
        "{text}"
    );
}

/// cargo-about knows what Cargo.lock has; the standard library and the C library are not in there.
#[test]
fn p3_the_licence_page_has_the_texts_of_what_is_linked_in_besides_crates() {
    let tree = Tree::new();
    tree.write(".ci/third-party", &read(".ci/third-party"));
    let about = r#"while [ "$1" != --output-file ]; do shift; done; cp crates.html "$2""#;
    tree.write("crates.html", "<body>\n<li class=\"crate\">serde 1.0.0</li>\n</body>\n</html>\n");
    let sysroot = tree.path().join("sysroot");
    let path =
        tree.path_with(&[("cargo", about), ("rustc", &format!("echo {}", sysroot.display()))]);
    let written = |tree: &Tree| {
        let mut command = Command::new("sh");
        command.current_dir(tree.path()).args([".ci/third-party", "page.html"]).env("PATH", &path);
        ran(command.env("LICENCE_TEXTS", tree.path()))
    };
    tree.write("common-licenses/LGPL-2.1", "Lesser <GPL>\n");
    tree.write("doc/libc6-dev/copyright", "Roland & others\n");
    let (passed, text) = written(&tree);
    assert!(
        !passed && text.contains("COPYRIGHT-library.html") && text.contains("rustup"),
        "{text}"
    );
    tree.write(
        "sysroot/share/doc/rust/COPYRIGHT-library.html",
        "<html>\n<body>\n<h1>The Rust Standard Library</h1>\n</body>\n</html>\n",
    );
    let (passed, text) = written(&tree);
    assert!(passed, "{text}");
    let page = fs::read_to_string(tree.path().join("page.html")).expect("a page");
    for part in [
        "serde 1.0.0",
        "<h1>The Rust Standard Library</h1>",
        "Roland &amp; others",
        "Lesser &lt;GPL&gt;",
    ] {
        assert_eq!(page.matches(part).count(), 1, "{part} in {page}");
    }
    assert_eq!((page.matches("<body>").count(), page.matches("</body>\n</html>").count()), (1, 1));
    fs::remove_dir_all(tree.path().join("doc")).expect("can be removed");
    let (passed, text) = written(&tree);
    assert!(!passed && text.contains("doc/libc6-dev/copyright"), "{text}");
}
