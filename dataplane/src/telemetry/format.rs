//! The form of log lines, text or JSON, which may change while the process runs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Json, Writer};
use tracing_subscriber::registry::LookupSpan;

use process::log::LogFormat;

/// One per process, as logging is.
static IS_JSON: AtomicBool = AtomicBool::new(false);

pub(super) fn set(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

pub(super) fn get() -> LogFormat {
    match IS_JSON.load(Ordering::Relaxed) {
        true => LogFormat::Json,
        false => LogFormat::Text,
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
        match get() {
            LogFormat::Text => self.text.format_event(context, writer, event),
            LogFormat::Json => self.json.format_event(context, writer, event),
        }
    }
}
