//! A UDP socket that several queries share, matched by id, and what is called or woken when something comes for one.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use dataplane_core::Discard;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::asked::{Arrival, Asked, Asker, By};
use super::{MAX_AGE, MAX_DATAGRAM, MAX_WAITING};
use crate::forward::common::Common;
use crate::forward::now;
use crate::forward::plan::USUAL;
use crate::forward::ports::REST;

/// A connected socket, registered for reading only. If it were registered for writing too, each sent query would wake
/// a thread, because there is room to send again.
pub(in crate::forward) type Socket = AsyncFd<UdpSocket>;

/// Registers a socket that does not block.
#[expect(
    deprecated,
    reason = "its successor is unsafe, as the descriptor must stay open and the same: a socket of the standard library keeps that"
)]
pub(super) fn registered(socket: UdpSocket) -> io::Result<Socket> {
    AsyncFd::with_interest(socket, Interest::READABLE | Interest::ERROR)
}

/// A connected socket, by who reads it.
#[derive(Debug)]
pub(super) enum ReadBy {
    /// A task of the runtime.
    Task(Socket),
    /// The thread that opened it.
    Thread(UdpSocket),
}

/// A socket that several queries share, or one query has for itself.
pub(super) struct Port {
    socket: ReadBy,
    common: Arc<Common>,
    pub(super) asked: Mutex<Asked<OnArrival>>,
    pub(super) opened: Instant,
    /// It is closed after one query.
    is_own: bool,
    /// It is among those of its pool on which a query may wait too long. It leaves them while `asked` is locked, so a query that
    /// waits then sees that.
    is_looked_after: AtomicBool,
    /// Called once, when it is not read any more.
    end: Mutex<Option<End>>,
    /// How often it was looked at.
    #[cfg(test)]
    pub(super) looks: std::sync::atomic::AtomicUsize,
}

/// Ends the reading of a port.
type End = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Called once; it must neither wait nor panic.
pub(super) type OnArrival = Box<dyn FnOnce(Arrived<'_>) + Send>;

/// What arrives first for a query without a task.
#[derive(Debug)]
pub(in crate::forward) enum Arrived<'a> {
    /// A datagram with its id, and where to wait for another.
    Datagram(&'a [u8], Place<'a>),
    /// As [`Arrival::Stray`].
    Stray(Listening),
    /// As [`Arrival::Failed`].
    Failed,
    /// It was not sent: we lack a socket, a port or memory.
    Unsent,
    /// Nothing, for the time between two sends.
    Overdue(Listening),
}

/// The place of a query for which something arrived. Its id is free only when this is dropped: if the datagram is not
/// the reply, this query waits on with its id.
#[derive(Debug)]
pub(in crate::forward) struct Place<'a> {
    port: &'a Arc<Port>,
    id: u16,
    is_kept: bool,
}

impl Place<'_> {
    /// Waits for what comes next.
    pub(super) fn taken(mut self) -> Listening {
        self.is_kept = true;
        self.port.listening(&mut self.port.asked(), self.id, true)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.port.asked().end(self.id, now);
        }
    }
}

/// A query for which a task waits.
#[derive(Debug)]
pub(in crate::forward) struct Listening {
    port: Arc<Port>,
    id: u16,
    arrivals: mpsc::Receiver<Arrival>,
}

impl Listening {
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    pub(super) async fn next(&mut self) -> Arrival {
        self.arrivals.recv().await.unwrap_or(Arrival::Failed)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.port.asked().end(self.id, now);
        self.port.close_if_over();
    }
}

impl Port {
    /// On this socket; nothing reads it yet. `awaited` is that of the [Reader](super::reader::Reader), if a thread reads it.
    pub(super) fn new(
        socket: ReadBy,
        common: &Arc<Common>,
        is_own: bool,
        awaited: Weak<()>,
        now: Instant,
    ) -> Port {
        Port {
            socket,
            common: Arc::clone(common),
            asked: Mutex::new(Asked::new(now, is_own, awaited)),
            opened: now,
            is_own,
            is_looked_after: AtomicBool::new(false),
            end: Mutex::default(),
            #[cfg(test)]
            looks: Default::default(),
        }
    }

