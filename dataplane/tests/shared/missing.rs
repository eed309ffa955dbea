//! What a test does whose program of others is missing. As `tests/src/control_plane/programs.rs`, which this package cannot use:
//! people do not read the output of a passing run of CI, so it fails there.

use std::io::Write;

/// Says that this test does not run. Where CI is set that is a failure, unless `tests/tools/test-packages` has said that it cannot
/// install the program.
pub(crate) fn not_installed(program: &str) {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let without = variable("CLUSTERDNS_TEST_WITHOUT");
    let may_be = variable("CI").is_empty() || without.split_whitespace().any(|it| it == program);
    assert!(may_be, "{program} is not installed");
    say(&format!("{program}, which is not installed"));
}

/// The same for what this machine's build of a program cannot. No failure: CI does not choose it.
#[allow(dead_code, reason = "not each of the tests that share this file needs it")]
pub(crate) fn cannot(what: &str) {
    say(&format!("{what}, which this machine does not have"));
}

/// Not by `println!`, of which the runner shows nothing where a test passes.
fn say(needs: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = std::io::stderr().write_all(format!("NOT RUN: {test} needs {needs}\n").as_bytes());
}
