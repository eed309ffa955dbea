//! Which connection is closed first at a limit (WR44). The order is kept so that this connection is found in a few steps, however
//! many there are: a client that opens connections as fast as it can must not cause a look at all of them for each.
//!
//! - Clients are ranked by how many connections they have. There are few ranks: `k` different numbers need
//!   `1 + 2 + ... + k` connections, so 4,096 connections have at most 90.
//! - A time is corrected when it comes first, not when it changes, so that a query costs a few stores. Times only grow, and
//!   each that grew was paid for with a message.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use tokio::time::Instant;

use super::super::super::Deadlines;
use super::{Client, ConnectionTable, Entry};

/// Which connections are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    All,
    /// Those with a session of TLS.
    Sessions,
}

impl Among {
    pub(super) const BOTH: [Among; 2] = [Among::All, Among::Sessions];
}

/// Connections by a time of each, as it was when it was last looked at.
type ByTime = BTreeSet<(Instant, u64)>;

/// Connections of all clients, in the orders in which they give way.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// By the number of connections that a client has.
    ranks: BTreeMap<usize, Rank>,
    /// By when its last message came.
    messages: ByTime,
}

/// Clients with the same number of connections.
#[derive(Debug, Default)]
struct Rank {
    /// Of each client, the connection that has waited for longest.
    waiting: ByTime,
    /// Of each client, the newest connection.
    newest: BTreeSet<u64>,
}

/// Connections of one client.
#[derive(Debug, Default)]
pub(super) struct Own {
    numbers: BTreeSet<u64>,
    /// Those that wait for their client, and some that no longer do.
    waiting: ByTime,
    messages: ByTime,
    ranked: Option<Ranked>,
}

/// Where a client is in an [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ranked {
    connections: usize,
    waiting: Option<(Instant, u64)>,
    newest: u64,
}

/// The times of a connection as they are in the orders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) waits_since: Option<Instant>,
    pub(super) last_message: Instant,
}

impl Entry {
    /// The orders that it is in.
    fn orders(&self) -> impl Iterator<Item = Among> + use<> {
        let has_session = self.session.get() > 0;
        Among::BOTH.into_iter().filter(move |among| *among == Among::All || has_session)
    }
}

impl ConnectionTable {
    fn own(client: &Client, among: Among) -> &RefCell<Own> {
        &client.own[among as usize]
    }

    fn order(&self, among: Among) -> &RefCell<Order> {
        &self.orders[among as usize]
    }

    /// A connection is in this order from now on.
    pub(super) fn enlist(&self, number: u64, entry: &Entry, among: Among) {
        let Listed { waits_since, last_message } = entry.listed.get();
        let mut own = Self::own(&entry.client, among).borrow_mut();
        own.numbers.insert(number);
        own.waiting.extend(waits_since.map(|since| (since, number)));
        own.messages.insert((last_message, number));
        drop(own);
        self.order(among).borrow_mut().messages.insert((last_message, number));
        self.rank(&entry.client);
    }

    /// A connection is in no order any more.
    pub(super) fn strike(&self, number: u64, entry: &Entry) {
        let Listed { waits_since, last_message } = entry.listed.get();
        for among in entry.orders() {
            let mut own = Self::own(&entry.client, among).borrow_mut();
            own.numbers.remove(&number);
            if let Some(since) = waits_since {
                own.waiting.remove(&(since, number));
            }
            own.messages.remove(&(last_message, number));
            self.order(among).borrow_mut().messages.remove(&(last_message, number));
        }
        self.rank(&entry.client);
    }

    /// Writes down since when a connection waits, for the orders that it is in.
    pub(super) fn list_wait(&self, number: u64, entry: &Entry, since: Option<Instant>) {
        let listed = entry.listed.get();
        entry.listed.set(Listed { waits_since: since, ..listed });
        for among in entry.orders() {
            let mut own = Self::own(&entry.client, among).borrow_mut();
            if let Some(before) = listed.waits_since {
                own.waiting.remove(&(before, number));
            }
            own.waiting.extend(since.map(|since| (since, number)));
        }
        self.rank(&entry.client);
    }

    /// The same of its last message.
    fn list_message(&self, number: u64, entry: &Entry, at: Instant) {
        let listed = entry.listed.get();
        entry.listed.set(Listed { last_message: at, ..listed });
        for among in entry.orders() {
            let messages = |messages: &mut ByTime| {
                messages.remove(&(listed.last_message, number));
                messages.insert((at, number));
            };
            messages(&mut Self::own(&entry.client, among).borrow_mut().messages);
            messages(&mut self.order(among).borrow_mut().messages);
        }
    }

