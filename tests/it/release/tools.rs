//! What a release and the tests are built with: one compiler, pinned tools, and the Kubernetes that `KUBERNETES` names.

use std::fs;
use std::process::Command;

use super::{Tree, ran};
use crate::architecture::{read, root};

/// What `.ci/release` names a tool by, in its first lines.
pub(super) fn pinned(tool: &str) -> String {
    let script = read(".ci/release");
    let mut lines = script.lines();
    let version = lines.find_map(|line| line.strip_prefix(tool)?.strip_prefix('='));
    version.expect(tool).to_owned()
}

#[test]
fn p5_the_image_and_the_release_use_the_same_compiler_and_tools() {
    let dockerfile = read("Dockerfile");
    for tool in ["rust", "about", "auditable"] {
        let version = pinned(tool);
        assert_eq!(version.split('.').count(), 3, "{tool} is pinned to its last number");
        let argument = format!("ARG {}={version}\n", tool.to_uppercase());
        assert!(dockerfile.contains(&argument), "the Dockerfile has no {argument}");
    }
}

impl Tree {
    pub(super) fn executable(&self, file: &str, script: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is ours");
        tests::scripts::write(&path, &format!("#!/bin/sh\n{script}\n"));
    }

    /// A PATH that has these programs before those of the machine.
    pub(super) fn path_with(&self, stand_ins: &[(&str, &str)]) -> String {
        for (name, script) in stand_ins {
            self.executable(&format!("programs/{name}"), script);
        }
        let path = std::env::var("PATH").expect("a path");
        format!("{}:{path}", self.path().join("programs").display())
    }

    /// A step that finds the stand-ins.
    pub(super) fn step_with(&self, stand_ins: &[(&str, &str)], step: &str) -> Command {
        let mut command = self.step(step, "1.2.3");
        command.env("PATH", self.path_with(stand_ins));
        command
    }
}

#[test]
fn p5_a_release_is_not_built_with_another_compiler() {
    let tree = Tree::new();
    let rust = pinned("rust");
    // rustup has the pinned compiler, but rustc is another one.
    let rustup = format!("[ \"$1 $2\" = 'toolchain list' ] && echo {rust}-here");
    let other = [("rustup", rustup.as_str()), ("rustc", "echo 'rustc 1.0.0 (of old)'")];
    for step in ["programs", "reproducible", "emulate"] {
        let (passed, text) = ran(&mut tree.step_with(&other, step));
        assert!(!passed, "{step}: {text}");
        let wanted = format!("this Rust is 1.0.0, and releases are built with {rust}");
        assert!(text.contains(&wanted) && text.contains("rustup"), "{step}: {text}");
    }
}

/// Cargo gives flags for a target to no macro and no build script, and the hash of a macro gets into the programs.
#[test]
fn p5_every_call_of_the_compiler_replaces_the_paths_of_the_machine() {
    let mut compiler = Command::new(root().join(".ci/rustc-remapped"));
    compiler.args(["echo", "--crate-type", "proc-macro", "a file.rs"]);
    compiler.env("REMAPPED_CARGO", "/a b/.cargo").env("REMAPPED_SOURCE", "/builds/x");
    let (passed, text) = ran(&mut compiler);
    let wanted = "--crate-type proc-macro a file.rs --remap-path-prefix=/a b/.cargo=/cargo \
                  --remap-path-prefix=/builds/x=/source\n";
    assert!(passed && text == wanted, "{text}");
    let builds = read(".ci/release").contains(r#"RUSTC_WRAPPER="$here/.ci/rustc-remapped""#);
    assert!(builds, "releases are built by it");
}

#[test]
fn an_older_kubernetes_is_chosen_by_its_version() {
    let asked = |version: Option<&str>| {
        let mut command = Command::new(root().join("tests/tools/build"));
        command.args(["--where", "kube-apiserver"]).env_remove("KUBERNETES");
        if let Some(version) = version {
            command.env("KUBERNETES", version);
        }
        ran(&mut command)
    };
    let (found, newest) = asked(None);
    assert!(found && newest.contains("/kubernetes-"), "{newest}");
    assert_eq!(asked(Some("1.36")).1, newest, "the one that is pinned without a version");
    let (found, oldest) = asked(Some("1.33"));
    assert!(found && oldest.contains("/kubernetes-1.33-"), "{oldest}");
    let (found, text) = asked(Some("1.29"));
    assert!(!found && text.contains("there are 1.33 1.34 1.35 1.36"), "{text}");
}

#[test]
fn real_nodes_say_that_they_need_root_before_anything_is_installed() {
    let makefile = read("Makefile");
    let targets: Vec<&str> =
        makefile.split("\n\n").filter(|it| it.contains("--test node ")).collect();
    assert_eq!(targets.len(), 3, "node, cluster, conformance");
    for target in targets {
        let steps: Vec<&str> = target.lines().filter(|line| line.starts_with('\t')).collect();
        assert!(steps[0].starts_with("\t@tests/tools/node-packages"), "{target}");
    }
    let tree = Tree::new();
    let installed = tree.path().join("installed");
    let apt = format!("touch {}", installed.display());
    let path = tree.path_with(&[("id", "echo 1000"), ("apt-get", &apt)]);
    let mut command = Command::new(root().join("tests/tools/node-packages"));
    let (passed, text) = ran(command.env("PATH", path));
    assert!(!passed && text.contains("need Linux and root"), "{text}");
    assert!(!installed.exists());
}
