//! Our own programs, as Cargo builds them beside the test binary, never an old one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

/// A folder with programs to take instead, such as those of the image: they are used as they are.
const GIVEN_PROGRAMS: &str = "CLUSTERDNS_PROGRAMS";

/// What starts given programs that this machine cannot start by itself: user-mode emulation, for those of arm64. Only
/// [`command`] uses it; containers of the kubelet stand-in do not.
pub(crate) const RUNNER: &str = "CLUSTERDNS_RUNNER";

/// One build at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Where a program of this workspace is, such as `clusterdns-dataplane`. `cargo test --workspace` has built it; where
/// only this package is tested, it may be missing or older than its sources, and is built now.
///
/// # Panics
/// It does not build, or is not in the folder of `CLUSTERDNS_PROGRAMS`.
pub fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(GIVEN_PROGRAMS) {
        let program = Path::new(&folder).join(name);
        assert!(program.exists(), "{GIVEN_PROGRAMS} has no {name}");
        return program;
    }
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let test = std::env::current_exe().expect("the test binary");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let program = folder.join(name);
    let is_built = std::fs::metadata(&program).and_then(|file| file.modified());
    if is_built.is_ok_and(|built| built >= newest_source()) {
        return program;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The whole workspace's features, as in `cargo test --workspace`, or dependencies would be built again.
    cargo.args(["build", "--quiet", "--offline", "--workspace", "--bin", name]);
    cargo.arg("--target-dir").arg(folder.parent().expect("the target folder"));
    // What Cargo set for this test would reach build scripts: ring's looks at it, and half of the tree
    // would be built again, now and by the Cargo around us the next time.
    for (name, _) in std::env::vars_os() {
        let of_this_test =
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
        if name
            .to_str()
            .is_some_and(|name| of_this_test.iter().any(|start| name.starts_with(start)))
        {
            cargo.env_remove(name);
        }
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(workspace()).status().expect("cargo runs");
    assert!(built.success() && program.exists(), "{name} does not build");
    // Cargo leaves a program alone whose sources have other times but the same content.
    let touched = std::fs::File::options().append(true).open(&program);
    let _ = touched.and_then(|file| file.set_modified(SystemTime::now()));
    program
}

/// What to start for a program, and the arguments that come before its own.
///
/// # Panics
/// As [`program`].
pub fn command(name: &str) -> (PathBuf, Vec<String>) {
    let program = program(name);
    match std::env::var_os(RUNNER) {
        None => (program, Vec::new()),
        Some(runner) => (runner.into(), vec![program.display().to_string()]),
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn newest_source() -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    let mut folders: Vec<PathBuf> =
        ["crds", "dataplane", "operator"].map(|folder| workspace().join(folder)).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "toml") {
                newest = newest.max(entry.metadata().and_then(|m| m.modified()).unwrap_or(newest));
            }
        }
    }
    newest
}
