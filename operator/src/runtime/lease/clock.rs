//! The clock of the lease. [`Instant`] stands still while the machine is suspended, and others may take the lease meanwhile.
//! So what the uptime of the system is ahead of it counts too. From a file, because the system call needs unsafe code.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use process::bounded_file::{SYSTEM_FILE_OCTETS, read_text};

/// Seconds since the machine started, with those in which it was suspended: `CLOCK_BOOTTIME`, also in a time namespace.
const UPTIME: &str = "/proc/uptime";

/// Now, with all time in which the machine was suspended since the first call. Where the system does not say the uptime it
/// is the time of [`Instant`].
pub fn now() -> Instant {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    let clock = CLOCK.get_or_init(|| Clock::begun(Instant::now(), uptime()));
    // In this order: a thread that waits in between must not take that for a suspension.
    let uptime = uptime();
    clock.at(Instant::now(), uptime)
}

/// How far the uptime is ahead of the monotonic time since both began.
#[derive(Debug)]
struct Clock {
    began: Instant,
    uptime: Option<Duration>,
    /// The most that was seen: while the file cannot be read, the time must not go back.
    ahead_ms: AtomicU64,
}

impl Clock {
    fn begun(began: Instant, uptime: Option<Duration>) -> Clock {
        Clock { began, uptime, ahead_ms: AtomicU64::new(0) }
    }

    fn at(&self, now: Instant, uptime: Option<Duration>) -> Instant {
        let passed = self.uptime.zip(uptime).map(|(began, now)| now.saturating_sub(began));
        let awake = now.saturating_duration_since(self.began);
        let ahead = passed.unwrap_or_default().saturating_sub(awake);
        let ahead = u64::try_from(ahead.as_millis()).unwrap_or_default();
        let before = self.ahead_ms.fetch_max(ahead, Ordering::Relaxed);
        now + Duration::from_millis(before.max(ahead))
    }
}

fn uptime() -> Option<Duration> {
    parsed(&read_text(Path::new(UPTIME), SYSTEM_FILE_OCTETS).ok()?)
}

/// `27726.41 5837.06`: the second number is the idle time of all processors.
fn parsed(text: &str) -> Option<Duration> {
    let seconds = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn o9_the_time_in_which_the_machine_was_suspended_counts() {
        let begin = Instant::now();
        let clock = Clock::begun(begin, Some(SECOND * 100));
        for (awake, uptime, expected) in [
            (1, Some(101), 1),
            (2, Some(162), 62),
            (3, None, 63),
            (4, Some(164), 64),
            (5, Some(0), 65),
            (6, Some(200), 100),
        ] {
            let now = clock.at(begin + SECOND * awake, uptime.map(|uptime| SECOND * uptime));
            assert_eq!(now - begin, SECOND * expected, "{awake} s awake, uptime {uptime:?}");
        }
        let without = Clock::begun(begin, None);
        assert_eq!(without.at(begin + SECOND, Some(SECOND * 900)), begin + SECOND);
    }

    #[test]
    fn what_is_no_uptime_is_none() {
        assert_eq!(parsed("27726.5 5837.06\n"), Some(Duration::from_millis(27_726_500)));
        for text in ["", "\n", "x 1", "-1 1", "NaN 1", "inf 1"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    /// A namespace that is a day ahead is as a machine that was suspended for a day.
    #[cfg(target_os = "linux")]
    #[test]
    fn o9_the_uptime_that_is_read_has_the_time_of_suspension() {
        let ahead = ["--user", "--map-root-user", "--time", "--boottime", "86400", "--fork"];
        let there = Command::new("unshare").args(ahead).args(["cat", UPTIME]).output();
        let Some(there) = there.ok().filter(|there| there.status.success()) else {
            // As in `tests/src/control_plane/programs.rs`: people do not read the output of a passing run of CI.
            let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
            assert!(!is_ci, "no time namespace can be made here");
            let _ = std::io::stderr().write_all(b"NOT RUN: no time namespace can be made here\n");
            return;
        };
        let here = uptime().expect("this system has it");
        let there = parsed(&String::from_utf8_lossy(&there.stdout)).expect("a number");
        assert!(there > here + Duration::from_secs(86_000), "{there:?} {here:?}");
    }

    #[test]
    fn the_time_of_the_lease_never_goes_back() {
        let mut before = now();
        for _ in 0..1_000 {
            let now = now();
            assert!(now >= before);
            before = now;
        }
        assert!(before < Instant::now() + SECOND);
    }
}
