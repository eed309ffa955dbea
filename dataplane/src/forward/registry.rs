//! Upstream servers and numbers of routes, which outlive configurations. A server is found by its identity.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dataplane_core::TtlCaps;

use super::common::Common;
use super::connections::Client;
use super::member_health::MemberHealth;
use super::plan::Transport;
use super::server::{AddressCounts, Server};
use super::server_identity::ServerIdentity;

/// Servers no longer configured that are remembered, in case they come back.
const MAX_FORMER: usize = 256;
/// Octets that the authorities of all of these may have: each keeps its own, as text and as keys.
const MAX_FORMER_OCTETS: usize = 1 << 20;

/// The number of a route. An edited group is another route; an edit elsewhere does not change it (CA1).
pub type RouteId = u32;

/// The servers of the process.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) common: Arc<Common>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Those of the present configuration.
    servers: Vec<Arc<Server>>,
    /// Those of earlier ones; the newest first.
    former: Vec<Arc<Server>>,
    routes: Vec<(Route, Arc<RouteState>)>,
    next_server: u32,
    next_route: RouteId,
}

/// The fields of a group that decide what its servers reply and what the cache keeps. Its policy and its limits are
/// not among them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    /// `upstreams`, or the stub domain.
    pub(super) name: String,
    pub(super) servers: Vec<ServerIdentity>,
    /// Names are asked in random case (FW14).
    pub(super) randomise_case: bool,
    /// Kept replies were capped by these.
    pub(super) caps: TtlCaps,
}

/// Counters of a route, as long as it is configured.
#[derive(Debug)]
pub(super) struct RouteState {
    pub(super) id: RouteId,
    /// Queries of clients in progress (FW52).
    pub(super) in_flight: Arc<AtomicUsize>,
    /// Lookups so far, for `RoundRobin`.
    pub(super) lookups: AtomicUsize,
    /// Whether none of its servers was up at the latest look.
    pub(super) was_down: AtomicBool,
    /// How often one of its servers came back while none was up (FW29).
    pub(super) recoveries: AtomicU64,
    /// One for each of its servers, in their order (FW28).
    pub(super) health: Box<[Mutex<MemberHealth>]>,
}

/// The servers and routes that the next configuration uses, before it replaces the present one.
#[derive(Debug)]
pub(super) struct Taking<'r> {
    registry: &'r Registry,
    servers: Vec<Arc<Server>>,
    /// Queries that the groups of each of them may have in progress together.
    in_flight: Vec<usize>,
    routes: Vec<(Route, Arc<RouteState>)>,
}

/// The first of these, as many as are remembered.
fn remembered<'s>(gone: impl Iterator<Item = &'s Arc<Server>>) -> Vec<Arc<Server>> {
    let mut octets = 0;
    let fits = |server: &&Arc<Server>| {
        let all = octets + server.identity.authority_octets();
        let fits = all <= MAX_FORMER_OCTETS;
        if fits {
            octets = all;
        }
        fits
    };
    gone.filter(fits).take(MAX_FORMER).cloned().collect()
}

impl Registry {
    pub(super) fn take(&self) -> Taking<'_> {
        Taking { registry: self, servers: Vec::new(), in_flight: Vec::new(), routes: Vec::new() }
    }
}

impl Taking<'_> {
    /// The server with this identity: the existing one, else a new one that uses `client` for handshakes. Its group
    /// may have `in_flight` queries in progress.
    pub(super) fn server(
        &mut self,
        identity: ServerIdentity,
        client: Option<Client>,
        in_flight: usize,
    ) -> Arc<Server> {
        let is_same = |server: &&Arc<Server>| server.identity == identity;
        if let Some(place) = self.servers.iter().position(|server| is_same(&server)) {
            self.in_flight[place] = self.in_flight[place].saturating_add(in_flight);
            return Arc::clone(&self.servers[place]);
        }
        let mut known = self.registry.known();
        let existing = known.servers.iter().chain(&known.former).find(is_same).cloned();
        let server = existing.unwrap_or_else(|| {
            known.next_server += 1;
            let at = |server: &&Arc<Server>| server.address() == identity.address;
            let all = self.servers.iter().chain(&known.servers).chain(&known.former);
            let shared = all.clone().find(at).map(|server| Arc::clone(&server.of_address));
            let of_address = shared.unwrap_or_else(|| AddressCounts::new(identity.address).into());
            let common = Arc::clone(&self.registry.common);
            Arc::new(Server::new(known.next_server, identity, client, of_address, common))
        });
        self.servers.push(Arc::clone(&server));
        self.in_flight.push(in_flight);
        server
    }

    /// The route of a group with this content: the existing one, else a new one.
    pub(super) fn route(&mut self, route: Route) -> Arc<RouteState> {
        let mut known = self.registry.known();
        let same = known.routes.iter().find(|(existing, _)| *existing == route);
        let state = same.map(|(_, state)| Arc::clone(state)).unwrap_or_else(|| {
            known.next_route += 1;
            let (id, in_flight) = (known.next_route, Arc::default());
            Arc::new(RouteState {
                id,
                in_flight,
                lookups: AtomicUsize::new(0),
                was_down: AtomicBool::new(false),
                recoveries: AtomicU64::new(0),
                health: route.servers.iter().map(|_| Mutex::default()).collect(),
            })
        });
        self.routes.push((route, Arc::clone(&state)));
        state
    }

    /// Replaces the previous configuration; `bound` is of UDP ports (FW10), `most` of queries in progress, `defaults`
    /// are the servers of the default group. Returns all servers.
    pub(super) fn replace(
        self,
        bound: usize,
        most: usize,
        defaults: &[Arc<Server>],
    ) -> Vec<Arc<Server>> {
        let mut known = self.registry.known();
        let is_gone = |server: &&Arc<Server>| self.servers.iter().all(|new| new.id != server.id);
        let gone = known.servers.iter().chain(&known.former).filter(is_gone);
        known.former = remembered(gone);
        known.servers = self.servers;
        known.routes = self.routes;
        // Those that are asked over connections only take no ports: their part would stay unused.
        let by_datagram =
            known.servers.iter().filter(|server| server.transport() == Transport::Udp);
        let ids = by_datagram.map(|server| server.id);
        self.registry.common.ports().configure(bound, ids);
        for (server, in_flight) in known.servers.iter().zip(self.in_flight) {
            let is_default = defaults.iter().any(|default| default.id == server.id);
            server.configured(is_default, in_flight.min(most));
        }
        self.registry.common.woken.notify_one();
        known.servers.clone()
    }
}

impl Registry {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("nothing panics while it holds this")
    }

    /// Closes the sockets that former servers left open, as those of the present ones (FW10).
    pub(super) fn sweep_former(&self, now: Instant) {
        for server in &self.known().former {
            server.pool.sweep(now);
        }
    }

    /// Servers of earlier configurations that are still kept.
    #[cfg(test)]
    pub(super) fn former(&self) -> Vec<Arc<Server>> {
        self.known().former.clone()
    }
}
