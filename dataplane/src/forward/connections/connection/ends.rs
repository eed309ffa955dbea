//! How one connection ends, and what that says about its server.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use tokio::time::sleep_until;

use super::waiting::{ConnectionState, Spared, Waiting};
use super::{Arrived, Connection, Failure, IDLE, Waiter, now};

impl Connection {
    /// Waits until it is idle or dead; it takes no more queries then.
    pub(in crate::forward::connections) async fn unused(&self) {
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
    pub(in crate::forward::connections) fn close(&self) {
        let mut waiting = self.waiting();
        // One that we end drains before.
        let is_ended_by_server = waiting.server_left || waiting.state == ConnectionState::Open;
        if waiting.state != ConnectionState::Closed {
            waiting.made_before = self.shared.opened.load(Ordering::Relaxed);
        }
        waiting.state = ConnectionState::Closed;
        let is_slow = waiting.is_silent(now());
        let lost = waiting.take_all();
        // One that was idle has nothing to do with the query that was lost on it.
        let has_just_lost =
            waiting.has_lost && now().saturating_duration_since(waiting.used) < IDLE;
        if is_ended_by_server && !lost.is_empty() && waiting.good == 1 {
            // Before the queries that were lost look for another place.
            self.shared.gives_one.store(true, Ordering::Relaxed);
        }
        let has_lost = match self.gives_one() {
            false => !lost.is_empty() || has_just_lost,
            // One query has it for itself: where no reply comes in time, that says something about its name.
            true if is_slow || !is_ended_by_server => false,
            true => has_just_lost || lost.values().any(|waiter| !waiter.is_gone()),
        };
        let (is_useless, made_before) = (has_lost && waiting.good == 0, waiting.made_before);
        drop(waiting);
        if is_useless {
            self.shared.pause.failed(&Failure::broken(), now());
        }
        // Counted before the waiting queries are woken.
        lost.iter().for_each(|_| self.shared.counts.failed(&Failure::broken(), now()));
        self.end.cancel();
        for waiter in lost.into_values() {
            if let Waiter::Call(call) = waiter {
                call(Arrived::Failed(Failure::broken(), made_before));
            }
        }
    }

    /// The next connection for a query that was lost on this one has a number greater than this. What was made before this one
    /// ended may be at its end, too. If only one stream was lost, it may be this one.
    pub(in crate::forward::connections) fn after_loss(&self) -> u64 {
        let waiting = self.waiting();
        match waiting.state {
            ConnectionState::Open => self.number - 1,
            ConnectionState::Draining | ConnectionState::Closed => waiting.made_before,
        }
    }

    /// Whether the loss of a query uses up one of its tries. Where the connection has ended behind replies to others, or while its
    /// server still has others, it does not: a server may take a few queries on each.
    pub(in crate::forward::connections) fn loss_counts(&self) -> bool {
        let waiting = self.waiting();
        waiting.state == ConnectionState::Open || waiting.took() == 0
    }

    /// Its server has ended it: it takes no more queries, and those that the server has keep their time.
    pub(in crate::forward::connections) fn server_left(&self) {
        let mut waiting = self.waiting();
        if waiting.state == ConnectionState::Open {
            waiting.server_left = true;
            waiting.made_before = self.shared.opened.load(Ordering::Relaxed);
            waiting.retire();
        }
    }

    /// Takes no more queries; those that wait keep their time.
    pub(in crate::forward::connections) fn retire(&self) {
        self.waiting().retire();
    }

    /// Why it can end for another query, if it can.
    pub(in crate::forward::connections) fn spared(&self, now: Instant) -> Option<Spared> {
        self.waiting().spared(now)
    }

    /// Ends it for another query, if it still can; the queries on it give way.
    pub(in crate::forward::connections) fn end_if_spared(self: &Arc<Self>, now: Instant) -> bool {
        let waiting = self.waiting();
        if waiting.spared(now).is_none() {
            return false;
        }
        for (id, waiter) in self.end_for_others(waiting) {
            self.shared.counts.failed(&Failure::gave_way(), now);
            self.give(waiter, Err(Failure::gave_way()), id);
        }
        true
    }

    /// Ends it; returns the queries on it for whose replies lookups wait.
    pub(super) fn end_for_others(
        self: &Arc<Self>,
        mut waiting: MutexGuard<'_, Waiting>,
    ) -> HashMap<u16, Waiter> {
        // We end it: that says nothing about its server.
        waiting.retire();
        let mut ended = waiting.take_all();
        drop(waiting);
        self.close();
        ended.retain(|_, waiter| !waiter.is_gone());
        ended
    }

    /// Ends it where it takes no more queries, or is silent, and no lookup waits for those on it.
    pub(in crate::forward::connections) fn close_if_over(&self) {
        let has_replied = self.shared.pause.has_replied(now());
        if self.waiting().forget_all_gone(has_replied, now()) {
            self.close();
        }
    }
}
