//! A limit for the processor time of running processes, as a container has it: a cgroup of its own, of version 1 or 2.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::node::cgroup::{group_for, remove_all};

/// The shortest quota that the kernel takes, in microseconds: processes wait for the next one for the shortest time.
const QUOTA_US: u64 = 1_000;

/// Lifted when dropped, as far as its processes still run; one of a test that died without dropping it is removed by the
/// next that makes a group.
#[derive(Debug)]
pub struct ProcessorLimit {
    group: PathBuf,
}

impl ProcessorLimit {
    /// These processes get one millisecond of a processor in this many, all together.
    ///
    /// # Errors
    /// This machine has no cgroups for processors, or does not let us make one; or a process has ended.
    pub fn one_in(
        milliseconds: u64,
        pids: impl IntoIterator<Item = u32>,
    ) -> io::Result<ProcessorLimit> {
        let (group, is_second) = group_for("cpu")?;
        let limit = ProcessorLimit { group };
        let period_us = QUOTA_US * milliseconds;
        if is_second {
            fs::write(limit.group.join("cpu.max"), format!("{QUOTA_US} {period_us}"))?;
        } else {
            fs::write(limit.group.join("cpu.cfs_period_us"), period_us.to_string())?;
            fs::write(limit.group.join("cpu.cfs_quota_us"), QUOTA_US.to_string())?;
        }
        for pid in pids {
            fs::write(limit.group.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(limit)
    }

    /// In how many periods the processes had to wait.
    ///
    /// # Panics
    /// The kernel does not say.
    pub fn throttled(&self) -> u64 {
        let rows = fs::read_to_string(self.group.join("cpu.stat")).expect("a file of the kernel");
        let row = rows.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        row.and_then(|count| count.parse().ok()).expect("a count")
    }
}

impl Drop for ProcessorLimit {
    fn drop(&mut self) {
        let inside = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            // It may have ended.
            let _ = fs::write(self.group.with_file_name("cgroup.procs"), pid);
        }
        remove_all([self.group.clone()]);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::control_plane::not_allowed;

    #[test]
    fn a_process_that_needs_more_has_to_wait_and_runs_on_without_the_limit() {
        let mut busy = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .expect("sh");
        match ProcessorLimit::one_in(10, [busy.id()]) {
            Ok(limit) => {
                while limit.throttled() < 2 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                let group = limit.group.clone();
                drop(limit);
                assert!(!group.exists());
                assert!(busy.try_wait().expect("a child of ours").is_none());
            }
            Err(_) => not_allowed("a cgroup for a processor"),
        }
        busy.kill().expect("a child of ours");
        busy.wait().expect("a child of ours");
    }
}
