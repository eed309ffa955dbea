//! How many forwarded queries may be in progress (FW52): in all, per group, per client.
//!
//! A client may hold no more places than are free, besides its own limit. A few clients that take all they can get then
//! leave a share for the next one: `n` of them take `n / (n + 1)` of the places. With the default limits this changes
//! nothing for a client that is alone.

use std::collections::HashMap;
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
    /// `tcpBufferBytes`: what waits for upstreams would not fit beside what is read and not yet written.
    TcpBuffers,
    UpstreamPorts,
    /// The window of each server of the group: none had a place within the budget, or all are down.
    Server,
}

impl Limit {
    /// Every limit, in the order of their discriminants.
    pub const ALL: [Limit; 6] = [
        Limit::Total,
        Limit::Group,
        Limit::Client,
        Limit::TcpBuffers,
        Limit::UpstreamPorts,
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
            Limit::Server => "server",
        }
    }
}

/// Places taken in all, per group and per client (FW52).
#[derive(Debug, Default)]
pub(super) struct InFlight {
    total: AtomicUsize,
    /// Only clients with a query in progress are in it, so `total` bounds its size.
    clients: Mutex<HashMap<IpAddr, usize>>,
    refused: [AtomicU64; Limit::ALL.len()],
    /// No client got less for these.
    refused_prefetches: [AtomicU64; Limit::ALL.len()],
}

