//! What a command prints, and how a value becomes JSON.

use std::process::ExitCode;

/// What a command printed, and the status it ends with.
pub(super) type Printed = Result<(String, ExitCode), String>;

/// A value as JSON, with a newline at its end.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("strings and numbers only");
    text.push('\n');
    text
}
