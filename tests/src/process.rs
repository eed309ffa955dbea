//! Child processes that never outlive the test. Dropping one kills it; and because a test that crashes drops nothing,
//! each child has a shell beside it that waits on a pipe from the test process and kills when the pipe closes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Runs its arguments; sends them the signals named on its standard input, one a line, and SIGKILL when that closes.
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
child=$!
{
    while read -r signal <&3; do kill -s "$signal" "$child"; done
    kill -s KILL "$child"
} 2>/dev/null &
watcher=$!
wait "$child"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"#;

/// How long a process may take over SIGTERM before it is killed. kube-apiserver with open watches takes 15 s.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// On a machine that does other work too.
const PAUSED_WITHIN: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(10);
/// As much of a log as a failed test should print.
const LOG_TAIL_LINES: usize = 30;

/// A running program whose output goes to a log file.
#[derive(Debug)]
pub struct Process {
    name: String,
    supervisor: Child,
    signals: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    /// Starts `program` inside `directory`; what it prints is appended to `NAME.log` there.
    pub fn start<A: AsRef<str>>(
        program: &Path,
        arguments: &[A],
        directory: &Path,
    ) -> anyhow::Result<Process> {
        Process::start_with(program, arguments, &[], directory)
    }

    /// The same, with these environment variables besides those of the test.
    pub fn start_with<A: AsRef<str>>(
        program: &Path,
        arguments: &[A],
        environment: &[(&str, &str)],
        directory: &Path,
    ) -> anyhow::Result<Process> {
        Process::start_below(&[], program, arguments, environment, directory)
    }

    /// The same, started by another program that becomes it, such as `unshare`.
    pub fn start_below<A: AsRef<str>>(
        before: &[&str],
        program: &Path,
        arguments: &[A],
        environment: &[(&str, &str)],
        directory: &Path,
    ) -> anyhow::Result<Process> {
        let name =
            program.file_name().context("a program has a name")?.to_string_lossy().into_owned();
        let log = directory.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh"])
            .args(before)
            .arg(program)
            .args(arguments.iter().map(AsRef::as_ref))
            .envs(environment.iter().copied())
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C reaches the test only; the closing pipe does the rest.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let signals = supervisor.stdin.take();
        Ok(Process { name, supervisor, signals, log })
    }

    /// The id of the program itself, while it runs.
    pub fn pid(&self) -> Option<u32> {
        let supervisor = self.supervisor.id();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(children).ok()?;
        // The other child is the shell that waits to kill it.
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid: &u32| {
            let program = fs::read_link(format!("/proc/{pid}/exe"));
            program.is_ok_and(|program| program.file_name().is_some_and(|file| file == &*self.name))
        })
    }

    /// How it ended, if it did. Ended by signal N is the shell's 128 + N.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.supervisor.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal, named as `kill` names it: `TERM`, `STOP`, `HUP`.
    pub fn signal(&mut self, name: &str) {
        if let Some(signals) = &mut self.signals {
            // Fails only when it is gone already.
            let _ = writeln!(signals, "{name}");
        }
    }

    /// SIGSTOP; returns when every thread of it has stopped.
    pub fn pause(&mut self) {
        self.signal("STOP");
        let deadline = Instant::now() + PAUSED_WITHIN;
        while self.pid().is_some_and(|pid| !has_stopped(pid)) {
            assert!(Instant::now() < deadline, "{} does not stop", self.name);
            std::thread::sleep(POLL);
        }
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.signal("CONT");
    }

    /// Asks it to end, and kills it when it does not within two seconds.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        let deadline = Instant::now() + STOP_GRACE;
        loop {
            match self.exited() {
                Some(status) => return status,
                None if Instant::now() < deadline => std::thread::sleep(POLL),
                None => return self.kill(),
            }
        }
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) -> ExitStatus {
        self.signals = None;
        self.supervisor.wait().expect("a child can be waited for")
    }

    /// Fails with the end of its log when it has ended.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        match self.exited() {
            None => Ok(()),
            Some(status) => anyhow::bail!("{} ended ({status})\n{}", self.name, self.log_tail()),
        }
    }

    /// Everything that it has printed.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of what it printed.
    pub fn log_tail(&self) -> String {
        let log = self.printed();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        format!("the end of {}.log:\n{}", self.name, tail.join("\n"))
    }
}

/// Whether no thread of this process runs.
fn has_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        // A thread that has ended meanwhile has no file.
        stat.map_or(true, |stat| stat.contains(") T "))
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn shell(directory: &Scratch, script: &str) -> Process {
        Process::start(Path::new("/bin/sh"), &["-c", script], directory.path()).expect("sh starts")
    }

    fn wait_for(mut happened: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !happened() {
            assert!(Instant::now() < deadline, "this never happened");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn it_dies_with_a_test_that_crashes() {
        let directory = Scratch::new("process").expect("a scratch directory");
        let mut process = shell(&directory, "echo $$; exec sleep 600");
        wait_for(|| process.log_tail().lines().count() == 2);
        let pid = process.log_tail().lines().last().unwrap_or_default().to_owned();
        assert!(Path::new("/proc").join(&pid).exists());

        // All that remains of a crashed process is that the kernel closed its end of the pipe.
        drop(process.signals.take());

        wait_for(|| !Path::new("/proc").join(&pid).exists());
    }
}
