//! Log lines on their way to standard error. A thread that logs only puts its line here; a thread of its own
//! writes, so that a pipe without a reader stops that thread and no other. What does not fit, and what standard error refuses, is counted.
//!
//! `tracing-appender` does much the same and is not used: its end prints to a standard stream, which can
//! block or panic on the very pipe this is about; it bounds lines rather than octets; and it brings two more
//! crates.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Octets that may wait; as many again may be on their way. Some five thousand lines: more than an update
/// of the largest folder logs, so lines are lost only where there is no reader.
const MAX_OCTETS: usize = 1 << 20;
/// Until the next try at an output that takes nothing now and does not block: another process that has it too may have
/// made it so.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Lines between threads that log and the thread that writes.
#[derive(Debug)]
pub struct Queue {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug)]
struct Lines {
    /// There is a thread that takes them.
    is_followed: bool,
    /// Whole lines that are not written yet.
    waiting: Vec<u8>,
    /// The thread has some that are not written yet.
    is_writing: bool,
    /// Did not fit or were refused, since the last line that says so.
    lost: u64,
    /// The same, since start.
    lost_in_all: u64,
}

impl Lines {
    fn lose(&mut self, lines: u64) {
        self.lost += lines;
        self.lost_in_all += lines;
    }
}

impl Default for Queue {
    fn default() -> Self {
        Queue::new()
    }
}

impl Queue {
    /// Without lines, and without a thread that takes them.
    pub const fn new() -> Queue {
        let lines = Lines {
            is_followed: false,
            waiting: Vec::new(),
            is_writing: false,
            lost: 0,
            lost_in_all: 0,
        };
        Queue { lines: Mutex::new(lines), changed: Condvar::new() }
    }

    /// Starts the thread that writes to standard error, forever. After a gap, `report_lost` gets how many lines are missing.
    ///
    /// # Errors
    /// The thread cannot start; lines are then written by those who log them.
    pub fn start(&'static self, report_lost: fn(u64)) -> io::Result<()> {
        self.follow(true);
        // Unlocked, unlike `io::stderr()`: a write that blocks must not hold the lock that a panic wants.
        let out = io::stderr().as_fd().try_clone_to_owned().map(io::PipeWriter::from);
        let started = out.and_then(|out| {
            let write = move || self.write_to(out, report_lost);
            std::thread::Builder::new().name("log".into()).spawn(write)
        });
        if started.is_err() {
            self.follow(false);
        }
        started.map(drop)
    }

    /// Takes a line, or counts it. Where no thread writes, this does.
    pub fn put(&self, line: &[u8]) {
        // In one piece, so that lines of several threads do not mix.
        if !self.push(line) && io::stderr().lock().write_all(line).is_err() {
            self.lock().lose(1);
        }
    }

    /// Takes a line, or counts it. Returns false if no thread writes yet: then the caller writes.
    fn push(&self, line: &[u8]) -> bool {
        let mut lines = self.lock();
        if !lines.is_followed {
            return false;
        }
        if lines.waiting.len() + line.len() > MAX_OCTETS {
            lines.lose(1);
            return true;
        }
        lines.waiting.extend_from_slice(line);
        self.changed.notify_all();
        true
    }

    /// Lines are kept from here on, for a thread that is about to [`Queue::write_to`].
    fn follow(&self, is_followed: bool) {
        self.lock().is_followed = is_followed;
    }

