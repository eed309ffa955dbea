//! Sockets: `recvmmsg` and `sendmmsg` on a blocking socket, one thread per socket.

mod address;
mod batch;
mod control;
mod memory;
mod neighbours;
mod path_mtu;
mod poller;
mod room;
mod stamps;

use std::io;
use std::mem;
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use socket2::{Domain, Protocol, Type};

use crate::{Local, Options, Sent, reachable};

pub use batch::{Batch, Received};
pub use memory::{datagrams_dropped, octets_to_send};
pub use poller::{Poller, Ready};
use room::Room;
use stamps::Stamps;

/// The port of the discard service (RFC 863), which machines of today do not run.
const DISCARD: u16 = 9;

/// A bound UDP socket. One thread receives from it; any thread may send on it.
#[derive(Debug)]
pub struct Socket {
    inner: socket2::Socket,
    local: SocketAddr,
    stamps: Stamps,
    room: Room,
}

impl Socket {
    /// Opens a socket on one address; on a wildcard one, datagrams carry the address they were sent to. An IPv6
    /// socket never takes IPv4.
    ///
    /// # Errors
    /// What the system says: the address is taken, not ours, not permitted, or of a family it does not have.
    pub fn bind(address: SocketAddr, options: &Options) -> io::Result<Self> {
        let inner = socket2::Socket::new(
            Domain::for_address(address),
            Type::DGRAM.cloexec(),
            Some(Protocol::UDP),
        )?;
        let descriptor = inner.as_raw_fd();
        if address.is_ipv6() {
            inner.set_only_v6(true)?;
        }
        if address.ip().is_unspecified() {
            match address {
                SocketAddr::V4(_) => enable(descriptor, libc::IPPROTO_IP, libc::IP_PKTINFO)?,
                SocketAddr::V6(_) => {
                    enable(descriptor, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
                }
            }
        }
        path_mtu::ignore(descriptor, address.ip());
        inner.set_reuse_port(options.reuse_port)?;
        inner.set_read_timeout(Some(options.wait))?;
        let stamps = Stamps::begin(descriptor);
        enlarge_as(&inner, options);
        inner.bind(&address.into())?;
        let local = inner.local_addr()?.as_socket().ok_or_else(no_address)?;
        Ok(Self { inner, local, stamps, room: Room::default() })
    }

    /// The address it is bound to, with the port the system chose where none was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a datagram, at most [`Options::wait`], and takes with it what else is queued, up to the size of
    /// the batch. Returns how many there are: 0 when the time is over or [`Socket::wake`] was called.
    ///
    /// # Errors
    /// Only what says that receiving cannot work at all, such as a lack of memory.
    pub fn recv(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.recv(self.inner.as_raw_fd(), self.local, &self.stamps, 0)
    }

    /// Takes what is queued, up to the size of the batch, as [`Socket::recv`] does, but waits for nothing.
    ///
    /// # Errors
    /// Those of [`Socket::recv`].
    pub fn recv_now(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.recv(self.inner.as_raw_fd(), self.local, &self.stamps, libc::MSG_DONTWAIT)
    }

    /// Sends the replies of the batch, without waiting. A reply that the system refuses is given up.
    ///
    /// While much of what was sent has not left, so is a reply to an address of an own network that no machine answers for:
    /// replies to such addresses wait in the kernel, and could take the room of those to all others.
    pub fn send(&self, batch: &mut Batch) -> Sent {
        batch.send(&self.inner, &self.room)
    }

    /// Sends one reply on its own, as [`Socket::send`] does: for answers that come after their batch. May be called from any
    /// thread.
    pub fn send_to(&self, bytes: &[u8], from: Local, peer: SocketAddr) -> Sent {
        let crowd = self.room.look(&self.inner, 1, bytes.len());
        if crowd.is_some_and(|mut crowd| !crowd.lets(peer)) {
            return Sent { withheld: 1, ..Sent::default() };
        }
        let mut name = address::Name::ZERO;
        let name_octets = name.set(peer);
        let mut control = control::Control::ZERO;
        let control_octets =
            if self.local.ip().is_unspecified() { control.set_source(from) } else { 0 };
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: msghdr is plain integers and pointers, for which zero is valid.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = name_octets;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = control_octets as _;
        // SAFETY: every pointer in `header` is to a local or to `bytes`, with its right length, and outlives the
        // call; sendmsg only reads through them.
        let sent = unsafe {
            libc::sendmsg(
                self.inner.as_raw_fd(),
                &raw const header,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        match sent {
            0.. => Sent { sent: 1, ..Sent::default() },
            _ => Sent { failed: 1, ..Sent::default() },
        }
    }

    /// Makes a [`Socket::recv`] in another thread, and all later ones with nothing queued, return at once.
    pub fn wake(&self) {
        // On an unconnected socket this reports ENOTCONN and nevertheless wakes the reader; were it not to, the
        // reader's own waiting time ends it.
        let _ = self.inner.shutdown(Shutdown::Read);
    }

    /// From here on the kernel gives datagrams for this address and port to other sockets that share them, and refuses
    /// them where there is none. What is queued can still be received and answered.
    ///
    /// # Errors
    /// What the system says; datagrams then come as before.
    pub fn turn_away(&self) -> io::Result<()> {
        // A connected socket takes datagrams of its peer only. Nothing is at the port "discard" of our own address, and
        // if something is, it has no reason to send here.
        let mut peer = reachable(self.local);
        peer.set_port(DISCARD);
        self.inner.connect(&peer.into())
    }

    /// See [`datagrams_dropped`].
    pub fn drops(&self) -> u64 {
        datagrams_dropped(self)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Gives a socket of another library the buffers of [`Options::default`], as far as the system lets us.
pub fn enlarge(socket: &UdpSocket) {
    enlarge_as(socket, &Options::default());
}

/// Buffers as large as asked for, if we are privileged, else as large as the system allows everyone. Refusal is no
/// error: a smaller queue still serves.
fn enlarge_as(socket: &impl AsRawFd, options: &Options) {
    let octets = |size: usize| libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX / 2);
    let descriptor = socket.as_raw_fd();
    let receive = octets(options.receive_buffer);
    if set(descriptor, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, receive).is_err() {
        let _ = set(descriptor, libc::SOL_SOCKET, libc::SO_RCVBUF, receive);
    }
    let _ = set(descriptor, libc::SOL_SOCKET, libc::SO_SNDBUF, octets(options.send_buffer));
}

/// From now on the kernel joins no datagrams of one sender into one, where it was asked to (`UDP_GRO`).
///
/// # Errors
/// What the system says, unless it has never joined any: before Linux 5.0.
pub fn read_one_by_one(socket: &UdpSocket) -> io::Result<()> {
    match set(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        set => set,
    }
}

fn enable(descriptor: RawFd, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    set(descriptor, level, name, 1)
}

pub(crate) fn set(
    descriptor: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer is to `value`, an int of the length given, which the call only reads.
    let status = unsafe {
        libc::setsockopt(
            descriptor,
            level,
            name,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn no_address() -> io::Error {
    io::Error::other("the socket has no IP address")
}

#[cfg(test)]
mod conformance;

#[cfg(test)]
mod tests;
