//! Looks after the queries that were sent without a task and get no reply: each gets a task then, which sends again. All that
//! are found by one look begin their tasks together, and clients wait meanwhile where there is one processor (L3). So looks
//! are frequent. One costs as much as it finds, and goes through all queries on ports that queries share.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Instant;

use super::Pool;
use super::port::Port;
use crate::forward::now;
use crate::forward::plan::{LOOK_AGAIN, USUAL};

impl Pool {
    /// Makes sure that queries without a task are called when they wait too long.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.is_watched.load(Ordering::Relaxed) && !self.is_watched.swap(true, Ordering::AcqRel)
        {
            tokio::spawn(watch(Arc::clone(self)));
        }
    }

    /// Calls those on ports of their own that wait too long; returns when the next one will.
    pub(super) fn overdue(&self, now: Instant) -> Option<Instant> {
        let mut late = Vec::new();
        let next = {
            let mut own = self.own_ports();
            while let Some((at, port)) = own.front() {
                if *at > now && port.strong_count() > 0 {
                    break;
                }
                late.extend(port.upgrade());
                own.pop_front();
            }
            own.front().map(|(at, _)| *at)
        };
        for port in late {
            port.overdue(now);
        }
        next
    }

    /// The same as [`Pool::overdue`] for those that share ports.
    fn shared_overdue(&self, now: Instant) -> Option<Instant> {
        let ports = self.open().clone();
        ports.iter().filter_map(|port| port.overdue(now)).min()
    }

    /// Looks after this port, on which a query waits since `now`.
    pub(super) fn look_after(&self, port: &Arc<Port>, now: Instant) {
        let mut own = self.own_ports();
        // The task that looks after queries removes closed ports, but it does not run where no query can be sent.
        if own.len() == own.capacity() {
            own.retain(|(_, port)| port.strong_count() > 0);
            // Where few were closed, the next ports need no such look.
            let free = own.len();
            own.reserve(free);
        }
        own.push_back((now + USUAL.interval, Arc::downgrade(port)));
    }

    pub(super) fn own_ports(&self) -> MutexGuard<'_, VecDeque<(Instant, Weak<Port>)>> {
        self.own.lock().expect("nothing panics while it holds this")
    }
}

/// Returns when no query is left that has no task. While the server answers, this costs one or two wake-ups a second for
/// any number of queries.
async fn watch(pool: Arc<Pool>) {
    let look = |at| pool.overdue(at).into_iter().chain(pool.shared_overdue(at)).min();
    loop {
        let at = now();
        let next = match look(at) {
            Some(next) => next.max(at + LOOK_AGAIN),
            None => {
                pool.is_watched.store(false, Ordering::Release);
                // A query may have come in between.
                match look(now()) {
                    Some(next) if !pool.is_watched.swap(true, Ordering::AcqRel) => next,
                    Some(_) | None => return,
                }
            }
        };
        tokio::time::sleep_until(next.into()).await;
    }
}
