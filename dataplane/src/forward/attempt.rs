//! One attempt at one server: its own socket, port and id, and patience for replies that are not ours
//! (FW10, FW13, FW26). Without a deadline: the lookup drops an attempt that takes too long.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dataplane_core::{Discard, LookupKey, RelayError, Relayed, ServerCounters, TtlCaps, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::down::Failing;
use super::upstreams::Transport;
use super::{lookup, random};

/// Wrong datagrams after which the server is asked over TCP (FW13).
const MAX_DISCARDS: usize = 3;
/// Random ports tried before the system chooses one.
const PORT_ATTEMPTS: usize = 16;
/// The ports that are ours to draw from: all that need no privilege.
const FIRST_PORT: u16 = 1024;
/// Longest datagram that is read; more than we ask for (1,232) and than any sane server sends.
const MAX_DATAGRAM: usize = 4096;

/// What one attempt needs.
pub(super) struct Ask<'a> {
    pub(super) key: &'a LookupKey,
    pub(super) server: &'a ServerCounters,
    pub(super) failing: &'a Failing,
    pub(super) caps: &'a TtlCaps,
    pub(super) discards: &'a [AtomicU64; Discard::ALL.len()],
    pub(super) sockets: &'a Semaphore,
    /// The lookup's time is over: attempts that are now dropped have failed.
    pub(super) expired: &'a AtomicBool,
}

/// Why an attempt ended without an answer.
pub(super) enum Failure {
    /// The server gave a valid reply that is no answer.
    Reply,
    /// An ICMP error, a connection refused or broken off, a socket that the system did not give.
    Network,
    /// `upstreamPorts` is reached (FW10): the server was not asked.
    NoPort,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Failure {
        Failure::Network
    }
}

