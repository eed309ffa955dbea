//! The back end for systems without `recvmmsg`: one datagram at a time over the standard library's sockets. Slower,
//! and a reply from a wildcard socket leaves from the address the system chooses (WR8 needs Linux there).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use socket2::{Domain, Protocol, Type};

use crate::{DATAGRAM_OCTETS, Datagram, Local, Options, Sent};

/// Datagrams are read one by one on this system.
///
/// # Errors
/// None.
pub fn read_one_by_one(_: &UdpSocket) -> io::Result<()> {
    Ok(())
}

/// A bound UDP socket. One thread receives from it; any thread may send on it.
#[derive(Debug)]
pub struct Socket {
    inner: UdpSocket,
    local: SocketAddr,
}

impl Socket {
    /// Opens a socket on one address. An IPv6 socket never takes IPv4.
    ///
    /// # Errors
    /// What the system says: the address is taken, not ours, not permitted, or of a family it does not have.
    pub fn bind(address: SocketAddr, options: &Options) -> io::Result<Self> {
        let inner =
            socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            inner.set_only_v6(true)?;
        }
        inner.set_reuse_port(options.reuse_port)?;
        inner.set_read_timeout(Some(options.wait))?;
        // Refusal is no error: a smaller queue still serves.
        let _ = inner.set_recv_buffer_size(options.receive_buffer);
        let _ = inner.set_send_buffer_size(options.send_buffer);
        inner.bind(&address.into())?;
        let inner = UdpSocket::from(inner);
        let local = inner.local_addr()?;
        Ok(Self { inner, local })
    }

    /// The address it is bound to, with the port the system chose where none was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a datagram, at most [`Options::wait`]. Returns how many there are: 0 when the time is over.
    ///
    /// # Errors
    /// Only what says that receiving cannot work at all, such as a lack of memory.
    pub fn recv(&self, batch: &mut Batch) -> io::Result<usize> {
        (batch.received, batch.reply) = (None, 0);
        match self.inner.recv_from(&mut batch.input) {
            Ok((octets, peer)) => {
                batch.now =
                    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                batch.received = Some((octets, peer, Local::from(self.local.ip())));
                Ok(1)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable => Ok(0),
                _ => Err(error),
            },
        }
    }

    /// Nothing portable leads datagrams to other sockets: they come as before.
    ///
    /// # Errors
    /// None.
    pub fn turn_away(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing portable takes what is queued without waiting: this waits as [`Socket::recv`] does.
    ///
    /// # Errors
    /// Those of [`Socket::recv`].
    pub fn recv_now(&self, batch: &mut Batch) -> io::Result<usize> {
        self.recv(batch)
    }

    /// Sends the reply of the batch. One that the system refuses is given up.
    pub fn send(&self, batch: &mut Batch) -> Sent {
        let octets = std::mem::take(&mut batch.reply);
        match batch.peer {
            Some(peer) if octets > 0 => match self.inner.send_to(&batch.output[..octets], peer) {
                Ok(_) => Sent { sent: 1, failed: 0 },
                Err(_) => Sent { sent: 0, failed: 1 },
            },
            _ => Sent::default(),
        }
    }

    /// Sends one reply on its own: for answers that come after their batch. May be called from any thread. The
    /// system chooses the address it leaves from.
    ///
    /// # Errors
    /// What the system says; the reply is then lost, as datagrams may be.
    pub fn send_to(&self, bytes: &[u8], from: Local, peer: SocketAddr) -> io::Result<()> {
        let _ = from;
        self.inner.send_to(bytes, peer).map(|_| ())
    }

    /// Nothing portable wakes a reader; its waiting time ends it.
    pub fn wake(&self) {}

    /// Datagrams the kernel dropped: no portable interface reports them.
    pub fn drops(&self) -> u64 {
        0
    }
}

/// Nothing portable waits for one of many sockets: there is no such set.
#[derive(Debug)]
pub struct Poller(std::convert::Infallible);

/// What a [`Poller::wait`] found: nothing.
#[derive(Debug, Default)]
pub struct Ready;

impl Poller {
    /// There is none.
    ///
    /// # Errors
    /// Always: others must read these sockets.
    pub fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// There is no set to add to.
    ///
    /// # Errors
    /// None.
    pub fn add<S>(&self, _: &S, _: u64) -> io::Result<()> {
        match self.0 {}
    }

    /// There is no set to remove from.
    pub fn remove<S>(&self, _: &S) {
        match self.0 {}
    }

    /// There is no set to wait for.
    ///
    /// # Errors
    /// None.
    pub fn wait(&self, _: &mut Ready, _: Duration) -> io::Result<()> {
        match self.0 {}
    }
}

impl Ready {
    /// Room for nothing.
    pub fn new() -> Self {
        Self
    }

    /// It never is.
    pub fn is_full(&self) -> bool {
        false
    }

    /// No socket.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }
}

/// One received datagram and the reply to it.
pub struct Batch {
    input: Box<[u8]>,
    output: Box<[u8]>,
    received: Option<(usize, SocketAddr, Local)>,
    peer: Option<SocketAddr>,
    reply: usize,
    now: Duration,
}

impl Batch {
    pub fn new() -> Self {
        Self {
            input: vec![0; DATAGRAM_OCTETS].into(),
            output: vec![0; DATAGRAM_OCTETS].into(),
            received: None,
            peer: None,
            reply: 0,
            now: Duration::ZERO,
        }
    }

    /// Unix time when the batch was received.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The octets of the datagram that is not answered yet.
    pub fn received(&self) -> Received<'_> {
        Received(self.received.map(|(octets, _, _)| &self.input[..octets]).into_iter())
    }

    /// Shows each datagram to `answer` with a buffer of [`DATAGRAM_OCTETS`] for the reply; it returns the octets
    /// it wrote, 0 for no reply. If `answer` panics, the next call shows those behind that datagram.
    pub fn answer(&mut self, mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize) {
        self.answer_ahead(|_| (), |(), datagram, output| answer(datagram, output));
    }

    /// The same, with what `ahead` makes of the datagram before it is answered.
    pub fn answer_ahead<'b, A>(
        &'b mut self,
        ahead: impl FnOnce(Received<'b>) -> A,
        mut answer: impl FnMut(&A, Datagram<'b>, &mut [u8]) -> usize,
    ) {
        let Some((octets, peer, local)) = self.received.take() else {
            return;
        };
        let bytes: &'b [u8] = &self.input[..octets];
        let ahead = ahead(Received(Some(bytes).into_iter()));
        let datagram = Datagram { bytes, peer, local, waited: Duration::ZERO };
        self.peer = Some(peer);
        self.reply = answer(&ahead, datagram, &mut self.output).min(DATAGRAM_OCTETS);
    }
}

/// The octets of the received datagram.
#[derive(Clone, Debug)]
pub struct Received<'b>(std::option::IntoIter<&'b [u8]>);

impl<'b> Iterator for Received<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Received<'_> {}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "conformance.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "one set of tests for both back ends, so that they cannot drift"
)]
mod conformance;
