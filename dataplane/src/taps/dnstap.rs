//! dnstap: each exchange of a client, and each one with an upstream, to one reader over TCP or a unix socket.
//!
//! If the reader is away or slow, messages are lost and counted, and the connection is tried again after a pause.

mod frames;
mod message;
mod stream;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::lossy::Lossy;
use message::Speaker;
use stream::Stream;

/// How often the buffers are taken.
const EVERY: Duration = Duration::from_millis(20);
/// For a connection with its handshake, and for each batch of frames, in however many steps.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the end of a stream.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// First and longest pause before the next try.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A stream that lived this long was a reader that worked: after it the first pause is short again.
const STEADY: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    Tcp(SocketAddr),
    /// Behind this unix socket.
    Unix(PathBuf),
}

/// Messages on their way to the reader.
#[derive(Debug, Default)]
pub struct Dnstap {
    exchanges: Lossy,
    sent: AtomicU64,
    /// Messages that were lost without a reader, or with a connection that failed.
    undelivered: AtomicU64,
    is_connected: AtomicBool,
    state: Mutex<ReaderState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ReaderState {
    reader: Option<Reader>,
    speaker: Speaker,
    /// Flushes asked for, and those done.
    asked: u64,
    done: u64,
}

impl std::fmt::Display for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reader::Tcp(address) => write!(f, "{address}"),
            Reader::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Dnstap {
    pub(super) fn put(&self, place: usize, exchange: &Exchange<'_>) {
        self.exchanges.put(place, exchange.octets(), |part| exchange.write(part));
    }

    /// Sets our identity for the next messages.
    pub(super) fn introduce(&self, identity: String, version: String) {
        self.state().speaker = Speaker { identity, version };
    }

    /// Sends to this reader from here on.
    pub(super) fn set_reader(&self, reader: Option<Reader>) {
        self.state().reader = reader;
        self.changed.notify_all();
    }

    /// Exchanges handed to the connection. A reader that has just gone may not have got the last of them.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Exchanges that found no room or no reader.
    pub fn lost(&self) -> u64 {
        self.exchanges.lost() + self.undelivered.load(Ordering::Relaxed)
    }

    /// Whether there is a reader now.
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Sends what comes, forever. Only this thread waits for the reader.
    pub(super) fn run(&self) -> ! {
        let mut connection = Connection::default();
        loop {
            // Without a wait before the first round: a panic may have left exchanges, and a connection that has ended.
            let (reader, speaker, asked) = self.wanted();
            if connection.reader != reader {
                // Earlier exchanges belong to the former reader.
                self.send(&mut connection, &speaker);
                connection.end();
                connection = Connection { reader: reader.clone(), ..Connection::default() };
            }
            connection.look();
            connection.open();
            self.is_connected.store(connection.stream.is_some(), Ordering::Relaxed);
            self.send(&mut connection, &speaker);
            self.is_connected.store(connection.stream.is_some(), Ordering::Relaxed);
            if reader.is_none() {
                self.exchanges.clear(|part| {
                    self.undelivered.fetch_add(Exchange::count(part), Ordering::Relaxed);
                });
                connection = Connection::default();
            }
            let mut state = self.state();
            state.done = state.done.max(asked);
            drop(state);
            self.changed.notify_all();
            self.wait(connection.reader.as_ref());
        }
    }

    fn wanted(&self) -> (Option<Reader>, Speaker, u64) {
        let state = self.state();
        (state.reader.clone(), state.speaker.clone(), state.asked)
    }

    /// Sleeps until there is something to do. The thread has acted on `reader`: where it is another by now, the notice of
    /// that came while nothing waited for it, and no other will come.
    fn wait(&self, reader: Option<&Reader>) {
        let state = self.state();
        if state.asked > state.done || state.reader.as_ref() != reader {
            return;
        }
        match reader {
            Some(_) => drop(self.changed.wait_timeout(state, EVERY)),
            None => drop(self.changed.wait(state)),
        }
    }

    fn send(&self, connection: &mut Connection, speaker: &Speaker) {
        let Connection { stream, spare, frames, scratch, .. } = connection;
        let mut failure = None;
        self.exchanges.drain(spare, |mut part| {
            let mut exchanges = 0;
            while let Some(exchange) = Exchange::read(&mut part) {
                exchanges += 1;
                for half in message::halves(&exchange) {
                    frames::frame(frames, |to| {
                        message::write(speaker, &exchange, half, scratch, to)
                    });
                    if frames.len() >= FRAMES_OCTETS {
                        self.write(stream, frames, &mut failure);
                    }
                }
            }
            self.write(stream, frames, &mut failure);
            if stream.is_none() {
                self.undelivered.fetch_add(exchanges, Ordering::Relaxed);
            } else {
                self.sent.fetch_add(exchanges, Ordering::Relaxed);
            }
        });
        if let Some(error) = failure {
            connection.failed(&error);
        }
    }

    /// Writes the frames and forgets them; a failure ends the stream.
    fn write(
        &self,
        stream: &mut Option<Stream>,
        frames: &mut Vec<u8>,
        failure: &mut Option<io::Error>,
    ) {
        if let Some(open) = stream
            && !frames.is_empty()
            && let Err(error) = open.within(PATIENCE).write_all(frames)
        {
            *failure = Some(error);
            *stream = None;
        }
        frames.clear();
    }

    /// Begins to send what was put so far and to end the stream, so that the reader knows that nothing is missing. For the end
    /// of the process. Nothing where there is no reader.
    pub(super) fn finish(&self) -> Option<u64> {
        let mut state = self.state();
        state.reader.take()?;
        state.asked += 1;
        self.changed.notify_all();
        Some(state.asked)
    }

    /// Waits until that is done, but no longer than this.
    pub(super) fn wait_for(&self, finish: Option<u64>, within: Duration) {
        let Some(mine) = finish else { return };
        let state = self.state();
        // A timeout means that the reader is slow; the process must end in any case.
        let _ = self.changed.wait_timeout_while(state, within, |state| state.done < mine);
    }

    fn state(&self) -> MutexGuard<'_, ReaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Octets of frames with which they are written.
const FRAMES_OCTETS: usize = 64 << 10;

/// The one connection that there is, or the pause before the next.
#[derive(Debug, Default)]
struct Connection {
    reader: Option<Reader>,
    stream: Option<Stream>,
    next_try: Option<Instant>,
    failures: u32,
    /// When the stream began.
    since: Option<Instant>,
    spare: Vec<u8>,
    frames: Vec<u8>,
    scratch: Vec<u8>,
}

impl Connection {
    /// Connects, unless there is a stream or it is too early.
    fn open(&mut self) {
        let Some(reader) = &self.reader else { return };
        if self.stream.is_some() || self.next_try.is_some_and(|at| Instant::now() < at) {
            return;
        }
        match Stream::open(reader, PATIENCE) {
            Ok(stream) => {
                tracing::info!(%reader, "dnstap messages have a reader");
                (self.stream, self.since) = (Some(stream), Some(Instant::now()));
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Notices a reader that has closed the connection, so that no more is sent to it.
    fn look(&mut self) {
        if let Some(error) = self.stream.as_ref().and_then(Stream::gone) {
            self.stream = None;
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &io::Error) {
        let since = self.since.take();
        // One that takes each stream and ends it at once is tried as rarely as one that takes none.
        if since.is_some_and(|since| since.elapsed() >= STEADY) {
            self.failures = 0;
        }
        if let Some(reader) = &self.reader
            && (self.failures == 0 || since.is_some())
        {
            tracing::warn!(
                %error, %reader,
                "dnstap messages are lost, as their reader cannot be reached; it is tried again and again"
            );
        }
        self.next_try = Some(Instant::now() + pause(self.failures));
        self.failures += 1;
    }

    fn end(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            // Ends the stream in order, so that the reader knows that nothing is missing; it may be too slow for
            // that.
            let _ = frames::close(&mut stream.within(CLOSE_WITHIN));
        }
    }
}

/// How long to wait after this many failures in a row.
fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// What a reader says that takes any type.
    const ACCEPT: &[u8] = b"\0\0\0\0\0\0\0\x04\0\0\0\x01";
    const FINISH: &[u8] = b"\0\0\0\0\0\0\0\x04\0\0\0\x05";

    #[test]
    fn a_reader_that_is_removed_while_it_is_connected_gets_the_end_of_its_stream() {
        let path = std::env::temp_dir().join(format!("clusterdns-removed-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        // Its thread never ends.
        let dnstap: &Dnstap = Box::leak(Box::default());
        dnstap.set_reader(Some(Reader::Unix(path.clone())));
        std::thread::spawn(|| dnstap.run());
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(6 * PATIENCE)).unwrap();
        // READY has come: the thread waits for the handshake.
        far.read_exact(&mut [0; 42]).unwrap();
        let exchange = Exchange { query: &[0; 12], reply: &[0; 12], ..Exchange::default() };
        (0..3).for_each(|place| dnstap.put(place, &exchange));
        dnstap.set_reader(None);
        far.write_all(ACCEPT).unwrap();
        far.write_all(FINISH).unwrap();
        far.read_to_end(&mut Vec::new()).expect("the connection ends");
        let until = Instant::now() + 6 * PATIENCE;
        while dnstap.is_connected() || dnstap.sent() + dnstap.lost() < 3 {
            assert!(Instant::now() < until, "{dnstap:?}");
            std::thread::sleep(EVERY);
        }
        assert_eq!(dnstap.sent() + dnstap.lost(), 3);
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn exchanges_without_a_reader_are_lost_and_counted() {
        let (dnstap, mut connection) = (Dnstap::default(), Connection::default());
        let exchange = Exchange { query: &[0; 12], reply: &[0; 12], ..Exchange::default() };
        let put = |connection: &mut Connection| {
            (0..3).for_each(|place| dnstap.put(place, &exchange));
            dnstap.send(connection, &Speaker::default());
            (dnstap.sent(), dnstap.lost())
        };
        assert_eq!(put(&mut connection), (0, 3));
        let (near, far) = UnixStream::pair().unwrap();
        connection.stream = Some(Stream::Unix(near));
        assert_eq!(put(&mut connection), (3, 3));
        drop(far);
        assert_eq!(put(&mut connection).1, 6, "some of them with the connection that failed");
    }

    #[test]
    fn a_reader_that_ends_each_stream_is_tried_more_and_more_rarely() {
        let mut connection = Connection::default();
        let error = || io::Error::from(io::ErrorKind::BrokenPipe);
        for failures in 1..=3 {
            connection.since = Some(Instant::now());
            connection.failed(&error());
            assert_eq!(connection.failures, failures);
        }
        connection.since = Instant::now().checked_sub(STEADY);
        connection.failed(&error());
        assert_eq!(connection.failures, 1, "it worked for a minute");
    }

    #[test]
    fn pauses_grow_to_half_a_minute() {
        let pauses: Vec<u64> = (0..8).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(pause(u32::MAX).as_secs(), 30);
    }
}
