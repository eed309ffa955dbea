//! Where `tests/tools/build` puts the real programs, and what happens if they have not been built.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs of a control plane.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    pub(crate) api_server: PathBuf,
    pub(crate) controller_manager: PathBuf,
}

impl Programs {
    /// None when one of them has not been built.
    pub(crate) fn find() -> Option<Programs> {
        let programs = Programs {
            etcd: path_of("etcd"),
            api_server: path_of("kube-apiserver"),
            controller_manager: path_of("kube-controller-manager"),
        };
        let built = [&programs.etcd, &programs.api_server, &programs.controller_manager]
            .iter()
            .all(|p| p.exists());
        built.then_some(programs)
    }
}

/// Whether these are programs of a Kubernetes before 1.MINOR, as KUBERNETES asked for (`tests/tools/build`).
pub fn is_before(minor: u32) -> bool {
    let version = std::env::var("KUBERNETES").ok();
    let chosen = version.and_then(|version| version.strip_prefix("1.")?.parse::<u32>().ok());
    chosen.is_some_and(|chosen| chosen < minor)
}

/// The path that the build script gives a program, built or not.
pub fn path_of(program: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
    let output = Command::new(&script).args(["--where", program]).output();
    let output =
        output.unwrap_or_else(|error| panic!("{} does not run: {error}", script.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Says that the test running on this thread does not run. Where CI is set that is a failure: people do not read the output
/// of a passing run.
pub(crate) fn report_not_run() {
    not_run("a real API server; `make tools` builds one");
}

/// The same for anything else that a test needs.
pub fn not_run(needs: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{}", message(needs));
    say_not_run(needs);
}

/// The same for a program of the system, which `tests/tools/test-packages` installs where CI is set. No failure where that says
/// that it cannot: a machine may have no packages.
pub fn not_installed(program: &str) {
    let needs = format!("{program}, which is not installed");
    let [ci, without] = ["CI", WITHOUT].map(|name| std::env::var(name).unwrap_or_default());
    assert!(may_be_missing(program, &ci, &without), "{}", message(&needs));
    say_not_run(&needs);
}

/// Names the programs that `tests/tools/test-packages` could not install; `make test` sets it.
const WITHOUT: &str = "CLUSTERDNS_TEST_WITHOUT";

fn may_be_missing(program: &str, ci: &str, without: &str) -> bool {
    ci.is_empty() || without.split_whitespace().any(|missing| missing == program)
}

/// The same for what a system may refuse, such as a cgroup without root, or what its build of a program cannot. No failure: CI
/// has no root.
pub fn not_allowed(what: &str) {
    say_not_run(&format!("{what}, which this system does not give"));
}

fn say_not_run(needs: &str) {
    // Not eprint!, whose output the test runner drops when a test passes.
    let _ = std::io::stderr().write_all(message(needs).as_bytes());
}

fn message(needs: &str) -> String {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    format!("NOT RUN: {test} needs {needs}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_fails_a_run_of_ci_unless_it_cannot_be_installed() {
        assert!(may_be_missing("kdig", "", ""), "a person sees what did not run");
        assert!(!may_be_missing("kdig", "true", ""));
        assert!(!may_be_missing("kdig", "true", "unbound dnsmasq"));
        assert!(may_be_missing("kdig", "true", "unbound kdig dnsmasq"));
    }
}
