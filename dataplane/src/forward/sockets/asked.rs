//! The queries on one shared socket, by id: those that wait, those that ended a moment ago without a reply, and the last
//! ones that were answered. A late reply to one of these, or a second one, which the network or the server may send, is no
//! attempt to guess an id (FW13).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::forward::random;

/// Time for which a late reply to a query that ended without one is no stray. Servers give up a name after some ten seconds, and
/// many send SERVFAIL then.
pub(super) const LATE: Duration = Duration::from_secs(15);
/// Queries that ended without a reply that are remembered on one shared socket; the oldest is forgotten.
pub(super) const MAX_ENDED: usize = 256;
/// Queries that were answered which are remembered on one shared socket; the oldest is forgotten. Without a time: so few are
/// cheap to keep, and nothing says how late a second reply may come.
pub(super) const MAX_ANSWERED: usize = 128;
/// Queries that wait on one shared socket, at most: half of the ids, so that a free one is soon drawn.
const MAX_ON_PORT: usize = 1 << 15;

/// What arrived for a query that a task waits for.
#[derive(Debug)]
pub(in crate::forward) enum Arrival {
    Datagram(Vec<u8>),
    /// A datagram with an id that no query waits for; it is counted already.
    Stray,
    /// An ICMP error, or the socket was closed.
    Failed,
}

/// The queries on one socket; `C` is what is called for those without a task.
pub(super) struct Asked<C> {
    pub(super) waiting: HashMap<u16, Asker<C>>,
    /// Ids of queries that ended without a reply, and when; the latest last.
    pub(super) ended: VecDeque<(Instant, u16)>,
    /// Ids of queries that were answered; the latest last.
    pub(super) answered: VecDeque<u16>,
    /// When the latest query left.
    pub(super) latest: Instant,
    /// One query has the socket for itself, which closes with it: what comes after its reply is not read.
    is_own: bool,
    /// Of the thread that reads this socket.
    awaited: Weak<()>,
}

/// Held for each reply that the thread of the socket awaits, so that the thread knows whether it awaits any. None where a task
/// reads the socket.
pub(super) type Awaits = Option<Arc<()>>;

/// One query that waits for its reply.
pub(super) struct Asker<C> {
    pub(super) by: By<C>,
    /// Whether a datagram with its id came.
    pub(super) is_answered: bool,
    pub(super) _awaits: Awaits,
}

/// The receiver of the reply: a task, or a function.
pub(super) enum By<C> {
    /// A task gets everything that arrives.
    Task(mpsc::Sender<Arrival>),
    /// This is called with what arrives first, at the latest at this time.
    Call(C, Instant),
    /// It was called with a datagram, and judges it. Its id stays taken, because it may wait for another datagram.
    Judged,
}

impl<C> std::fmt::Debug for Asked<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}

impl<C> Asked<C> {
    pub(super) fn new(now: Instant, is_own: bool, awaited: Weak<()>) -> Asked<C> {
        Asked {
            waiting: HashMap::new(),
            ended: VecDeque::new(),
            answered: VecDeque::new(),
            latest: now,
            is_own,
            awaited,
        }
    }

    /// One more reply is awaited as long as this is held.
    pub(super) fn awaits(&self) -> Awaits {
        self.awaited.upgrade()
    }

    /// A query begins; an id for it, or none where as many wait as may.
    pub(super) fn draw(&mut self, now: Instant) -> Option<u16> {
        if self.waiting.len() >= MAX_ON_PORT {
            return None;
        }
        self.latest = now;
        self.forget(now);
        // A late reply must not meet a later query.
        let is_free = |id: &u16| !self.waiting.contains_key(id) && !self.had(*id);
        std::iter::repeat_with(|| random() as u16).find(is_free)
    }

    /// A query does not wait any more. The time matters only where it got no reply.
    pub(super) fn end(&mut self, id: u16, now: impl FnOnce() -> Instant) {
        match self.waiting.remove(&id) {
            Some(Asker { is_answered: false, .. }) => self.note_ended(id, now()),
            Some(Asker { is_answered: true, .. }) if !self.is_own => self.note_answered(id),
            Some(_) | None => {}
        }
    }

    /// Its query was answered.
    fn note_answered(&mut self, id: u16) {
        if self.answered.len() == MAX_ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back(id);
    }

    /// Its query ended without a reply.
    pub(super) fn note_ended(&mut self, id: u16, now: Instant) {
        self.forget(now);
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((now, id));
    }

    /// Whether no query has this id, or had it a moment ago.
    pub(super) fn is_stray(&mut self, id: Option<u16>, now: Instant) -> bool {
        self.forget(now);
        id.is_none_or(|id| !self.waiting.contains_key(&id) && !self.had(id))
    }

    /// Gives this to all tasks that wait; one that does not keep up misses it.
    pub(super) fn to_tasks(&self, arrival: fn() -> Arrival) {
        for asker in self.waiting.values() {
            if let By::Task(task) = &asker.by {
                let _ = task.try_send(arrival());
            }
        }
    }

    /// Ids and deadlines of the queries with a function.
    pub(super) fn calls(&self) -> impl Iterator<Item = (u16, Instant)> {
        self.waiting.iter().filter_map(|(id, asker)| match &asker.by {
            By::Call(_, at) => Some((*id, *at)),
            By::Task(_) | By::Judged => None,
        })
    }

    /// Takes the function for this id; the id is free then.
    pub(super) fn take_call(&mut self, id: u16) -> Option<C> {
        let call = self.begin_to_judge(id)?;
        self.waiting.remove(&id);
        Some(call)
    }

    /// Takes the function for this id; the id stays taken.
    pub(super) fn begin_to_judge(&mut self, id: u16) -> Option<C> {
        let asker = self.waiting.get_mut(&id)?;
        match std::mem::replace(&mut asker.by, By::Judged) {
            By::Call(call, _) => {
                asker.is_answered = true;
                Some(call)
            }
            other => {
                asker.by = other;
                None
            }
        }
    }

    pub(super) fn forget(&mut self, now: Instant) {
        while self.ended.front().is_some_and(|(at, _)| *at + LATE <= now) {
            self.ended.pop_front();
        }
    }

    /// Whether a query with this id ended a moment ago.
    pub(super) fn had(&self, id: u16) -> bool {
        self.answered.contains(&id) || self.ended.iter().any(|(_, ended)| *ended == id)
    }
}
