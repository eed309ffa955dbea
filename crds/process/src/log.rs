//! How much is logged, and in which form: the values of the flags, which the configuration of the data plane has too. A
//! mistake in the flags and a panic are lines of the same form as all others. A thread of its own writes them.

mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::ffi::OsString;
use std::panic::PanicHookInfo;
use std::time::Duration;

use clap::{Parser, ValueEnum};

pub use queue::Queue;

/// How long a process waits at its end for the reader of its log.
pub const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// The flag, and its environment variable.
const FLAG: &str = "--log-format";
const VARIABLE: &str = "CLUSTERDNS_LOG_FORMAT";
const JSON: &str = "json";

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

/// The flags of this process. Ends it, with a text for people, where they are wrong or ask for help. If log lines belong to
/// one command only, `command` names it.
///
/// # Errors
/// What is wrong, in one line, if they also ask for JSON. It is for a log line: programs that read JSON read nothing else.
pub fn flags<P: Parser>(command: Option<&str>) -> Result<P, String> {
    P::try_parse().map_err(|error| {
        let is_command = command
            .is_none_or(|command| env::args_os().nth(1).is_some_and(|first| first == command));
        let asks = is_command && asks_for_json(env::args_os().skip(1), env::var_os(VARIABLE));
        match error.use_stderr() && asks {
            true => one_line(&error.render().to_string()),
            false => error.exit(),
        }
    })
}

/// Whether the flags, or the variable where they do not say, ask for JSON. They need not be right in anything else.
fn asks_for_json(flags: impl Iterator<Item = OsString>, variable: Option<OsString>) -> bool {
    let mut asked = variable;
    let mut is_value = false;
    for flag in flags {
        if is_value {
            asked = Some(flag);
            is_value = false;
        } else if flag == FLAG {
            is_value = true;
        } else if let Some(value) =
            flag.to_str().and_then(|flag| flag.strip_prefix(FLAG)?.strip_prefix('='))
        {
            asked = Some(value.into());
        }
    }
    asked.is_some_and(|asked| asked == JSON)
}

/// What clap says, without the usage that it repeats.
fn one_line(text: &str) -> String {
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

/// A panic as the text of a log line, and a backtrace where one was asked for.
pub fn panic_text(panic: &PanicHookInfo<'_>) -> (String, Option<String>) {
    let text = panic.to_string().replacen(":\n", ": ", 1);
    let backtrace = Backtrace::capture();
    let is_asked = backtrace.status() == BacktraceStatus::Captured;
    (text, is_asked.then(|| backtrace.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_flag_says_what_is_asked_and_else_the_variable() {
        let asks = |flags: &[&str], variable: Option<&str>| {
            asks_for_json(flags.iter().map(OsString::from), variable.map(OsString::from))
        };
        for flags in [
            &["--log-format", "json"][..],
            &["run", "--log-format=json", "--nonsense"],
            &["--log-format=text", "--log-format", "json"],
        ] {
            assert!(asks(flags, None), "{flags:?}");
        }
        for flags in
            [&[][..], &["--log-format"], &["--log-format=text"], &["--log-formats=json"], &["json"]]
        {
            assert!(!asks(flags, None), "{flags:?}");
        }
        assert!(asks(&[], Some("json")) && !asks(&["--log-format=text"], Some("json")));
    }

    #[test]
    fn a_mistake_is_one_line_without_the_usage() {
        let text = "error: unexpected argument '--x' found\n\n  tip: a similar one\n\nUsage: a [OPTIONS]\n\nFor more \
            information, try '--help'.\n";
        assert_eq!(one_line(text), "unexpected argument '--x' found tip: a similar one");
    }
}
