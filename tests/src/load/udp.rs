//! Datagrams from many source sockets, as many pods have them: a batch leaves one socket in one system call.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, setsockopt, sockopt,
};

use super::echo::{OCTETS, stamp, with_stamps};
use super::generator::{Arrival, BATCH, Carrier, Queries};
use super::upstream::{UPSTREAM, Upstream};

const RECEIVE_BUFFER: usize = 1 << 20;

/// Connected sockets to one server.
pub struct Udp {
    sockets: Vec<UdpSocket>,
    epoll: Epoll,
    upstream: Option<Upstream>,
    replies: Box<[[u8; OCTETS]; BATCH]>,
    outgoing: MultiHeaders<SockaddrStorage>,
    incoming: MultiHeaders<SockaddrStorage>,
    events: Vec<EpollEvent>,
}

impl std::fmt::Debug for Udp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Udp").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}

impl Udp {
    /// This many source sockets to a server on this machine.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(server: SocketAddr, sockets: usize) -> io::Result<Udp> {
        Udp::open_from(Ipv4Addr::LOCALHOST, server, sockets)
    }

    /// The same from this address of 127.0.0.0/8.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_from(own: Ipv4Addr, server: SocketAddr, sockets: usize) -> io::Result<Udp> {
        Udp::open_among(&[own], server, sockets)
    }

    /// The same from these addresses in turn, each of them one client.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// There are no addresses.
    pub fn open_among(own: &[Ipv4Addr], server: SocketAddr, sockets: usize) -> io::Result<Udp> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut opened = Vec::with_capacity(sockets);
        for number in 0..sockets {
            let socket = UdpSocket::bind((own[number % own.len()], 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            // A large buffer here, so that only the server loses datagrams.
            let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER);
            epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
            opened.push(socket);
        }
        Ok(Udp {
            sockets: opened,
            epoll,
            upstream: None,
            replies: Box::new([[0; OCTETS]; BATCH]),
            outgoing: MultiHeaders::preallocate(BATCH, None),
            incoming: with_stamps(false),
            events: vec![EpollEvent::empty(); sockets + 1],
        })
    }

    /// Also plays the upstream of the server, whenever the loop looks for replies.
    ///
    /// # Errors
    /// What the system says.
    pub fn with_upstream(mut self, upstream: Upstream) -> io::Result<Udp> {
        self.epoll.add(upstream.socket(), EpollEvent::new(EpollFlags::EPOLLIN, UPSTREAM))?;
        self.upstream = Some(upstream);
        Ok(self)
    }

    /// Asks the kernel when each reply came, for [`super::outcome::Outcome::between`]. The time that its question waited in
    /// an upstream of this loop ([`Upstream::timed`]) is not part of that.
    ///
    /// # Errors
    /// What the system says.
    pub fn stamped(mut self) -> io::Result<Udp> {
        for socket in &self.sockets {
            setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
        }
        self.incoming = with_stamps(true);
        Ok(self)
    }

    /// The number of questions that the upstream got so far.
    pub fn upstream_asked(&self) -> u64 {
        self.upstream.as_ref().map_or(0, |upstream| upstream.asked)
    }

    /// Reads a batch of one socket.
    fn read(&mut self, socket: usize, reply: &mut impl FnMut(Arrival<'_>)) -> io::Result<usize> {
        let (mut came, mut count) = ([(0, None); BATCH], 0);
        let mut parts = self.replies.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
        let fd = self.sockets[socket].as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        match recvmmsg(fd, &mut self.incoming, parts.iter_mut(), flags, None) {
            Ok(messages) => {
                for message in messages {
                    came[count] = (message.bytes, stamp(&message));
                    count += 1;
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        for (message, (length, at)) in self.replies.iter().zip(came).take(count) {
            let octets = &message[..length];
            let waited = self.upstream.as_ref().map_or(0, |upstream| upstream.waited(octets));
            reply(Arrival { socket, octets, at: at.map(|at: u64| at.saturating_sub(waited)) });
        }
        Ok(count)
    }
}

impl Carrier for Udp {
    fn sockets(&self) -> usize {
        self.sockets.len()
    }

    fn send(&mut self, socket: usize, queries: &Queries) -> io::Result<usize> {
        let count = queries.count();
        let parts: [_; BATCH] = std::array::from_fn(|at| [IoSlice::new(queries.get(at))]);
        let (fd, none) = (self.sockets[socket].as_raw_fd(), [None; BATCH]);
        let flags = MsgFlags::MSG_DONTWAIT;
        match sendmmsg(fd, &mut self.outgoing, parts[..count].iter(), &none[..count], [], flags) {
            Ok(results) => Ok(results.count()),
            // The queue is full, or an earlier datagram met a closed port.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED | Errno::ENOBUFS) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, mut reply: impl FnMut(Arrival<'_>)) -> io::Result<usize> {
        if let Some(upstream) = &mut self.upstream {
            upstream.send_due();
        }
        let ready = match self.epoll.wait(&mut self.events, EpollTimeout::ZERO) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut total = 0;
        for at in 0..ready {
            if self.events[at].data() == UPSTREAM {
                if let Some(upstream) = &mut self.upstream {
                    upstream.serve()?;
                }
                total += 1;
                continue;
            }
            let socket = self.events[at].data() as usize;
            loop {
                let count = self.read(socket, &mut reply)?;
                total += count;
                if count < BATCH {
                    break;
                }
            }
        }
        Ok(total)
    }
}
