//! The time since the machine started, with that in which it was suspended: [`std::time::Instant`] leaves it out.

use std::time::Duration;

/// Time since the machine started, with that in which it was suspended (`CLOCK_BOOTTIME`). It never goes back.
pub fn since_boot() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to `time`, which the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    /// `/proc/uptime` counts the time of suspension too (proc(5)), in hundredths of a second.
    fn uptime() -> f64 {
        let text = std::fs::read_to_string("/proc/uptime").expect("this system has it");
        text.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("a number")
    }

    /// Only on a machine that was suspended since its start is this another time than that of [`std::time::Instant`].
    #[test]
    fn it_is_the_uptime_of_the_machine() {
        let before = uptime();
        let now = since_boot().as_secs_f64();
        assert!(before <= now && now < uptime() + 0.01, "{before} {now} {}", uptime());
    }

    /// In a namespace that is a day ahead, as on a machine that was suspended for a day.
    #[test]
    fn ca6_c9_time_runs_on_while_the_machine_is_suspended() {
        let ahead = ["--user", "--map-root-user", "--time", "--boottime", "86400", "--fork"];
        let tried = Command::new("unshare").args(ahead).arg("true").output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            // As in `tests/src/control_plane/programs.rs`: people do not read the output of a passing run of CI.
            let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
            assert!(!is_ci, "no time namespace can be made here");
            let _ = std::io::stderr().write_all(b"NOT RUN: no time namespace can be made here\n");
            return;
        }
        let test = ["--exact", "boot::tests::it_is_the_uptime_of_the_machine"];
        let binary = std::env::current_exe().expect("the test binary");
        let again = Command::new("unshare").args(ahead).arg(binary).args(test).output();
        let again = again.expect("unshare ran before");
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
    }
}
