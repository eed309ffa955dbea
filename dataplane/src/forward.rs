//! Relays what is not ours (docs/dns.md §6): longest stub domain, else the default upstreams, in order, bounded.
//!
//! `respond` decides the group; [`Forwarder::from_cache`] answers what was asked before; [`Forwarder::slot`] says whether there is room; [`Forwarder::resolve`] joins the lookup
//! that is in progress for the key or begins it; [`Resolved::write`] writes the reply. Nothing here can fail: what cannot
//! be resolved is SERVFAIL.

mod answer;
pub mod cache;
mod table;
mod limits;
mod plan;
mod random;
mod lookup;
mod unresolved;
mod flight;
mod attempt;
mod chain;
mod cached_chain;
mod explain_cache;
pub(crate) mod upstreams;
mod server;
mod member_health;
mod server_identity;
mod registry;
mod sockets;
mod ports;
mod connections;
mod common;
mod probe;
mod overdue;
mod own_addresses;
mod resolv_conf;
mod view;
mod unusable;
mod upstream_tap;
mod clock;
mod cache_sweeper;
mod hashed;

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use dataplane_core::{ErrorCodes, Freshness, LookupKey, Resolution, Waiting};
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::time::timeout_at;

use crate::restarting::restarting;
use crate::state::{Published, State};
use answer::End;
pub(crate) use answer::LateEnd;
pub use answer::{Cached, Resolved};
use cache::{Cache, Found};
pub use cached_chain::Held;
pub use clock::Clock;
pub(crate) use connections::Together;
pub use connections::connection_failures;
pub use explain_cache::{Kept, KeptEntry, KeptPart};
use flight::Begun;
use limits::{InFlight, Taken};
pub use limits::{Limit, Slot};
use own_addresses::OwnAddresses;
use random::random;
pub use registry::RouteId;
pub use resolv_conf::ResolvConf;
use server::Server;
pub(crate) use sockets::Reading;
use table::{Ended, Joined, Late, Running, Table, Waiter};
use unresolved::Unresolved;
pub use unusable::{Down, WithoutServers};
use upstreams::Group;
pub use upstreams::Upstreams;
pub(crate) use view::full_name;
pub use view::{ConnectionsView, GroupView, OfAddress, ServerView, View};

/// Time after the end of the budget in which a lookup says why it failed.
const GRACE: Duration = Duration::from_millis(20);

/// A query that has waited this long for its turn looks into the cache again before it joins a lookup. A reply that it finds there
/// may be a second old, which its client must see.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// The forwarding side of the process: limits and lookups in progress, shared by every listener.
#[derive(Debug, Default)]
pub struct Forwarder {
    in_flight: InFlight,
    table: Arc<Table>,
    counts: Counts,
    own: OnceLock<OwnAddresses>,
    cache: Cache,
    clock: Clock,
}

/// A query of a client that upstreams are asked for.
#[derive(Debug)]
pub(crate) struct Client {
    /// When it came: all it waits for shares one budget (FW24).
    started: Instant,
    /// Since when it may share what has ended (FW11): when it came, or when its chain got here.
    came: Instant,
    /// Shared with the lookups that it begins.
    slot: Arc<Slot>,
}

impl Client {
    /// A client whose query came then, and has this place.
    pub(crate) fn new(started: Instant, slot: Slot) -> Client {
        Client { started, came: started, slot: Arc::new(slot) }
    }

    /// Counts its query where the lookup found neither a port nor a place at a server (N20). Queries that other limits turn
    /// away have no lookup; they are counted where that happens.
    fn count_refusal(&self, ended: &Ended) {
        match ended {
            Err(Unresolved::Limited(limit @ (Limit::UpstreamPorts | Limit::Server))) => {
                self.slot.forwarder.in_flight.refuse(*limit, Purpose::Miss);
            }
            Err(Unresolved::Limited(
                Limit::Total | Limit::Group | Limit::Client | Limit::TcpBuffers | Limit::Connection,
            ))
            | Err(Unresolved::NoServer | Unresolved::Silence | Unresolved::Errors(_))
            | Ok(_) => {}
        }
    }
}

/// Why a lookup begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The cache has nothing.
    Miss,
    /// The cache has a reply that has expired; it notes that it is asked for again.
    Stale,
    /// It has one that expires soon. No client waits (CA30).
    Prefetch,
}

