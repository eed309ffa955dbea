//! A limit for the memory of one process, as a container has it: a cgroup of its own, of version 1 or 2.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::node::cgroup::{group_for, remove_all};

/// Starts a program inside: the shell enters the group and becomes it.
const ENTER: &str = r#"echo $$ >"$0"/cgroup.procs && exec "$@""#;

/// Removed when dropped, which waits for the end of what is inside; one of a test that died without dropping it, by the
/// next that makes a group.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
    files: &'static Files,
}

/// Where the kernel keeps what.
#[derive(Debug)]
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Has a line `oom_kill N`.
    kills: &'static str,
    /// So that the kernel kills where it would swap.
    no_swap: &'static str,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    kills: "memory.oom_control",
    no_swap: "memory.swappiness",
};
const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    kills: "memory.events",
    no_swap: "memory.swap.max",
};

impl MemoryLimit {
    /// A group without a limit.
    ///
    /// # Errors
    /// This machine has no cgroups for memory, or does not let us make one.
    pub fn new() -> io::Result<MemoryLimit> {
        let (group, is_second) = group_for("memory")?;
        let files = if is_second { &VERSION_2 } else { &VERSION_1 };
        let limit = MemoryLimit { group, files };
        if limit.group.join(files.no_swap).exists() {
            fs::write(limit.group.join(files.no_swap), "0")?;
        }
        fs::metadata(limit.group.join(files.limit))?;
        Ok(limit)
    }

    /// The words before a command line that runs inside.
    pub fn enter(&self) -> [String; 4] {
        ["sh", "-c", ENTER, &self.group.display().to_string()].map(str::to_owned)
    }

    /// Octets in use: what the processes and the kernel for them have, and files that were read here first.
    ///
    /// # Panics
    /// The kernel does not say.
    pub fn in_use(&self) -> u64 {
        self.read(self.files.usage).trim().parse().expect("a number")
    }

    /// From now on, at most this many octets.
    ///
    /// # Errors
    /// More is in use and cannot be taken back.
    pub fn set(&self, octets: u64) -> io::Result<()> {
        fs::write(self.group.join(self.files.limit), octets.to_string())
    }

    /// Processes that the kernel killed because of the limit.
    ///
    /// # Panics
    /// The kernel does not say.
    pub fn kills(&self) -> u64 {
        let rows = self.read(self.files.kills);
        let row = rows.lines().find_map(|line| line.strip_prefix("oom_kill "));
        row.and_then(|count| count.parse().ok()).expect("a count")
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.group.join(file)).expect("a file of the kernel")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        remove_all([self.group.clone()]);
    }
}
