//! UDP sockets towards one server (FW10, FW12): each connected, on a random port, so that only what comes from the
//! server reaches it. Most carry one query; at the bound of ports, queries draw at random among open ones and share
//! them, matched by id.

mod asked;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dataplane_core::Discard;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::common::Common;
use super::ports::{Draw, REST, ServerId};
use super::{now, random};
use asked::Asked;

/// Random ports tried before the system chooses one.
const PORT_ATTEMPTS: usize = 16;
/// The ports that are ours to draw from: all that need no privilege.
const FIRST_PORT: u16 = 1024;
/// Longest datagram that is read; more than we ask for (1,232) and than any sane server sends.
const MAX_DATAGRAM: usize = 4096;
/// Longest life of a shared socket, so that no port is known for long.
const MAX_AGE: Duration = Duration::from_secs(300);
/// Datagrams that wait for one query on a shared socket; more are dropped.
const MAX_WAITING: usize = 4;

/// What sockets towards one server need, and the open ones that later queries may share.
#[derive(Debug)]
pub(super) struct Pool {
    server: ServerId,
    address: SocketAddr,
    common: Arc<Common>,
    /// The oldest first.
    open: Mutex<Vec<Arc<Port>>>,
    /// When those that were closed will have rested.
    resting: Mutex<VecDeque<Instant>>,
}

/// A socket that several queries share.
#[derive(Debug)]
struct Port {
    socket: UdpSocket,
    asked: Mutex<Asked>,
    opened: Instant,
    /// Ends the task that reads it.
    reader: Mutex<Option<AbortHandle>>,
}

/// What came for a query.
#[derive(Debug)]
pub(super) enum Arrival {
    Datagram(Vec<u8>),
    /// A datagram with an id that no query waits for; it is counted already.
    Stray,
    /// An ICMP error, or the socket was closed.
    Failed,
}

/// A query on its way, and where its reply comes.
#[derive(Debug)]
pub(super) enum Exchange {
    Own { socket: UdpSocket, id: u16, pool: Arc<Pool> },
    Shared { place: SharedPort, arrivals: mpsc::Receiver<Arrival> },
}

/// The place of one query on a shared socket.
#[derive(Debug)]
pub(super) struct SharedPort {
    port: Arc<Port>,
    id: u16,
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        self.port.asked.lock().expect("nothing panics while it counts").end(self.id, now());
    }
}

/// Sends the query that `query` writes for an id; `None` if no port is left (FW10). The datagram leaves before the
/// runtime knows a new socket: its readiness to write would cost a turn of the event loop.
pub(super) fn send(
    pool: &Arc<Pool>,
    query: impl Fn(u16) -> Vec<u8>,
) -> io::Result<Option<Exchange>> {
    send_at(pool, query, now())
}

fn send_at(
    pool: &Arc<Pool>,
    query: impl Fn(u16) -> Vec<u8>,
    now: Instant,
) -> io::Result<Option<Exchange>> {
    let drawn = pool.common.ports().draw(pool.server, now);
    match drawn {
        Draw::Own => {
            let id = random() as u16;
            let socket = pool.registered(pool.opened()?, now)?;
            send_now(&socket, &query(id)).inspect_err(|_| pool.closed(now))?;
            Ok(Some(Exchange::Own { socket, id, pool: Arc::clone(pool) }))
        }
        Draw::Pooled => {
            let socket = pool.registered(pool.opened()?, now)?;
            let port = pool.add(socket, now);
            ask(port, query, now)
        }
        Draw::Shared => match pool.draw(random()) {
            Some(port) => {
                pool.common.drew_shared();
                ask(port, query, now)
            }
            None => Ok(None),
        },
    }
}

/// Without asking the runtime whether the socket is ready: a full buffer is a lost datagram.
fn send_now(socket: &UdpSocket, query: &[u8]) -> io::Result<()> {
    socket2::SockRef::from(socket).send(query).map(drop)
}

/// `None` where as many wait on this socket as may.
fn ask(
    port: Arc<Port>,
    query: impl Fn(u16) -> Vec<u8>,
    now: Instant,
) -> io::Result<Option<Exchange>> {
    let (sender, arrivals) = mpsc::channel(MAX_WAITING);
    let drawn = {
        let mut asked = port.asked.lock().expect("nothing panics while it counts");
        asked.begin(sender, now)
    };
    let Some(id) = drawn else { return Ok(None) };
    let place = SharedPort { port, id };
    send_now(&place.port.socket, &query(id))?;
    Ok(Some(Exchange::Shared { place, arrivals }))
}

/// Whether this is a want of ours, of descriptors, memory or ports: it says nothing of the server.
pub(super) fn is_ours(error: &io::Error) -> bool {
    const OURS: [i32; 6] = [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EADDRINUSE,
        libc::EADDRNOTAVAIL,
    ];
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error().is_some_and(|code| OURS.contains(&code))
}

impl Exchange {
    pub(super) fn id(&self) -> u16 {
        match self {
            Exchange::Own { id, .. } => *id,
            Exchange::Shared { place, .. } => place.id,
        }
    }

