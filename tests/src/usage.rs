//! The processor time and memory of a process, as Linux counts them in `/proc`.

use std::fs;
use std::time::Duration;

/// The unit of times in `/proc/PID/stat`: 100 Hz on every architecture we build for.
const TICK: Duration = Duration::from_millis(10);

/// A process that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pid: u32,
}

impl Usage {
    pub fn of(pid: u32) -> Usage {
        Usage { pid }
    }

    /// Time on a processor so far, of all threads that are or were, in steps of 10 ms.
    pub fn cpu(self) -> Duration {
        let stat = self.read("stat");
        // The second field is a name in brackets, which may hold anything; then come the third and so on.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |number: usize| {
            fields.get(number - 3).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0)
        };
        TICK * (ticks(14) + ticks(15))
    }

    /// Resident memory now, in MiB.
    pub fn resident_mib(self) -> f64 {
        self.status("VmRSS:")
    }

    /// The most memory since the start, or since [`Usage::forget_peak`], in MiB.
    pub fn peak_mib(self) -> f64 {
        self.status("VmHWM:")
    }

    /// Forgets the most memory so far: the peak is the present use now.
    ///
    /// # Errors
    /// It is not our process, or the system has no such switch.
    pub fn forget_peak(self) -> std::io::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5")
    }

    fn status(self, field: &str) -> f64 {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or(0.0) / 1024.0
    }

    fn read(self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid)).unwrap_or_default()
    }
}