impl Ask<'_> {
    /// Asks; over UDP also over TCP where the reply is truncated or wrong replies keep coming.
    pub(super) async fn over(self, transport: Transport) -> Result<Relayed, Failure> {
        // One place is enough: the stream is opened when the datagram's socket is closed.
        let Ok(_place) = self.sockets.try_acquire() else { return Err(Failure::NoPort) };
        let mut sent = Sent::new(self.server, self.failing, self.expired);
        let result = match transport {
            Transport::Udp => match self.over_udp().await {
                Ok(Datagram::Good(relayed)) => Ok(relayed),
                Ok(Datagram::AskOverTcp) => {
                    self.server.sent.fetch_add(1, Ordering::Relaxed);
                    self.over_tcp().await
                }
                Err(failure) => Err(failure),
            },
            Transport::Tcp => self.over_tcp().await,
        };
        sent.settle(result.is_ok());
        result
    }

    async fn over_udp(&self) -> Result<Datagram, Failure> {
        let socket = connect(self.server.address).await?;
        let id = random() as u16;
        socket.send(&self.key.upstream_query(id).wire).await?;
        for _ in 0..MAX_DISCARDS {
            match self.judge_next(&socket, id).await? {
                Verdict::Good(relayed) => return Ok(Datagram::Good(relayed)),
                Verdict::Failed(RelayError::Truncated) => return Ok(Datagram::AskOverTcp),
                Verdict::Failed(_) => return Err(Failure::Reply),
                Verdict::Discard(reason) => self.count(reason),
            }
        }
        Ok(Datagram::AskOverTcp)
    }

    async fn judge_next(&self, socket: &UdpSocket, id: u16) -> io::Result<Verdict> {
        loop {
            wait(socket).await?;
            // The buffer lives only while there is something to read, not while we wait.
            let mut buffer = [0; MAX_DATAGRAM];
            match socket.try_recv(&mut buffer) {
                Ok(length) => return Ok(self.key.judge(id, &buffer[..length], self.caps)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn over_tcp(&self) -> Result<Relayed, Failure> {
        let mut stream = TcpStream::connect(self.server.address).await?;
        stream.set_nodelay(true)?;
        let id = random() as u16;
        let query = self.key.upstream_query(id).wire;
        let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
        stream.write_all(&framed).await?;
        let length = stream.read_u16().await?;
        let mut reply = vec![0; length.into()];
        stream.read_exact(&mut reply).await?;
        match self.key.judge(id, &reply, self.caps) {
            Verdict::Good(relayed) => Ok(relayed),
            Verdict::Failed(_) => Err(Failure::Reply),
            // Nobody else can write into this stream: the server itself is wrong (FW54).
            Verdict::Discard(reason) => {
                self.count(reason);
                Err(Failure::Network)
            }
        }
    }

    fn count(&self, reason: Discard) {
        self.discards[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Until there is a datagram to read, or what ICMP says of the one sent (FW21): that alone does not
/// make a socket readable.
async fn wait(socket: &UdpSocket) -> io::Result<()> {
    loop {
        let ready = socket.ready(Interest::READABLE | Interest::ERROR).await?;
        if ready.is_error() {
            // Without an error the readiness is forgotten, so that this does not spin.
            let none = || Err(io::ErrorKind::WouldBlock.into());
            let error = || socket.take_error()?.map_or_else(none, Err::<(), _>);
            match socket.try_io(Interest::ERROR, error) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        if ready.is_readable() {
            return Ok(());
        }
    }
}

enum Datagram {
    Good(Relayed),
    AskOverTcp,
}

/// A socket of its own on a random port (FW10): only what comes from the server reaches it.
async fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
    let socket = bind(server).await?;
    socket.connect(server).await?;
    Ok(socket)
}

async fn bind(server: SocketAddr) -> io::Result<UdpSocket> {
    let any = |port| match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    };
    for _ in 0..PORT_ATTEMPTS {
        let range = u64::from(u16::MAX - FIRST_PORT) + 1;
        // 64 random bits over 64,512 ports: the bias is far below anything measurable.
        let port = FIRST_PORT + (random() % range) as u16;
        match UdpSocket::bind(any(port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    UdpSocket::bind(any(0)).await
}

/// Counts a send and, unless it is settled, its failure: attempts are dropped when another was
/// faster, which is this server's failure only if it had its time.
struct Sent<'a> {
    server: &'a ServerCounters,
    failing: &'a Failing,
    expired: &'a AtomicBool,
    at: Instant,
    settled: bool,
}

impl<'a> Sent<'a> {
    fn new(server: &'a ServerCounters, failing: &'a Failing, expired: &'a AtomicBool) -> Sent<'a> {
        server.sent.fetch_add(1, Ordering::Relaxed);
        Sent { server, failing, expired, at: Instant::now(), settled: false }
    }

    fn settle(&mut self, answered: bool) {
        self.settled = true;
        match answered {
            true => self.failing.answered(),
            false => self.failed(),
        }
    }

    fn failed(&self) {
        self.server.failed.fetch_add(1, Ordering::Relaxed);
        self.failing.failed(Instant::now().into_std());
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let had_its_time =
            || self.expired.load(Ordering::Relaxed) || self.at.elapsed() >= lookup::HEDGE;
        if !self.settled && had_its_time() {
            self.failed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Only so that a failure ends.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn fw21_a_closed_port_is_noticed_without_waiting_for_a_reply() {
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = connect(closed).await.unwrap();
        socket.send(b"anybody there?").await.unwrap();
        let waited = tokio::time::timeout(PATIENCE, wait(&socket)).await.expect("an ICMP error");
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_that_fail_for_a_minute_make_a_server_down_and_one_reply_ends_it() {
        let address = "192.0.2.1:53".parse().unwrap();
        let (sent, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let server = ServerCounters { address, sent, failed };
        let (failing, expired) = (Failing::default(), AtomicBool::new(false));
        let attempt = || Sent::new(&server, &failing, &expired);
        let is_down = || failing.down_for(Instant::now().into_std()).is_some();
        attempt().settle(false);
        tokio::time::advance(Duration::from_secs(61)).await;
        attempt().settle(false);
        drop(attempt());
        assert!(!is_down(), "dropped for a faster one: no failure");
        let late = attempt();
        tokio::time::advance(lookup::HEDGE).await;
        drop(late);
        assert!(is_down());
        attempt().settle(true);
        assert!(!is_down());
    }

    #[tokio::test]
    async fn a_datagram_is_waited_for() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = connect(server.local_addr().unwrap()).await.unwrap();
        socket.send(b"?").await.unwrap();
        let (_, client) = server.recv_from(&mut [0; 1]).unwrap();
        server.send_to(b"!", client).unwrap();
        tokio::time::timeout(PATIENCE, wait(&socket)).await.expect("a datagram").unwrap();
        assert_eq!(socket.try_recv(&mut [0; 9]).unwrap(), 1);
    }
}
