//! Log lines on standard error, as text or JSON; panics too. Text that users wrote is logged with `?`, which escapes it. A
//! thread of its own writes them: probes, the lease and SIGTERM do not wait for the reader of the log.

use std::io::IsTerminal;

use process::log::{FLUSH_WITHIN, Queue};
use tracing::Level;

/// Lines on their way to standard error; one per process, as logging is.
static QUEUE: Queue = Queue::new();
/// The name of the first thread: where it panics, the process ends.
const FIRST_THREAD: &str = "main";

/// Starts logging; once per process.
pub fn start(is_json: bool, level: Level) {
    // Libraries log warnings and errors only. We log the failures of kube ourselves.
    let filter = tracing_subscriber::filter::Targets::new()
        .with_targets([("operator", level), ("clusterdns_operator", level)])
        .with_targets([("kube_runtime", Level::ERROR), ("kube_client", Level::ERROR)])
        .with_default(level.min(Level::WARN));
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let lines = tracing_subscriber::fmt::layer().with_writer(|| &QUEUE).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    match is_json {
        true => registry.with(lines.json().flatten_event(true)).init(),
        false => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init(),
    }
    if let Err(error) = QUEUE.start(tell_lost) {
        tracing::warn!(%error, "cannot start the log thread: logging may block the threads that log");
    }
    // The text may have names of objects in it: with `?` it is one line.
    std::panic::set_hook(Box::new(|panic| {
        let (text, backtrace) = process::log::panic_text(panic);
        tracing::error!(panic = ?text, backtrace, "a thread panicked");
        if std::thread::current().name() == Some(FIRST_THREAD) {
            flush();
        }
    }));
}

/// Waits, within bounds, until what was logged is written: for the end of the process.
pub fn flush() {
    QUEUE.flush(FLUSH_WITHIN);
}

fn tell_lost(lines: u64) {
    tracing::warn!(
        lines,
        "log lines were lost before this one: standard error was not read in time, or refused them"
    );
}
