//! A TLS session that any thread may send on, without waiting for another one. Many threads have queries for one connection.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::rustls::ClientConnection;

/// Octets that are encrypted and that the system has not taken. As many queries as a connection has ids for need less; rustls
/// ends a write beyond 64 KiB by itself.
const MAX_UNSENT: usize = 512 << 10;

/// The session of one connection, which any thread may use.
#[derive(Debug)]
pub(super) struct TlsSession {
    /// Queries that are not encrypted yet, each behind its length. At most as many as the connection has ids for.
    unsent: Mutex<Vec<u8>>,
    /// `None` once the connection has ended: its socket is closed then.
    session: Mutex<Option<Opened>>,
    /// The system takes no more octets for now.
    blocked: Notify,
}

#[derive(Debug)]
struct Opened {
    tls: ClientConnection,
    tcp: Arc<TcpStream>,
    /// Taken from `unsent`; empty between two uses.
    taken: Vec<u8>,
}

impl TlsSession {
    /// After the handshake.
    pub(super) fn new(mut tls: ClientConnection, tcp: Arc<TcpStream>) -> TlsSession {
        tls.set_buffer_limit(Some(MAX_UNSENT));
        let session = Opened { tls, tcp, taken: Vec::new() };
        TlsSession {
            unsent: Mutex::default(),
            session: Mutex::new(Some(session)),
            blocked: Notify::new(),
        }
    }

    fn unsent(&self) -> MutexGuard<'_, Vec<u8>> {
        self.unsent.lock().expect("nothing panics while it holds this")
    }

    /// Uses the session for anything, and sends what came meanwhile: a thread that does not get the session leaves its
    /// messages to the one that has it.
    fn using<T>(&self, using: impl FnOnce(&mut Option<Opened>) -> T) -> T {
        let result = using(&mut self.session.lock().expect("nothing panics while it holds this"));
        self.send();
        result
    }

    pub(super) fn is_gone(&self) -> bool {
        self.using(|session| session.is_none())
    }

    /// Closes the socket, unless the task holds it.
    pub(super) fn end(&self) {
        self.using(|session| *session = None);
    }

    /// Whether the system did not take all.
    #[cfg(test)]
    pub(super) fn is_blocked(&self) -> bool {
        self.using(|session| session.as_ref().is_some_and(|open| open.tls.wants_write()))
    }

    /// Calls this while the session is in use.
    #[cfg(test)]
    pub(super) fn while_used(&self, call: impl FnOnce()) {
        self.using(|_| call());
    }

    /// Adds a message that the next [send](Self::send) sends.
    pub(super) fn put(&self, message: &[u8]) {
        let mut unsent = self.unsent();
        unsent.extend((message.len() as u16).to_be_bytes());
        unsent.extend(message);
    }

    /// Sends what was put in, as one record. It never waits: where another thread [uses](Self::using) the session, that
    /// thread sends it, and where the system takes no more octets, the task does, later. Where the connection has ended, the task ends.
    pub(super) fn send(&self) {
        // Looked at again after the session is free: a thread that did not get it has left its messages here.
        while !self.unsent().is_empty() {
            let Ok(mut session) = self.session.try_lock() else { return };
            let Some(open) = &mut *session else { return };
            if self.encrypt(open).is_err() {
                *session = None;
                self.blocked.notify_one();
            }
        }
    }

    fn encrypt(&self, session: &mut Opened) -> io::Result<()> {
        std::mem::swap(&mut session.taken, &mut *self.unsent());
        session.tls.writer().write_all(&session.taken)?;
        session.taken.clear();
        self.write(session)
    }

    /// Gives encrypted octets to the system.
    fn write(&self, session: &mut Opened) -> io::Result<()> {
        while session.tls.wants_write() {
            match session.tls.write_tls(&mut Socket(&session.tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked.notify_one();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the rest whenever the system takes octets again; returns when the connection has ended.
    pub(super) async fn unblock(&self, tcp: &TcpStream) -> io::Result<()> {
        loop {
            self.blocked.notified().await;
            if self.is_gone() {
                return Err(ended());
            }
            tcp.writable().await?;
            self.using(|session| self.write(session.as_mut().ok_or_else(ended)?))?;
        }
    }

    /// Adds what these octets decrypt to; whether more may come.
    pub(super) fn decrypt(&self, mut octets: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        self.using(|session| {
            let mut is_open = true;
            let session = session.as_mut().ok_or_else(ended)?;
            while !octets.is_empty() && is_open {
                session.tls.read_tls(&mut octets)?;
                let state = match session.tls.process_new_packets() {
                    Ok(state) => state,
                    Err(error) => {
                        // The alert that names the reason, if there is room.
                        let _ = self.write(session);
                        return Err(io::Error::other(error));
                    }
                };
                let start = plain.len();
                plain.resize(start + state.plaintext_bytes_to_read(), 0);
                session.tls.reader().read_exact(&mut plain[start..])?;
                is_open = !state.peer_has_closed();
            }
            // What TLS itself has to say, such as another key.
            self.write(session)?;
            Ok(is_open)
        })
    }
}

fn ended() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// A socket that never waits.
struct Socket<'t>(&'t TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.try_write(octets)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
