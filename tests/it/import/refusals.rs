//! Corefiles that CoreDNS refuses are refused here too, and those that it takes are not: `golden/import/refused` and
//! `golden/import/accepted` have the cases, and the real CoreDNS is asked the same.

use std::process::Command;

use operator::offline::Severity;
use tests::control_plane::{not_run, path_of};
use tests::scratch::Scratch;

use super::{folder, is_golden, printed};

/// Two server blocks with the same key: CoreDNS refuses them after it has read all directives, and before it listens.
const END: &str = "end.test:9 {\n}\nend.test:9 {\n}\n";
/// Its words for that.
const AT_THE_END: &str = "cannot serve dns://end.test.:9 - it is already defined";

/// CoreDNS starts without a server block, and serves nothing: there is nothing to import.
const OURS: &str = "no server block";

/// The cases of a file: title and Corefile.
fn cases(file: &str) -> Vec<(String, String)> {
    let all = std::fs::read_to_string(folder().join(file)).unwrap();
    let cases = all.split("=====\n").map(|case| case.split_once("-----\n").unwrap());
    cases.map(|(title, corefile)| (title.trim().to_owned(), corefile.to_owned())).collect()
}

#[test]
fn a_corefile_that_coredns_refuses_is_refused_with_line_and_reason() {
    let scratch = Scratch::new("import").unwrap();
    let mut all = String::new();
    for (title, corefile) in cases("refused/cases.txt") {
        scratch.write("Corefile", corefile).unwrap();
        let (outcome, dns, why) = printed(scratch.path(), "--corefile Corefile");
        assert_eq!((outcome, dns.as_str()), (Severity::Wrong, ""), "{title}: {why}");
        all.push_str(&format!("{title}: {why}"));
    }
    is_golden("import/refused/reasons.txt", &all);
}

#[test]
fn a_corefile_that_coredns_takes_is_not_refused() {
    let scratch = Scratch::new("import").unwrap();
    for (title, corefile) in cases("accepted/cases.txt") {
        scratch.write("Corefile", corefile).unwrap();
        let (outcome, _, report) = printed(scratch.path(), "--corefile Corefile");
        assert_eq!(outcome, Severity::Fine, "{title}: {report}");
    }
}

#[test]
fn the_page_names_the_directives_that_are_checked() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/switching.md");
    let page = std::fs::read_to_string(page).unwrap();
    let names: Vec<String> =
        operator::import::checked_directives().map(|name| format!("`{name}`")).collect();
    let sentence = format!("the words of {}.", names.join(", "));
    assert!(page.contains(&sentence), "{sentence}");
}

#[test]
fn the_real_coredns_refuses_and_takes_the_same_corefiles() {
    let program = path_of("coredns");
    if !program.exists() {
        return not_run("CoreDNS; `tests/tools/build coredns` builds it");
    }
    let scratch = Scratch::new("import").unwrap();
    let mut wrong = Vec::new();
    for (file, is_taken) in [("refused/cases.txt", false), ("accepted/cases.txt", true)] {
        for (title, corefile) in cases(file).into_iter().filter(|(title, _)| title != OURS) {
            scratch.write("Corefile", format!("{corefile}{END}")).unwrap();
            let mut command = Command::new(&program);
            command.args(["-conf", "Corefile", "-dns.port", "0"]).current_dir(scratch.path());
            let output = command.output().unwrap();
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(!output.status.success(), "{title}: it ends at the last blocks: {text}");
            if text.contains(AT_THE_END) != is_taken {
                wrong.push(format!("{file}: {title}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
