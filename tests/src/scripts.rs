//! Scripts that a test writes and runs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run at once. Another process writes it: a program that another thread starts meanwhile inherits
/// what this one has open for a moment, and Linux runs no file that is open for writing (ETXTBSY).
///
/// # Panics
/// If the file cannot be written.
pub fn write(path: &Path, text: &str) {
    let write = r#"cat > "$0" && chmod 755 "$0""#;
    let mut writer = Command::new("/bin/sh");
    writer.args(["-c", write]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("a shell");
    let mut input = writer.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("the shell reads");
    drop(input);
    assert!(writer.wait().expect("it ends").success(), "{} cannot be written", path.display());
}