    /// Calls this when it is not read any more.
    pub(super) fn at_end(&self, end: impl FnOnce() + Send + 'static) {
        *self.end() = Some(Box::new(end));
    }

    fn end(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is closed after one query.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        match &self.socket {
            ReadBy::Task(socket) => socket.get_ref(),
            ReadBy::Thread(socket) => socket,
        }
    }

    fn asked(&self) -> MutexGuard<'_, Asked<OnArrival>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one query, if there is one; a task waits for its reply.
    pub(super) fn listen(self: &Arc<Self>, now: Instant) -> Option<Listening> {
        let mut asked = self.asked();
        let id = asked.draw(now)?;
        Some(self.listening(&mut asked, id, false))
    }

    /// A task waits for this id from now on.
    fn listening(
        self: &Arc<Self>,
        asked: &mut Asked<OnArrival>,
        id: u16,
        is_answered: bool,
    ) -> Listening {
        let (task, arrivals) = mpsc::channel(MAX_WAITING);
        let awaits = asked.awaits();
        asked.waiting.insert(id, Asker { by: By::Task(task), is_answered, _awaits: awaits });
        Listening { port: Arc::clone(self), id, arrivals }
    }

    /// Draws an id, if one is free. The function that `make` returns is called with what arrives first for it.
    pub(super) fn call(
        &self,
        now: Instant,
        make: impl FnOnce(u16) -> Option<OnArrival>,
    ) -> Option<u16> {
        let mut asked = self.asked();
        let id = asked.draw(now)?;
        let by = By::Call(make(id)?, now + USUAL.interval);
        let awaits = asked.awaits();
        asked.waiting.insert(id, Asker { by, is_answered: false, _awaits: awaits });
        Some(id)
    }

    /// Takes back the function for this id, if it was not called yet.
    pub(super) fn take_back(&self, id: u16) -> Option<OnArrival> {
        self.asked().take_call(id)
    }

    /// Takes those that are called for these ids; a task waits instead of each from now on.
    fn take_calls(
        self: &Arc<Self>,
        asked: &mut Asked<OnArrival>,
        ids: &[u16],
    ) -> Vec<(OnArrival, Listening)> {
        // Their replies are awaited all the time: the thread that reads them must not see a moment in which they are not.
        let _awaits = asked.awaits();
        let take = |id: &u16| {
            let call = asked.take_call(*id)?;
            Some((call, self.listening(asked, *id, false)))
        };
        ids.iter().filter_map(take).collect()
    }

    /// Whether it must be looked after from now on: a query waits on it, and it was not.
    pub(super) fn begins_to_wait(&self) -> bool {
        !self.is_looked_after.load(Ordering::Relaxed)
            && !self.is_looked_after.swap(true, Ordering::Relaxed)
    }

    /// Takes the functions that wait too long; and when the next one will. Where none will, it is looked after no more.
    pub(super) fn take_overdue(
        self: &Arc<Self>,
        now: Instant,
    ) -> (Vec<(OnArrival, Listening)>, Option<Instant>) {
        #[cfg(test)]
        self.looks.fetch_add(1, Ordering::Relaxed);
        let mut asked = self.asked();
        let (mut late, mut next) = (Vec::new(), None::<Instant>);
        for (id, at) in asked.calls() {
            match at <= now {
                true => late.push(id),
                false => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        if next.is_none() {
            self.is_looked_after.store(false, Ordering::Relaxed);
        }
        (self.take_calls(&mut asked, &late), next)
    }

    /// It has lost its peer, and no query can be sent from it any more: Cilium cuts sockets off in this way whose packets it led
    /// to a pod that is gone.
    pub(super) fn is_cut_off(&self) -> bool {
        self.socket().peer_addr().is_err()
    }

    /// No query waits on it, and none used it for a while or it is too old.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let asked = self.asked();
        let is_idle = now.saturating_duration_since(asked.latest) >= REST;
        let is_old = now.saturating_duration_since(self.opened) >= MAX_AGE;
        asked.waiting.is_empty() && (is_idle || is_old)
    }

    /// It is not read any more; the socket closes with the last that holds it.
    pub(super) fn close(&self) {
        let end = self.end().take();
        if let Some(end) = end {
            end();
        }
    }

    /// Closes a port that one query had for itself, when that is over.
    pub(super) fn close_if_over(&self) {
        if self.is_own && self.asked().waiting.is_empty() {
            self.close();
        }
    }

    /// Reads one datagram, if there is one; whether there was, and other queries wait on this socket.
    pub(super) fn read_now(self: &Arc<Self>, buffer: &mut [u8]) -> bool {
        match self.socket().recv(buffer) {
            Ok(length) => self.arrived(&buffer[..length]),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return false,
                _ => self.failed(),
            },
        }
        self.close_if_over();
        !self.is_own && !self.asked().waiting.is_empty()
    }

