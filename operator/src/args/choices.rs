//! Flags with a fixed list of values.

use clap::ValueEnum;

/// Output format of `check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One finding per line: file:line: severity: field: reason: message
    #[default]
    Text,
    /// One JSON object with all findings
    Json,
    /// SARIF 2.1.0
    Sarif,
}
