//! One cgroup of the machine for everything that kubelet runs, in every hierarchy, removed with all below.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

const HIERARCHIES: &str = "/sys/fs/cgroup";
const PREFIX: &str = "clusterdns-node-";
/// The kernel ends the processes of a dead process 1 one after the other, which takes a moment.
const GONE_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// Removed when dropped; one of a test that died without dropping it, by the next that makes one.
#[derive(Debug)]
pub(super) struct Cgroup {
    name: String,
}

impl Cgroup {
    /// For the node of this number.
    pub(super) fn new(node: u8) -> Result<Cgroup> {
        remove_abandoned();
        let cgroup = Cgroup { name: format!("{PREFIX}{}-{node}", std::process::id()) };
        for hierarchy in hierarchies() {
            let own = hierarchy.join(&cgroup.name);
            fs::create_dir_all(&own)?;
            // Here a new group has no processors and no memory until they are set.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if own.join(file).exists() {
                    fs::write(own.join(file), fs::read(hierarchy.join(file))?)?;
                }
            }
        }
        Ok(cgroup)
    }

    /// As kubelet wants it: from the root of each hierarchy.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + GONE_WITHIN;
        for hierarchy in hierarchies() {
            // What is left after that, the next test removes.
            while remove(&hierarchy.join(&self.name)).is_err() && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
        }
    }
}

/// Whether this machine has a hierarchy for each controller. Where there is one for all, this file has never run, and what
/// lies below is not hierarchies but groups of others.
pub(super) fn is_version_1() -> bool {
    !Path::new(HIERARCHIES).join("cgroup.controllers").exists() && !hierarchies().is_empty()
}

/// Every hierarchy that is mounted; runc also makes groups in the one of version 2, where that has no controllers.
fn hierarchies() -> Vec<PathBuf> {
    let all = fs::read_dir(HIERARCHIES).into_iter().flatten().flatten().map(|entry| entry.path());
    // Names such as `cpu,cpuacct` have a link for each part.
    let own = |path: &PathBuf| !path.is_symlink() && path.join("cgroup.procs").exists();
    all.filter(own).collect()
}

/// From the leaves up. It fails while a process is left in one of them.
fn remove(group: &Path) -> io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

fn remove_abandoned() {
    for hierarchy in hierarchies() {
        for entry in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix(PREFIX).and_then(|name| name.split('-').next());
            let Some(owner) = owner else { continue };
            if !Path::new("/proc").join(owner).exists() {
                let _ = remove(&entry.path());
            }
        }
    }
}
