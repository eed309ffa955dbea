//! What a build machine gets before `make test`: user namespaces, the compiler of releases, and the programs of others that
//! tests use. The machine of a test has none of it changed: programs that would change it are stand-ins.

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

/// Runs `test-packages` where no program of /usr/bin is found, as a user who is not root.
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
}