    /// What comes next; without a deadline.
    pub(super) async fn next(&mut self) -> Arrival {
        match self {
            Exchange::Own { socket, .. } => {
                receive(socket).await.map_or(Arrival::Failed, Arrival::Datagram)
            }
            Exchange::Shared { arrivals, .. } => arrivals.recv().await.unwrap_or(Arrival::Failed),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Exchange::Own { pool, .. } = self {
            pool.closed(now());
        }
    }
}

async fn receive(socket: &UdpSocket) -> io::Result<Vec<u8>> {
    loop {
        wait(socket).await?;
        // The buffer lives only while there is something to read, not while we wait.
        let mut buffer = [0; MAX_DATAGRAM];
        match socket.try_recv(&mut buffer) {
            Ok(length) => return Ok(buffer[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
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

impl Pool {
    /// No socket is open yet.
    pub(super) fn new(server: ServerId, address: SocketAddr, common: Arc<Common>) -> Pool {
        let (open, resting) = (Mutex::default(), Mutex::default());
        Pool { server, address, common, open, resting }
    }

    /// A socket for the port that was drawn.
    fn opened(&self) -> io::Result<std::net::UdpSocket> {
        let socket = bind(self.address).and_then(|socket| {
            socket.connect(self.address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        socket.inspect_err(|_| self.common.ports().failed(self.server))
    }

    fn registered(&self, socket: std::net::UdpSocket, now: Instant) -> io::Result<UdpSocket> {
        UdpSocket::from_std(socket).inspect_err(|_| self.closed(now))
    }

    /// A port of this server was closed: it rests.
    fn closed(&self, now: Instant) {
        self.common.ports().closed(self.server, now);
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Port>>> {
        self.open.lock().expect("nothing panics while it holds this")
    }

    fn add(&self, socket: UdpSocket, now: Instant) -> Arc<Port> {
        let asked = Asked::new(now);
        let port = Arc::new(Port {
            socket,
            asked: Mutex::new(asked),
            opened: now,
            reader: Mutex::default(),
        });
        let common = Arc::clone(&self.common);
        let reader = tokio::spawn(read(Arc::clone(&port), move || common.discard(Discard::Id)));
        *port.reader.lock().expect("nothing panics here") = Some(reader.abort_handle());
        self.open().push(Arc::clone(&port));
        port
    }

    fn draw(&self, random: u64) -> Option<Arc<Port>> {
        let open = self.open();
        // The upper half of random * length is uniform in 0..length.
        let place = ((u128::from(random) * open.len() as u128) >> 64) as usize;
        open.get(place).cloned()
    }

    /// Closes sockets that no query used for a while, and those that are too old. Closed ports rest, and cannot be
    /// opened for this time: those that rest never outnumber those that queries can draw, unless others can be opened.
    pub(super) fn sweep(&self, now: Instant) {
        let mut open = self.open();
        let mut resting = self.resting.lock().expect("nothing panics while it holds this");
        while resting.front().is_some_and(|until| *until <= now) {
            resting.pop_front();
        }
        if open.is_empty() {
            return;
        }
        let mut ports = self.common.ports();
        let half = ((open.len() + resting.len()) / 2).saturating_sub(resting.len());
        let mut may_close = half.max(ports.free(self.server, now));
        open.retain(|port| {
            let closes = may_close > 0 && port.is_over(now);
            if closes {
                may_close -= 1;
                port.close();
                ports.closed(self.server, now);
                resting.push_back(now + REST);
            }
            !closes
        });
    }

    /// Closes every socket: the server is gone.
    pub(super) fn close_all(&self, now: Instant) {
        let open = std::mem::take(&mut *self.open());
        let mut ports = self.common.ports();
        for port in open {
            port.close();
            ports.closed(self.server, now);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open().len()
    }
}

impl Port {
    /// No query waits on it, and none used it for a while or it is too old.
    fn is_over(&self, now: Instant) -> bool {
        let asked = self.asked.lock().expect("nothing panics while it counts");
        let is_idle = now.saturating_duration_since(asked.latest) >= REST;
        let is_old = now.saturating_duration_since(self.opened) >= MAX_AGE;
        asked.waiting.is_empty() && (is_idle || is_old)
    }

    /// Ends the task that reads it; the socket closes with the last that holds it.
    fn close(&self) {
        if let Some(reader) = self.reader.lock().expect("nothing panics here").take() {
            reader.abort();
        }
    }
}

/// Gives each datagram to the query with its id.
async fn read(port: Arc<Port>, stray: impl Fn()) {
    loop {
        let arrived = receive(&port.socket).await;
        let mut asked = port.asked.lock().expect("nothing panics while it counts");
        match arrived {
            Ok(datagram) => {
                if asked.is_stray(datagram, now()) {
                    stray();
                    asked.to_all(|| Arrival::Stray);
                }
            }
            Err(_) => asked.to_all(|| Arrival::Failed),
        }
    }
}

fn bind(server: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let any = |port| match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    };
    for _ in 0..PORT_ATTEMPTS {
        let range = u64::from(u16::MAX - FIRST_PORT) + 1;
        // 64 random bits over 64,512 ports: the bias is far below anything measurable.
        let port = FIRST_PORT + (random() % range) as u16;
        match std::net::UdpSocket::bind(any(port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    std::net::UdpSocket::bind(any(0))
}

#[cfg(test)]
mod tests;
