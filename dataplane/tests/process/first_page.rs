//! README shows what `make run` prints.

use std::fs;
use std::path::Path;

use crate::harness::{Process, wait_for};

/// Ports are those of README. Which servers are asked for all other names depends on the machine.
#[test]
fn the_first_page_shows_lines_that_make_run_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let process = Process::start(&root.join("crds/examples/quickstart"), &["--print-names"]);
    let printed = wait_for("the page", || {
        let output = process.output();
        output.contains("Ctrl-C").then_some(output)
    });
    let (dns, http) = (process.dns.port(), process.http.port());
    let printed = printed
        .replace(&format!("-p {dns} "), "-p 5300 ")
        .replace(&format!("-port={dns} "), "-port=5300 ")
        .replace(&format!("127.0.0.1:{http}/"), "127.0.0.1:9153/");
    let page = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, shown) = page.split_once("$ make run\n").expect("a block of code");
    let (shown, _) = shown.split_once("```").expect("its end");
    // What make prints comes first.
    let (_, shown) = shown.split_once("\n\n").expect("a table");
    let depends =
        |line: &&str| line.is_empty() || *line == "..." || line.starts_with("  everything else: ");
    let lines: Vec<&str> = shown.lines().filter(|line| !depends(line)).collect();
    assert!(lines.len() > 15, "{lines:?}");
    for line in lines {
        assert!(printed.lines().any(|it| it == line), "{line:?} is not in\n{printed}");
    }
}
