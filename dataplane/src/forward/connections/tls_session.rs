//! A TLS session that any thread may send on, without waiting for another one. Many threads have queries for one connection.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

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

type Guard<'s> = MutexGuard<'s, Option<Opened>>;

#[derive(Debug)]
struct Opened {
    tls: ClientConnection,
    tcp: Arc<TcpStream>,
    /// Taken from `unsent`; empty between two uses.
    taken: Vec<u8>,
    /// A write has failed: no other one is tried, and what has come can still be read.
    is_cut: bool,
}

impl TlsSession {
    /// After the handshake.
    pub(super) fn new(mut tls: ClientConnection, tcp: Arc<TcpStream>) -> TlsSession {
        tls.set_buffer_limit(Some(MAX_UNSENT));
        let session = Opened { tls, tcp, taken: Vec::new(), is_cut: false };
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
        let result = using(&mut self.session.lock().unwrap_or_else(|poisoned| self.over(poisoned)));
        self.send();
        result
    }

    /// TLS panicked while it had the session, so the session cannot be used any more: the connection has ended.
    fn over<'s>(&'s self, poisoned: PoisonError<Guard<'s>>) -> Guard<'s> {
        let mut session = poisoned.into_inner();
        *session = None;
        self.session.clear_poison();
        // Its task ends.
        self.blocked.notify_one();
        session
    }

    pub(super) fn is_gone(&self) -> bool {
        self.using(|session| session.is_none())
    }

    /// Whether nothing can be sent any more.
    fn is_cut(&self) -> bool {
        self.using(|session| session.as_ref().is_none_or(|open| open.is_cut))
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
    /// thread sends it, and where the system takes no more octets, the task does, later. Where a write fails, the task ends.
    pub(super) fn send(&self) {
        // Looked at again after the session is free: a thread that did not get it has left its messages here.
        while !self.unsent().is_empty() {
            let mut session = match self.session.try_lock() {
                Ok(session) => session,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(poisoned)) => self.over(poisoned),
            };
            let Some(open) = &mut *session else { return };
            self.encrypt(open);
        }
    }

    fn encrypt(&self, session: &mut Opened) {
        std::mem::swap(&mut session.taken, &mut *self.unsent());
        let is_taken = session.tls.writer().write_all(&session.taken).is_ok();
        session.taken.clear();
        session.is_cut |= !is_taken;
        self.write(session);
    }

    /// Gives encrypted octets to the system. The task hears of those that it does not take, and of an error.
    fn write(&self, session: &mut Opened) {
        while session.tls.wants_write() && !session.is_cut {
            match session.tls.write_tls(&mut Socket(&session.tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => session.is_cut = true,
            }
        }
        if session.tls.wants_write() || session.is_cut {
            self.blocked.notify_one();
        }
    }

    /// Sends the rest whenever the system takes octets again; returns when nothing can be sent any more.
    pub(super) async fn unblock(&self, tcp: &TcpStream) {
        loop {
            self.blocked.notified().await;
            if self.is_cut() || tcp.writable().await.is_err() {
                return;
            }
            self.using(|session| session.iter_mut().for_each(|open| self.write(open)));
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
                        self.write(session);
                        return Err(io::Error::other(error));
                    }
                };
                let start = plain.len();
                plain.resize(start + state.plaintext_bytes_to_read(), 0);
                session.tls.reader().read_exact(&mut plain[start..])?;
                is_open = !state.peer_has_closed();
            }
            // What TLS itself has to say, such as another key.
            self.write(session);
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
