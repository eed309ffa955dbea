//! Which connections there are, what each holds, and which must close when a limit is reached (WR44).
//!
//! Places and buffers are shared by client, not by connection: a client gains nothing by opening more. A client is
//! one address, of IPv6 too. A /64 would be the wrong unit here: the Pods of a node usually share one (the default
//! of `--node-cidr-mask-size-ipv6`), so that one Pod could use up the share of all its neighbours, while a Pod itself
//! has a single address.
//!
//! `order` keeps who gives way next, so that a new connection at a limit costs some tens of steps; what happens per query is
//! a few stores.

mod order;
mod choose;
mod buffers;
mod sessions;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::counters::{CloseReason, ServeCounters};
use super::super::{Deadlines, Limits};
use super::client_turns::Share;
use order::{Among, Listed, Order, Own};
pub(super) use sessions::most as sessions_most;

/// Open connections in all and per client, and which one is evicted at a limit.
pub(super) struct ConnectionTable {
    /// By number, so the newest is last.
    entries: RefCell<BTreeMap<u64, Rc<Entry>>>,
    clients: RefCell<HashMap<IpAddr, Rc<Client>>>,
    /// By [`Among`].
    orders: [RefCell<Order>; 2],
    /// Clients and connections that were looked at to find one that gives way.
    looks: Cell<u64>,
    next: Cell<u64>,
    /// Connections whose task has not ended, counted or not.
    permits: Cell<usize>,
    /// Octets held by all, without sessions of TLS.
    held: Cell<usize>,
    /// Octets of all sessions of TLS.
    sessions: Cell<usize>,
    /// Connections that are not read because of the bound on that.
    paused: Cell<usize>,
    limits: RefCell<Limits>,
    counters: Arc<ServeCounters>,
    emptied: Notify,
}

/// All connections of one address.
struct Client {
    address: IpAddr,
    connections: Cell<usize>,
    /// Octets held by all of them.
    held: Cell<usize>,
    /// What it got in this turn.
    share: Rc<Share>,
    /// What it had read of HTTP/2 in this turn.
    read: Rc<Share>,
    /// Its connections, by [`Among`].
    own: [RefCell<Own>; 2],
}

/// One connection, as the others see it.
struct Entry {
    client: Rc<Client>,
    /// Since when nothing is in progress and no message has begun.
    quiet_since: Cell<Option<Instant>>,
    /// Since when it waits for its client only: it is idle, or in the middle of a message.
    waits_since: Cell<Option<Instant>>,
    /// It is not read because it is not the turn of its client, who has sent something.
    waits_for_turn: Cell<bool>,
    /// When its last message came.
    last_message: Cell<Instant>,
    listed: Cell<Listed>,
    held: Cell<usize>,
    /// Octets of its session of TLS. They are no backlog, and stay for as long as the connection.
    session: Cell<usize>,
    /// Not read because of the bound on all buffers.
    paused: Cell<bool>,
    close: Cell<Option<CloseReason>>,
    waker: RefCell<Waker>,
}

/// A connection's place at the table; given back when dropped.
pub(super) struct Permit {
    number: u64,
    entry: Rc<Entry>,
    table: Rc<ConnectionTable>,
}

/// Which limit a new connection would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    PerClient,
    Total,
    /// What sessions of TLS may hold.
    Sessions,
}

/// Connections evicted in one step when a lower limit is set: the others are served in between.
const EVICTIONS_AT_ONCE: usize = 256;

impl ConnectionTable {
    pub(super) fn new(limits: Limits, counters: Arc<ServeCounters>) -> Self {
        Self {
            entries: RefCell::default(),
            clients: RefCell::default(),
            orders: Default::default(),
            looks: Cell::new(0),
            next: Cell::new(0),
            permits: Cell::new(0),
            held: Cell::new(0),
            sessions: Cell::new(0),
            paused: Cell::new(0),
            limits: RefCell::new(limits),
            counters,
            emptied: Notify::new(),
        }
    }

    /// A place for one more connection. At a limit another one closes for it; `None` if none may.
    pub(super) fn admit(self: &Rc<Self>, address: IpAddr) -> Option<Permit> {
        if let Some(limit) = self.limit_reached(address) {
            let (number, reason) = self.choose(address, limit)?;
            self.evict(number, reason);
        }
        Some(self.permit(address))
    }

