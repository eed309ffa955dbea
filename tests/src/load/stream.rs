//! Questions over TCP and TLS: connections that are kept, many questions on each, every message behind its length
//! (RFC 1035, section 4.2.2; RFC 7858).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::generator::{Arrival, Carrier, Queries};
use super::upstream::{UPSTREAM, Upstream};

/// Unsent octets with which a connection takes no more questions.
const UNSENT: usize = 64 << 10;
const CHUNK: usize = 16 << 10;

/// Kept connections to one server.
#[derive(Debug)]
pub struct Streams {
    connections: Vec<Connection>,
    epoll: Epoll,
    events: Vec<EpollEvent>,
    upstream: Option<Upstream>,
}

impl Streams {
    /// This many connections; with `tls`, inside TLS with this name of the server.
    ///
    /// # Errors
    /// It cannot be reached, or its certificate is not believed.
    pub fn open(
        server: SocketAddr,
        connections: usize,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    ) -> io::Result<Streams> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut opened = Vec::with_capacity(connections);
        for number in 0..connections {
            let tcp = TcpStream::connect(server)?;
            tcp.set_nodelay(true)?;
            epoll.add(&tcp, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
            let stream = match &tls {
                None => Stream::Tcp(tcp),
                Some((config, name)) => {
                    let client = ClientConnection::new(Arc::clone(config), name.clone());
                    let mut stream = StreamOwned::new(client.map_err(io::Error::other)?, tcp);
                    while stream.conn.is_handshaking() {
                        stream.conn.complete_io(&mut stream.sock)?;
                    }
                    Stream::Tls(Box::new(stream))
                }
            };
            stream.tcp().set_nonblocking(true)?;
            opened.push(Connection { stream, unsent: Vec::new(), received: Vec::new() });
        }
        let events = vec![EpollEvent::empty(); connections + 1];
        Ok(Streams { connections: opened, epoll, events, upstream: None })
    }

    /// Also plays the upstream of the server, whenever the loop looks for replies.
    ///
    /// # Errors
    /// What the system says.
    pub fn with_upstream(mut self, upstream: Upstream) -> io::Result<Streams> {
        self.epoll.add(upstream.socket(), EpollEvent::new(EpollFlags::EPOLLIN, UPSTREAM))?;
        self.upstream = Some(upstream);
        Ok(self)
    }
}

impl Carrier for Streams {
    fn sockets(&self) -> usize {
        self.connections.len()
    }

    fn send(&mut self, socket: usize, queries: &Queries) -> io::Result<usize> {
        let connection = &mut self.connections[socket];
        connection.flush()?;
        if connection.unsent.len() > UNSENT {
            return Ok(0);
        }
        for at in 0..queries.count() {
            let query = queries.get(at);
            connection.unsent.extend((query.len() as u16).to_be_bytes());
            connection.unsent.extend(query);
        }
        connection.flush()?;
        Ok(queries.count())
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
        for event in &self.events[..ready] {
            if event.data() == UPSTREAM {
                if let Some(upstream) = &mut self.upstream {
                    upstream.serve()?;
                }
                total += 1;
                continue;
            }
            let socket = event.data() as usize;
            let connection = &mut self.connections[socket];
            connection.flush()?;
            connection.read()?;
            total += frames(&mut connection.received, |octets| {
                reply(Arrival { socket, octets, at: None })
            });
        }
        Ok(total)
    }
}

/// Takes every whole message out of what was received; returns how many.
fn frames(received: &mut Vec<u8>, mut message: impl FnMut(&[u8])) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some(length) = received[at..].first_chunk().map(|length| u16::from_be_bytes(*length))
    {
        let Some(frame) = received.get(at + 2..at + 2 + usize::from(length)) else { break };
        message(frame);
        at += 2 + frame.len();
        count += 1;
    }
    received.drain(..at);
    count
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    /// Sends what the system takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(octets) => drop(self.unsent.drain(..octets)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads what has come.
    fn read(&mut self) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(octets) => self.received.extend(&chunk[..octets]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Tcp(tcp) => tcp,
            Stream::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.write(buffer),
            Stream::Tls(tls) => tls.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => tcp.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_out_when_they_are_whole() {
        let mut received = Vec::new();
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for octet in [0, 1, 7, 0, 0, 0, 3, 1, 2, 3, 0] {
            received.push(octet);
            frames(&mut received, |message| seen.push(message.to_vec()));
        }
        assert_eq!(seen, [vec![7], vec![], vec![1, 2, 3]]);
        assert_eq!(received, [0], "half a length waits");
    }
}
