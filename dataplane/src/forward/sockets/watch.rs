//! Which queries on the ports of one server wait too long. A look costs as much as it finds: it visits ports on which a query
//! waits too long, and once each that had only replies since the last look.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Instant;

use super::Pool;
use super::port::{Arrived, Listening, OnArrival, Port};
use crate::forward::overdue;
use crate::forward::plan::USUAL;

/// Closed ports that a query takes out of the queue of those that are looked after: more than it adds, and few, as each frees
/// memory in the thread that answers clients.
const MOST_TAKEN_OUT: usize = 2;

/// Ports that queries share, each once, with a time before which none of its queries waits too long, and its address.
#[derive(Debug, Default)]
pub(super) struct SharedPorts(BTreeMap<(Instant, usize), Weak<Port>>);

impl SharedPorts {
    fn add(&mut self, at: Instant, port: &Arc<Port>) {
        // No other port has this address while it is held here, not even one that was opened when this one was closed.
        self.0.insert((at, Arc::as_ptr(port).addr()), Arc::downgrade(port));
    }
}

fn call_overdue(late: Vec<(OnArrival, Listening)>) {
    for (call, listening) in late {
        call(Arrived::Overdue(listening));
    }
}

impl Pool {
    /// Makes sure that queries without a task are called when they wait too long.
    pub(super) fn watch(self: &Arc<Self>) {
        overdue::watch(self, |pool| &pool.common, |pool| &pool.watch, Pool::overdue);
    }

    /// Calls those that wait too long; returns when the next one will.
    pub(super) fn overdue(&self, now: Instant) -> Option<Instant> {
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
            call_overdue(port.take_overdue(now).0);
        }
        next
    }

    /// The same for those that share ports.
    fn shared_overdue(&self, now: Instant) -> Option<Instant> {
        loop {
            let ((at, _), port) = self.shared_ports().0.pop_first()?;
            let Some(port) = port.upgrade() else { continue };
            let (late, next) = port.take_overdue(now);
            if let Some(next) = next {
                self.shared_ports().add(next, &port);
            }
            call_overdue(late);
            // The time of any other is no earlier. Where it was that of a query that has its reply, another port may come first.
            if next == Some(at) {
                return next;
            }
        }
    }

    fn shared_ports(&self) -> MutexGuard<'_, SharedPorts> {
        self.shared.lock().expect("nothing panics while it holds this")
    }

    /// Looks after this port, on which a query waits since `now`.
    pub(super) fn look_after(&self, port: &Arc<Port>, now: Instant) {
        let too_long = now + USUAL.interval;
        if !port.is_own() {
            if port.begins_to_wait() {
                self.shared_ports().add(too_long, port);
            }
            return;
        }
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
        own.push_back((too_long, Arc::downgrade(port)));
    }

    pub(super) fn own_ports(&self) -> MutexGuard<'_, VecDeque<(Instant, Weak<Port>)>> {
        self.own.lock().expect("nothing panics while it holds this")
    }
}
