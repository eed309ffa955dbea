//! The usual `process_*` metrics, which dashboards of every program read. They are read from `/proc/self`; without it
//! there are none.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::bounded_file::{self, SYSTEM_FILE_OCTETS};

use super::page::{Page, Part};

/// Ticks in a second, as `/proc` counts processor time: the same on every architecture that Linux runs on today.
const TICKS: f64 = 100.0;

/// Where the kernel says how much memory the container of this process may take: control groups of version 2, and of version 1.
const MEMORY_LIMITS: [&str; 2] =
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Version 1 writes a number near the largest one where there is no limit.
const NO_MACHINE_HAS: u64 = 1 << 60;

/// A start that moves by less is shown as it was: two clocks are not read at the same moment, and who counts restarts takes
/// each other value for one.
const SAME_S: f64 = 5.0;

/// When a process started, by the clock as it is now: a clock that was wrong at the start, and was set since, must not make
/// the process older or younger than it is.
#[derive(Clone, Debug)]
pub struct Started {
    began: Instant,
    /// What was shown last, as bits.
    shown: Arc<AtomicU64>,
}

/// Of a process that starts now.
impl Default for Started {
    fn default() -> Started {
        let started_s = since_1970().as_secs_f64();
        Started { began: Instant::now(), shown: Arc::new(AtomicU64::new(started_s.to_bits())) }
    }
}

impl Started {
    /// In seconds since 1970.
    pub fn unix_s(&self) -> f64 {
        let before_s = f64::from_bits(self.shown.load(Ordering::Relaxed));
        let started_s = started_s(before_s, since_1970(), self.began.elapsed());
        self.shown.store(started_s.to_bits(), Ordering::Relaxed);
        started_s
    }
}

/// What is shown at this time (since 1970) of a process of this age, where `before_s` was shown before.
fn started_s(before_s: f64, now: Duration, age: Duration) -> f64 {
    let started_s = now.saturating_sub(age).as_secs_f64();
    if (started_s - before_s).abs() < SAME_S { before_s } else { started_s }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The metrics `process_*`, read from /proc/self at each scrape.
#[derive(Debug, Default)]
pub struct Process {
    started: Started,
}

impl Process {
    /// The same start, for another page.
    pub fn started(&self) -> Started {
        self.started.clone()
    }
}

impl Part for Process {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let help = "When this process started, in seconds since 1970";
        page.gauge("process_start_time_seconds", help, self.started.unix_s())?;
        let stat = of_system("/proc/self/stat");
        if let Some(seconds) = stat.as_deref().and_then(cpu_seconds) {
            page.counter_f64("process_cpu_seconds", "Processor time, user and system", seconds)?;
        }
        let status = of_system("/proc/self/status").unwrap_or_default();
        if let Some(bytes) = bytes(&status, "VmRSS:") {
            page.gauge("process_resident_memory_bytes", "Memory in use", bytes)?;
        }
        // Each time: a limit may change while a pod runs.
        let mut limits = MEMORY_LIMITS.into_iter().filter_map(of_system);
        if let Some(bytes) = limits.find_map(|text| memory_limit(&text)) {
            let help = "Memory at which the kernel kills the container, where it has a limit";
            page.gauge("process_memory_limit_bytes", help, bytes)?;
        }
        if let Some(bytes) = bytes(&status, "VmSize:") {
            page.gauge("process_virtual_memory_bytes", "Address space in use", bytes)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            page.gauge("process_open_fds", "Open file descriptors", open.count() as f64)?;
        }
        let limits = of_system("/proc/self/limits").unwrap_or_default();
        if let Some(most) = max_fds(&limits) {
            page.gauge("process_max_fds", "Limit of open file descriptors", most)?;
        }
        Ok(())
    }
}

fn of_system(path: &str) -> Option<String> {
    bounded_file::read_text(Path::new(path), SYSTEM_FILE_OCTETS).ok()
}

/// Fields 14 and 15 of `/proc/self/stat`. The second is a name in parentheses, which may have spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11).map(|field| field.parse::<f64>().ok());
    Some((fields.next()?? + fields.next()??) / TICKS)
}

/// A line of `/proc/self/status`, which is in KiB.
fn bytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

/// The limit of a control group; none: it has none.
fn memory_limit(text: &str) -> Option<f64> {
    let octets: u64 = text.trim().parse().ok()?;
    (1..NO_MACHINE_HAS).contains(&octets).then_some(octets as f64)
}

/// The soft limit of `/proc/self/limits`.
fn max_fds(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_shown_by_the_clock_as_it_is_now_and_stays_while_no_one_sets_it() {
        let seconds = Duration::from_secs;
        let (right, hour) = (1_790_000_000, 3_600);
        let rows = [
            ("it was an hour ahead at the start", right + hour, right + 60, 60, right),
            ("it was that of 1970 at the start", 0, right + 60, 60, right),
            ("it was set back while the process runs", right, right - hour, 60, right - hour - 60),
            ("it is slewed by a second", right, right + 61, 60, right),
            ("it is that of 1970", 0, 10, 60, 0),
        ];
        for (what, before, now, age, expected) in rows {
            let started = started_s(before as f64, seconds(now), seconds(age));
            assert_eq!(started, expected as f64, "{what}");
        }
        let started = Started::default();
        let first = started.unix_s();
        assert!((0..1_000).all(|_| started.unix_s() == first && started.clone().unix_s() == first));
    }

    #[test]
    fn what_proc_says_is_read() {
        let stat = "71 (a) b (c) S 1 71 71 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 5 6 7 8";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        let status = "Name:\ta\nVmSize:\t   2048 kB\nVmRSS:\t     12 kB\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(12_288.0));
        assert_eq!(bytes(status, "VmSize:"), Some(2_097_152.0));
        let limits =
            "Limit   Soft Limit  Hard Limit Units\nMax open files     1024    4096   files\n";
        assert_eq!(max_fds(limits), Some(1024.0));
        for nonsense in ["", "71 (a", "Max open files unlimited"] {
            assert_eq!((cpu_seconds(nonsense), bytes(nonsense, "VmRSS:")), (None, None));
            assert_eq!(max_fds(nonsense), None);
        }
    }

    #[test]
    fn a_limit_of_memory_is_read_of_both_versions_of_control_groups() {
        for (text, expected) in [
            ("268435456\n", Some(268_435_456.0)),
            ("max\n", None),
            // Version 1, in pages of 4 KiB and of 64 KiB.
            ("9223372036854771712\n", None),
            ("9223372036854710272\n", None),
            ("18446744073709551615\n", None),
            ("0\n", None),
            ("", None),
            ("-1\n", None),
        ] {
            assert_eq!(memory_limit(text), expected, "{text}");
        }
    }
}
