//! Log lines on standard error, as text or JSON; panics too. Text that users wrote is logged with `?`, which escapes it.

use std::io::IsTerminal;

use tracing::Level;

/// Starts logging; once per process.
pub fn start(is_json: bool, level: Level) {
    // Libraries log warnings and errors only. We log the failures of kube ourselves.
    let filter = tracing_subscriber::filter::Targets::new()
        .with_targets([("operator", level), ("clusterdns_operator", level)])
        .with_targets([("kube_runtime", Level::ERROR), ("kube_client", Level::ERROR)])
        .with_default(level.min(Level::WARN));
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    match is_json {
        true => registry.with(lines.json().flatten_event(true)).init(),
        false => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init(),
    }
    // The text may have names of objects in it: with `?` it is one line.
    std::panic::set_hook(Box::new(|panic| {
        let (text, backtrace) = process::log::panic_text(panic);
        tracing::error!(panic = ?text, backtrace, "a thread panicked");
    }));
}
