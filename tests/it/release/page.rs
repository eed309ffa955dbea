//! What a release publishes: the files of its page, the digests by which people check them, and the sign-in to the registry.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::plugin::krew;
use super::{Tree, ran};
use crate::architecture::root;

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.into_string().expect("text")).collect()
}

/// All that is there before the last step, with the names that it has in a release.
pub(super) fn made() -> Tree {
    let tree = Tree::new();
    krew(&tree);
    let write = |file: &str| tree.write(&format!("target/release-1.2.3/{file}"), file);
    for program in ["clusterdns-operator", "clusterdns-dataplane"] {
        for architecture in ["amd64", "arm64"] {
            write(&format!("programs/{architecture}/{program}"));
            write(&format!("sbom/{program}-{architecture}.cdx.json"));
        }
    }
    write("THIRD-PARTY.html");
    write("chart/clusterdns-1.2.3.tgz");
    for folder in ["charts/clusterdns/crds", "charts/manifests"] {
        for name in names(&root().join(folder)) {
            write(&format!("manifests/{name}"));
        }
    }
    tree
}

fn page(tree: &Tree) -> PathBuf {
    tree.path().join("target/release-1.2.3/page")
}

/// `sha256sum --check` as docs/releasing.md shows it.
fn check(folder: &Path, flags: &[&str]) -> (bool, String) {
    let mut command = Command::new("sha256sum");
    command.current_dir(folder).args(["--check", "--strict"]).args(flags).arg("SHA256SUMS");
    ran(&mut command)
}

#[test]
fn what_people_take_from_the_release_page_has_the_digests_of_its_list() {
    let tree = made();
    let (passed, text) = ran(&mut tree.step("checksums", "1.2.3"));
    assert!(passed, "{text}");
    let page = page(&tree);
    let mut wanted = names(&tree.path().join("target/release-1.2.3/plugin"));
    wanted.extend(names(&root().join("charts/clusterdns/crds")));
    let archive = "clusterdns-1.2.3-programs.tar.gz";
    wanted.extend(["krew.yaml", "operator.yaml", "THIRD-PARTY.html", archive].map(str::to_owned));
    assert!(names(&page).is_superset(&wanted), "{:?} without {wanted:?}", names(&page));

    let (passed, text) = check(&page, &["--ignore-missing"]);
    assert!(passed, "{text}");
    let listed = text.lines().filter(|line| line.ends_with(": OK")).count();
    assert_eq!(listed, names(&page).len() - 1, "every file but the list: {text}");
    // With the programs out of their archive nothing is missing.
    let unpacked = Command::new("tar").current_dir(&page).args(["-xzf", archive]).status();
    assert!(unpacked.expect("tar").success());
    let (passed, text) = check(&page, &[]);
    let held = ["arm64/kubectl-clusterdns", "LICENSE", "THIRD-PARTY.html"];
    assert!(passed && held.iter().all(|it| text.contains(&format!("programs/{it}: OK"))), "{text}");
    fs::write(page.join("krew.yaml"), "another").expect("can be written");
    assert!(!check(&page, &["--ignore-missing"]).0, "a changed file is noticed");
}

#[test]
fn a_release_page_never_has_two_files_of_one_name() {
    let tree = made();
    tree.write("target/release-1.2.3/manifests/krew.yaml", "of another kind");
    let (passed, text) = ran(&mut tree.step("checksums", "1.2.3"));
    assert!(!passed && text.contains("two files krew.yaml"), "{text}");
}

#[test]
fn a_release_page_is_not_made_without_a_part() {
    let tree = made();
    fs::remove_dir_all(tree.path().join("target/release-1.2.3/sbom")).expect("can be removed");
    let (passed, text) = ran(&mut tree.step("checksums", "1.2.3"));
    assert!(!passed && text.contains("there is no sbom/"), "{text}");
    assert!(text.contains("run make release VERSION=1.2.3"), "{text}");
}

#[test]
fn all_files_of_the_page_are_given_to_the_forge() {
    let tree = made();
    assert!(ran(&mut tree.step("checksums", "1.2.3")).0);
    let missing = r#"[ "$2" != view ] || { echo 'release not found' >&2; exit 1; }; for word in "$@"; do echo "$word"; done"#;
    let gh = [("gh", missing)];
    let (passed, text) = ran(&mut tree.step_with(&gh, "page"));
    assert!(passed, "{text}");
    let given: BTreeSet<&str> = text.lines().collect();
    for name in names(&page(&tree)) {
        let path = page(&tree).join(&name);
        assert!(given.contains(path.to_str().expect("text")), "{name}: {text}");
    }
    assert!(given.contains("v1.2.3") && given.contains("--verify-tag"), "{text}");
}

/// The page is not beside the files that the changelog links to.
#[test]
fn links_of_the_notes_lead_to_the_files_of_the_version() {
    let tree = Tree::new();
    let of = |link: &str| format!("- See [a page]({link}), [b](https://b.example/c).\n");
    tree.write("CHANGELOG.md", &format!("## [1.2.3]\n{}## [1.2.2]\n", of("docs/a.md#b")));
    let notes = |repository: &[(&str, &str)]| {
        let mut notes = tree.step("notes", "1.2.3");
        notes.env_remove("GITHUB_REPOSITORY").env_remove("GITHUB_SERVER_URL");
        let (passed, text) = ran(notes.envs(repository.iter().copied()));
        assert!(passed, "{text}");
        fs::read_to_string(tree.path().join("target/release-1.2.3/NOTES.md")).expect("notes")
    };
    assert_eq!(notes(&[]), of("docs/a.md#b"));
    let linked = of("https://github.com/dns/clusterdns/blob/v1.2.3/docs/a.md#b");
    assert_eq!(notes(&[("GITHUB_REPOSITORY", "dns/clusterdns")]), linked);
}

