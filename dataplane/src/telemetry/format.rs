//! The form of log lines, text or JSON, which may change while the process runs. Until it is known, lines are kept in both.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Json, Writer};
use tracing_subscriber::registry::LookupSpan;

use process::log::LogFormat;

/// Lines that wait until their form is known: a start logs some ten, and twenty for malformed objects. With more, lines
/// have the form that a configuration has by default.
const MAX_WAITING: usize = 256;

/// One per process, as logging is.
static FORM: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const TEXT: u8 = 1;
const JSON: u8 = 2;

/// Lines from before the form was known.
static WAITING: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// A line in both forms.
struct Waiting {
    level: Level,
    text: String,
    json: String,
}

fn waiting() -> MutexGuard<'static, Vec<Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lines have this form from here on. Those that waited for it are written first, except for those above this level.
pub(super) fn set(format: LogFormat, level: LevelFilter, write: impl Fn(&str)) {
    // A thread that logs meanwhile waits for the lock, so that lines keep their order.
    let mut waiting = waiting();
    for line in waiting.drain(..).filter(|line| line.level <= level) {
        write(match format {
            LogFormat::Text => &line.text,
            LogFormat::Json => &line.json,
        });
    }
    let form = match format {
        LogFormat::Text => TEXT,
        LogFormat::Json => JSON,
    };
    FORM.store(form, Ordering::Relaxed);
}

/// None while it is not known.
pub(super) fn get() -> Option<LogFormat> {
    match FORM.load(Ordering::Relaxed) {
        TEXT => Some(LogFormat::Text),
        JSON => Some(LogFormat::Json),
        _ => None,
    }
}

/// Writes each line in the form that holds when it is logged.
pub(super) struct EitherFormat {
    text: Format<Full>,
    json: Format<Json>,
}

impl Default for EitherFormat {
    fn default() -> EitherFormat {
        let text = Format::default().with_target(false);
        // There are no spans, whose fields would have to be JSON already.
        let json = Format::default().json().with_target(false).flatten_event(true);
        let json = json.with_current_span(false).with_span_list(false);
        EitherFormat { text, json }
    }
}

impl EitherFormat {
    /// Keeps a line; false if the form became known meanwhile.
    fn keep<S, N>(
        &self,
        context: &FmtContext<'_, S, N>,
        event: &Event<'_>,
    ) -> Result<bool, fmt::Error>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        N: for<'a> FormatFields<'a> + 'static,
    {
        let mut waiting = waiting();
        if get().is_some() {
            return Ok(false);
        }
        let (mut text, mut json) = (String::new(), String::new());
        self.text.format_event(context, Writer::new(&mut text), event)?;
        self.json.format_event(context, Writer::new(&mut json), event)?;
        waiting.push(Waiting { level: *event.metadata().level(), text, json });
        if waiting.len() >= MAX_WAITING {
            drop(waiting);
            super::wait_no_longer();
        }
        Ok(true)
    }
}

impl<S, N> FormatEvent<S, N> for EitherFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if get().is_none() && self.keep(context, event)? {
            return Ok(());
        }
        match get() {
            Some(LogFormat::Json) => self.json.format_event(context, writer, event),
            Some(LogFormat::Text) | None => self.text.format_event(context, writer, event),
        }
    }
}
