//! The jobs of the workflow: the one that builds has no rights, and the one that has them builds nothing and checks what it
//! was handed.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::contents::{has, installed};
use super::layers;
use super::page::made;
use super::{Tree, ran, values};
use crate::architecture::read;

fn jobs() -> Value {
    let text = read(".github/workflows/release.yml");
    let workflow: Value = serde_saphyr::from_str(&text).expect("YAML");
    workflow["jobs"].clone()
}

fn steps(job: &Value) -> &[Value] {
    job["steps"].as_array().expect("steps")
}

#[test]
fn the_workflow_of_a_release_checks_before_it_tests() {
    let jobs = jobs();
    for job in ["deny", "test", "build"] {
        assert_eq!(jobs[job]["needs"], "check", "{job}");
    }
    assert_eq!(jobs["publish"]["needs"], json!(["deny", "test", "build"]));
    assert_eq!(jobs["check"]["needs"], Value::Null);
    let check = steps(&jobs["check"]).last().expect("a step");
    assert!(check["run"].as_str().is_some_and(|run| run.starts_with("make release-check ")));
    assert_eq!(check["env"]["RELEASE_TAG"], "${{ github.ref_name }}");
}

/// A compiler or a package that turned bad finds no right and no secret.
#[test]
fn p4_only_the_job_that_publishes_has_rights_and_it_makes_nothing() {
    let jobs = jobs();
    for (name, job) in jobs.as_object().expect("jobs") {
        let uses_a_secret = serde_json::to_string(job).expect("JSON").contains("secrets.");
        if name == "publish" {
            assert_eq!(job["environment"], "release", "people can be asked before it begins");
            continue;
        }
        assert_eq!(job["permissions"], json!({"contents": "read"}), "{name}");
        assert!(!uses_a_secret, "{name}");
    }
    let runs = steps(&jobs["publish"]).iter().filter_map(|step| step["run"].as_str());
    let targets = runs.map(|run| {
        let target = run.split_whitespace().find_map(|word| word.strip_prefix("release-"));
        target.expect(run)
    });
    let targets: Vec<&str> = targets.collect();
    assert_eq!(targets, ["unpack", "login", "publish", "digests", "sign", "page"]);
    let text = read(".github/workflows/release.yml");
    let (build, publish) = text.split_once("\n  publish:\n").expect("the last job");
    let uses =
        |text: &str, action: &str| values(text, "uses").iter().any(|it| it.starts_with(action));
    assert!(uses(build, "actions/upload-artifact@") && uses(publish, "actions/download-artifact@"));
}

/// The log of Sigstore is public, and nothing is ever taken out of it.
#[test]
fn a_private_repository_gets_into_no_public_log_unless_it_asks_for_that() {
    let jobs = jobs();
    let mut signs = 0;
    for step in steps(&jobs["publish"]) {
        let text = step.to_string();
        if text.contains("release-sign") || text.contains("cosign-installer") {
            let asks = "${{ !github.event.repository.private || vars.SIGN_PRIVATE == 'true' }}";
            assert_eq!(step["if"], asks);
            signs += 1;
        } else if text.contains("attest-build-provenance") {
            assert_eq!(step["if"], "${{ !github.event.repository.private }}");
            signs += 1;
        }
    }
    assert_eq!(signs, 4);
}

/// A layout with one blob, which its index names; the path of that blob.
fn layout(tree: &Tree, name: &str) -> String {
    let digest = layers::digest(name.as_bytes());
    let out = "target/release-1.2.3";
    let blob = format!("{out}/{name}/blobs/sha256/{digest}");
    tree.write(&blob, name);
    let index = json!({"manifests": [{"digest": format!("sha256:{digest}")}]});
    tree.write(&format!("{out}/{name}/index.json"), &index.to_string());
    if name == "image" {
        tree.write(&format!("{out}/image-digest.txt"), &format!("sha256:{digest}\n"));
    }
    blob
}

/// A release that is packed; the path of its image's blob, and the digest of the file.
fn packed() -> (Tree, String, String) {
    let tree = made();
    let blob = layout(&tree, "image");
    layout(&tree, "artifacthub");
    tree.write("target/release-1.2.3/NOTES.md", "- All.\n");
    assert!(ran(&mut tree.step("checksums", "1.2.3")).0);
    let (passed, text) = ran(&mut tree.step("pack", "1.2.3"));
    let digest = text.strip_prefix("packed=").expect("one line for the forge").trim().to_owned();
    assert!(passed && digest.starts_with("sha256:"), "{text}");
    (tree, blob, digest)
}

