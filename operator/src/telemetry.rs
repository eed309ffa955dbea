//! Log lines on standard error, as text or JSON. Text that users wrote is escaped by whoever logs it with `?`.

use std::io::IsTerminal;

use tracing::Level;

/// Starts logging; once per process.
pub fn start(is_json: bool, level: Level) {
    let filter = tracing_subscriber::filter::Targets::new()
        .with_target("kube_runtime", tracing::level_filters::LevelFilter::ERROR)
        .with_target("kube_client", tracing::level_filters::LevelFilter::ERROR)
        .with_default(level);
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    match is_json {
        true => registry.with(lines.json().flatten_event(true)).init(),
        false => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init(),
    }
}
