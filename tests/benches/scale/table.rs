//! How figures are printed: what was measured, how much it is, and the goal.

use std::time::Duration;

/// The head of a part of the table.
pub(crate) fn title(text: &str) {
    println!("\n{text:58} {:>24}  wanted", "measured");
}

/// A line of the table.
pub(crate) fn row(what: &str, measured: &str, wanted: &str) {
    println!("  {what:56} {measured:>24}  {wanted}");
}

/// The machine that this runs on: figures of different machines are not compared.
pub(crate) fn machine() {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    println!(
        "{} ({cores} cores, shared with the API server, etcd and this program), Linux {}, load {}",
        model.map_or("an unknown processor", |(_, model)| model),
        kernel.trim(),
        load.split(' ').next().unwrap_or_default()
    );
}

/// A number of durations in order, to be printed by quantile.
#[derive(Debug, Default)]
pub(crate) struct Spread(Vec<Duration>);

impl Spread {
    pub(crate) fn of(mut all: Vec<Duration>) -> Spread {
        all.sort();
        Spread(all)
    }

    /// p50, p99 and the longest, in milliseconds.
    pub(crate) fn text(&self) -> String {
        let Some(most) = self.0.last() else { return "none".into() };
        let at = |share: f64| self.0[((self.0.len() - 1) as f64 * share).round() as usize];
        format!("{} / {} / {} ms", ms(at(0.5)), ms(at(0.99)), ms(*most))
    }
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// Seconds.
pub(crate) fn s(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