/// What the forwarder counts besides each server's own numbers.
#[derive(Debug, Default)]
struct Counts {
    resolved: AtomicU64,
    unresolved: [AtomicU64; unresolved::LABELS.len()],
    joined: AtomicU64,
    prefetches: AtomicU64,
    without_a_server_up: AtomicU64,
    panics: AtomicU64,
}

impl Forwarder {
    /// A forwarder with nothing in progress.
    pub fn new() -> Arc<Forwarder> {
        Arc::default()
    }

    /// Records our own listening addresses: they are never used as upstreams (A34). It applies to configurations that
    /// are not in use yet, so it is called before the first client is served.
    pub(crate) fn listening_on(&self, addresses: &[SocketAddr]) {
        // Set once per process: a second call changes nothing.
        let _ = self.own.set(OwnAddresses::new(addresses));
    }

    /// Probes the servers of the published configuration (FW27, FW28, FW50), as long as `runtime` runs.
    pub fn probe(self: &Arc<Self>, state: Arc<State>, runtime: &Handle) {
        let forwarder = Arc::clone(self);
        let begin = move || {
            let forwarder = Arc::clone(&forwarder);
            let look = move |upstreams: &Upstreams, now| forwarder.look_for_own(upstreams, now);
            probe::run(Arc::clone(&state), look)
        };
        runtime.spawn(restarting("probes", self.counts_panics(), begin));
    }

    /// Removes entries from the cache that no configuration can use any more, as long as `runtime` runs (CA1, CA5).
    pub fn tidy(self: &Arc<Self>, state: Arc<State>, runtime: &Handle) {
        let forwarder = Arc::clone(self);
        let begin = move || cache_sweeper::run(Arc::clone(&state), Arc::clone(&forwarder));
        runtime.spawn(restarting("tidy", self.counts_panics(), begin));
    }