    /// Writes lines as they come, forever. After a gap, `report_lost` gets how many are missing.
    fn write_to(&self, mut out: impl Write, report_lost: impl Fn(u64)) -> ! {
        loop {
            let mut lines = self.lock();
            while lines.waiting.is_empty() {
                lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
            }
            let batch = std::mem::take(&mut lines.waiting);
            lines.is_writing = true;
            drop(lines);
            let refused = write_all(&mut out, &batch);
            let mut lines = self.lock();
            lines.lose(refused);
            // No line says so where none can be written: it would be lost too, and so on.
            let lost = if refused == 0 { std::mem::take(&mut lines.lost) } else { 0 };
            drop(lines);
            // Before a flush sees the end: it waits for this line too.
            if lost > 0 {
                report_lost(lost);
            }
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits until everything is written, but no longer than this.
    pub fn flush(&self, within: Duration) {
        let is_busy = |lines: &mut Lines| {
            lines.is_followed && (lines.is_writing || !lines.waiting.is_empty())
        };
        // A timeout means that there is no reader; the process must end in any case.
        let _ = self.changed.wait_timeout_while(self.lock(), within, is_busy);
    }

    /// Lines that did not fit or were refused, since start.
    pub fn lost_since_start(&self) -> u64 {
        self.lock().lost_in_all
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        // The state is valid after a panic.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines for a library that logs. No line fails: that library has no place to report it, and no thread ends because
/// someone's `| head` has ended.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes these lines, and returns how many the output refused.
fn write_all(out: &mut impl Write, mut lines: &[u8]) -> u64 {
    while !lines.is_empty() {
        match out.write(lines) {
            Ok(0) => break,
            Ok(written) => lines = lines.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(TRY_AGAIN),
            Err(_) => break,
        }
    }
    lines.iter().filter(|octet| **octet == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::{Arc, mpsc};

    use super::*;

    /// Generous: only a failure takes longer.
    const PATIENCE: Duration = Duration::from_secs(30);
    const LINE: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n";

    /// A queue whose thread writes into a pipe; that thread stays until the tests end.
    fn piped() -> (&'static Queue, io::PipeReader, mpsc::Receiver<u64>) {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let (reader, writer) = io::pipe().unwrap();
        let (reported, gaps) = mpsc::channel();
        queue.follow(true);
        std::thread::spawn(move || queue.write_to(writer, |lost| reported.send(lost).unwrap()));
        (queue, reader, gaps)
    }

    /// A writer that is slow.
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(50));
            self.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_arrive_whole_in_order_and_before_the_flush_ends() {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let written = Arc::default();
        let out = Slow(Arc::clone(&written));
        queue.follow(true);
        std::thread::spawn(move || queue.write_to(out, |_| unreachable!("nothing is lost")));
        for line in ["one\n", "two\n", "three\n"] {
            assert!(queue.push(line.as_bytes()));
        }
        queue.flush(PATIENCE);
        assert_eq!(*written.lock().unwrap(), b"one\ntwo\nthree\n");
    }

    #[test]
    fn a_pipe_without_a_reader_stops_no_other_thread_and_lost_lines_are_counted() {
        let (queue, reader, gaps) = piped();
        // More than the pipe, what is on its way and what may wait hold together.
        let pushed = 8 * MAX_OCTETS / LINE.len();
        for _ in 0..pushed {
            assert!(queue.push(LINE));
        }
        let lost = queue.lost_since_start();
        assert!(lost > 0);
        queue.flush(Duration::from_millis(10));
        let kept = BufReader::new(reader).lines().take(pushed - usize::try_from(lost).unwrap());
        assert!(kept.map(Result::unwrap).all(|line| line.as_bytes() == &LINE[..LINE.len() - 1]));
        assert_eq!(
            gaps.recv_timeout(PATIENCE).unwrap(),
            lost,
            "reported once there is a reader again"
        );
    }

    /// An output that does first what these say, and takes all after that.
    struct Moody(mpsc::Receiver<io::Result<usize>>, Arc<Mutex<Vec<u8>>>);

    impl Write for Moody {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let octets = self.0.try_recv().unwrap_or(Ok(text.len()))?;
            self.1.lock().unwrap().extend_from_slice(&text[..octets]);
            Ok(octets)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_the_output_refuses_are_counted_and_reported_when_it_takes_lines() {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let (moods, written) = (mpsc::channel(), Arc::default());
        let (reported, gaps) = mpsc::channel();
        let out = Moody(moods.1, Arc::clone(&written));
        queue.follow(true);
        std::thread::spawn(move || queue.write_to(out, |lost| reported.send(lost).unwrap()));
        let full = || Err(io::Error::from(ErrorKind::StorageFull));
        for mood in [
            Err(ErrorKind::Interrupted.into()),
            Err(ErrorKind::WouldBlock.into()),
            Ok(4),
            full(),
            full(),
        ] {
            moods.0.send(mood).unwrap();
        }
        // Written is the first of these three.
        assert!(queue.push(b"one\ntwo\nthree\n"));
        queue.flush(PATIENCE);
        assert_eq!(queue.lost_since_start(), 2);
        assert!(queue.push(b"four\n"));
        queue.flush(PATIENCE);
        assert_eq!(queue.lost_since_start(), 3);
        assert!(gaps.try_recv().is_err(), "a line that says so would be lost too");
        assert!(queue.push(b"five\n"));
        assert_eq!(gaps.recv_timeout(PATIENCE).unwrap(), 3);
        assert_eq!(*written.lock().unwrap(), b"one\nfive\n");
        assert_eq!(queue.lost_since_start(), 3, "each once");
    }

    #[test]
    fn without_a_thread_lines_are_for_the_caller() {
        let queue = Queue::new();
        assert!(!queue.push(LINE));
        queue.flush(PATIENCE);
    }
}
