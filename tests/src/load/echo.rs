//! What the kernel costs for a datagram and its reply: servers that only flip the bit that makes a query a response. No
//! server over a UDP socket can be cheaper than the one without ancillary data; ours pays for the other where it answers
//! on every address (WR8).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use dataplane_udp::{Batch, Options, Socket};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg, sendmmsg,
};
use nix::sys::time::TimeSpec;

use super::generator::BATCH;

/// Octets of a datagram that are read.
pub const OCTETS: usize = 2_048;

/// Buffers for a batch that is answered in place.
#[derive(Debug)]
pub(super) struct Datagrams {
    buffers: Box<[[u8; OCTETS]; BATCH]>,
    received: Headers,
    sent: Headers,
    peers: Vec<Option<SockaddrStorage>>,
    lengths: [usize; BATCH],
    stamps: [Option<u64>; BATCH],
}

struct Headers(MultiHeaders<SockaddrStorage>);

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Headers")
    }
}

impl Datagrams {
    pub(super) fn new() -> Datagrams {
        Datagrams {
            buffers: Box::new([[0; OCTETS]; BATCH]),
            received: Headers(with_stamps(false)),
            sent: Headers(MultiHeaders::preallocate(BATCH, None)),
            peers: vec![None; BATCH],
            lengths: [0; BATCH],
            stamps: [None; BATCH],
        }
    }

    /// The same for a socket whose datagrams have time stamps.
    pub(super) fn stamped() -> Datagrams {
        Datagrams { received: Headers(with_stamps(true)), ..Datagrams::new() }
    }

    /// Receives up to a batch, and sends what `reply` makes of each: in place, from its length to that of the reply, 0 for
    /// none. It also gets the time stamp ([`stamp`]). Returns how many were received; without `wait` that can be none.
    pub(super) fn exchange(
        &mut self,
        socket: RawFd,
        wait: bool,
        mut reply: impl FnMut(&mut [u8], usize, Option<u64>) -> usize,
    ) -> io::Result<usize> {
        let flags = if wait { MsgFlags::MSG_WAITFORONE } else { MsgFlags::MSG_DONTWAIT };
        let mut count = 0;
        let mut parts = self.buffers.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
        match recvmmsg(socket, &mut self.received.0, parts.iter_mut(), flags, None) {
            Ok(messages) => {
                for message in messages {
                    (self.lengths[count], self.peers[count]) = (message.bytes, message.address);
                    self.stamps[count] = stamp(&message);
                    count += 1;
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let lengths = self.lengths.iter_mut().zip(&self.stamps);
        for (buffer, (length, stamp)) in self.buffers.iter_mut().zip(lengths).take(count) {
            *length = reply(buffer, *length, *stamp);
        }
        // An empty datagram in place of no reply: only what is no query gets one.
        let parts: [_; BATCH] =
            std::array::from_fn(|at| [IoSlice::new(&self.buffers[at][..self.lengths[at]])]);
        let flags = MsgFlags::MSG_DONTWAIT;
        let peers = &self.peers[..count];
        // What the kernel does not take is lost, and counted by the client that asked.
        let _ = sendmmsg(socket, &mut self.sent.0, parts[..count].iter(), peers, [], flags);
        Ok(count)
    }
}

/// Headers of a batch that is received.
pub(super) fn with_stamps(stamped: bool) -> MultiHeaders<SockaddrStorage> {
    MultiHeaders::preallocate(BATCH, stamped.then(|| nix::cmsg_space!(TimeSpec)))
}

/// When the kernel put a message into its socket, in nanoseconds since 1970.
pub(super) fn stamp(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<u64> {
    message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(at) => {
            Some(at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64)
        }
        _ => None,
    })
}

/// Turns a query into a reply: sets QR. Returns its length.
fn flipped(message: &mut [u8], length: usize) -> usize {
    if length > 2 {
        message[2] |= 0x80;
    }
    length
}

/// Echoes without ancillary data, forever, in this many threads with a socket each.
///
/// # Errors
/// What the system says.
pub fn plain(address: SocketAddr, workers: usize) -> io::Result<()> {
    let others: Vec<_> =
        (1..workers).map(|_| std::thread::spawn(move || worker(address))).collect();
    worker(address)?;
    drop(others);
    Ok(())
}

fn worker(address: SocketAddr) -> io::Result<()> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::DGRAM,
        Some(socket2::Protocol::UDP),
    )?;
    socket.set_reuse_port(true)?;
    let _ = socket.set_recv_buffer_size(4 << 20);
    socket.bind(&address.into())?;
    let mut datagrams = Datagrams::new();
    loop {
        datagrams
            .exchange(socket.as_raw_fd(), true, |message, length, _| flipped(message, length))?;
    }
}

/// Echoes with our own socket on the wildcard address: IP_PKTINFO both ways and the time of receipt.
///
/// # Errors
/// What the system says.
pub fn with_pktinfo(port: u16) -> io::Result<()> {
    let options = Options { wait: Duration::from_secs(1), ..Options::default() };
    let socket = Socket::bind(SocketAddr::from(([0, 0, 0, 0], port)), &options)?;
    let mut batch = Batch::new();
    loop {
        socket.recv(&mut batch)?;
        batch.answer(|datagram, buffer| {
            let length = datagram.bytes.len();
            buffer[..length].copy_from_slice(datagram.bytes);
            flipped(buffer, length)
        });
        socket.send(&mut batch);
    }
}
