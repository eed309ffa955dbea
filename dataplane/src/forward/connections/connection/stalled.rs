//! A connection that has been silent for longer than usual, and a query that waits on a connection alone (L16).

use std::sync::Arc;
use std::time::Instant;

use super::{Connection, ConnectionState, Failure, Place};

impl Connection {
    /// When the latest reply came, while queries wait.
    pub(in crate::forward::connections) fn silent_since(&self) -> Option<Instant> {
        self.waiting().silent_since
    }

    /// Whether queries wait on it for longer than usual, and others may wait behind them: not where the server works on several.
    pub(in crate::forward::connections) fn is_stalled(&self, now: Instant) -> bool {
        let waiting = self.waiting();
        let is_shared = waiting.state == ConnectionState::Open && !waiting.is_alone();
        let patience = &self.shared.patience;
        is_shared
            && (waiting.is_silent(now)
                || (waiting.is_stalled(patience.get(), now) && !patience.is_parallel(now)))
    }

    /// Whether no earlier query waits than the one with this id.
    pub(in crate::forward::connections) fn is_first(&self, id: u16) -> bool {
        self.waiting().is_first(id)
    }

    /// A place where no other query waits, and none is sent behind it.
    pub(in crate::forward::connections) fn place_alone(
        self: &Arc<Self>,
        query: impl Fn(u16) -> Vec<u8>,
        now: Instant,
    ) -> Option<Place> {
        self.place_by(|waiting| waiting.way_alone(now, self.gives_one()), query, now)
    }

    /// Whether it has given a reply, or was made before this time.
    pub(in crate::forward::connections) fn is_tried(&self, since: Instant) -> bool {
        let waiting = self.waiting();
        waiting.good > 0 || waiting.opened <= since
    }

    /// Whether one query waits on it alone.
    pub(in crate::forward::connections) fn is_alone(&self) -> bool {
        self.waiting().is_alone()
    }

    /// Whether the query that waits on it alone gives way to another one, and since when it waits.
    pub(in crate::forward::connections) fn gives_way(&self, now: Instant) -> Option<Instant> {
        let waiting = self.waiting();
        waiting.gives_way(self.shared.patience.get(), now).then_some(waiting.used)
    }

    /// When the query with this id is overdue; `None` once it has ended.
    pub(in crate::forward::connections) fn overdue_at(&self, id: u16) -> Option<Instant> {
        self.waiting().overdue_at(id)
    }

    /// Ends it where its only query still gives way to another one.
    pub(in crate::forward::connections) fn end_if_alone(self: &Arc<Self>, now: Instant) -> bool {
        let waiting = self.waiting();
        if !waiting.gives_way(self.shared.patience.get(), now) {
            return false;
        }
        for (id, waiter) in self.end_for_others(waiting) {
            self.give(waiter, Err(Failure::gave_way()), id);
        }
        true
    }
}