/// The place of one forwarded query; it is free again when this is dropped.
#[derive(Debug)]
pub struct Slot {
    forwarder: Arc<Forwarder>,
    /// The route of the group when the place was taken.
    group: Arc<AtomicUsize>,
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
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.lookups.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slot {
    /// A place for one more lookup of its client: this one where no lookup has it, else another, if there is one. One query
    /// may ask again for each part of a chain, and none of these lookups waits for the one before.
    pub(super) fn for_lookup(
        self: &Arc<Slot>,
        upstreams: &Upstreams,
        group: usize,
    ) -> Option<Arc<Slot>> {
        if self.lookups.load(Ordering::Relaxed) == 0 {
            return Some(Arc::clone(self));
        }
        // Its client is not turned away where there is none.
        let more = take(&self.forwarder, upstreams, group, self.client, Purpose::Prefetch);
        more.map(Arc::new)
    }
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

    pub(super) fn refuse(&self, limit: Limit, purpose: Purpose) {
        let counts = match purpose {
            Purpose::Miss | Purpose::Stale => &self.refused,
            Purpose::Prefetch => &self.refused_prefetches,
        };
        counts[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// `free` is the number of places that are left for all clients, before this one is taken.
    fn enter_client(&self, client: IpAddr, limit: usize, free: usize) -> bool {
        let mut clients = self.clients.lock().expect("nothing panics while counting");
        let count = clients.entry(client).or_insert(0);
        let free = *count < limit && *count <= free;
        *count += usize::from(free);
        if *count == 0 {
            clients.remove(&client);
        }
        free
    }

    fn leave_client(&self, client: IpAddr) {
        let mut clients = self.clients.lock().expect("nothing panics while counting");
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
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
) -> Option<Slot> {
    let in_flight = &forwarder.in_flight;
    let refuse = |limit: Limit| {
        in_flight.refuse(limit, purpose);
        None
    };
    let client = client.to_canonical();
    let (count, group_limit) = match upstreams.group(group) {
        Some(group) => (Arc::clone(group.in_flight()), group.max_in_flight),
        // There is no such group: `resolve` reports it; only the other limits count the query.
        None => (Arc::default(), usize::MAX),
    };
    if !enter(&in_flight.total, upstreams.max_in_flight) {
        return refuse(Limit::Total);
    }
    if !enter(&count, group_limit) {
        in_flight.total.fetch_sub(1, Ordering::Relaxed);
        return refuse(Limit::Group);
    }
    // Both counts have the place of this query already.
    let free_of_all = upstreams.max_in_flight.saturating_sub(in_flight.total());
    let free_of_group = group_limit.saturating_sub(count.load(Ordering::Relaxed));
    let free = free_of_all.min(free_of_group).saturating_add(1);
    if !in_flight.enter_client(client, upstreams.max_in_flight_per_client, free) {
        count.fetch_sub(1, Ordering::Relaxed);
        in_flight.total.fetch_sub(1, Ordering::Relaxed);
        return refuse(Limit::Client);
    }
    Some(Slot { forwarder: forwarder.clone(), group: count, client, lookups: AtomicUsize::new(0) })
}

impl Drop for Slot {
    fn drop(&mut self) {
        let in_flight = &self.forwarder.in_flight;
        in_flight.leave_client(self.client);
        self.group.fetch_sub(1, Ordering::Relaxed);
        in_flight.total.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crds::config::{Config, Group, GroupLimits, GroupOptions, StubDomain};

    fn upstreams(total: u32, group: u32, client: u32) -> Upstreams {
        let mut config = Config::default();
        config.limits.in_flight = total;
        config.limits.in_flight_per_client = client;
        let limits = GroupLimits { in_flight: group };
        let options = GroupOptions { limits, ..GroupOptions::default() };
        let stub = Group { servers: Vec::new(), options };
        config.stub_domains = vec![StubDomain { domain: "corp.example".into(), group: stub }];
        Upstreams::of(&config, std::path::Path::new("/nonexistent/resolv.conf"))
    }

    #[test]
    fn fw52_each_limit_turns_away_and_gives_back() {
        for (limit, total, group, client) in
            [(Limit::Total, 2, 9, 9), (Limit::Group, 9, 2, 9), (Limit::Client, 9, 9, 2)]
        {
            let (forwarder, upstreams) = (Forwarder::new(), upstreams(total, group, client));
            let take = || forwarder.slot(&upstreams, 1, IpAddr::from([10, 0, 0, 1]));
            let (first, second) = (take(), take());
            assert!(first.is_some() && second.is_some() && take().is_none(), "{limit:?}");
            let refused = Limit::ALL.map(|limit| forwarder.limited(limit));
            assert_eq!(refused, Limit::ALL.map(|other| u64::from(other == limit)));
            drop(first);
            assert_eq!(forwarder.in_flight(), 1);
            assert!(take().is_some(), "{limit:?}");
            drop(second);
            assert_eq!(forwarder.in_flight(), 0);
            assert!(forwarder.in_flight.clients.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn fw52_clients_that_take_all_they_can_leave_places_for_the_next() {
        for upstreams in [upstreams(640, 9000, 160), upstreams(9000, 640, 160)] {
            let forwarder = Forwarder::new();
            let slot = |client: u8| forwarder.slot(&upstreams, 1, [10, 0, 0, client].into());
            let mut held: VecDeque<Slot> = std::iter::from_fn(|| slot(0)).collect();
            assert_eq!(held.len(), 160, "alone, a client has its own limit");
            for greedy in 1..16 {
                held.extend(std::iter::from_fn(|| slot(greedy)));
            }
            // Each lookup ends in its turn, and all of them try to take its place.
            for _ in 0..640 {
                held.pop_front();
                held.extend((0..16).filter_map(slot));
            }
            let modest: Vec<_> = (100..110).map(slot).collect();
            assert!(modest.iter().all(Option::is_some), "{} are held", held.len());
        }
    }

    #[test]
    fn fw52_one_client_cannot_take_the_places_of_another() {
        let (forwarder, upstreams) = (Forwarder::new(), upstreams(9, 9, 1));
        let _first = forwarder.slot(&upstreams, 1, "10.0.0.1".parse().unwrap()).unwrap();
        assert!(forwarder.slot(&upstreams, 1, "::ffff:10.0.0.1".parse().unwrap()).is_none());
        assert!(forwarder.slot(&upstreams, 1, "10.0.0.2".parse().unwrap()).is_some());
    }
}
