//! One connection, as the queries on it see it: the queries that wait on it, and how long it may be used.

mod ends;
mod stalled;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::copies::Copies;
use super::counts::Counts;
use super::failure::Failure;
use super::outlet::{Outlet, Query};
use super::partial::Held;
use super::patience::Patience;
use super::pause::Pause;
use super::sessions::CHECKED_WITHIN;
use crate::forward::plan::USUAL;
use crate::forward::{now, random};
use waiting::{ConnectionState, Taken, Waiting, Way};

/// Queries in progress on each (FW54); fewer where the server allows fewer.
pub(super) const MAX_QUERIES: usize = 32;
/// The same over HTTPS, where every connection has that many: its server says how many it allows, often a hundred and more.
pub(super) const MAX_STREAMS: usize = 96;
/// Queries without a reply on each over TCP and TLS, where every connection has that many: their ids are not used again.
pub(super) const MAX_WAITING: usize = 1024;
/// Idle time until a connection is closed (FW54). With queries waiting it is not idle, but dead when
/// nothing came for this time.
pub(super) const IDLE: Duration = Duration::from_secs(10);
/// Time until a connection gets no more queries: its server may have another certificate since, or another one may answer at
/// its address.
pub(super) const MAX_AGE: Duration = CHECKED_WITHIN;
/// Time without an octet, while queries wait, until a connection gets no other queries: it may be dead.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// Where a server may answer one query on each connection: time from the first reply until another query takes the connection.
/// Such a server has closed it within this time.
pub(super) const LINGER: Duration = Duration::from_millis(100);

/// One connection, as queries use it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Later ones have greater numbers; the first is 1.
    pub(super) number: u64,
    outlet: Outlet,
    waiting: Mutex<Waiting>,
    pub(super) shared: Arc<Shared>,
    /// Ends the tasks that carry messages, and so the socket.
    pub(super) end: CancellationToken,
}

/// What the connections to one server share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) counts: Counts,
    pub(super) pause: Pause,
    /// A place on an open connection may be free.
    pub(super) freed: Notify,
    /// Octets of replies that have not come whole yet.
    pub(super) held: Held,
    /// A connection ended behind its first reply while queries waited on it, or its server took one of several, and none has
    /// given a second reply since: the server may answer one query on each.
    pub(super) gives_one: AtomicBool,
    pub(super) patience: Patience,
    pub(super) copies: Copies,
    /// Connections made since start; never lower.
    pub(super) opened: AtomicU64,
}

/// A message that came in.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) octets: Vec<u8>,
    /// Seconds that it lay in a cache of HTTP.
    pub(super) age_s: u32,
}

impl Message {
    /// Sets the id that its query has here. An id other than 0 is kept, so that the message is found wrong later.
    pub(super) fn with_id(mut self, id: u16) -> Message {
        if let Some(octets @ [0, 0]) = self.octets.first_chunk_mut() {
            *octets = id.to_be_bytes();
        }
        self
    }
}

/// Receives the reply; it is closed if the connection broke.
pub(super) type Ended = Result<Message, Failure>;

/// Called once; it must neither wait nor panic.
pub(super) type OnArrival = Box<dyn FnOnce(Arrived) + Send>;

/// What comes first for a query without a task.
#[derive(Debug)]
pub(in crate::forward) enum Arrived {
    Reply(Reply),
    /// No reply will come. A lost query needs a connection later than this number.
    Failed(Failure, u64),
    /// Nothing, for the time between two sends: the query waits on.
    Overdue(Place),
}

/// The receiver of a reply: a task, or a function.
enum Waiter {
    Task(oneshot::Sender<Ended>),
    /// This is called with what comes first, at the latest when the query is overdue.
    Call(OnArrival),
}

