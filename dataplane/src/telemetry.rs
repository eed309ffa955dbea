//! Log lines on standard error, as text or JSON; no line per query.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use tracing::Level;

use crate::args::LogFormat;

/// Starts logging; once per process.
pub fn start(format: LogFormat, level: Level) {
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(|| Lines);
    match format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            builder.with_target(false).with_ansi(colours).init();
        }
        LogFormat::Json => builder.json().flatten_event(true).with_target(false).init(),
    }
}

/// Standard error, where a line that nobody takes is lost. Failing would not do: the log library
/// reports a failure on standard error too, and panics when that fails, which would end the thread
/// that follows the manifests because someone's `| head` has ended.
struct Lines;

impl Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // In one piece, so that lines of several threads do not mix.
        let _ = io::stderr().lock().write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why the process ends at once: one message for a person, or a log line for a machine.
pub fn fatal(format: LogFormat, error: &anyhow::Error) {
    let text = format!("{error:#}");
    match format {
        LogFormat::Json => tracing::error!("{text}"),
        LogFormat::Text => {
            let lines: Vec<_> = text.lines().map(printable).collect();
            // Nothing is left to be told if this fails.
            let _ = writeln!(std::io::stderr(), "error: {}", lines.join("\n"));
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
    fn s13_control_characters_are_escaped_and_the_rest_is_kept() {
        assert_eq!(printable("shop/cart"), "shop/cart");
        assert_eq!(printable("a\r\n\u{1b}[31m"), "a\\u{d}\\u{a}\\u{1b}[31m");
        assert_eq!(printable("größe\u{202e}x"), "größe\\u{202e}x");
    }
}
