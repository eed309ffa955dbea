//! UDP sockets towards one server (FW10, FW12): each connected, on a random port, so that only what comes from the
//! server reaches it. Most carry one query; where no port is left for that, queries draw at random among open ones and
//! share them, matched by id.

mod asked;
mod open;
mod opening;
mod port;
mod reader;
mod watch;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::common::Common;
use super::overdue::Watch;
use super::ports::{Draw, ServerId};
use super::{now, random};
pub(super) use asked::Arrival;
use open::{OpenPorts, ReaderNumber};
pub(super) use port::{Arrived, Listening, Place};
use port::{Port, Socket};
use reader::Reader;
pub(crate) use reader::Reading;
use watch::SharedPorts;

/// Longest datagram that is read, more than we ask for (1,232); of a longer one this many octets are read.
pub(super) const MAX_DATAGRAM: usize = 4096;
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
    /// Open ports that queries share.
    open: Mutex<OpenPorts>,
    /// Ports of one query each that a thread reads, and some that are closed, each with the time at which its query waits
    /// too long; the earliest first.
    own: Mutex<VecDeque<(Instant, Weak<Port>)>>,
    /// Ports that queries share on which one may wait too long.
    shared: Mutex<SharedPorts>,
    watch: Watch,
}

/// A query on its way, and where its reply comes.
#[derive(Debug)]
pub(super) enum Exchange {
    Own { socket: Socket, id: u16, pool: Arc<Pool> },
    Shared(Listening),
}

/// The result of sending a query without a task.
pub(super) enum Departed<T> {
    /// It was sent from a shared socket, which has a reader.
    Shared,
    /// It was sent from a socket of its own, which a task must read.
    Own(Exchange, T),
    /// No port is left (FW10).
    NoPort(T),
    /// The system refused it.
    Failed(T),
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
    let port = match pool.drawn(now)? {
        Drawn::Own(socket) => return pool.ask(socket, query, now).map(Some),
        Drawn::Shared(port) => port,
        Drawn::None => return Ok(None),
    };
    // This socket has as many queries as it may have.
    let Some(listening) = port.listen(now) else { return Ok(None) };
    send_now(port.socket(), &query(listening.id()))?;
    Ok(Some(Exchange::Shared(listening)))
}

/// Sends like [`send`]; on a shared socket no task is needed, as `landed` is called with `flight`, the id and what
/// comes first. Otherwise `flight` is returned.
pub(super) fn depart<T: Send + 'static>(
    pool: &Arc<Pool>,
    flight: T,
    query: impl Fn(&T, u16) -> Vec<u8>,
    landed: impl FnOnce(T, u16, Arrived<'_>) + Send + 'static,
) -> Departed<T> {
    let now = now();
    let port = match pool.drawn(now) {
        Ok(Drawn::Own(socket)) => {
            return match pool.ask(socket, |id| query(&flight, id), now) {
                Ok(exchange) => Departed::Own(exchange, flight),
                Err(error) if is_ours(&error) => Departed::NoPort(flight),
                Err(_) => Departed::Failed(flight),
            };
        }
        Ok(Drawn::Shared(port)) => port,
        Ok(Drawn::None) => return Departed::NoPort(flight),
        Err(error) if is_ours(&error) => return Departed::NoPort(flight),
        Err(_) => return Departed::Failed(flight),
    };
    let (mut wire, mut parts) = (Vec::new(), Some((flight, landed)));
    let drawn = port.call(now, |id| {
        let (flight, landed) = parts.take()?;
        wire = query(&flight, id);
        Some(Box::new(move |arrived: Arrived<'_>| landed(flight, id, arrived)))
    });
    let id = match (drawn, parts) {
        (Some(id), _) => id,
        (None, Some((flight, _))) => return Departed::NoPort(flight),
        (None, None) => return Departed::Shared,
    };
    // Not before its query waits: a look takes out a port on which none waits.
    pool.look_after(&port, now);
    match send_now(port.socket(), &wire) {
        Ok(()) => pool.watch(),
        Err(error) => {
            if let Some(call) = port.take_back(id) {
                call(if is_ours(&error) { Arrived::Unsent } else { Arrived::Failed });
            }
            port.close_if_over();
        }
    }
    Departed::Shared
}

/// Without asking the runtime whether the socket is ready: a full buffer is a lost datagram.
fn send_now(socket: &UdpSocket, query: &[u8]) -> io::Result<()> {
    socket.send(query).map(drop)
}

/// Where this machine has no address of the server's family (IPv6 is off), the system says EADDRNOTAVAIL. Where it
/// cannot mean a want of ports, as of a socket that has its port already, there is no way to the server (FW21).
pub(super) fn unreachable(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL) => io::Error::from_raw_os_error(libc::ENETUNREACH),
        _ => error,
    }
}