/// What `gh` is asked to do with the page of a version. `is_there` is what it knows about one that is there already, and
/// `published` is the list of files that this page has.
fn asked(version: &str, is_there: Option<&str>, published: &str) -> (bool, Vec<String>) {
    let tree = Tree::new();
    tree.write(&format!("target/release-{version}/page/SHA256SUMS"), "digests\n");
    tree.write(&format!("target/release-{version}/page/krew.yaml"), "");
    let view = is_there.map_or("echo 'release not found' >&2; exit 1".to_owned(), |known| {
        format!("printf '{known}'; exit")
    });
    let gh = format!(
        r#"[ "$2" != view ] || {{ {view}; }}
        echo "$@"
        [ "$2" != download ] || {{ mkdir -p "$7"; printf '{published}\n' >"$7/SHA256SUMS"; }}"#
    );
    let path = tree.path_with(&[("gh", &gh)]);
    let (passed, text) = ran(tree.step("page", version).env("PATH", path));
    (passed, text.lines().map(str::to_owned).collect())
}

const DRAFT: Option<&str> = Some(r"true\nSHA256SUMS\n");
const PUBLISHED: Option<&str> = Some(r"false\nkrew.yaml\nSHA256SUMS\n");
/// A person made the page, and an upload stopped half way.
const HALF: Option<&str> = Some(r"false\nSHA256SUMS\n");

#[test]
fn a_version_with_a_hyphen_is_a_pre_release_and_never_the_latest() {
    let flags = " --prerelease --latest=false ";
    for is_there in [None, DRAFT, HALF] {
        let of = |version: &str| asked(version, is_there, "digests").1.pop().expect("a last call");
        assert!(of("1.2.3-rc.1").contains(flags), "{}", of("1.2.3-rc.1"));
        assert!(!of("1.2.3").contains("prerelease") && !of("1.2.3").contains("latest"));
    }
}

#[test]
fn a_page_that_an_earlier_run_left_is_finished() {
    let (_, calls) = asked("1.2.3", None, "");
    assert!(calls.len() == 1 && calls[0].starts_with("release create v1.2.3 "), "{calls:?}");
    let by_hand = Some(r"false\n");
    for (is_there, published) in [(DRAFT, "others"), (by_hand, ""), (HALF, "digests")] {
        let (passed, calls) = asked("1.2.3", is_there, published);
        assert!(passed, "{calls:?}");
        let [.., upload, edit] = &calls[..] else { panic!("{calls:?}") };
        assert!(upload.starts_with("release upload v1.2.3 --clobber "), "{upload}");
        assert!(upload.contains("/page/SHA256SUMS") && upload.ends_with("/krew.yaml"), "{upload}");
        assert!(edit.starts_with("release edit v1.2.3 ") && edit.contains("--draft=false"));
    }
}

/// There may be a draft, beside which another one would be made.
#[test]
fn a_forge_that_does_not_answer_gets_no_second_page() {
    let tree = Tree::new();
    tree.write("target/release-1.2.3/page/SHA256SUMS", "digests\n");
    let path = tree.path_with(&[("gh", r#"echo "$@"; echo 'HTTP 502' >&2; exit 1"#)]);
    let (passed, text) = ran(tree.step("page", "1.2.3").env("PATH", path));
    assert!(!passed && text.contains("not known whether there is a release page"), "{text}");
    assert!(text.contains("HTTP 502") && !text.contains("release create"), "{text}");
}

#[test]
fn the_files_of_a_page_that_is_published_never_change() {
    let (passed, calls) = asked("1.2.3", PUBLISHED, "others");
    let text = calls.join("\n");
    assert!(!passed && text.contains("is published already, and its SHA256SUMS"), "{text}");
    assert!(!text.contains("upload") && !text.contains("edit"), "nothing is changed: {text}");
    let (passed, calls) = asked("1.2.3", PUBLISHED, "digests");
    let text = calls.join("\n");
    assert!(passed && text.contains("is there already, with the same files"), "{text}");
    assert!(!text.contains("upload") && !text.contains("edit"), "nothing is changed: {text}");
}

/// The action that attests an image reads the user's name and password from the file of Docker, and from no other.
#[test]
fn p4_the_sign_in_is_where_the_action_that_attests_looks() {
    let tree = made();
    tree.executable("tests/tools/build", "echo helm");
    let skopeo = [("skopeo", r#"echo "$@"; cat"#)];
    let mut login = tree.step_with(&skopeo, "login");
    login.env("HOME", tree.path()).env("REGISTRY", "registry.example.com/dns");
    let (_, text) = ran(login.env("REGISTRY_USER", "someone").stdin(Stdio::null()));
    let file = tree.path().join(".docker/config.json");
    let wanted = format!("login --authfile {} --username someone", file.display());
    assert!(text.contains(&wanted) && text.contains("registry.example.com\n"), "{text}");
    assert!(file.parent().expect("a folder").is_dir());
}
