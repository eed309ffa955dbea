//! How one connection ends, and what that says about its server.

use std::sync::atomic::Ordering;

use tokio::time::sleep_until;

use super::waiting::ConnectionState;
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
        let is_ended_by_server = waiting.state == ConnectionState::Open;
        waiting.state = ConnectionState::Closed;
        let lost = waiting.take_all();
        // One that was idle has nothing to do with the query that was lost on it.
        let has_just_lost =
            waiting.has_lost && now().saturating_duration_since(waiting.used) < IDLE;
        if is_ended_by_server && !lost.is_empty() && waiting.good == 1 {
            // Before the queries that were lost look for another place.
            self.shared.gives_one.store(true, Ordering::Relaxed);
        }
        let is_useless = (!lost.is_empty() || has_just_lost) && waiting.good == 0;
        drop(waiting);
        if is_useless {
            self.shared.pause.failed(&Failure::broken(), now());
        }
        // Counted before the waiting queries are woken.
        lost.iter().for_each(|_| self.shared.counts.failed(&Failure::broken(), now()));
        self.end.cancel();
        for waiter in lost.into_values() {
            if let Waiter::Call(call) = waiter {
                call(Arrived::Failed(Failure::broken(), self.number));
            }
        }
    }

    /// The next connection for a query that was lost on this one has a number greater than this. If only one stream was
    /// lost, it may be this one.
    pub(in crate::forward::connections) fn after_loss(&self) -> u64 {
        self.number - u64::from(self.is_open())
    }

    /// Takes no more queries; those that wait keep their time.
    pub(in crate::forward::connections) fn retire(&self) {
        self.waiting().retire();
    }

    /// Ends it where queries wait on it and no lookup waits for any of these; whether that is so.
    pub(in crate::forward::connections) fn close_if_left(&self) -> bool {
        let mut waiting = self.waiting();
        let is_left = waiting.are_all_gone();
        if is_left {
            waiting.retire();
        }
        drop(waiting);
        self.close_if_over();
        is_left
    }

    /// Ends it where it takes no more queries and no lookup waits for those on it.
    pub(in crate::forward::connections) fn close_if_over(&self) {
        if self.waiting().forget_all_gone() {
            self.close();
        }
    }
}