/// Whether we lack descriptors, memory or ports: the server is not at fault.
pub(super) fn is_ours(error: &io::Error) -> bool {
    const OURS: [i32; 7] = [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::ENOSPC,
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
            Exchange::Shared(listening) => listening.id(),
        }
    }

    /// What comes next; without a deadline.
    pub(super) async fn next(&mut self) -> Arrival {
        match self {
            Exchange::Own { socket, .. } => {
                let received = port::receive(socket, <[u8]>::to_vec).await;
                received.map_or(Arrival::Failed, Arrival::Datagram)
            }
            Exchange::Shared(listening) => listening.next().await,
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

impl Place<'_> {
    /// Waits for what comes next.
    pub(super) fn listen(self) -> Exchange {
        Exchange::Shared(self.taken())
    }
}

/// Where a query leaves from.
enum Drawn {
    Own(Socket),
    Shared(Arc<Port>),
    None,
}

impl Pool {
    /// No socket is open yet.
    pub(super) fn new(server: ServerId, address: SocketAddr, common: Arc<Common>) -> Pool {
        Pool {
            server,
            address,
            common,
            open: Mutex::default(),
            own: Mutex::default(),
            shared: Mutex::default(),
            watch: Watch::default(),
        }
    }

    /// A socket as the pace and the bound of ports have it (FW10).
    fn drawn(self: &Arc<Self>, now: Instant) -> io::Result<Drawn> {
        let reader = Reader::of_thread();
        let by = reader.as_deref().map(Reader::number);
        let open = self.open().found(by);
        let drawn = self.common.ports().draw(self.server, open, now);
        let new = match drawn {
            Draw::Own => self.own(reader.as_ref(), now),
            Draw::Pooled => self.pooled(reader.as_ref(), now).map(Drawn::Shared),
            Draw::Shared => return self.shared(by, now),
        };
        // A node without a free descriptor need not end forwarding: those that are open still carry queries.
        new.or_else(|error| {
            if is_ours(&error) {
                self.common.had_no_socket(&error, now);
            }
            if open.to_draw == 0 { Err(error) } else { self.shared(by, now) }
        })
    }

    /// A new socket for one query.
    fn own(self: &Arc<Self>, reader: Option<&Arc<Reader>>, now: Instant) -> io::Result<Drawn> {
        Ok(match reader {
            None => Drawn::Own(self.registered(self.opened()?, now)?),
            Some(reader) => Drawn::Shared(self.read_by(reader, self.opened()?, true, now)?),
        })
    }

    /// A new socket that stays open for later queries.
    fn pooled(
        self: &Arc<Self>,
        reader: Option<&Arc<Reader>>,
        now: Instant,
    ) -> io::Result<Arc<Port>> {
        Ok(match reader {
            None => self.add(self.registered(self.opened()?, now)?, now),
            Some(reader) => self.add_to(reader, self.opened()?, now)?,
        })
    }

    /// One of the sockets that are open.
    fn shared(self: &Arc<Self>, by: ReaderNumber, now: Instant) -> io::Result<Drawn> {
        let Some(port) = self.open().draw(by, random()) else { return Ok(Drawn::None) };
        // One system call, where a query would count against the server that never left.
        if port.is_cut_off() {
            self.close_cut_off(now);
            return self.drawn(now);
        }
        self.common.drew_shared();
        Ok(Drawn::Shared(port))
    }

    /// Sends a query from a socket of its own.
    fn ask(
        self: &Arc<Self>,
        socket: Socket,
        query: impl Fn(u16) -> Vec<u8>,
        now: Instant,
    ) -> io::Result<Exchange> {
        let id = random() as u16;
        send_now(socket.get_ref(), &query(id)).inspect_err(|_| self.closed(now))?;
        Ok(Exchange::Own { socket, id, pool: Arc::clone(self) })
    }

    /// A port of this server was closed: it rests.
    fn closed(&self, now: Instant) {
        self.common.ports().closed(self.server, now);
    }

    fn open(&self) -> std::sync::MutexGuard<'_, OpenPorts> {
        self.open.lock().expect("nothing panics while it holds this")
    }

    /// Closes sockets that no query used for a while, and those that are too old.
    pub(super) fn sweep(&self, now: Instant) {
        let mut open = self.open();
        let mut ports = self.common.ports();
        let over = open.take_over(ports.free(self.server, now), now);
        over.iter().for_each(|_| ports.closed(self.server, now));
        drop((open, ports));
        // Each costs two system calls: no query waits for them.
        over.iter().for_each(|port| port.close());
    }

    /// Closes those that are cut off. Often many are at the same time.
    fn close_cut_off(&self, now: Instant) {
        let cut_off = self.open().take_cut_off(now);
        cut_off.iter().for_each(|_| self.closed(now));
        for port in cut_off {
            port.failed();
            port.close();
        }
    }

    /// Closes every socket: the server is gone.
    pub(super) fn close_all(&self, now: Instant) {
        let open = self.open().take_all();
        open.iter().for_each(|_| self.closed(now));
        open.iter().for_each(|port| port.close());
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open().all().count()
    }
}

#[cfg(test)]
mod tests;