    fn counts_panics(self: &Arc<Self>) -> impl Fn() + Send + 'static {
        let forwarder = Arc::clone(self);
        move || {
            forwarder.counts.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a place for one query of this client to this group, or `None` at a limit (FW52): the
    /// caller answers with `head.fail(0, ..)` at once (N20).
    pub fn slot(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        client: IpAddr,
    ) -> Option<Slot> {
        limits::take(self, upstreams, group, client, Purpose::Miss).ok()
    }

    /// The same for a query that came then and waited for its turn without a place (WR41). None is taken for a client that has
    /// given up.
    fn slot_in_turn(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        (client, came): (IpAddr, Instant),
    ) -> Result<Slot, Limit> {
        if now() >= came + plan::USUAL.budget {
            return Err(self.in_flight.refuse(Limit::Connection, Purpose::Miss));
        }
        limits::take(self, upstreams, group, client, Purpose::Miss)
    }

    /// The same for asking again for an entry that is about to expire (CA30): `None` is counted apart, because the client
    /// has its reply.
    pub(crate) fn prefetch_slot(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        client: IpAddr,
    ) -> Option<Slot> {
        limits::take(self, upstreams, group, client, Purpose::Prefetch).ok()
    }

    /// Counts a query for which there was no room among the buffers of its transport (N20, WR44).
    pub fn refuse_for_buffers(&self) {
        self.in_flight.refuse(Limit::TcpBuffers, Purpose::Miss);
    }

    /// Asks the group, given what the cache [held](Cached::Ask). Never fails and never takes longer than the budget (FW24):
    /// what cannot be resolved is SERVFAIL. `upstreams` are those of the state in which the group was decided. A chain that
    /// continues elsewhere reads the state that is published then: meanwhile no records are kept from being freed (L17).
    pub async fn resolve(
        self: &Arc<Self>,
        published: &ArcSwap<Published>,
        upstreams: Arc<Upstreams>,
        waiting: &Waiting,
        held: Option<Held>,
        slot: Slot,
    ) -> Resolved {
        let client = Client::new(now(), slot);
        self.resolve_for(published, upstreams, waiting, held, client).await
    }

    /// The same for a client that has waited already.
    pub(crate) async fn resolve_for(
        self: &Arc<Self>,
        published: &ArcSwap<Published>,
        upstreams: Arc<Upstreams>,
        waiting: &Waiting,
        held: Option<Held>,
        client: Client,
    ) -> Resolved {
        let (group, key) = (waiting.group, &waiting.key);
        let mut chain = Resolution::default();
        // Parts from the cache are as old as they were when the query came.
        let mut since = client.came;
        let first = match held {
            Some(Held { relayed: stale, freshness: Freshness::Stale, refresh: true, .. }) => {
                let refreshed = self.refreshed(&upstreams, group, key, stale, &client).await;
                since = now();
                refreshed
            }
            // A part of a chain.
            Some(Held { relayed, freshness, refresh, chain: before }) => {
                chain = before;
                if refresh {
                    self.prefetch_beside(&upstreams, group, key, &client);
                }
                Ok((relayed, freshness))
            }
            None => {
                let asked = self.look_up(&upstreams, group, key, &client, Purpose::Miss).await;
                since = now();
                asked.map(|relayed| (relayed, Freshness::Fresh { age_s: 0 }))
            }
        };
        match first {
            Ok((relayed, freshness)) if waiting.head.borrow().form.follows(&relayed) => {
                // The groups are those of the state that was published when the query was decided (FW43).
                if upstreams.removes_private_addresses(group) {
                    chain.protect();
                }
                drop(upstreams);
                let limit = waiting.head.limit();
                let first = (relayed, freshness, since);
                let chain = self.follow(published, first, chain, limit, &client).await;
                Resolved(End::Chain(chain))
            }
            first => Resolved(End::One(first)),
        }
    }

    /// Asks the group without a task that waits: the thread that ends the lookup calls `late` with the result, within
    /// the budget (FW24). It must not wait. Must be called within a runtime.
    pub(crate) fn resolve_late(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        key: LookupKey,
        client: Client,
        late: impl FnOnce(LateEnd) + Send + 'static,
    ) {
        if now() >= client.came + LONG_WAIT
            && let Some(fresh) = self.fresh(upstreams, group, &key)
        {
            return late(LateEnd::of(Ok(fresh), client));
        }
        let (came, slot) = (client.came, Arc::clone(&client.slot));
        let late = Late::new(move |ended: Ended| {
            client.count_refusal(&ended);
            let asked = ended.map(|relayed| (relayed, Freshness::Fresh { age_s: 0 }));
            late(LateEnd::of(asked, client));
        });
        let Some(group) = upstreams.group(group) else {
            late.call(Err(Unresolved::NoServer));
            return;
        };
        match self.table.join_late(group.route(), key, upstreams.max_in_flight, came, late) {
            Joined::Running(()) => self.count_joined(),
            Joined::Over(late, ended) => {
                self.count_joined();
                late.call(ended);
            }
            Joined::Begun((), running) => {
                self.begin(group, running, slot, upstreams, Purpose::Miss);
            }
            Joined::Full(late) => {
                self.in_flight.refuse(Limit::Total, Purpose::Miss);
                late.call(Err(Unresolved::Limited(Limit::Total)));
            }
        }
    }

    /// What a lookup for this key has left in the cache a moment ago: it began after the cache was asked for this query, which
    /// has waited for its turn since, and it is over. Else equal queries of one batch would begin a lookup in each turn.
    fn left_behind(
        &self,
        upstreams: &Upstreams,
        group: &Group,
        key: &LookupKey,
        purpose: Purpose,
    ) -> Option<Ended> {
        let at = (self.clock.now_ms(), group.recoveries());
        let peeked = self.cache.peek(group.route(), key, at, upstreams.cache())?;
        match (peeked.found, purpose) {
            (Found::Reply { relayed, freshness: Freshness::Fresh { age_s: 0 }, .. }, _) => {
                Some(Ok(relayed))
            }
            (Found::Failed { was_silent: true }, _) => Some(Err(Unresolved::Silence)),
            (Found::Failed { was_silent: false }, _) => {
                Some(Err(Unresolved::Errors(ErrorCodes::default())))
            }
            // That one failed, and the entry is not asked for again now (CA30, CA41): its client has a reply.
            (Found::Reply { refresh: false, .. }, Purpose::Prefetch)
            | (Found::Reply { freshness: Freshness::Stale, refresh: false, .. }, Purpose::Stale) => {
                Some(Err(Unresolved::Silence))
            }
            // With an older one its client would see too long TTLs, so a query that has waited for this long looks before it joins.
            (Found::Reply { .. } | Found::Nothing, _) => None,
        }
    }

    fn count_joined(&self) {
        self.counts.joined.fetch_add(1, Ordering::Relaxed);
    }

    /// The result of the one lookup for this key (FW11), if it comes within the client's budget. The lookup has a budget
    /// of its own: others may join it later than this client, or long after the client's query came.
    async fn look_up(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
        client: &Client,
        purpose: Purpose,
    ) -> Ended {
        // The place stays taken while the query waits, also for the lookup of another client.
        let (waiter, _place) = self.join(upstreams, group, key, client, purpose)?;
        let deadline = client.started + plan::USUAL.budget + GRACE;
        let ended = timeout_at(deadline.into(), table::ended(waiter)).await;
        let ended = ended.unwrap_or(Err(Unresolved::Silence));
        client.count_refusal(&ended);
        ended
    }

    /// Asks again for an entry that is about to expire, without waiting for it (CA30). It must run in the runtime of
    /// lookups.
    pub fn prefetch(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
        slot: &Arc<Slot>,
    ) {
        let started = now();
        let client = Client { started, came: started, slot: Arc::clone(slot) };
        // At a limit a later query will do it.
        let _ = self.join(upstreams, group, key, &client, Purpose::Prefetch);
    }

    /// The same for a part of a chain, in a place of its own: the next part may need that of the query.
    pub(super) fn prefetch_beside(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
        client: &Client,
    ) {
        if let Some(slot) = self.prefetch_slot(upstreams, group, client.slot.client()) {
            self.prefetch(upstreams, group, key, &Arc::new(slot));
        }
    }

    /// Joins the lookup for this key, or begins it with the place of this client, which is returned. What is only asked for
    /// again needs a place of its own where that place has a lookup already: else one query for a chain would begin one for
    /// each part.
    fn join(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
        client: &Client,
        purpose: Purpose,
    ) -> Result<(Waiter, Arc<Slot>), Unresolved> {
        let slot = client.slot.for_lookup(upstreams, group, purpose);
        let slot = slot.map_err(Unresolved::Limited)?;
        let Some(group) = upstreams.group(group) else { return Err(Unresolved::NoServer) };
        match self.table.join(group.route(), key, upstreams.max_in_flight, client.came) {
            Joined::Running(waiter) => {
                self.count_joined();
                Ok((waiter, slot))
            }
            Joined::Over((), ended) => {
                self.count_joined();
                Ok((table::over(ended), slot))
            }
            Joined::Begun(waiter, running) => {
                self.begin(group, running, Arc::clone(&slot), upstreams, purpose);
                Ok((waiter, slot))
            }
            Joined::Full(()) => {
                Err(Unresolved::Limited(self.in_flight.refuse(Limit::Total, purpose)))
            }
        }
    }

    /// Runs a lookup. A panic is counted, as for queries that we answer ourselves.
    fn spawn(self: &Arc<Self>, lookup: impl Future<Output = ()> + Send + 'static) {
        let forwarder = Arc::clone(self);
        tokio::spawn(async move {
            if AssertUnwindSafe(lookup).catch_unwind().await.is_err() {
                forwarder.counts.panics.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// The same for a part of a lookup that needs no task: a defect must not end the thread that reads for others too.
    fn guarded(&self, part: impl FnOnce()) {
        if std::panic::catch_unwind(AssertUnwindSafe(part)).is_err() {
            self.counts.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins one lookup, which does not depend on the clients that wait for it: clients that leave do not end it.
    /// The place of the first client stays taken until the lookup ends. Otherwise a client that closes its
    /// connections could begin any number of lookups. Where another lookup has just left its result, it ends with that.
    fn begin(
        self: &Arc<Self>,
        group: &Arc<Group>,
        running: Box<Running>,
        slot: Arc<Slot>,
        upstreams: &Upstreams,
        purpose: Purpose,
    ) {
        if let Some(ended) = self.left_behind(upstreams, group, running.key(), purpose) {
            // It waits for the end of that lookup, only later.
            self.count_joined();
            running.end(ended);
            return;
        }
        if purpose != Purpose::Miss {
            self.cache.note_refresh(group.route(), running.key(), self.clock.now_ms());
        }
        if group.is_down() {
            self.counts.without_a_server_up.fetch_add(1, Ordering::Relaxed);
        }
        let begun = Begun {
            forwarder: Arc::clone(self),
            group: Arc::clone(group),
            running,
            slot: Taken::of(slot),
            limits: *upstreams.cache(),
            recoveries: group.recoveries(),
            purpose,
        };
        let started = now();
        let is_own = |server: &Server| self.is_own(server);
        let begin = |members: &[usize]| flight::begin(begun, members, started);
        group.with_askable(started, is_own, warn_of_own, begin);
    }

    /// Counts how a lookup ended that began for this: why without an answer, if so.
    fn count_end(&self, why: Option<Unresolved>, purpose: Purpose) {
        // Without a place or a server no upstream was asked again.
        let has_asked = !matches!(why, Some(Unresolved::Limited(_) | Unresolved::NoServer));
        if purpose == Purpose::Prefetch && has_asked {
            self.counts.prefetches.fetch_add(1, Ordering::Relaxed);
        }
        let count = match why {
            None => &self.counts.resolved,
            Some(why) => {
                // Of clients each one is counted that waits for it. Those with a stale answer have left before a lookup ends for
                // want of a place.
                if let (Unresolved::Limited(limit), Purpose::Prefetch)
                | (Unresolved::Limited(limit @ Limit::Server), Purpose::Stale) = (why, purpose)
                {
                    self.in_flight.refuse(limit, purpose);
                }
                &self.counts.unresolved[why.place()]
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks which servers are this process, so that people see it also where no client asks them (A34).
    fn look_for_own(&self, upstreams: &Upstreams, now: Instant) {
        for group in upstreams.groups() {
            group.with_askable(now, |server| self.is_own(server), warn_of_own, |_| ());
        }
    }

    fn is_own(&self, server: &Server) -> bool {
        self.own.get().is_some_and(|own| own.contains(server.address()))
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The clock that ages what is kept.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Queries of clients that wait for an upstream.
    pub fn in_flight(&self) -> usize {
        self.in_flight.total()
    }

    /// Lookups in progress: at most one for each route and key (FW11).
    pub fn lookups(&self) -> usize {
        self.table.len()
    }

    /// Queries that joined a lookup in progress.
    pub fn joined(&self) -> u64 {
        self.counts.joined.load(Ordering::Relaxed)
    }

    /// Lookups that began while every server of their group was down.
    pub fn begun_without_a_server_up(&self) -> u64 {
        self.counts.without_a_server_up.load(Ordering::Relaxed)
    }

    /// Lookups that panicked, which is a defect of this program.
    pub fn panics(&self) -> u64 {
        self.counts.panics.load(Ordering::Relaxed)
    }

    /// Queries of clients turned away at this limit (N20).
    pub fn limited(&self, limit: Limit) -> u64 {
        self.in_flight.refused(limit)
    }

    /// Entries that upstreams were asked for again before they expired (CA30).
    pub fn prefetches(&self) -> u64 {
        self.counts.prefetches.load(Ordering::Relaxed)
    }

    /// Hits on entries that expire soon and were not asked for again at this limit (CA30).
    pub fn limited_prefetches(&self, limit: Limit) -> u64 {
        self.in_flight.refused_prefetches(limit)
    }

    /// Lookups that ended with a good reply (N17).
    pub fn resolved(&self) -> u64 {
        self.counts.resolved.load(Ordering::Relaxed)
    }

    /// Lookups that failed, by metrics label (N16, N18, N20).
    pub fn unresolved(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.unresolved.iter().map(|count| count.load(Ordering::Relaxed));
        unresolved::LABELS.into_iter().zip(counts)
    }
}

fn warn_of_own(server: &Server) {
    tracing::warn!(
        "upstream {} is an address this process answers on: it is not asked, as every query would come back; correct \
         upstreams or stubDomains",
        server.address()
    );
}

/// The runtime's clock, which tests may stop.
fn now() -> Instant {
    #[cfg(test)]
    common::LOOKS.set(common::LOOKS.get() + 1);
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lookup_that_panics_is_counted() {
        let forwarder = Forwarder::new();
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        forwarder.spawn(async {});
        forwarder.spawn(async move {
            let _ended = ended;
            panic!("a defect");
        });
        assert!(end.await.is_err());
        // The runtime has one thread: the task that counts the panic runs once more after this one yields.
        tokio::task::yield_now().await;
        assert_eq!(forwarder.panics(), 1);
    }
}
