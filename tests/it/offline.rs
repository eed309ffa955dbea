//! `render` and `check` on files: what people read, and the exit status that pipelines read.

use std::path::{Path, PathBuf};

use operator::args::{Check, Cluster, Render};
use operator::offline::{Outcome, check, render};
use tests::scratch::Scratch;

use crate::desired::is_golden;

/// Files of this test, named from the folder of golden files, so that messages are the same everywhere.
fn checked(files: &[&str]) -> (Outcome, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/check");
    let file: Vec<PathBuf> = files.iter().map(|name| folder.join(name)).collect();
    let mut out = Vec::new();
    let args = Check { file, cluster: false, which: Cluster::default() };
    let outcome = check(&args, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    (outcome, text.replace(&format!("{}/", folder.display()), ""))
}

#[test]
fn what_is_wrong_has_file_line_and_field() {
    let (outcome, text) = checked(&["wrong.yaml"]);
    assert_eq!(outcome, Outcome::Wrong);
    is_golden("check/wrong.txt", &text);
}

#[test]
fn what_is_unwise_is_a_warning_and_no_failure() {
    let (outcome, text) = checked(&["unwise.yaml"]);
    assert_eq!(outcome, Outcome::Fine);
    is_golden("check/unwise.txt", &text);
}

#[test]
fn other_kinds_and_templates_are_passed_over() {
    let (outcome, text) = checked(&["others.yaml"]);
    assert_eq!(
        (outcome, text.as_str()),
        (Outcome::Fine, "0 ClusterDNS checked in 1 file: nothing is wrong\n")
    );
}

#[test]
fn what_cannot_be_read_is_told_apart_from_what_is_wrong() {
    let (outcome, text) = checked(&["wrong.yaml", "broken.yaml", "absent.yaml"]);
    assert_eq!(outcome, Outcome::Unreadable);
    assert!(text.contains("broken.yaml:7:"), "{text}");
    assert!(text.contains("absent.yaml: cannot be read"), "{text}");
    assert!(checked(&["."]).1.contains("is a folder: name the files in it"));
    assert!(text.contains("wrong.yaml:"), "the others are checked nevertheless: {text}");
}

#[test]
fn what_somebody_wrote_reaches_no_terminal_as_control_characters() {
    let folder = Scratch::new("check").unwrap();
    let file = folder.path().join("dns.yaml");
    let text = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\nspec: {\"x\\e[31m\\ny\": 1}\n";
    std::fs::write(&file, text).unwrap();
    let mut out = Vec::new();
    let args = Check { file: vec![file], cluster: false, which: Cluster::default() };
    assert_eq!(check(&args, &mut out).unwrap(), Outcome::Wrong);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("UnknownField") && !text.contains('\u{1b}'), "{text:?}");
    assert!(!text.contains("\ny"), "{text:?}");
}

#[test]
fn every_example_is_without_an_error() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples");
    let file: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    let args = Check { file, cluster: false, which: Cluster::default() };
    let mut out = Vec::new();
    assert_eq!(check(&args, &mut out).unwrap(), Outcome::Fine, "{}", String::from_utf8_lossy(&out));
}

#[test]
fn render_says_what_stands_in_the_way() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/check");
    let rendered = |name: &str| {
        let args = Render {
            file: vec![folder.join(name)],
            dataplane_image: "a:b".to_owned(),
            namespace: "clusterdns-system".to_owned(),
        };
        let (mut out, mut problems) = (Vec::new(), Vec::new());
        let outcome = render(&args, &mut out, &mut problems).unwrap();
        (outcome, String::from_utf8(out).unwrap(), String::from_utf8(problems).unwrap())
    };
    let (outcome, objects, problems) = rendered("unwise.yaml");
    assert_eq!((outcome, problems.as_str()), (Outcome::Fine, ""));
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&objects).unwrap();
    assert!(documents.iter().all(|object| object["metadata"]["name"].is_string()), "{objects}");
    let (outcome, _, problems) = rendered("wrong.yaml");
    assert_eq!(outcome, Outcome::Wrong);
    let expected = std::fs::read_to_string(folder.join("wrong.txt")).unwrap();
    let expected: Vec<&str> = expected.lines().filter(|line| line.contains(": error: ")).collect();
    let problems = problems.replace(&format!("{}/", folder.display()), "");
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected, "what `check` calls an error");
    let (outcome, objects, problems) = rendered("others.yaml");
    assert_eq!((outcome, objects.as_str()), (Outcome::Unreadable, ""));
    assert!(problems.contains("no ClusterDNS in these files"), "{problems}");
}
