//! The real promtool, where it is built.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::control_plane::{not_run, path_of};

/// Runs promtool in a folder with this standard input. None where it is not built; this is printed. Otherwise what it
/// printed, as an error if it complained.
pub(super) fn promtool(
    folder: &Path,
    arguments: &[&str],
    input: &str,
) -> Option<Result<String, String>> {
    let program = path_of("promtool");
    if !program.exists() {
        not_run("promtool; `make tools` builds it");
        return None;
    }
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Some(if output.status.success() { Ok(text) } else { Err(text) })
}
