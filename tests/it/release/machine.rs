//! What a build machine gets before `make test`, and what that makes of missing programs: user namespaces, the compiler of
//! releases, and the programs of others that tests use. The machine of a test has none of it changed: programs that would change it are stand-ins.

use std::path::Path;
use std::process::Command;

use super::tools::pinned;
use super::{Tree, ran};
use crate::architecture::{read, root};

const RESTRICTION: &str = "kernel.apparmor_restrict_unprivileged_userns";

/// Runs `.ci/run` on a machine with these programs, of which each shows that it was called.
fn run(more: &[(&str, &str)], is_ci: bool) -> String {
    let tree = Tree::new();
    tree.write(".ci/run", &read(".ci/run"));
    let rust = format!("echo 'rustc {} (of today)'", pinned("rust"));
    let usual = [
        ("make", r#"echo "make $*, Rust ${RUSTUP_TOOLCHAIN:-of the machine}""#),
        ("id", "echo 1000"),
        ("sysctl", "echo 0"),
        ("sudo", r#"echo "sudo $*""#),
        ("rustc", rust.as_str()),
        ("rustup", r#"echo "rustup $*""#),
    ];
    let path = tree.path_with(&[&usual[..], more].concat());
    let mut run = Command::new("sh");
    run.current_dir(tree.path()).arg(".ci/run").env("PATH", path).env("HOME", tree.path());
    run.env_remove("RUSTUP_TOOLCHAIN").env_remove("CI");
    if is_ci {
        run.env("CI", "true");
    }
    let (passed, text) = ran(&mut run);
    assert!(passed, "nothing of this stops a run: {text}");
    text
}

#[test]
fn ci_lets_tests_make_user_namespaces_where_the_system_restricts_them() {
    let asked = format!("sudo -n sysctl -qw {RESTRICTION}=0\n");
    let restricted = format!(r#"[ "$*" = "-n {RESTRICTION}" ] && echo 1"#);
    let ubuntu = ("sysctl", restricted.as_str());
    let text = run(&[ubuntu], true);
    assert!(text.starts_with(&asked) && text.contains("make test, "), "{text}");
    let text = run(&[ubuntu, ("sudo", "exit 1")], true);
    assert!(text.contains("stays 1") && text.contains("make test, "), "{text}");
    let without = [
        run(&[ubuntu, ("id", "echo 0")], true),
        run(&[("sysctl", "exit 255")], true),
        run(&[], true),
        run(&[ubuntu], false),
    ];
    for text in without {
        assert_eq!(text, "make test, Rust of the machine\n");
    }
}

#[test]
fn p5_ci_tests_and_lints_with_the_compiler_of_releases() {
    let rust = pinned("rust");
    let other = ("rustc", "echo 'rustc 1.0.0 (of old)'");
    let text = run(&[other], true);
    let install = format!("rustup toolchain install {rust} --profile minimal ");
    assert!(text.starts_with(&install), "{text}");
    for component in ["--component clippy", "--component rustfmt"] {
        assert!(text.contains(component), "{text}");
    }
    assert!(text.ends_with(&format!("make test, Rust {rust}\n")), "{text}");
    let text = run(&[other, ("rustup", "exit 1")], true);
    assert!(text.contains("this run uses 1.0.0"), "{text}");
    assert!(text.contains("make test, Rust of the machine\n"), "{text}");
    assert_eq!(run(&[other], false), "make test, Rust of the machine\n");
    assert_eq!(run(&[], true), "make test, Rust of the machine\n", "it has that version");
}

/// Runs `test-packages` where no program of /usr/bin is found, as a user who is not root. What it prints for people, and for
/// `make test`, is one text.
fn packages(sudo: &str) -> (bool, String) {
    let tree = Tree::new();
    tree.path_with(&[("id", "echo 1000"), ("apt-get", "echo without sudo"), ("sudo", sudo)]);
    let mut command = Command::new("/bin/sh");
    command.arg(root().join("tests/tools/test-packages")).env("CI", "true");
    ran(command.env("PATH", tree.path().join("programs")))
}

#[test]
fn programs_of_others_are_installed_by_sudo_where_ci_is_not_root() {
    if Path::new("/usr/sbin/kdig").exists() {
        // The system has one folder for all programs: none would be missing.
        return;
    }
    let (passed, text) = packages(r#"[ "$2" = true ] || echo "sudo $*" >&2"#);
    assert!(passed && !text.contains("without"), "{text}");
    let apt = "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get ";
    let calls: Vec<&str> = text.lines().filter(|line| line.starts_with(apt)).collect();
    let [update, install] = &calls[..] else { panic!("{text}") };
    assert!(update.contains(" update "), "{update}");
    assert!(install.contains(" install --yes ") && install.contains(" knot-dnsutils"), "{install}");
    let policy = "/usr/sbin/policy-rc.d";
    if !Path::new(policy).exists() {
        for call in ["tee", "chmod 0755", "rm -f"] {
            assert!(text.contains(&format!("sudo -n {call} {policy}\n")), "{call}: {text}");
        }
    }
    let (passed, text) = packages("exit 1");
    assert!(passed && text.contains("only root may install them: "), "{text}");
    let may_be_missing =
        |text: &str| text.lines().next().is_some_and(|line| line.split(' ').any(|it| it == "kdig"));
    assert!(may_be_missing(&text), "{text}");
    // The lists of packages are there, and one package is not.
    let fails = |calls: &str| {
        let fails = format!(r#"case "$*" in {calls}) exit 100 ;; esac"#);
        packages(&fails)
    };
    let (passed, text) = fails("*' install '*");
    assert!(!passed && text.contains("cannot be installed, and their lists are there: "), "{text}");
    let (passed, text) = fails("*' install '*|*' update '*");
    assert!(passed && may_be_missing(&text), "without a network: {text}");
}

#[test]
fn make_test_compares_and_lets_no_variable_have_tests_write_what_they_compare() {
    let mut make = Command::new("make");
    make.current_dir(root()).args(["--silent", "compares-only"]);
    let (passed, text) = ran(make.env("UPDATE_EXPECT", "1"));
    assert!(!passed && text.contains("unset UPDATE_EXPECT"), "{text}");
    let (passed, text) = ran(make.env_remove("UPDATE_EXPECT"));
    assert!(passed, "{text}");
    let makefile = read("Makefile");
    assert!(makefile.contains("\ntest: compares-only "), "it is the first step");
}

#[test]
fn make_and_the_pages_say_that_linux_is_needed() {
    let on = |system: &str| {
        let tree = Tree::new();
        let path = tree.path_with(&[("uname", &format!("echo {system}"))]);
        let mut make = Command::new("make");
        make.current_dir(root()).args(["--silent", "check-tools"]).env("PATH", path);
        ran(&mut make)
    };
    let (passed, text) = on("Darwin");
    assert!(
        !passed && text.contains("This is Darwin, and ClusterDNS builds and runs on Linux only"),
        "{text}"
    );
    let (passed, text) = on("Linux");
    assert!(passed, "{text}");
    assert!(read("Makefile").contains("\nrun: check-tools\n"), "it is the first step");
    for (page, words) in
        [("README.md", "It needs Linux, "), ("CONTRIBUTING.md", "You need Linux, ")]
    {
        assert!(read(page).contains(words), "{page}: {words}");
    }
}

#[test]
fn what_did_not_run_is_shown_again_at_the_end_of_all_tests() {
    let tree = Tree::new();
    let cargo =
        "echo 'NOT RUN: b needs kdig' >&2; echo 'NOT RUN: a needs nft' >&2; echo test >&2; exit 3";
    let path = tree.path_with(&[("cargo", cargo)]);
    let mut all = Command::new("/bin/sh");
    let (passed, text) = ran(all.arg(root().join("tests/tools/all-tests")).env("PATH", &path));
    assert!(text.ends_with("These tests did not run:\n  a needs nft\n  b needs kdig\n"), "{text}");
    assert!(!passed && all.output().is_ok_and(|it| it.status.code() == Some(3)), "{text}");
}
