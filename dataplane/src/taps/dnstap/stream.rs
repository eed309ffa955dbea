//! The connection to a reader of dnstap. Each operation on it has a deadline for all of its steps together: a reader
//! that takes an octet now and then would otherwise be waited for without end.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use super::Reader;
use super::frames;

/// Idle time after which TCP asks whether the reader is there: with the questions that stay unanswered, 15 + 3 * 5 = 30 s. A
/// reader whose machine is lost sends no end of the connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// Time without an acknowledgement after which the connection ends. TCP asks nothing while octets are on their way,
/// and sends them again for a quarter of an hour.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Octets to and from the reader.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A stream until a deadline.
#[derive(Debug)]
pub(super) struct Within<'s> {
    stream: &'s mut Stream,
    deadline: Instant,
}

impl Stream {
    /// Connects, and completes the handshake with the reader, all within this time.
    ///
    /// # Errors
    /// The reader cannot be reached, or is not a reader of dnstap.
    pub(super) fn open(reader: &Reader, within: Duration) -> io::Result<Stream> {
        let deadline = Instant::now() + within;
        let mut stream = Stream::connect(reader, within)?;
        frames::open(&mut Within { stream: &mut stream, deadline })?;
        Ok(stream)
    }

    fn connect(reader: &Reader, within: Duration) -> io::Result<Stream> {
        Ok(match reader {
            Reader::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, within)?;
                notice_silence(&SockRef::from(&stream))?;
                Stream::Tcp(stream)
            }
            Reader::Unix(path) => {
                // Without blocking: where nothing accepts, a connection to a unix socket waits forever.
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.connect_timeout(&SockAddr::unix(path)?, within)?;
                Stream::Unix(socket.into())
            }
        })
    }

    /// The same, with this time limit for the whole.
    pub(super) fn within(&mut self, within: Duration) -> Within<'_> {
        Within { stream: self, deadline: Instant::now() + within }
    }

    /// Why nothing more can be sent: the reader has closed the connection, or sent something that it must not send.
    pub(super) fn gone(&self) -> Option<io::Error> {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let mut octet = [MaybeUninit::uninit()];
        let read = match self {
            Stream::Tcp(stream) => SockRef::from(stream).recv_with_flags(&mut octet, flags),
            Stream::Unix(stream) => SockRef::from(stream).recv_with_flags(&mut octet, flags),
        };
        match read {
            Ok(0) => Some(io::Error::new(ErrorKind::UnexpectedEof, "the reader has gone")),
            Ok(_) => Some(io::Error::new(ErrorKind::InvalidData, "the reader speaks unasked")),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => None,
                _ => Some(error),
            },
        }
    }
}

/// A reader that has vanished without a word is an error of the connection within 30 s.
fn notice_silence(socket: &Socket) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))
}

impl Within<'_> {
    /// The remaining time.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let late = || io::Error::new(ErrorKind::TimedOut, "the reader takes too long");
        // Zero would be no limit.
        (!left.is_zero()).then_some(left).ok_or_else(late)
    }
}

impl Read for Within<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = Some(self.left()?);
        match self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(to)),
            Stream::Unix(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(to)),
        }
    }
}

impl Write for Within<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let left = Some(self.left()?);
        match self.stream {
            Stream::Tcp(stream) => stream.set_write_timeout(left).and_then(|()| stream.write(from)),
            Stream::Unix(stream) => {
                stream.set_write_timeout(left).and_then(|()| stream.write(from))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError;

    use super::*;

    #[test]
    fn a_reader_that_takes_an_octet_now_and_then_has_one_deadline_for_all_of_them() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (ended, has_ended) = std::sync::mpsc::channel();
        let reads = std::thread::spawn(move || {
            let each = Duration::from_millis(1);
            let mut octets = 0;
            while has_ended
                .recv_timeout(each)
                .is_err_and(|error| error == RecvTimeoutError::Timeout)
            {
                octets += far.read(&mut [0]).unwrap_or_default();
            }
            octets
        });
        let mut stream = Stream::Unix(near);
        // More than the socket holds, and more than such a reader takes in the time.
        let octets = vec![0; 64 << 20];
        let mut written = stream.within(Duration::from_millis(300));
        let mut left = &octets[..];
        let error = loop {
            // Small steps: none of them takes long by itself.
            match written.write(&left[..left.len().min(512)]) {
                Ok(step) => left = &left[step..],
                Err(error) => break error,
            }
        };
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        ended.send(()).unwrap();
        assert!(reads.join().unwrap() > 0);
    }

    #[test]
    fn a_socket_at_which_nothing_accepts_is_given_up() {
        let path = std::env::temp_dir().join(format!("clusterdns-tap-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let address = SockAddr::unix(&path).unwrap();
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let reader = Reader::Unix(path.clone());
        let within = Duration::from_millis(200);
        let ends = std::thread::spawn(move || {
            // The first may find a place in the queue, but its handshake is never accepted.
            [(); 3].map(|()| Stream::open(&reader, within).is_err())
        });
        assert_eq!(ends.join().unwrap(), [true; 3]);
        drop(listener);
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn the_system_looks_after_a_reader_that_may_vanish_without_a_word() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = Reader::Tcp(listener.local_addr().unwrap());
        let Stream::Tcp(stream) = Stream::connect(&reader, Duration::from_secs(30)).unwrap() else {
            panic!("a reader over TCP")
        };
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let questions = socket.tcp_keepalive_interval().unwrap() * 3;
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        let bounds = [
            socket.tcp_keepalive_time().unwrap() + questions,
            socket.tcp_user_timeout().unwrap().unwrap_or_default(),
        ];
        assert_eq!(bounds, [Duration::from_secs(30); 2]);
    }

    #[test]
    fn a_reader_that_has_gone_is_seen_while_nothing_is_written() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let stream = Stream::Unix(near);
        assert!(stream.gone().is_none());
        far.write_all(b"x").unwrap();
        assert_eq!(stream.gone().unwrap().kind(), ErrorKind::InvalidData);
        let (near, far) = UnixStream::pair().unwrap();
        let stream = Stream::Unix(near);
        drop(far);
        assert!(stream.gone().is_some());
    }
}
