//! Which connection gives way at a limit (WR44), by shares of clients.

use std::net::IpAddr;
use std::rc::Weak;
use std::time::Duration;

use tokio::time::Instant;

use super::super::super::Deadlines;
use super::super::super::counters::CloseReason;
use super::{ConnectionTable, Entry, Limit};

impl ConnectionTable {
    /// The connection that closes for a new one of this address, and why; `None` if none may.
    ///
    /// At the limit of all:
    /// 1. the one that has waited for its client for longest, idle or in the middle of a message. Those of clients with
    ///    fewer connections than this one would have are left alone, so that a client that opens many cannot close those
    ///    of others;
    /// 2. the newest of the client with the most connections, if that are more than this one would have;
    /// 3. one whose last message is older than any lookup takes: only its client can be holding it open.
    ///
    /// At the limit of a client, 1 and 3 among its own; at that of sessions, all among connections with one.
    pub(super) fn choose(&self, address: IpAddr, limit: Limit) -> Option<(u64, CloseReason)> {
        let would_have = self.connections_of(address) + 1;
        let may_go = |entry: &Entry| {
            entry.client.address == address || entry.client.connections.get() >= would_have
        };
        let evicted = |number| (number, CloseReason::Evicted);
        let outnumbering = |number| (number, CloseReason::LargestShare);
        match limit {
            Limit::Sessions => {
                let has_session = |entry: &Entry| entry.session.get() > 0;
                self.longest_waiting(|entry| has_session(entry) && may_go(entry))
                    .map(evicted)
                    .or_else(|| {
                        self.newest_of_the_largest(would_have, has_session).map(outnumbering)
                    })
                    .or_else(|| self.stuck(has_session).map(evicted))
            }
            Limit::PerClient => {
                self.of_client(address).map(|number| (number, CloseReason::EvictedByClient))
            }
            Limit::Total => self
                .longest_waiting(may_go)
                .map(evicted)
                .or_else(|| self.newest_of_the_largest(would_have, |_| true).map(outnumbering))
                .or_else(|| self.stuck(|_| true).map(evicted)),
        }
    }

    /// The one of this client that has waited for it for longest, else one that is stuck. Looks at no other client's: a client
    /// that opens connections as fast as it can comes here with each of them.
    fn of_client(&self, address: IpAddr) -> Option<u64> {
        let clients = self.clients.borrow();
        let entries = clients.get(&address)?.entries.borrow();
        let own = || {
            let number = |(number, entry): (&u64, &Weak<Entry>)| Some((entry.upgrade()?, *number));
            entries.iter().filter_map(number)
        };
        let waiting = own().filter_map(|(entry, number)| Some((entry.waits_since.get()?, number)));
        let limit = self.deadlines().stuck();
        let stuck = || {
            let last = own().map(|(entry, number)| (entry.last_message.get(), number));
            last.filter(|(at, _)| at.elapsed() > limit).min()
        };
        waiting.min().or_else(stuck).map(|(_, number)| number)
    }

    fn longest_waiting(&self, of: impl Fn(&Entry) -> bool) -> Option<u64> {
        self.earliest(|entry| entry.waits_since.get().filter(|_| of(entry)))
    }

    fn stuck(&self, of: impl Fn(&Entry) -> bool) -> Option<u64> {
        let limit = self.deadlines().stuck();
        let is_stuck = |entry: &Entry, at: &Instant| of(entry) && at.elapsed() > limit;
        self.earliest(|entry| Some(entry.last_message.get()).filter(|at| is_stuck(entry, at)))
    }

    /// The oldest number is the first of those with the same time.
    fn earliest(&self, time: impl Fn(&Entry) -> Option<Instant>) -> Option<u64> {
        let entries = self.entries.borrow();
        let times = entries.iter().filter_map(|(number, entry)| Some((time(entry)?, *number)));
        times.min().map(|(_, number)| number)
    }

    fn newest_of_the_largest(&self, more_than: usize, of: impl Fn(&Entry) -> bool) -> Option<u64> {
        let entries = self.entries.borrow();
        let connections = |entry: &Entry| entry.client.connections.get();
        let of_them = || entries.iter().filter(|(_, entry)| of(entry));
        let most = of_them().map(|(_, entry)| connections(entry)).max();
        let most = most.filter(|most| *most > more_than)?;
        let newest = of_them().rev().find(|(_, entry)| connections(entry) == most);
        newest.map(|(number, _)| *number)
    }

    /// The connection to close when all buffers are full: the largest of the client that holds most.
    pub(super) fn largest(&self) -> Option<u64> {
        let entries = self.entries.borrow();
        let held = |entry: &Entry| (entry.client.held.get(), entry.held.get());
        entries.iter().max_by_key(|(_, entry)| held(entry)).map(|(number, _)| *number)
    }
}

impl Deadlines {
    /// Past it a connection that has something in progress is held open by its client alone.
    fn stuck(&self) -> Duration {
        self.write
    }
}
