//! One connection, as the queries on it see it: the queries that wait on it, how long it may be used, and how it
//! ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::counts::Counts;
use super::failure::Failure;
use super::pause::Pause;
use crate::forward::{now, random};

/// Queries in progress on each (FW54); fewer where the server allows fewer.
pub(super) const MAX_QUERIES: usize = 32;
/// Idle time until a connection is closed (FW54). With queries waiting it is not idle, but dead when
/// nothing came for this time.
pub(super) const IDLE: Duration = Duration::from_secs(10);
/// Time without an octet, while queries wait, until a connection gets no other queries: it may be dead.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// One connection, as queries use it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Later ones have greater numbers; the first is 1.
    pub(super) number: u64,
    queries: mpsc::Sender<Query>,
    waiting: Mutex<Waiting>,
    shared: Arc<Shared>,
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
}

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) id: u16,
    pub(super) octets: Vec<u8>,
}

impl Query {
    /// Over HTTPS and QUIC ids are 0: the stream identifies the reply.
    pub(super) fn without_id(mut self) -> Query {
        self.octets[..2].fill(0);
        self
    }
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

#[derive(Debug)]
struct Waiting {
    /// Queries on the connection. One whose client is gone stays until its reply, because the server still works on it.
    replies: HashMap<u16, oneshot::Sender<Ended>>,
    /// How many queries the connection may have.
    places: usize,
    /// Since when queries wait without any message.
    silent_since: Option<Instant>,
    /// When the latest query left or the latest reply came.
    used: Instant,
    /// Replies that were not found wrong.
    good: u64,
    state: ConnectionState,
}

impl Waiting {
    /// When it ends, unless something happens before.
    fn ends_at(&self) -> Instant {
        self.silent_since.unwrap_or(self.used) + IDLE
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    Open,
    /// It takes no more queries; those that wait still have their time.
    Draining,
    /// Its tasks end at once.
    Closed,
}

/// A query in progress on a connection.
#[derive(Debug)]
pub(super) struct Place {
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
        self.connection.close();
    }
}

impl Connection {
    /// A connection that has just been made, and where the queries on it are taken from.
    pub(super) fn new(
        number: u64,
        shared: Arc<Shared>,
        end: CancellationToken,
    ) -> (Arc<Connection>, mpsc::Receiver<Query>) {
        let (queries, taken) = mpsc::channel(MAX_QUERIES);
        let waiting = Mutex::new(Waiting {
            replies: HashMap::new(),
            places: MAX_QUERIES,
            silent_since: None,
            used: now(),
            good: 0,
            state: ConnectionState::Open,
        });
        (Arc::new(Connection { number, queries, waiting, shared, end }), taken)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds this")
    }

    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.waiting().is_silent(now)
    }

    /// Whether it is silent and never gave a reply.
    pub(super) fn is_useless(&self, now: Instant) -> bool {
        let waiting = self.waiting();
        waiting.good == 0 && waiting.is_silent(now)
    }

    pub(super) fn place(
        self: &Arc<Self>,
        query: impl Fn(u16) -> Vec<u8>,
        now: Instant,
    ) -> Option<Place> {
        let mut waiting = self.waiting();
        if waiting.state != ConnectionState::Open || waiting.replies.len() >= waiting.places {
            return None;
        }
        // At most 32 of 65,536 ids are taken.
        let id = std::iter::repeat_with(|| random() as u16)
            .find(|id| !waiting.replies.contains_key(id))
            .unwrap_or_default();
        self.queries.try_send(Query { id, octets: query(id) }).ok()?;
        let (sender, reply) = oneshot::channel();
        waiting.replies.insert(id, sender);
        waiting.silent_since.get_or_insert(now);
        waiting.used = now;
        drop(waiting);
        Some(Place { id, connection: Arc::clone(self), reply })
    }

    /// The server allows this many queries at once from here on.
    pub(super) fn allow(&self, places: usize) {
        let places = places.min(MAX_QUERIES);
        let before = std::mem::replace(&mut self.waiting().places, places);
        if places > before {
            self.shared.freed.notify_one();
        }
    }

    /// Waits until it is idle or dead; it takes no more queries then.
    pub(super) async fn unused(&self) {
        loop {
            let ends_at = self.waiting().ends_at();
            sleep_until(ends_at.into()).await;
            let mut waiting = self.waiting();
            // Under the lock: no query finds a place on a connection that is about to end.
            if now() >= waiting.ends_at() {
                waiting.retire();
                return;
            }
        }
    }

    /// Takes no more queries, fails those that wait, and ends the tasks that carry messages.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.state = ConnectionState::Closed;
        let lost = std::mem::take(&mut waiting.replies);
        let is_useless = !lost.is_empty() && waiting.good == 0;
        drop(waiting);
        if is_useless {
            self.shared.pause.failed(&Failure::broken(), now());
        }
        // Counted before the waiting queries are woken.
        lost.iter().for_each(|_| self.shared.counts.failed(&Failure::broken(), now()));
        drop(lost);
        self.end.cancel();
    }

    /// Takes no more queries; those that wait keep their time.
    pub(super) fn retire(&self) {
        self.waiting().retire();
    }

    /// Queries that wait on it.
    #[cfg(test)]
    pub(super) fn in_progress(&self) -> usize {
        self.waiting().replies.len()
    }

    pub(super) fn is_open(&self) -> bool {
        self.waiting().state == ConnectionState::Open
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting().state == ConnectionState::Closed
    }

    /// Whether its tasks have ended, and the socket with them.
    pub(super) fn is_gone(&self) -> bool {
        self.queries.is_closed()
    }

    /// Gives a reply to the query with this id; false if none waits for it (FW54).
    pub(super) fn answered(&self, id: u16, ended: Ended, now: Instant) -> bool {
        let mut waiting = self.waiting();
        let Some(reply) = waiting.replies.remove(&id) else { return false };
        waiting.silent_since = (!waiting.replies.is_empty()).then_some(now);
        waiting.used = now;
        waiting.good += u64::from(ended.is_ok());
        drop(waiting);
        match &ended {
            Ok(_) => {
                self.shared.pause.replied();
                self.shared.counts.answered();
            }
            Err(failure) => self.shared.counts.failed(failure, now),
        }
        // The client of this query may be gone; then the reply is dropped.
        let _ = reply.send(ended);
        self.shared.freed.notify_one();
        true
    }
}

impl Waiting {
    fn is_silent(&self, now: Instant) -> bool {
        self.silent_since.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE)
    }

    fn retire(&mut self) {
        if self.state == ConnectionState::Open {
            self.state = ConnectionState::Draining;
        }
    }
}