fn unpack(tree: &Tree, digest: &str) -> (bool, String) {
    ran(tree.step("unpack", "1.2.3").env("PACKED", digest))
}

/// Packs what lies there now, which another one changed, and takes it out.
fn unpack_again(tree: &Tree) -> (bool, String) {
    let out = tree.path().join("target/release-1.2.3");
    let tar = ["--create", "--file", "../release-1.2.3.tar", "."];
    let packed = Command::new("tar").current_dir(out).args(tar).status();
    assert!(packed.expect("tar").success());
    unpack(tree, "")
}

#[test]
fn what_is_published_goes_from_job_to_job_as_it_was_made() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let (tree, blob, digest) = packed();
    let out = tree.path().join("target/release-1.2.3");
    fs::remove_dir_all(&out).expect("another machine");
    let (passed, text) = unpack(&tree, &digest);
    assert!(passed && text.contains("whole, with the image sha256:"), "{text}");
    let parts =
        ["chart/clusterdns-1.2.3.tgz", "page/krew.yaml", "NOTES.md", "artifacthub/index.json"];
    for part in parts {
        assert!(out.join(part).is_file(), "{part}");
    }
    assert_eq!(fs::read_to_string(tree.path().join(blob)).expect("the image"), "image");

    let (passed, text) = unpack(&tree, "sha256:1d");
    assert!(!passed && text.contains("what was packed has the digest sha256:1d"), "{text}");
    tree.write("README.md", "Another commit.\n");
    tree.commit();
    let (passed, text) = unpack(&tree, &digest);
    assert!(!passed && text.contains("the release was made from commit"), "{text}");
}

#[test]
fn what_was_changed_on_the_way_is_not_published() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let (tree, blob, _) = packed();
    let out = tree.path().join("target/release-1.2.3");
    let pristine = fs::read(tree.path().join("target/release-1.2.3.tar")).expect("the file");
    let blob = blob.replace("target/release-1.2.3/", "");
    for (file, says) in [
        ("page/krew.yaml", "not the one that SHA256SUMS names"),
        ("page/new.yaml", "does not name new.yaml"),
        ("chart/clusterdns-1.2.3.tgz", "is not the one of the page"),
        ("sbom/clusterdns-operator-amd64.cdx.json", "is not the one of the page"),
        (blob.as_str(), "has other octets than its name says"),
        ("image-digest.txt", "names another digest"),
    ] {
        fs::write(tree.path().join("target/release-1.2.3.tar"), &pristine).expect("written");
        assert!(unpack(&tree, "").0, "it is whole");
        fs::write(out.join(file), "sha256:other\n").expect("written");
        let (passed, text) = unpack_again(&tree);
        assert!(!passed && text.contains(says), "{file}: {text}");
    }
}

/// What publishes would follow it to a secret of its own machine.
#[test]
fn a_link_among_what_is_packed_is_not_published() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let (tree, ..) = packed();
    let out = tree.path().join("target/release-1.2.3");
    for file in ["NOTES.md", "page/krew.yaml"] {
        let _ = fs::remove_file(out.join(file));
        std::os::unix::fs::symlink("/not/there/yet", out.join(file)).expect("our folder");
        let (passed, text) = unpack_again(&tree);
        assert!(
            !passed && text.contains("neither file nor folder") && text.contains(file),
            "{text}"
        );
    }
}

/// An output that was renamed is empty: then nothing would tie the file to the job that made it.
#[test]
fn a_workflow_publishes_nothing_without_the_digest_of_what_was_packed() {
    let (tree, ..) = packed();
    let mut unpack = tree.step("unpack", "1.2.3");
    let (passed, text) = ran(unpack.env("GITHUB_ACTIONS", "true").env("PACKED", ""));
    assert!(!passed && text.contains("PACKED is not set"), "{text}");
    let jobs = jobs();
    let [packs, takes] = [&jobs["build"], &jobs["publish"]];
    assert_eq!(packs["outputs"]["packed"], "${{ steps.pack.outputs.packed }}");
    let step = steps(packs).iter().find(|step| step["id"] == "pack").expect("the step");
    assert!(step["run"].as_str().expect("a command").contains("release-pack"));
    assert!(takes.to_string().contains(r#""PACKED":"${{ needs.build.outputs.packed }}""#));
}