    /// Puts a client where it is now.
    fn rank(&self, client: &Client) {
        for among in Among::BOTH {
            let mut own = Self::own(client, among).borrow_mut();
            let now = own.numbers.last().map(|newest| Ranked {
                connections: client.connections.get(),
                waiting: own.waiting.first().copied(),
                newest: *newest,
            });
            let before = std::mem::replace(&mut own.ranked, now);
            if before != now {
                self.order(among).borrow_mut().rank(before, now);
            }
        }
    }

    /// The connection that has waited for its client for longest, of clients with at least this many connections, and of one
    /// besides.
    pub(super) fn longest_waiting(
        &self,
        among: Among,
        at_least: usize,
        besides: IpAddr,
    ) -> Option<u64> {
        let mut longest = self.first_waiting(|| self.own_first(besides, among, |own| &own.waiting));
        let mut next = self.rank_from(among, at_least);
        while let Some(rank) = next {
            let of_rank = self.first_waiting(|| self.ranked_first(among, rank));
            longest = longest.into_iter().chain(of_rank).min();
            next = self.rank_from(among, rank + 1);
        }
        longest.map(|(_, number)| number)
    }

    fn rank_from(&self, among: Among, connections: usize) -> Option<usize> {
        let order = self.order(among).borrow();
        order.ranks.range(connections..).next().map(|(connections, _)| *connections)
    }

    fn ranked_first(&self, among: Among, connections: usize) -> Option<(Instant, u64)> {
        let order = self.order(among).borrow();
        self.look(order.ranks.get(&connections)?.waiting.first())
    }

    /// What comes first once its time is right.
    fn first_waiting(&self, first: impl Fn() -> Option<(Instant, u64)>) -> Option<(Instant, u64)> {
        while let Some((at, number)) = first() {
            let entry = self.entry(number)?;
            let since = entry.waits_since.get().filter(|_| !entry.waits_for_turn.get());
            if since == Some(at) {
                return Some((at, number));
            }
            self.list_wait(number, &entry, since);
        }
        None
    }

    /// The newest connection of the client with most, if that are more than this many.
    pub(super) fn newest_of_the_largest(&self, among: Among, more_than: usize) -> Option<u64> {
        let order = self.order(among).borrow();
        let (most, rank) = order.ranks.last_key_value()?;
        rank.newest.last().copied().filter(|_| *most > more_than)
    }

    /// The connection whose last message is the oldest, if that is older than any lookup takes.
    pub(super) fn stuck(&self, among: Among) -> Option<u64> {
        self.first_stuck(|| self.look(self.order(among).borrow().messages.first()))
    }

    /// The same among those of one client.
    pub(super) fn stuck_of(&self, address: IpAddr) -> Option<u64> {
        self.first_stuck(|| self.own_first(address, Among::All, |own| &own.messages))
    }

    fn first_stuck(&self, first: impl Fn() -> Option<(Instant, u64)>) -> Option<u64> {
        let limit = self.deadlines().stuck();
        // What is written down is the truth or older: where that is not stuck, none is.
        while let Some((at, number)) = first().filter(|(at, _)| at.elapsed() > limit) {
            let entry = self.entry(number)?;
            let last = entry.last_message.get();
            if last == at {
                return Some(number);
            }
            self.list_message(number, &entry, last);
        }
        None
    }

    fn own_first(
        &self,
        address: IpAddr,
        among: Among,
        times: impl Fn(&Own) -> &ByTime,
    ) -> Option<(Instant, u64)> {
        let clients = self.clients.borrow();
        let own = Self::own(clients.get(&address)?, among).borrow();
        self.look(times(&own).first())
    }

    /// Counts each look.
    fn look(&self, first: Option<&(Instant, u64)>) -> Option<(Instant, u64)> {
        self.looks.set(self.looks.get() + 1);
        first.copied()
    }

    fn entry(&self, number: u64) -> Option<Rc<Entry>> {
        self.entries.borrow().get(&number).map(Rc::clone)
    }
}

impl Order {
    fn rank(&mut self, before: Option<Ranked>, now: Option<Ranked>) {
        if let Some(Ranked { connections, waiting, newest }) = before
            && let Some(rank) = self.ranks.get_mut(&connections)
        {
            if let Some(waiting) = waiting {
                rank.waiting.remove(&waiting);
            }
            rank.newest.remove(&newest);
            if rank.newest.is_empty() {
                self.ranks.remove(&connections);
            }
        }
        if let Some(Ranked { connections, waiting, newest }) = now {
            let rank = self.ranks.entry(connections).or_default();
            rank.waiting.extend(waiting);
            rank.newest.insert(newest);
        }
    }
}

impl Deadlines {
    /// Past it a connection that has something in progress is held open by its client alone.
    fn stuck(&self) -> std::time::Duration {
        self.write
    }
}

#[cfg(test)]
mod tests;