    /// Whether another connection must close for one more of this client, whose session holds this many octets.
    pub(super) fn is_full(&self, address: IpAddr, session: Option<usize>) -> bool {
        self.limit_reached(address).is_some()
            || session.is_some_and(|octets| !self.has_room_for_session(octets))
    }

    fn limit_reached(&self, address: IpAddr) -> Option<Limit> {
        let limits = self.limits.borrow();
        if self.connections_of(address) >= limits.tcp_connections_per_client {
            Some(Limit::PerClient)
        } else if self.len() >= limits.tcp_connections {
            Some(Limit::Total)
        } else {
            None
        }
    }

    fn connections_of(&self, address: IpAddr) -> usize {
        self.clients.borrow().get(&address).map_or(0, |client| client.connections.get())
    }

    fn permit(self: &Rc<Self>, address: IpAddr) -> Permit {
        let number = self.next.replace(self.next.get() + 1);
        let now = Instant::now();
        let mut clients = self.clients.borrow_mut();
        let client = clients.entry(address).or_insert_with(|| Rc::new(Client::new(address)));
        client.connections.set(client.connections.get() + 1);
        let entry = Rc::new(Entry {
            client: Rc::clone(client),
            quiet_since: Cell::new(Some(now)),
            waits_since: Cell::new(Some(now)),
            waits_for_turn: Cell::new(false),
            last_message: Cell::new(now),
            listed: Cell::new(Listed { waits_since: Some(now), last_message: now }),
            held: Cell::new(0),
            session: Cell::new(0),
            paused: Cell::new(false),
            close: Cell::new(None),
            waker: RefCell::new(Waker::noop().clone()),
        });
        drop(clients);
        self.enlist(number, &entry, Among::All);
        self.entries.borrow_mut().insert(number, Rc::clone(&entry));
        self.permits.set(self.permits.get() + 1);
        self.counters.tcp_open.fetch_add(1, Ordering::Relaxed);
        Permit { number, entry, table: Rc::clone(self) }
    }

    /// Applies new limits, also to open connections.
    pub(super) fn set_limits(&self, limits: Limits) {
        *self.limits.borrow_mut() = limits;
        self.set_held(self.held.get());
    }

    pub(super) fn limits(&self) -> Ref<'_, Limits> {
        self.limits.borrow()
    }

    pub(super) fn deadlines(&self) -> Deadlines {
        self.limits.borrow().deadlines.clone()
    }

    /// Closes idle connections past the limit, the longest idle first, some at a time, and then idle sessions that hold more
    /// than they may; returns whether to call again. Those in use go when they fall idle, see [`Permit::is_surplus`].
    pub(super) fn shrink(&self) -> bool {
        let idle = |(number, entry): (&u64, &Rc<Entry>)| {
            let is_quiet = !entry.waits_for_turn.get();
            let since = entry.quiet_since.get().filter(|_| is_quiet)?;
            Some((since, *number, entry.session.get() > 0))
        };
        let mut idle: Vec<_> = self.entries.borrow().iter().filter_map(idle).collect();
        idle.sort_unstable();
        let mut evicted = 0;
        for (_, number, has_session) in idle {
            let is_surplus = self.surplus() > 0 || has_session && !self.has_room_for_session(0);
            if is_surplus && evicted < EVICTIONS_AT_ONCE {
                self.evict(number, CloseReason::Evicted);
                evicted += 1;
            }
        }
        evicted == EVICTIONS_AT_ONCE
    }

    /// Open connections.
    pub(super) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// How many connections there are past their limit.
    fn surplus(&self) -> usize {
        self.len().saturating_sub(self.limits.borrow().tcp_connections)
    }

    /// Takes a connection off the table; its task closes it when it runs next.
    fn evict(&self, number: u64, reason: CloseReason) {
        if let Some(entry) = self.remove(number) {
            entry.ask_to_close(reason);
        }
    }

    fn remove(&self, number: u64) -> Option<Rc<Entry>> {
        let entry = self.entries.borrow_mut().remove(&number)?;
        let client = &entry.client;
        client.connections.set(client.connections.get() - 1);
        self.strike(number, &entry);
        if client.connections.get() == 0 {
            self.clients.borrow_mut().remove(&client.address);
        }
        self.set_paused(&entry, false);
        self.sessions.set(self.sessions.get() - entry.session.take());
        self.set_held_of(&entry, 0);
        Some(entry)
    }

    /// Closes every connection with nothing in progress.
    pub(super) fn close_quiet(&self, reason: CloseReason) {
        for entry in self.entries.borrow().values() {
            if entry.quiet_since.get().is_some() {
                entry.ask_to_close(reason);
            }
        }
    }

    /// Returns when the last connection is gone.
    pub(super) async fn empty(&self) {
        while self.permits.get() > 0 {
            self.emptied.notified().await;
        }
    }
}

