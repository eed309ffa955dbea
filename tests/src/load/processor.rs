//! Processor time and memory of a server with all its processes and threads, from `/proc`. Processor time is reliable on
//! a busy machine, where times by the clock are not.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::usage::Usage;

/// A process and all below it; by default none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Family {
    first: Option<u32>,
}

impl Family {
    pub fn of(first: u32) -> Family {
        Family { first: Some(first) }
    }

    /// Time on a processor so far of all threads that run now, to the nanosecond.
    pub fn processor(self) -> Duration {
        let threads = self.members().into_iter().flat_map(|pid| {
            let threads = listed(&format!("/proc/{pid}/task"));
            threads.map(move |thread| format!("/proc/{pid}/task/{thread}/schedstat"))
        });
        let times = threads.filter_map(|file| on_processor(&fs::read_to_string(file).ok()?));
        Duration::from_nanos(times.sum())
    }

    /// Memory of the largest process now, and the most it has had, in MiB; and how many processes there are.
    pub fn memory_mib(self) -> (f64, f64, usize) {
        let members = self.members();
        let usage = members.iter().map(|pid| Usage::of(*pid));
        let (now, peak) = usage.fold((0.0, 0.0), |(now, peak): (f64, f64), usage| {
            (now.max(usage.resident_mib()), peak.max(usage.peak_mib()))
        });
        (now, peak, members.len())
    }

    /// Forgets the most memory so far: that now counts as the most.
    ///
    /// # Errors
    /// A process has ended, or the system has no such switch.
    pub fn forget_peak(self) -> std::io::Result<()> {
        self.members().into_iter().try_for_each(|pid| Usage::of(pid).forget_peak())
    }

    /// This process and all that descend from it.
    pub fn members(self) -> BTreeSet<u32> {
        let (mut members, mut next) = (BTreeSet::new(), Vec::from_iter(self.first));
        while let Some(pid) = next.pop() {
            if members.insert(pid) {
                let children = listed(&format!("/proc/{pid}/task"))
                    .map(|thread| format!("/proc/{pid}/task/{thread}/children"))
                    .filter_map(|file| fs::read_to_string(file).ok());
                next.extend(children.flat_map(|text| numbers(&text)));
            }
        }
        members
    }
}

/// The numbers that entries of a folder are called.
fn listed(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Nanoseconds on a processor, the first of the three numbers of a schedstat (kernel: Documentation/scheduler/sched-stats).
fn on_processor(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// Runs something, and all processes that it starts, on one processor.
///
/// # Panics
/// There is no such processor.
pub fn pinned<T>(processor: usize, run: impl FnOnce() -> T) -> T {
    pinned_to([processor], run)
}

/// The same on several.
///
/// # Panics
/// There are no such processors.
pub fn pinned_to<T>(processors: impl IntoIterator<Item = usize>, run: impl FnOnce() -> T) -> T {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this).expect("the processors of this thread");
    let mut only = CpuSet::new();
    for processor in processors {
        only.set(processor).expect("a number of a processor");
    }
    sched_setaffinity(this, &only).expect("this processor may be used");
    let result = run();
    sched_setaffinity(this, &before).expect("the processors there were");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_schedstat_is_time_on_a_processor() {
        assert_eq!(on_processor("123456789 42 7\n"), Some(123_456_789));
        assert_eq!(on_processor(""), None);
        assert_eq!(on_processor("none 1 2"), None);
    }

    #[test]
    fn this_process_has_used_a_processor_and_memory() {
        let own = Family::of(std::process::id());
        let before = own.processor();
        // Counted at the next tick of the scheduler.
        while own.processor() == before {}
        let (now, peak, processes) = own.memory_mib();
        assert!(now > 0.0 && peak > 0.0 && processes >= 1);
    }

    #[test]
    fn children_belong_to_the_family() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let members = Family::of(std::process::id()).members();
        child.kill().expect("it can be killed");
        child.wait().expect("it is gone");
        assert!(members.contains(&child.id()));
    }
}
