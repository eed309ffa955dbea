//! The queries on one shared socket, by id: those that wait, and those that ended a moment ago without a reply. A late reply
//! to one of these is no attempt to guess an id (FW13).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Arrival;
use crate::forward::random;

/// Time for which a late reply to a query that ended without one is no stray: the budget of a lookup (FW24).
pub(super) const LATE: Duration = Duration::from_secs(4);
/// Queries that ended without a reply that are remembered on one shared socket; the oldest is forgotten.
pub(super) const MAX_ENDED: usize = 256;
/// Queries that wait on one shared socket, at most: half of the ids, so that a free one is soon drawn.
const MAX_ON_PORT: usize = 1 << 15;

/// The queries on one socket.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) waiting: HashMap<u16, Asker>,
    /// Ids of queries that ended without a reply, and when; the latest last.
    pub(super) ended: VecDeque<(Instant, u16)>,
    /// When the latest query left.
    pub(super) latest: Instant,
}

/// A query that waits.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) arrivals: mpsc::Sender<Arrival>,
    /// Whether a datagram with its id came.
    pub(super) is_answered: bool,
}

impl Asked {
    pub(super) fn new(now: Instant) -> Asked {
        Asked { waiting: HashMap::new(), ended: VecDeque::new(), latest: now }
    }

    /// A query begins; its id, or none where as many wait as may.
    pub(super) fn begin(&mut self, arrivals: mpsc::Sender<Arrival>, now: Instant) -> Option<u16> {
        if self.waiting.len() >= MAX_ON_PORT {
            return None;
        }
        self.latest = now;
        self.forget(now);
        // A late reply must not meet a later query.
        let is_free = |id: &u16| !self.waiting.contains_key(id) && !self.has_ended(*id);
        let id = std::iter::repeat_with(|| random() as u16).find(is_free)?;
        self.waiting.insert(id, Asker { arrivals, is_answered: false });
        Some(id)
    }

    /// A query does not wait any more.
    pub(super) fn end(&mut self, id: u16, now: Instant) {
        self.forget(now);
        if self.waiting.remove(&id).is_some_and(|asker| !asker.is_answered) {
            if self.ended.len() == MAX_ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back((now, id));
        }
    }

    /// Gives a datagram to the query with its id; whether there is and was none.
    pub(super) fn is_stray(&mut self, datagram: Vec<u8>, now: Instant) -> bool {
        let id = datagram.first_chunk().map(|id| u16::from_be_bytes(*id));
        if let Some(asker) = id.and_then(|id| self.waiting.get_mut(&id)) {
            asker.is_answered = true;
            // A query that does not keep up misses it.
            let _ = asker.arrivals.try_send(Arrival::Datagram(datagram));
            return false;
        }
        self.forget(now);
        id.is_none_or(|id| !self.has_ended(id))
    }

    pub(super) fn to_all(&self, arrival: fn() -> Arrival) {
        for asker in self.waiting.values() {
            let _ = asker.arrivals.try_send(arrival());
        }
    }

    pub(super) fn forget(&mut self, now: Instant) {
        while self.ended.front().is_some_and(|(at, _)| *at + LATE <= now) {
            self.ended.pop_front();
        }
    }

    /// Whether a query with this id ended without a reply a moment ago.
    pub(super) fn has_ended(&self, id: u16) -> bool {
        self.ended.iter().any(|(_, ended)| *ended == id)
    }
}
