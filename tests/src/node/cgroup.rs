//! One cgroup of the machine for everything that kubelet runs, in every hierarchy, removed with all below. Version 1 has a
//! hierarchy for each controller, version 2 one for all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

const MOUNT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "clusterdns-node-";
/// The kernel ends the processes of a dead process 1 one after the other, which takes a moment.
const GONE_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// A new group of version 1 has no processors and no memory until they are set. The root of version 2 has no such files.
const INHERITED_IN_V1: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];
/// The largest share of the processors, in version 1 and in version 2: what else the machine does may slow a node down, but
/// not keep its pods from running for seconds.
const SHARES: [(&str, &str); 2] = [("cpu.shares", "262144"), ("cpu.weight", "10000")];
/// What kubelet wants in its group of version 2, of those that the machine has.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

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
        let mount = Path::new(MOUNT);
        if is_version_2(mount) {
            has_controllers(mount)?;
        }
        for hierarchy in hierarchies(mount) {
            let own = hierarchy.join(&cgroup.name);
            fs::create_dir_all(&own)?;
            for (file, most) in SHARES.into_iter().filter(|(file, _)| own.join(file).exists()) {
                fs::write(own.join(file), most)?;
            }
            for file in INHERITED_IN_V1 {
                if hierarchy.join(file).exists() {
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
        let groups = hierarchies(Path::new(MOUNT)).into_iter().map(|it| it.join(&self.name));
        remove_all(groups);
    }
}

/// Whether this machine has cgroups: one of both versions, where the first has the controllers, counts as version 1.
pub(super) fn are_there() -> bool {
    !hierarchies(Path::new(MOUNT)).is_empty()
}

/// Only the root of one hierarchy for all has this file; the folder above several has nothing of the kernel's.
fn is_version_2(mount: &Path) -> bool {
    mount.join("cgroup.controllers").exists()
}

/// Every hierarchy that is mounted there; runc also makes groups in one of version 2 beside those of version 1.
fn hierarchies(mount: &Path) -> Vec<PathBuf> {
    // What lies below it are groups of others.
    if is_version_2(mount) {
        return vec![mount.to_owned()];
    }
    let all = fs::read_dir(mount).into_iter().flatten().flatten().map(|entry| entry.path());
    // Names such as `cpu,cpuacct` have a link for each part.
    let own = |path: &PathBuf| !path.is_symlink() && path.join("cgroup.procs").exists();
    all.filter(own).collect()
}

/// A group below the root of version 2 has the controllers that the root gives away. systemd gives most of them, and a kubelet
/// without a root of its own gives the rest. They stay given away.
fn has_controllers(root: &Path) -> io::Result<()> {
    let of_machine = fs::read_to_string(root.join("cgroup.controllers"))?;
    let wanted = of_machine.split_whitespace().filter(|name| CONTROLLERS.contains(name));
    let wanted: Vec<String> = wanted.map(|name| format!("+{name}")).collect();
    fs::write(root.join("cgroup.subtree_control"), wanted.join(" "))
}

/// Makes one group for this controller, and says which version it is of.
pub(crate) fn group_for(controller: &str) -> io::Result<(PathBuf, bool)> {
    remove_abandoned();
    let mount = Path::new(MOUNT);
    let is_second = is_version_2(mount);
    let parent = if is_second { mount.to_owned() } else { mount.join(controller) };
    if is_second {
        has_controllers(mount)?;
    }
    // Not in a mere folder, where no kernel answers.
    fs::metadata(parent.join("cgroup.procs"))?;
    let group = parent.join(format!("{PREFIX}{}-{controller}", std::process::id()));
    fs::create_dir(&group)?;
    Ok((group, is_second))
}

/// Waits for the end of the processes in these groups. What is left after that, the next test removes.
pub(crate) fn remove_all(groups: impl IntoIterator<Item = PathBuf>) {
    let deadline = Instant::now() + GONE_WITHIN;
    for group in groups {
        while remove(&group).is_err() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }
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
    for hierarchy in hierarchies(Path::new(MOUNT)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn folder_with(files: &[(&str, &str)]) -> Scratch {
        let scratch = Scratch::new("cgroup").expect("a folder");
        for (file, content) in files {
            let path = scratch.path().join(file);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("ours");
            fs::write(path, content).expect("ours");
        }
        scratch
    }

    #[test]
    fn each_version_has_its_hierarchies() {
        let none = folder_with(&[]);
        assert_eq!(hierarchies(none.path()), Vec::<PathBuf>::new());

        let first = folder_with(&[
            ("memory/cgroup.procs", ""),
            ("unified/cgroup.procs", ""),
            ("unified/cgroup.controllers", "hugetlb"),
        ]);
        let mut found = hierarchies(first.path());
        found.sort();
        assert_eq!(found, ["memory", "unified"].map(|name| first.path().join(name)));
        assert!(!is_version_2(first.path()));

        let second = folder_with(&[
            ("cgroup.controllers", "cpu"),
            ("cgroup.procs", ""),
            ("system.slice/cgroup.procs", ""),
        ]);
        assert_eq!(hierarchies(second.path()), [second.path()]);
        assert!(is_version_2(second.path()));
    }

    #[test]
    fn version_2_gives_away_what_kubelet_wants_of_what_the_machine_has() {
        let root = folder_with(&[
            ("cgroup.controllers", "cpuset cpu io memory pids rdma\n"),
            ("cgroup.subtree_control", ""),
        ]);
        has_controllers(root.path()).expect("files");
        let given = fs::read_to_string(root.path().join("cgroup.subtree_control"));
        assert_eq!(given.expect("a file"), "+cpuset +cpu +memory +pids");
    }

    #[test]
    #[ignore = "root: makes a group of the machine"]
    fn a_group_has_what_kubelet_wants_and_goes() {
        let mount = Path::new(MOUNT);
        let cgroup = Cgroup::new(0).expect("root, and cgroups");
        let groups: Vec<PathBuf> =
            hierarchies(mount).iter().map(|it| it.join(&cgroup.name)).collect();
        assert!(groups.iter().all(|group| group.join("cgroup.procs").exists()), "{groups:?}");
        if is_version_2(mount) {
            let read = |folder: &Path| {
                let names = fs::read_to_string(folder.join("cgroup.controllers")).expect("a group");
                CONTROLLERS.map(|wanted| names.split_whitespace().any(|name| name == wanted))
            };
            assert_eq!(read(&groups[0]), read(mount));
        }
        drop(cgroup);
        assert!(!groups.iter().any(|group| group.exists()), "{groups:?}");
    }
}