    /// Gives one datagram to the query with its id.
    fn arrived(self: &Arc<Self>, datagram: &[u8]) {
        let id = datagram.first_chunk().map(|id| u16::from_be_bytes(*id));
        let mut asked = self.asked();
        if asked.is_stray(id, now()) {
            self.common.discard(Discard::Id);
            asked.to_tasks(|| Arrival::Stray);
            let ids: Vec<u16> = asked.calls().map(|(id, _)| id).collect();
            let calls = self.take_calls(&mut asked, &ids);
            drop(asked);
            for (call, listening) in calls {
                call(Arrived::Stray(listening));
            }
            return;
        }
        let Some(id) = id else { return };
        if let Some(call) = asked.begin_to_judge(id) {
            drop(asked);
            call(Arrived::Datagram(datagram, Place { port: self, id, is_kept: false }));
        } else if let Some(Asker { by: By::Task(task), is_answered, .. }) =
            asked.waiting.get_mut(&id)
        {
            *is_answered = true;
            // A query that does not keep up misses it.
            let _ = task.try_send(Arrival::Datagram(datagram.to_vec()));
        }
    }

    /// An ICMP error may be about any of the queries; where the socket is cut off, none gets its reply.
    pub(super) fn failed(&self) {
        let mut asked = self.asked();
        asked.to_tasks(|| Arrival::Failed);
        let ids: Vec<u16> = asked.calls().map(|(id, _)| id).collect();
        let calls: Vec<OnArrival> = ids.iter().filter_map(|id| asked.take_call(*id)).collect();
        ids.into_iter().for_each(|id| asked.note_ended(id, now()));
        drop(asked);
        for call in calls {
            call(Arrived::Failed);
        }
    }
}

/// Gives each datagram to the query with its id, where a task reads. A datagram that meets a defect of ours is lost.
pub(super) async fn read(port: Arc<Port>) {
    while port.common.guarded(read_on(&port)).await.is_none() {}
}

async fn read_on(port: &Arc<Port>) {
    let ReadBy::Task(socket) = &port.socket else { return };
    loop {
        if receive(socket, |datagram| port.arrived(datagram)).await.is_err() {
            port.failed();
        }
    }
}

/// Waits for a datagram and gives it to `take`. Only a read that finds nothing says that the socket is empty: on Linux 6.10 to
/// 6.12.4 and on gVisor, what comes behind a datagram that was left in the socket wakes no one.
pub(super) async fn receive<T>(socket: &Socket, mut take: impl FnMut(&[u8]) -> T) -> io::Result<T> {
    loop {
        wait(socket).await?;
        // The buffer lives only while there is something to read, not while we wait.
        let mut buffer = [0; MAX_DATAGRAM];
        match socket.try_io(Interest::READABLE, |socket| socket.recv(&mut buffer)) {
            Ok(length) => return Ok(take(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for a datagram, or for an ICMP error about the one that was sent (FW21); the error alone does not make a
/// socket readable.
async fn wait(socket: &Socket) -> io::Result<()> {
    loop {
        let ready = socket.ready(Interest::READABLE | Interest::ERROR).await?.ready();
        if ready.is_error() {
            // If there was no error, the readiness is cleared, so that this does not spin.
            let none = || Err(io::ErrorKind::WouldBlock.into());
            let error = |socket: &UdpSocket| socket.take_error()?.map_or_else(none, Err::<(), _>);
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
