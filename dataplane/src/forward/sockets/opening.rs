//! Opens sockets towards one server, each on a random port (FW10), and sees to it that each is read.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::time::Instant;

use dataplane_udp::wildcard;
use socket2::{Domain, Protocol, Type};

use super::port::{self, Port, ReadBy, Socket};
use super::reader::Reader;
use super::{Pool, unreachable};
use crate::forward::{now, random};

/// Random ports tried before the system chooses one.
const PORT_ATTEMPTS: usize = 16;
/// The ports that are ours to draw from: all that need no privilege.
const FIRST_PORT: u16 = 1024;

impl Pool {
    /// A socket for the port that was drawn.
    pub(super) fn opened(&self) -> io::Result<UdpSocket> {
        let is_kept = |port| self.common.keeps(port);
        let socket = bind(self.address, is_kept).and_then(|socket| {
            socket.connect(self.address).map_err(unreachable)?;
            Ok(socket)
        });
        socket.inspect_err(|_| self.common.ports().failed(self.server))
    }

    pub(super) fn registered(&self, socket: UdpSocket, now: Instant) -> io::Result<Socket> {
        port::registered(socket).inspect_err(|_| self.closed(now))
    }

    /// Lets later queries draw this socket, which a task reads.
    pub(super) fn add(&self, socket: Socket, now: Instant) -> Arc<Port> {
        let port = Arc::new(Port::new(ReadBy::Task(socket), &self.common, false, Weak::new(), now));
        let task = tokio::spawn(port::read(Arc::clone(&port)));
        port.at_end(move || task.abort());
        self.open().add(None, Arc::clone(&port));
        port
    }

    /// The same for one that this thread reads.
    pub(super) fn add_to(
        &self,
        reader: &Arc<Reader>,
        socket: UdpSocket,
        now: Instant,
    ) -> io::Result<Arc<Port>> {
        let port = self.read_by(reader, socket, false, now)?;
        self.open().add(Some(reader.number()), Arc::clone(&port));
        Ok(port)
    }

    /// A port that this thread reads; `is_own` if it is for one query.
    pub(super) fn read_by(
        &self,
        reader: &Arc<Reader>,
        socket: UdpSocket,
        is_own: bool,
        at: Instant,
    ) -> io::Result<Arc<Port>> {
        let (socket, awaited) = (ReadBy::Thread(socket), reader.awaited());
        let port = Arc::new(Port::new(socket, &self.common, is_own, awaited, at));
        let key = reader.key();
        reader.add(key, &port).inspect_err(|_| self.closed(at))?;
        let (of, common, server) = (Arc::clone(reader), Arc::clone(&self.common), self.server);
        port.at_end(move || {
            of.forget(key, is_own);
            if is_own {
                common.ports().closed(server, now());
            }
        });
        Ok(port)
    }
}

#[cfg(test)]
thread_local! {
    /// What the system says to this thread in place of a socket.
    pub(super) static REFUSAL: std::cell::Cell<Option<i32>> = const { std::cell::Cell::new(None) };
}

fn bind(server: SocketAddr, is_kept: impl Fn(u16) -> bool) -> io::Result<UdpSocket> {
    #[cfg(test)]
    if let Some(code) = REFUSAL.get() {
        return Err(io::Error::from_raw_os_error(code));
    }
    let any = wildcard(server.ip());
    // It never waits: that is said with the call that makes it, as another call would cost time for each query.
    let kind = Type::DGRAM.nonblocking();
    let socket = socket2::Socket::new(Domain::for_address(server), kind, Some(Protocol::UDP))?;
    draw_port(is_kept, |port| socket.bind(&SocketAddr::new(any, port).into()))?;
    Ok(socket.into())
}

/// Binds a random port, or the one that the system chooses (0) where those drawn are taken. None that is kept for a listener.
fn draw_port<T>(
    is_kept: impl Fn(u16) -> bool,
    bind: impl Fn(u16) -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..PORT_ATTEMPTS {
        let range = u64::from(u16::MAX - FIRST_PORT) + 1;
        // 64 random bits over 64,512 ports: the bias is far below anything measurable.
        let port = FIRST_PORT + (random() % range) as u16;
        if is_kept(port) {
            continue;
        }
        match bind(port) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            // A node may keep ports for others: it says nothing about the server.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => return other,
        }
    }
    bind(0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn fw10_a_port_that_is_taken_or_kept_for_others_is_drawn_again() {
        for refusal in [ErrorKind::AddrInUse, ErrorKind::PermissionDenied] {
            let drawn = RefCell::new(Vec::new());
            let third = |port| {
                drawn.borrow_mut().push(port);
                if drawn.borrow().len() < 3 { Err(refusal.into()) } else { Ok(port) }
            };
            let port = draw_port(|_| false, third).expect("the third is free");
            assert!(drawn.borrow().iter().all(|drawn| *drawn >= FIRST_PORT), "{drawn:?}");
            assert_eq!(drawn.borrow()[2..], [port], "{refusal}");
        }
        let only_of_the_system =
            |port| if port == 0 { Ok(port) } else { Err(ErrorKind::PermissionDenied.into()) };
        assert_eq!(draw_port(|_| false, only_of_the_system).expect("one"), 0);
        let times = RefCell::new(0);
        let lacks = |_| -> io::Result<u16> {
            *times.borrow_mut() += 1;
            Err(ErrorKind::OutOfMemory.into())
        };
        assert_eq!(draw_port(|_| false, lacks).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(*times.borrow(), 1, "what we lack, another port lacks too");
    }

    #[test]
    fn fw10_no_query_leaves_from_the_port_of_a_listener() {
        let asked = RefCell::new(Vec::new());
        let is_kept = |port| {
            asked.borrow_mut().push(port);
            asked.borrow().len() < 3
        };
        let port = draw_port(is_kept, Ok).expect("the third is not kept");
        assert_eq!((asked.borrow().len(), asked.borrow()[2]), (3, port));
    }
}