impl Client {
    fn new(address: IpAddr) -> Self {
        Self {
            address,
            connections: Cell::new(0),
            held: Cell::new(0),
            share: Rc::default(),
            read: Rc::default(),
            own: Default::default(),
        }
    }
}

impl Entry {
    fn ask_to_close(&self, reason: CloseReason) {
        self.close.set(Some(reason));
        self.waker.borrow().wake_by_ref();
    }
}

impl Permit {
    /// Remembers whom to wake, and says whether the connection must close.
    pub(super) fn poll_close(&self, cx: &Context<'_>) -> Poll<CloseReason> {
        if let Some(reason) = self.entry.close.get() {
            return Poll::Ready(reason);
        }
        self.entry.waker.borrow_mut().clone_from(cx.waker());
        Poll::Pending
    }

    /// The same, but a drain leaves what is new, whose first query may be on its way (E45).
    pub(super) fn poll_close_unless(&self, cx: &Context<'_>, is_new: bool) -> Poll<CloseReason> {
        match self.poll_close(cx) {
            Poll::Ready(CloseReason::Drain) if is_new => {
                self.stay(cx);
                Poll::Pending
            }
            reason => reason,
        }
    }

    /// It does not close for now, though it was asked to.
    pub(super) fn stay(&self, cx: &Context<'_>) {
        self.entry.close.set(None);
        self.entry.waker.borrow_mut().clone_from(cx.waker());
    }

    /// Whether it was asked to close.
    pub(super) fn must_close(&self) -> bool {
        self.entry.close.get().is_some()
    }

    /// Whether it closes for others, at once. In a drain what is in progress is still answered (E45).
    pub(super) fn gives_way(&self) -> bool {
        self.entry.close.get().is_some_and(|reason| reason != CloseReason::Drain)
    }

    /// From here on it closes for this reason.
    pub(super) fn closes(&self, reason: CloseReason) {
        self.entry.close.set(Some(reason));
    }

    /// What its client got in this turn.
    pub(super) fn share(&self) -> &Rc<Share> {
        &self.entry.client.share
    }

    /// What its client had read of HTTP/2 in this turn.
    pub(super) fn read_share(&self) -> &Rc<Share> {
        &self.entry.client.read
    }

    pub(super) fn quiet_since(&self) -> Option<Instant> {
        self.entry.quiet_since.get()
    }

    pub(super) fn set_quiet_since(&self, since: Option<Instant>) {
        self.entry.quiet_since.set(since);
    }

    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.entry.waits_since.get()
    }

    pub(super) fn set_waits_since(&self, since: Option<Instant>) {
        self.entry.waits_since.set(since);
        if since.is_some() && self.entry.listed.get().waits_since.is_none() && !self.must_close() {
            self.table.list_wait(self.number, &self.entry, since);
        }
    }

    /// Its client has sent what is not read yet, because it is not its turn; or that was read. It is not taken for idle
    /// meanwhile.
    pub(super) fn set_waits_for_turn(&self, waits: bool) {
        if self.entry.waits_for_turn.replace(waits) && !waits {
            self.set_waits_since(self.waits_since());
        }
    }

    pub(super) fn waits_for_turn(&self) -> bool {
        self.entry.waits_for_turn.get()
    }

    pub(super) fn message_came(&self, at: Instant) {
        self.entry.last_message.set(at);
    }

    /// Whether there are more connections than a lowered limit allows, or sessions that hold more.
    pub(super) fn is_surplus(&self) -> bool {
        let has_session = self.entry.session.get() > 0;
        self.table.surplus() > 0 || has_session && !self.table.has_room_for_session(0)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.table.remove(self.number);
        self.table.permits.set(self.table.permits.get() - 1);
        self.table.counters.tcp_open.fetch_sub(1, Ordering::Relaxed);
        self.table.emptied.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
