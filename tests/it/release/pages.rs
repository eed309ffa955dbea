//! What the pages say about releases is true before the first one and after it.

use super::{Tree, ran, refused};
use crate::architecture::{files, read};

/// The words of the first page that `make release-check` looks for.
const WORDS: &str = "published yet";

/// How the first page says how to install.
fn install() -> String {
    let page = read("README.md");
    let install = page.split_once("## Install it").expect("a section").1;
    install.split_once("\n## ").expect("its end").0.to_owned()
}

/// Whether the changelog has a version.
fn is_released() -> bool {
    let changelog = read("CHANGELOG.md");
    let mut versions = changelog.lines().filter_map(|line| line.strip_prefix("## ["));
    versions.any(|version| !version.starts_with("Unreleased]"))
}

#[test]
fn the_first_page_says_that_nothing_is_published_until_the_first_release() {
    let says = install().contains("**Nothing is published yet**");
    assert_eq!(says, !is_released(), "docs/releasing.md, step 1, says when this is removed");
    assert_eq!(read("README.md").contains(WORDS), !is_released(), "nor is it anywhere else");
}

#[test]
fn no_other_page_has_to_change_with_the_first_release() {
    let is_page = |path: &String| [".md", ".yaml", ".txt"].iter().any(|end| path.ends_with(end));
    for path in files().into_iter().filter(is_page).filter(|path| path != "README.md") {
        let text = read(&path).to_lowercase();
        for what in ["no release is", "no image is", "none is", "nothing is"] {
            assert!(!text.contains(&format!("{what} {WORDS}")), "{path}: {what} {WORDS}");
        }
    }
}

#[test]
fn a_release_stops_while_the_first_page_says_that_nothing_is_published() {
    let tree = Tree::new();
    tree.write("README.md", "# ClusterDNS\n\n**State**: nothing is published yet. Old.\n");
    tree.commit();
    let says = ["README.md still says", "remove these sentences", "3:**State**: nothing is"];
    refused(&tree, "1.2.3", &says);
}

#[test]
fn the_pages_install_what_the_release_pushes_from_one_registry() {
    let script = read(".ci/release");
    for pushed in ["docker://$REGISTRY/clusterdns:$version", "oci://$REGISTRY/charts"] {
        assert!(script.contains(pushed), "{pushed}");
    }
    let install = install();
    for used in ["oci://$REGISTRY/charts/clusterdns", "image.repository=$REGISTRY/clusterdns"] {
        assert!(install.contains(used), "{used}");
    }
    assert_eq!(install.matches("$ REGISTRY=").count(), 1, "a fork changes one place");
}

/// Helm upgrades no CRD, and who installed from a registry has no folder with the new one.
#[test]
fn an_upgrade_from_a_registry_applies_the_crd_of_the_new_chart_first() {
    for page in ["docs/upgrading.md", "charts/clusterdns/README.md"] {
        let text = read(page);
        let of_release = "oci://$REGISTRY/charts/clusterdns --version $VERSION";
        let apply = "kubectl apply --server-side --force-conflicts -f -";
        let crd = text.find(&format!("$ helm show crds {of_release} | {apply}\n"));
        let chart = text.find(&format!("$ helm upgrade clusterdns {of_release} "));
        assert!(crd.is_some() && crd < chart, "{page}: {crd:?} {chart:?}");
    }
}

#[test]
fn the_page_of_releases_names_each_command_that_the_check_asks_for() {
    let (script, page) = (read(".ci/release"), read("docs/releasing.md"));
    let commands = script.split("run UPDATE_EXPECT=1 ").skip(1);
    let commands: Vec<&str> = commands.map(|it| it.split(',').next().expect("its end")).collect();
    assert_eq!(commands.len(), 2, "documents and flags: {commands:?}");
    for command in commands {
        assert!(page.contains(&format!("`UPDATE_EXPECT=1 {command}`")), "{command}");
    }
}

/// Octets that the notes of the next release may have: the check of a release refuses little more, and then it is late.
const NOTES_OCTETS: usize = 110_000;

#[test]
fn the_notes_of_the_next_release_fit_the_release_page() {
    let tree = Tree::new();
    tree.write("CHANGELOG.md", &read("CHANGELOG.md").replace("## [Unreleased]", "## [1.2.3]"));
    let mut notes = tree.step("notes", "1.2.3");
    // A long name, because each link to a file has it on the page.
    let (passed, text) = ran(notes.env("GITHUB_REPOSITORY", "an-organisation/a-clusterdns"));
    assert!(passed, "{text}");
    let notes = std::fs::read_to_string(tree.path().join("target/release-1.2.3/NOTES.md"));
    let size = notes.expect("notes").len();
    assert!(size <= NOTES_OCTETS, "shorten [Unreleased] of CHANGELOG.md: {size} octets");
}

/// A definition at the end of the changelog stays when `[Unreleased]` is renamed, and gets into the notes of a release.
#[test]
fn no_link_of_the_changelog_is_for_a_section_that_will_be_renamed() {
    assert!(!read("CHANGELOG.md").contains("\n[Unreleased]:"));
}
