//! Which queries on the ports of one server wait too long. A look costs as much as it finds, and goes through all queries on
//! ports that queries share.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Instant;

use super::Pool;
use super::port::Port;
use crate::forward::overdue;
use crate::forward::plan::USUAL;

/// Closed ports that a query takes out of the queue of those that are looked after: more than it adds, and few, as each frees
/// memory in the thread that answers clients.
const MOST_TAKEN_OUT: usize = 2;

impl Pool {
    /// Makes sure that queries without a task are called when they wait too long.
    pub(super) fn watch(self: &Arc<Self>) {
        overdue::watch(self, |pool| &pool.common, |pool| &pool.watch, Pool::overdue);
    }

    /// Calls those that wait too long; returns when the next one will.
    fn overdue(&self, now: Instant) -> Option<Instant> {
        self.own_overdue(now).into_iter().chain(self.shared_overdue(now)).min()
    }

    /// The same for those on ports of their own.
    fn own_overdue(&self, now: Instant) -> Option<Instant> {
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

    /// The same for those that share ports.
    fn shared_overdue(&self, now: Instant) -> Option<Instant> {
        let ports: Vec<Arc<Port>> = self.open().all().cloned().collect();
        ports.iter().filter_map(|port| port.overdue(now)).min()
    }

    /// Looks after this port, on which a query waits since `now`.
    pub(super) fn look_after(&self, port: &Arc<Port>, now: Instant) {
        let mut own = self.own_ports();
        // The task that looks after queries removes closed ports too, but only at times, and not where no query can be sent.
        for _ in 0..MOST_TAKEN_OUT {
            if own.front().is_some_and(|(_, port)| port.strong_count() == 0) {
                own.pop_front();
            }
        }
        // Behind one without a reply.
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
