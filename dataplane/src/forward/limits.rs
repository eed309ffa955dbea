//! How many forwarded queries may be in progress (FW52): in all, per group, per client.
//!
//! A client may hold no more places than are free, besides its own limit: of all places, and of those of each group. A few
//! clients that take all they can get then leave a share for the next one: `n` of them take `n / (n + 1)` of the places.
//! With the default limits this changes nothing for a client that is alone. Its places in one group do not count in another:
//! a group that is silent would else take its clients away from one that is healthy.
//!
//! The same holds for groups, where there are several: many clients with one place each could else fill all places with names
//! of two groups whose servers are slow.

use std::collections::hash_map::{Entry, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::{Forwarder, Purpose, Upstreams};

/// The limits that turn a query away, as metrics labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// `limits.inFlight`: queries in progress in all.
    Total,
    /// `limits.inFlight` of one group of upstreams.
    Group,
    /// That of one client address.
    Client,
    /// `limits.tcpBuffers`: what waits for upstreams would not fit beside what is read and not yet written.
    TcpBuffers,
    UpstreamPorts,
    /// Lookups of one connection of a client (WR41): those before took as long as a query may wait.
    Connection,
    /// The window of each server of the group: none had a place within the budget. While all are down, none is waited for.
    Server,
}

impl Limit {
    /// Every limit, in the order of their discriminants.
    pub const ALL: [Limit; 7] = [
        Limit::Total,
        Limit::Group,
        Limit::Client,
        Limit::TcpBuffers,
        Limit::UpstreamPorts,
        Limit::Connection,
        Limit::Server,
    ];

    /// Value of the label `limit` of `clusterdns_limited_total`.
    pub const fn label(self) -> &'static str {
        match self {
            Limit::Total => "total",
            Limit::Group => "group",
            Limit::Client => "client",
            Limit::TcpBuffers => "tcp_buffers",
            Limit::UpstreamPorts => "upstream_ports",
            Limit::Connection => "connection",
            Limit::Server => "server",
        }
    }
}

/// Places taken in all, per group and per client (FW52).
#[derive(Debug, Default)]
pub(super) struct InFlight {
    total: AtomicUsize,
    /// Places of each client, in all (`None`) and in each group where it has one, so twice `total` bounds its size.
    clients: Mutex<Clients>,
    refused: [AtomicU64; Limit::ALL.len()],
    /// No client got less for these.
    refused_prefetches: [AtomicU64; Limit::ALL.len()],
}

type Clients = HashMap<(IpAddr, Option<GroupKey>), usize>;

/// Tells groups apart while a place of theirs is taken: where their count is.
type GroupKey = usize;

fn key(group: &Arc<AtomicUsize>) -> GroupKey {
    Arc::as_ptr(group).addr()
}

/// The place of one forwarded query; it is free again when this is dropped.
#[derive(Debug)]
pub struct Slot {
    pub(super) forwarder: Arc<Forwarder>,
    /// The places of the group that is asked, as its route was when this one was taken.
    group: Mutex<Arc<AtomicUsize>>,
    client: IpAddr,
    /// Lookups in progress that began with it.
    lookups: AtomicUsize,
}

/// The place that a lookup has until it ends.
#[derive(Debug)]
pub(super) struct Taken(Arc<Slot>);

impl Taken {
    pub(super) fn of(slot: Arc<Slot>) -> Taken {
        slot.lookups.fetch_add(1, Ordering::Relaxed);
        Taken(slot)
    }

