//! How much is logged, and in which form: the values of the flags, which the configuration of the data plane has too.

use clap::ValueEnum;

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
