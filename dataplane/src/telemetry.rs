//! Log lines on standard error, as text or JSON; no line per query. Form and level change while the process runs.

mod format;

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

use crds::config::{self, Logging};
use process::log::Queue;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use format::EitherFormat;

pub use process::log::{FLUSH_WITHIN, LogFormat, LogLevel};

/// Lines on their way to standard error; one per process, as logging is.
static QUEUE: Queue = Queue::new();

/// The name of the thread with which the process ends, also where it panics.
pub const LAST_THREAD: &str = "all-else";

/// The level of the process, see [`apply`].
static LEVEL: OnceLock<(reload::Handle<LevelFilter, Registry>, Fixed)> = OnceLock::new();

/// The flags about log lines; they override a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The form of lines, where a flag fixes it.
    pub format: Option<LogFormat>,
    /// The level of lines, where a flag fixes it.
    pub level: Option<LogLevel>,
}

/// Starts logging; once per process. What flags fix comes before a configuration. If no flag gives a form, people at a
/// terminal get text; other lines wait for the configuration, which says the form.
pub fn start(format: Option<LogFormat>, level: LogLevel, fixed: Fixed) {
    let filter = LevelFilter::from_level(level.tracing());
    match format {
        Some(format) => format::set(format, filter, write_line),
        None if io::stderr().is_terminal() => format::set(LogFormat::Text, filter, write_line),
        None => {}
    }
    let (filter, handle) = reload::Layer::new(filter);
    let _ = LEVEL.set((handle, fixed));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| &QUEUE)
        .with_ansi(io::stderr().is_terminal())
        .event_format(EitherFormat::default());
    tracing_subscriber::registry().with(filter).with(lines).init();
    if let Err(error) = QUEUE.start(tell_lost) {
        tracing::warn!(%error, "cannot start the log thread: logging may block the threads that log");
    }
    std::panic::set_hook(Box::new(log_panic));
}

/// Log lines have the form and level that this configuration says from here on, unless flags say otherwise. On a terminal
/// they stay text: people read them there. Nothing happens in a process that did not [`start`] logging.
pub fn apply(logging: &Logging) {
    let Some((handle, fixed)) = LEVEL.get() else { return };
    let Logging { queries: _, dnstap: _, format, level } = logging;
    let (format, level) = resolve(*format, *level, *fixed, io::stderr().is_terminal());
    let filter = LevelFilter::from_level(level.tracing());
    format::set(format, filter, write_line);
    // It fails only where logging ended.
    let _ = handle.reload(filter);
}

/// There is no configuration yet, and it may take long until there is one: lines have the form that it has by default.
pub fn wait_no_longer() {
    end_wait(LogFormat::Json);
}

fn end_wait(format: LogFormat) {
    if format::get().is_none() {
        format::set(format, LevelFilter::TRACE, write_line);
    }
}

fn write_line(line: &str) {
    QUEUE.put(line.as_bytes());
}

fn resolve(
    format: config::LogFormat,
    level: config::LogLevel,
    fixed: Fixed,
    is_terminal: bool,
) -> (LogFormat, LogLevel) {
    let configured = match format {
        config::LogFormat::Json if is_terminal => LogFormat::Text,
        config::LogFormat::Json => LogFormat::Json,
        config::LogFormat::Text => LogFormat::Text,
    };
    let level = fixed.level.unwrap_or(match level {
        config::LogLevel::Error => LogLevel::Error,
        config::LogLevel::Warn => LogLevel::Warn,
        config::LogLevel::Info => LogLevel::Info,
        config::LogLevel::Debug => LogLevel::Debug,
        config::LogLevel::Trace => LogLevel::Trace,
    });
    (fixed.format.unwrap_or(configured), level)
}

/// Waits, within bounds, until what was logged is written: for the end of the process.
pub fn flush() {
    end_wait(LogFormat::Text);
    QUEUE.flush(FLUSH_WITHIN);
}

/// Lines that were lost because the log was not read, or took none.
pub fn lost_lines() -> u64 {
    QUEUE.lost_since_start()
}

fn tell_lost(lines: u64) {
    tracing::warn!(
        lines,
        "log lines were lost before this one: standard error was not read in time, or refused them"
    );
}

/// A thread that panics does not wait for the reader of the log either; the other threads continue to serve.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let (text, backtrace) = process::log::panic_text(panic);
    match backtrace {
        Some(backtrace) => tracing::error!("{}\n{backtrace}", printable(&text)),
        None => tracing::error!("{}", printable(&text)),
    }
    if std::thread::current().name() == Some(LAST_THREAD) {
        // The process ends by it.
        flush();
    }
}

/// Why the process ends at once: one message for a person, or a log line for a machine.
pub fn fatal(error: &anyhow::Error) {
    let text = format!("{error:#}");
    // No one has asked for a form: it is for a person.
    end_wait(LogFormat::Text);
    match format::get() {
        Some(LogFormat::Json) => tracing::error!("{text}"),
        Some(LogFormat::Text) | None => {
            let lines: Vec<_> = text.lines().map(printable).collect();
            write_line(&format!("error: {}\n", lines.join("\n")));
        }
    }
}

/// Text that users wrote, for a log line: control characters are escaped (S13), so that no name
/// can start a line of its own or colour a terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_hostile(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Control characters, and those that turn the direction of what follows.
fn is_hostile(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o18_a_flag_wins_over_the_configuration_and_a_terminal_has_text() {
        use config::LogFormat::Json;
        use config::LogLevel::Warn;
        let none = Fixed::default();
        let both = Fixed { format: Some(LogFormat::Json), level: Some(LogLevel::Debug) };
        assert_eq!(resolve(Json, Warn, none, false), (LogFormat::Json, LogLevel::Warn));
        assert_eq!(resolve(Json, Warn, none, true), (LogFormat::Text, LogLevel::Warn));
        assert_eq!(resolve(Json, Warn, both, true), (LogFormat::Json, LogLevel::Debug));
    }

    #[test]
    fn s13_control_characters_are_escaped_and_the_rest_is_kept() {
        assert_eq!(printable("shop/cart"), "shop/cart");
        assert_eq!(printable("a\r\n\u{1b}[31m"), "a\\u{d}\\u{a}\\u{1b}[31m");
        assert_eq!(printable("größe\u{202e}x"), "größe\\u{202e}x");
    }
}
