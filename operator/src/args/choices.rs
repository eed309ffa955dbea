//! Flags with a fixed list of values.

use clap::ValueEnum;

/// The form of what `check` prints.
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

/// Form of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

/// Which log lines are written: those of this level and of all levels above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Errors
    Error,
    /// Errors and warnings
    Warn,
    /// The same and state changes
    Info,
    /// The same and details for debugging
    Debug,
    /// Everything
    Trace,
}

impl LogLevel {
    /// The same level in the terms of `tracing`.
    pub fn tracing(self) -> tracing::Level {
        match self {
            LogLevel::Error => tracing::Level::ERROR,
            LogLevel::Warn => tracing::Level::WARN,
            LogLevel::Info => tracing::Level::INFO,
            LogLevel::Debug => tracing::Level::DEBUG,
            LogLevel::Trace => tracing::Level::TRACE,
        }
    }
}