    pub(super) fn client(&self) -> IpAddr {
        self.0.client()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.lookups.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slot {
    /// A place for one more lookup of its client in this group: this one where no lookup has it, else another. One query may
    /// ask again for each part of a chain, and none of these lookups waits for the one before. The next part of a chain may
    /// belong to another group (FW42): the place moves there, and that of the group before is free.
    pub(super) fn for_lookup(
        self: &Arc<Slot>,
        upstreams: &Upstreams,
        group: usize,
        purpose: Purpose,
    ) -> Result<Arc<Slot>, Limit> {
        let here = self.is_of(upstreams, group);
        if self.lookups.load(Ordering::Relaxed) == 0 {
            if !here {
                self.move_to(upstreams, group, purpose)?;
            }
            return Ok(Arc::clone(self));
        }
        // In its own group a client is not turned away where there is no other.
        let is_needed = purpose == Purpose::Miss && !here;
        let counted = if is_needed { Purpose::Miss } else { Purpose::Prefetch };
        match take(&self.forwarder, upstreams, group, self.client, counted) {
            Ok(more) => Ok(Arc::new(more)),
            Err(_) if purpose == Purpose::Miss && here => Ok(Arc::clone(self)),
            Err(limit) => Err(limit),
        }
    }

    pub(super) fn client(&self) -> IpAddr {
        self.client
    }

    /// Whether this is a place of that group. Where there is no such group, its query is not asked, and needs no other.
    fn is_of(&self, upstreams: &Upstreams, group: usize) -> bool {
        let held = self.group.lock().expect("nothing panics while counting");
        upstreams.group(group).is_none_or(|group| Arc::ptr_eq(&held, group.in_flight()))
    }

    fn move_to(&self, upstreams: &Upstreams, group: usize, purpose: Purpose) -> Result<(), Limit> {
        let in_flight = &self.forwarder.in_flight;
        let Some(group) = upstreams.group(group) else { return Ok(()) };
        let next = group.in_flight();
        let limit = in_flight.limit_of_group(upstreams, next, group.max_in_flight);
        if !enter(next, limit) {
            return Err(in_flight.refuse(Limit::Group, purpose));
        }
        if !in_flight.move_client(self.client, key(next), free_with_own(next, limit)) {
            next.fetch_sub(1, Ordering::Relaxed);
            return Err(in_flight.refuse(Limit::Client, purpose));
        }
        let mut held = self.group.lock().expect("nothing panics while counting");
        let before = std::mem::replace(&mut *held, Arc::clone(next));
        in_flight.leave_group(self.client, key(&before));
        before.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The places that were free before one was taken, which `count` has already.
fn free_with_own(count: &AtomicUsize, limit: usize) -> usize {
    limit.saturating_sub(count.load(Ordering::Relaxed)).saturating_add(1)
}

/// Places that a client may take, of all and of one group, before it takes one.
#[derive(Clone, Copy)]
struct Free {
    of_all: usize,
    of_group: usize,
}

impl InFlight {
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }

    pub(super) fn refused_prefetches(&self, limit: Limit) -> u64 {
        self.refused_prefetches[limit as usize].load(Ordering::Relaxed)
    }

    /// How many places a group may have that has this limit and holds `count`, while one more is being taken: `total` has that
    /// already. One that holds more than an even share may hold no more than are free, so that two groups whose servers are slow
    /// leave places for a third. That is half of what it holds and what is free: its own places do not change it.
    fn limit_of_group(&self, upstreams: &Upstreams, count: &AtomicUsize, limit: usize) -> usize {
        let held = count.load(Ordering::Relaxed);
        if upstreams.even_share.is_none_or(|share| held < share) {
            return limit;
        }
        let free = free_with_own(&self.total, upstreams.max_in_flight);
        limit.min(held.saturating_add(free) / 2 + 1)
    }

    /// Counts a refusal; returns its limit.
    pub(super) fn refuse(&self, limit: Limit, purpose: Purpose) -> Limit {
        let counts = match purpose {
            Purpose::Miss | Purpose::Stale => &self.refused,
            Purpose::Prefetch => &self.refused_prefetches,
        };
        counts[limit as usize].fetch_add(1, Ordering::Relaxed);
        limit
    }

    /// Counts one more place of a client, in all and in this group, if it may have one.
    fn enter_client(&self, client: IpAddr, group: GroupKey, limit: usize, free: Free) -> bool {
        let mut clients = self.clients.lock().expect("nothing panics while counting");
        let all = clients.get(&(client, None)).copied().unwrap_or(0);
        let may = all < limit
            && all <= free.of_all
            && enter_group(&mut clients, client, group, free.of_group);
        if may {
            clients.insert((client, None), all + 1);
        }
        may
    }

    /// Counts one more place of a client in this group only, which it gives back in another.
    fn move_client(&self, client: IpAddr, group: GroupKey, free: usize) -> bool {
        let mut clients = self.clients.lock().expect("nothing panics while counting");
        enter_group(&mut clients, client, group, free)
    }

    fn leave_client(&self, client: IpAddr, group: GroupKey) {
        let mut clients = self.clients.lock().expect("nothing panics while counting");
        leave(&mut clients, (client, None));
        leave(&mut clients, (client, Some(group)));
    }

    fn leave_group(&self, client: IpAddr, group: GroupKey) {
        let mut clients = self.clients.lock().expect("nothing panics while counting");
        leave(&mut clients, (client, Some(group)));
    }
}

fn enter_group(clients: &mut Clients, client: IpAddr, group: GroupKey, free: usize) -> bool {
    let of_group = clients.entry((client, Some(group))).or_insert(0);
    let may = *of_group <= free;
    *of_group += usize::from(may);
    may
}

fn leave(clients: &mut Clients, place: (IpAddr, Option<GroupKey>)) {
    if let Entry::Occupied(mut count) = clients.entry(place) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// Adds one unless the limit is reached.
fn enter(count: &AtomicUsize, limit: usize) -> bool {
    let free = |now: usize| (now < limit).then_some(now + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok()
}

pub(super) fn take(
    forwarder: &Arc<Forwarder>,
    upstreams: &Upstreams,
    group: usize,
    client: IpAddr,
    purpose: Purpose,
) -> Result<Slot, Limit> {
    let in_flight = &forwarder.in_flight;
    let client = client.to_canonical();
    let (count, group_limit) = match upstreams.group(group) {
        Some(group) => (Arc::clone(group.in_flight()), group.max_in_flight),
        // There is no such group: `resolve` reports it; only the other limits count the query.
        None => (Arc::default(), usize::MAX),
    };
    if !enter(&in_flight.total, upstreams.max_in_flight) {
        return Err(in_flight.refuse(Limit::Total, purpose));
    }
    let group_limit = in_flight.limit_of_group(upstreams, &count, group_limit);
    if !enter(&count, group_limit) {
        in_flight.total.fetch_sub(1, Ordering::Relaxed);
        return Err(in_flight.refuse(Limit::Group, purpose));
    }
    let free = Free {
        of_all: free_with_own(&in_flight.total, upstreams.max_in_flight),
        of_group: free_with_own(&count, group_limit),
    };
    if !in_flight.enter_client(client, key(&count), upstreams.max_in_flight_per_client, free) {
        count.fetch_sub(1, Ordering::Relaxed);
        in_flight.total.fetch_sub(1, Ordering::Relaxed);
        return Err(in_flight.refuse(Limit::Client, purpose));
    }
    let (forwarder, group) = (forwarder.clone(), Mutex::new(count));
    Ok(Slot { forwarder, group, client, lookups: AtomicUsize::new(0) })
}

impl Drop for Slot {
    fn drop(&mut self) {
        let in_flight = &self.forwarder.in_flight;
        let group = self.group.get_mut().expect("nothing panics while counting");
        in_flight.leave_client(self.client, key(group));
        group.fetch_sub(1, Ordering::Relaxed);
        in_flight.total.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