impl Waiter {
    /// Whether no lookup waits for the reply any more.
    fn is_gone(&self) -> bool {
        match self {
            Waiter::Task(reply) => reply.is_closed(),
            Waiter::Call(_) => false,
        }
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

/// A query in progress on a connection.
#[derive(Debug)]
pub(in crate::forward) struct Place {
    pub(super) id: u16,
    pub(super) connection: Arc<Connection>,
    reply: oneshot::Receiver<Ended>,
}

impl Place {
    pub(super) async fn reply(self) -> Result<Reply, Failure> {
        let ended = self.reply.await.unwrap_or_else(|_| Err(Failure::broken()));
        let Message { octets, age_s } = ended?;
        Ok(Reply { id: self.id, octets, age_s, connection: self.connection })
    }
}

/// A message that came, and how to report that it is not the reply.
#[derive(Debug)]
pub(in crate::forward) struct Reply {
    pub(in crate::forward) id: u16,
    pub(in crate::forward) octets: Vec<u8>,
    /// Seconds that it lay in a cache of HTTP (RFC 8484 §5.1).
    pub(in crate::forward) age_s: u32,
    connection: Arc<Connection>,
}

impl Reply {
    /// The message is wrong: all other queries on this connection are asked again on another one (FW54).
    pub(in crate::forward) fn distrust(&self) {
        let mut waiting = self.connection.waiting();
        waiting.good = waiting.good.saturating_sub(1);
        let is_useless = waiting.good == 0;
        drop(waiting);
        if is_useless {
            self.connection.shared.pause.failed(&Failure::wrong(), now());
        }
        // We end it: that says nothing about how many queries its server answers.
        self.connection.retire();
        self.connection.close();
    }
}

impl Connection {
    /// A connection that has just been made; its queries leave through `outlet`.
    pub(super) fn new(
        number: u64,
        shared: Arc<Shared>,
        outlet: Outlet,
        end: CancellationToken,
    ) -> Arc<Connection> {
        let waiting = Mutex::new(Waiting::new(number, outlet.has_streams(), now()));
        Arc::new(Connection { number, outlet, waiting, shared, end })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // What writes a query runs while this is held. Where it panics, nothing has been changed yet.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.waiting().is_silent(now)
    }

    /// Whether each query has a stream for itself: none waits for another one.
    pub(super) fn has_streams(&self) -> bool {
        self.outlet.has_streams()
    }

    /// Whether it is silent and never gave a reply. One query alone says something about its name only.
    pub(super) fn is_useless(&self, now: Instant) -> bool {
        let waiting = self.waiting();
        waiting.good == 0 && waiting.is_silent(now) && !waiting.is_alone()
    }

    fn gives_one(&self) -> bool {
        self.shared.gives_one.load(Ordering::Relaxed)
    }

    /// A place for one query, if there is one; a task waits for its reply.
    pub(super) fn place(
        self: &Arc<Self>,
        query: impl Fn(u16) -> Vec<u8>,
        now: Instant,
    ) -> Option<Place> {
        self.place_by(|waiting| waiting.way(now, self.gives_one()), query, now)
    }

    /// The same where no other connection has a place.
    pub(super) fn place_in_crowd(
        self: &Arc<Self>,
        query: impl Fn(u16) -> Vec<u8>,
        now: Instant,
    ) -> Option<Place> {
        self.place_by(|waiting| waiting.way_in_crowd(now, self.gives_one()), query, now)
    }

    fn place_by(
        self: &Arc<Self>,
        way: impl FnOnce(&mut Waiting) -> Option<Way>,
        query: impl Fn(u16) -> Vec<u8>,
        now: Instant,
    ) -> Option<Place> {
        let mut reply = None;
        let id = self.enter(now, way, |id| {
            let (sender, receiver) = oneshot::channel();
            reply = Some(receiver);
            Some((query(id), Waiter::Task(sender)))
        })?;
        Some(Place { id, connection: Arc::clone(self), reply: reply? })
    }

    /// The same without a task: the function that `make` returns is called with what comes first for the query. False
    /// if there is no place; then `make` is not called.
    pub(super) fn call(
        self: &Arc<Self>,
        now: Instant,
        make: impl FnOnce(u16) -> Option<(Vec<u8>, OnArrival)>,
    ) -> bool {
        let waits = |id| {
            let (octets, call) = make(id)?;
            Some((octets, Waiter::Call(call)))
        };
        self.enter(now, |waiting| waiting.way(now, self.gives_one()), waits).is_some()
    }

    /// Sends the query that `begin` writes for an id, if there is a place.
    fn enter(
        self: &Arc<Self>,
        now: Instant,
        way: impl FnOnce(&mut Waiting) -> Option<Way>,
        begin: impl FnOnce(u16) -> Option<(Vec<u8>, Waiter)>,
    ) -> Option<u16> {
        let mut waiting = self.waiting();
        let instead = match way(&mut waiting)? {
            Way::Free => None,
            Way::Instead(other) => Some(other),
        };
        let room = self.outlet.room()?;
        // At most 1,024 of 65,536 ids are taken.
        let id = std::iter::repeat_with(|| random() as u16)
            .find(|id| !waiting.has(*id))
            .unwrap_or_default();
        let (octets, waiter) = begin(id)?;
        room.put(Query { id, octets, instead });
        let ended = instead.and_then(|other| waiting.remove(other)).map(|(waiter, _)| waiter);
        waiting.add(id, waiter, now + USUAL.interval);
        waiting.was_idle |= waiting.silent_since.is_none();
        waiting.silent_since.get_or_insert(now);
        waiting.used = now;
        drop(waiting);
        self.outlet.send();
        if let (Some(other), Some(ended)) = (instead, ended) {
            self.shared.counts.failed(&Failure::gave_way(), now);
            self.give(ended, Err(Failure::gave_way()), other);
        }
        Some(id)
    }

    /// Calls the functions that wait too long; a task waits in place of each. Returns when the next one will.
    pub(super) fn overdue(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        loop {
            // The lock is not held across the call.
            let taken = self.waiting().take_overdue(now);
            match taken {
                Ok(Taken { id, call, reply }) => {
                    call(Arrived::Overdue(Place { id, connection: Arc::clone(self), reply }));
                }
                Err(next) => return next,
            }
        }
    }

    /// The server allows this many queries at once from here on.
    pub(super) fn allow(&self, streams: usize) {
        if self.waiting().allow(streams) {
            self.shared.freed.notify_one();
        }
    }

    /// Queries that wait on it.
    pub(super) fn in_progress(&self) -> usize {
        self.waiting().len()
    }

    #[cfg(test)]
    pub(super) fn outlet(&self) -> &Outlet {
        &self.outlet
    }

    pub(super) fn is_open(&self) -> bool {
        self.waiting().state == ConnectionState::Open
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting().state == ConnectionState::Closed
    }

    /// Closes the socket where its task cannot.
    pub(super) fn end_outlet(&self) {
        self.outlet.end();
    }

    /// Whether its tasks have ended, and the socket with them.
    pub(super) fn is_gone(&self) -> bool {
        self.outlet.is_gone()
    }

    /// Gives a reply to the query with this id; false if none waits for it (FW54).
    pub(super) fn answered(self: &Arc<Self>, id: u16, ended: Ended, now: Instant) -> bool {
        let mut waiting = self.waiting();
        let Some((waiter, overtook)) = waiting.remove(id) else { return false };
        let silent_since = waiting.silent_since;
        let was_idle = std::mem::take(&mut waiting.was_idle);
        waiting.silent_since = (waiting.len() > 0).then_some(now);
        waiting.used = now;
        waiting.good += u64::from(ended.is_ok());
        if ended.is_ok() && waiting.good >= 2 {
            self.shared.gives_one.store(false, Ordering::Relaxed);
        }
        let is_lost = ended.as_ref().is_err_and(Failure::is_loss);
        waiting.has_lost |= is_lost;
        if is_lost && waiting.server_left && waiting.took() == 1 {
            // Before the queries that were lost look for another place.
            self.shared.gives_one.store(true, Ordering::Relaxed);
        }
        // Its server has ended it, as by GOAWAY, and takes none: the query that was lost must not find a pause that comes later.
        let is_useless =
            waiting.has_lost && waiting.took() == 0 && waiting.state != ConnectionState::Open;
        drop(waiting);
        if is_useless {
            self.shared.pause.failed(&Failure::broken(), now);
        }
        match &ended {
            Ok(_) => {
                self.shared.pause.replied(now);
                self.shared.patience.replied(silent_since, was_idle, now);
                if overtook {
                    self.shared.patience.overtook(now);
                }
                self.shared.counts.answered();
            }
            Err(failure) => self.shared.counts.failed(failure, now),
        }
        self.shared.freed.notify_one();
        self.give(waiter, ended, id);
        true
    }

    /// Gives the end of the query with this id to who waits for it.
    fn give(self: &Arc<Self>, waiter: Waiter, ended: Ended, id: u16) {
        match (waiter, ended) {
            // The client of this query may be gone; then the reply is dropped.
            (Waiter::Task(reply), ended) => _ = reply.send(ended),
            (Waiter::Call(call), Ok(Message { octets, age_s })) => {
                let connection = Arc::clone(self);
                call(Arrived::Reply(Reply { id, octets, age_s, connection }));
            }
            (Waiter::Call(call), Err(failure)) => {
                call(Arrived::Failed(failure, self.after_loss()));
            }
        }
    }
}
