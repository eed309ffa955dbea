//! The query log: a line of JSON on standard output for each query that the configuration wants to see.
//!
//! Standard output and not the log on standard error: a flood of queries must not push out what the process has to say.

mod line;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crds::config::QueryLog as Level;

use super::exchange::Exchange;
use super::lossy::Lossy;
use line::ShownRcode;

/// How often the buffers are taken.
const EVERY: Duration = Duration::from_millis(20);
/// A flood loses lines in every round; one warning in this time says how many.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// Of a query, a line shows the header and the question.
const QUERY_OCTETS: usize = 12 + 255 + 4;
/// Of a reply, the header.
const REPLY_OCTETS: usize = 12;

/// Lines on their way to standard output.
#[derive(Debug, Default)]
pub struct QueryLog {
    exchanges: Lossy,
    written: AtomicU64,
    /// Queries whose lines standard output refused, or whose log was switched off before they were written.
    undelivered: AtomicU64,
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    is_on: bool,
    /// Flushes asked for, and those done.
    asked: u64,
    done: u64,
}

/// Whether a log of this level has a line for the exchange.
pub(super) fn is_wanted(level: Level, exchange: &Exchange<'_>) -> bool {
    let outcome = || ShownRcode::of(exchange);
    match level {
        Level::None => false,
        Level::Errors => outcome().is_error(),
        Level::Denials => outcome().is_error() || outcome().is_denial(),
        Level::All => true,
    }
}

impl QueryLog {
    pub(super) fn put(&self, place: usize, exchange: &Exchange<'_>) {
        let short = Exchange {
            query: &exchange.query[..exchange.query.len().min(QUERY_OCTETS)],
            reply: &exchange.reply[..exchange.reply.len().min(REPLY_OCTETS)],
            ..*exchange
        };
        self.exchanges.put(place, short.octets(), |part| short.write(part));
    }

    pub(super) fn set_on(&self, is_on: bool) {
        self.state().is_on = is_on;
        self.changed.notify_all();
    }

    /// Writes lines as queries come, forever. Only this thread waits for the reader.
    pub(super) fn write_to(&self, mut out: impl Write) -> ! {
        let (mut spare, mut lines, mut reported) = (Vec::new(), Vec::new(), 0);
        let mut warned = None::<Instant>;
        // Part of a line may have been written: the next one begins a line of its own.
        let mut is_torn = false;
        loop {
            // Without a wait before the first round: a panic may have left queries.
            let asked = self.state().asked;
            self.exchanges.drain(&mut spare, |mut part| {
                let mut count = 0;
                if is_torn {
                    lines.push(b'\n');
                }
                while let Some(exchange) = Exchange::read(&mut part) {
                    line::write(&exchange, &mut lines);
                    count += 1;
                }
                is_torn = out.write_all(&lines).and_then(|()| out.flush()).is_err();
                lines.clear();
                let counter = if is_torn { &self.undelivered } else { &self.written };
                counter.fetch_add(count, Ordering::Relaxed);
            });
            let lost = self.lost();
            if lost > reported && warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                tracing::warn!(
                    queries = lost - reported,
                    "queries are missing in the query log: standard output was not read in time, or refused them"
                );
                (reported, warned) = (lost, Some(Instant::now()));
            }
            let was_on = self.drained(asked, &mut spare, &mut lines);
            self.wait(was_on);
        }
    }

    /// Sleeps until it is time to take the buffers. The thread has acted on `was_on`: where the log was switched since, the
    /// notice of that came while nothing waited for it, and no other will come.
    fn wait(&self, was_on: bool) {
        let state = self.state();
        if state.asked > state.done || state.is_on != was_on {
            return;
        }
        match was_on {
            true => drop(self.changed.wait_timeout(state, EVERY)),
            false => drop(self.changed.wait(state)),
        }
    }

    /// Returns whether the log was on.
    fn drained(&self, asked: u64, spare: &mut Vec<u8>, lines: &mut Vec<u8>) -> bool {
        let mut state = self.state();
        state.done = state.done.max(asked);
        let is_on = state.is_on;
        drop(state);
        self.changed.notify_all();
        if !is_on {
            // What came while the reader did not read: it has no line.
            self.exchanges.clear(|part| {
                self.undelivered.fetch_add(Exchange::count(part), Ordering::Relaxed);
            });
            (*spare, *lines) = (Vec::new(), Vec::new());
        }
        is_on
    }

    /// Waits until everything put so far is written, but no longer than this.
    pub(super) fn flush(&self, within: Duration) {
        let mut state = self.state();
        if !state.is_on {
            return;
        }
        state.asked += 1;
        let mine = state.asked;
        self.changed.notify_all();
        // After a timeout the reader is slow or gone; the process ends without it.
        let _ = self.changed.wait_timeout_while(state, within, |state| state.done < mine);
    }

    /// Queries without a line, because standard output was not read in time or refused it.
    pub fn lost(&self) -> u64 {
        self.exchanges.lost() + self.undelivered.load(Ordering::Relaxed)
    }

    /// Lines written, since start.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc;

    use super::*;

    /// A bound, so that a failing test ends.
    const PATIENCE: Duration = Duration::from_secs(30);

    struct Refuses;

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Says that it was reached, and takes nothing until the other end of the gate is gone.
    struct Blocks {
        reached: mpsc::Sender<()>,
        gate: mpsc::Receiver<()>,
    }

    impl Write for Blocks {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let _ = (self.reached.send(()), self.gate.recv());
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn queries_are_counted_that_came_before_the_log_was_switched_off_and_have_no_line() {
        let log: &QueryLog = Box::leak(Box::default());
        let ((reached, is_reached), (release, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        log.set_on(true);
        log.put(0, &Exchange::default());
        std::thread::spawn(|| log.write_to(Blocks { reached, gate }));
        is_reached.recv_timeout(PATIENCE).unwrap();
        (0..5).for_each(|_| log.put(0, &Exchange::default()));
        log.set_on(false);
        drop(release);
        let until = Instant::now() + PATIENCE;
        while log.written() + log.lost() < 6 {
            assert!(Instant::now() < until, "{} written, {} lost", log.written(), log.lost());
            std::thread::sleep(EVERY);
        }
        assert_eq!(log.written() + log.lost(), 6);
    }

    #[test]
    fn queries_are_counted_where_the_log_is_switched_off_just_before_its_thread_sleeps() {
        let log: &QueryLog = Box::leak(Box::default());
        log.set_on(true);
        let was_on = log.drained(0, &mut Vec::new(), &mut Vec::new());
        (0..3).for_each(|place| log.put(place, &Exchange::default()));
        log.set_on(false);
        let (awake, is_awake) = mpsc::channel();
        std::thread::spawn(move || {
            log.wait(was_on);
            let still_on = log.drained(0, &mut Vec::new(), &mut Vec::new());
            let _ = awake.send((was_on, still_on, log.lost()));
        });
        assert_eq!(is_awake.recv_timeout(PATIENCE / 10), Ok((true, false, 3)));
    }

    #[test]
    fn lines_that_standard_output_refuses_are_lost_and_counted() {
        // Its thread never ends.
        let log: &QueryLog = Box::leak(Box::default());
        log.set_on(true);
        (0..3).for_each(|place| log.put(place, &Exchange::default()));
        std::thread::spawn(|| log.write_to(Refuses));
        log.flush(PATIENCE);
        assert_eq!((log.written(), log.lost()), (0, 3));
        log.set_on(false);
    }
}
