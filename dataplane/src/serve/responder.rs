//! Used by UDP and TCP: asks the core for a decision, and the forwarder if the decision is to forward.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crds::between_planes;
use dataplane_core::{
    Action, Ahead, Counters, Forward, LookupKey, OwnedHead, Query, Reason, Surroundings, Transport,
    Waiting, WorkerCounters, Written, respond,
};
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::ServeCounters;
use super::counters::add;
use crate::forward::{Cached, Client, Forwarder, Held, LateEnd, Resolved, Slot, Upstreams};
use crate::origin::{Answered, Origin, ServedOver};
use crate::state::{Published, State};
use crate::taps::{Began, Exchange};

/// Shared by all serving threads.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) state: Arc<State>,
    pub(super) forwarder: Arc<Forwarder>,
    /// Where lookups run, away from the serving threads.
    pub(super) runtime: Handle,
    /// UDP replies still to come.
    late: TaskTracker,
    pub(super) counters: Arc<ServeCounters>,
}

/// The sender of a message, our address, and the transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    /// An IPv4-mapped address is the IPv4 one.
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) over: ServedOver,
}

/// Octets of a query that are kept while an upstream is asked, for the query log and dnstap. A query with the longest
/// name and EDNS options has fewer. Clients choose the length of their queries, and limits count hardly more than the
/// place of a waiting one. For a longer query dnstap shows the reply only.
const KEPT_OCTETS: usize = 512;

/// A query that the query log or dnstap wants with its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) began: &'a Began,
    pub(super) asker: Asker,
    pub(super) query: &'a [u8],
    /// Whether that is only its beginning.
    pub(super) is_cut: bool,
}

/// The same, while an upstream is asked.
#[derive(Debug)]
pub(super) struct AskedLater {
    began: Began,
    asker: Asker,
    query: Box<[u8]>,
    is_cut: bool,
}

impl Asked<'_> {
    pub(super) fn keep(&self) -> Box<AskedLater> {
        let query = &self.query[..self.query.len().min(KEPT_OCTETS)];
        let is_cut = self.is_cut || query.len() < self.query.len();
        Box::new(AskedLater { began: *self.began, asker: self.asker, query: query.into(), is_cut })
    }
}

impl AskedLater {
    pub(super) fn borrow(&self) -> Asked<'_> {
        let AskedLater { began, asker, query, is_cut } = self;
        Asked { began, asker: *asker, query, is_cut: *is_cut }
    }
}

/// The core's decision about one message ([`Action`]), after the cache was read and a place was taken.
pub(super) enum ServeAction {
    /// The reply's octets in the buffer, how it came about, and what to [ask again](Responder::refresh) once it has left.
    Reply(usize, Answered, Option<Box<Refresh>>),
    Drop,
    /// An upstream must be asked: the client, the entry of the cache, and the place, which is already taken.
    Forward(Box<Waiting>, Option<Held>, Slot),
    /// The same when its turn comes, for [`Room::Later`]. It has no place until then.
    Later(Box<Waiting>, Option<Held>),
}

/// Whether a query may wait for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Now,
    /// Behind others of its connection (WR41).
    Later,
    /// There is no room among the buffers (WR44).
    None,
}

/// What is in the cache and expires soon: an upstream is asked again on behalf of a client that has its reply (CA30).
pub(super) struct Refresh {
    group: usize,
    key: LookupKey,
    slot: Arc<Slot>,
}

impl Responder {
    pub(super) fn new(
        state: Arc<State>,
        forwarder: Arc<Forwarder>,
        runtime: Handle,
        counters: Arc<ServeCounters>,
    ) -> Self {
        Self { state, forwarder, runtime, late: TaskTracker::new(), counters }
    }

    /// Decides one query; `worker` is whose counters count it. What was read ahead is of this published state. A forward that finds no slot, or no room to wait in, is
    /// answered at once (N20).
    pub(super) fn decide<'a>(
        &'a self,
        (published, ahead): (&'a Arc<Published>, Option<&Ahead<'_, 'a>>),
        worker: usize,
        query: &Query<'a>,
        room: Room,
        buffer: &mut [u8],
    ) -> ServeAction {
        let counters = Counters {
            own: &self.state.counters[worker],
            all: &self.state.counters,
            servers: published.upstreams.servers(),
            cache: self.forwarder.cache().counters(),
            identity: &self.state.identity,
        };
        let decided = match ahead {
            Some(ahead) => ahead.respond(query, &counters, buffer),
            None => respond(&published.records, query, &counters, buffer),
        };
        // By reference: a pattern that takes the pair apart would copy half a kilobyte for each query.
        let (action, reason) = (&decided.0, decided.1);
        match action {
            Action::Reply(octets) => {
                ServeAction::Reply(*octets, Answered { reason, origin: Origin::Own }, None)
            }
            Action::Drop => ServeAction::Drop,
            Action::Forward(forward) => {
                self.forward(published, worker, query, forward, room, buffer)
            }
        }
    }

    /// Answers from the cache, else takes a place to ask an upstream. At a limit the client gets the expired reply,
    /// or SERVFAIL.
    fn forward(
        &self,
        published: &Arc<Published>,
        worker: usize,
        query: &Query<'_>,
        forward: &Forward<'_>,
        room: Room,
        buffer: &mut [u8],
    ) -> ServeAction {
        let upstreams = &published.upstreams;
        let own = &self.state.counters[worker];
        let around = Surroundings {
            records: &published.records,
            now_s: query.now_s,
            seed: query.seed,
            limit: forward.head.form.limit,
        };
        let held = match self.forwarder.from_cache(upstreams, forward, &around, buffer) {
            Cached::Reply { written, origin, refresh } => {
                let refresh = refresh.then(|| self.to_refresh(upstreams, forward, query.client));
                return relayed(cached(written, query, own), origin, refresh.flatten());
            }
            Cached::Ask(held) => held,
        };
        let slot = match room {
            Room::Now => self.forwarder.slot(upstreams, forward.group, query.client.ip()),
            Room::Later => return ServeAction::Later(Box::new(forward.keep()), held),
            Room::None => {
                self.forwarder.refuse_for_buffers();
                None
            }
        };
        if let Some(slot) = slot {
            return ServeAction::Forward(Box::new(forward.keep()), held, slot);
        }
        let from_cache = held.and_then(|held| {
            self.forwarder.without_asking(upstreams, forward, held, &around, buffer)
        });
        match from_cache {
            Some((written, origin)) => relayed(cached(written, query, own), origin, None),
            None => {
                let octets =
                    forward.head.fail(between_planes::ede::OTHER, between_planes::LIMIT, buffer);
                relayed(octets, Origin::Failed, None)
            }
        }
    }

    /// Shows a query and its reply to the taps; `place` is the number of the serving thread.
    pub(super) fn show(&self, place: usize, asked: &Asked<'_>, answered: Answered, reply: &[u8]) {
        let Asked { began, asker: Asker { client, server, over }, query, is_cut } = *asked;
        let exchange = Exchange {
            client,
            server,
            over,
            answered,
            query,
            is_query_cut: is_cut,
            reply,
            ..Exchange::default()
        };
        self.state.taps.show(place, began, &exchange);
    }

    /// Takes a place for what is about to expire. At a limit it is left for later.
    fn to_refresh(
        &self,
        upstreams: &Upstreams,
        forward: &Forward<'_>,
        client: SocketAddr,
    ) -> Option<Box<Refresh>> {
        let slot = self.forwarder.prefetch_slot(upstreams, forward.group, client.ip())?;
        let (group, key) = (forward.group, forward.key.clone());
        Some(Box::new(Refresh { group, key, slot: Arc::new(slot) }))
    }

    /// Asks an upstream again. It may cost a socket, so replies leave before. A panic is counted: the client has its reply
    /// already, and a connection has other queries.
    pub(super) fn refresh(&self, upstreams: &Upstreams, refresh: &Refresh) {
        let Refresh { group, key, slot } = refresh;
        let _lookups = self.runtime.enter();
        let asks = AssertUnwindSafe(|| self.forwarder.prefetch(upstreams, *group, key, slot));
        if catch_unwind(asks).is_err() {
            add(&self.counters.panics, 1);
        }
    }

    /// Asks upstreams for a client. The thread that ends the lookup calls `reply` with the result. A panic is
    /// counted, as for queries that we answer ourselves. No records are held meanwhile: a lookup that waits for
    /// seconds must not keep old records in memory.
    pub(super) fn reply_late(
        self: &Arc<Self>,
        upstreams: Arc<Upstreams>,
        waiting: Box<Waiting>,
        held: Option<Held>,
        client: Client,
        reply: impl FnOnce(&OwnedHead, &Resolved) + Send + 'static,
    ) {
        let responder = Arc::clone(self);
        if held.is_some() {
            let late = async move {
                let (published, forwarder) = (&responder.state.published, &responder.forwarder);
                let resolved =
                    forwarder.resolve_for(published, upstreams, &waiting, held, client).await;
                reply(&waiting.head, &resolved);
            };
            return self.spawn_late(late);
        }
        // Sockets and tasks of the lookup are the runtime's.
        let _within = self.runtime.enter();
        let token = self.late.token();
        let (group, key, of) = (waiting.group, waiting.key.clone(), Arc::clone(&upstreams));
        let late = move |end| {
            match end {
                LateEnd::Resolved(resolved) => {
                    let reply = AssertUnwindSafe(|| reply(&waiting.head, &resolved));
                    if catch_unwind(reply).is_err() {
                        add(&responder.counters.panics, 1);
                    }
                }
                LateEnd::Chain(first, client) => {
                    let asks = Arc::clone(&responder);
                    responder.spawn_late(async move {
                        let (published, forwarder) = (&asks.state.published, &asks.forwarder);
                        let resolved = forwarder
                            .resolve_for(published, upstreams, &waiting, Some(first), client)
                            .await;
                        reply(&waiting.head, &resolved);
                    });
                }
            }
            // The responder holds the sockets through its counters. A stop that ends at the last token must find them
            // closed (E45, the ports are free).
            drop(responder);
            drop(token);
        };
        self.forwarder.resolve_late(&of, group, key, client, late);
    }

    /// Runs the future that ends with a late UDP reply. A panic is counted, as for queries that we answer ourselves.
    pub(super) fn spawn_late(&self, late: impl Future<Output = ()> + Send + 'static) {
        let counters = Arc::clone(&self.counters);
        let late = async move {
            if AssertUnwindSafe(late).catch_unwind().await.is_err() {
                add(&counters.panics, 1);
            }
        };
        self.late.spawn_on(late, &self.runtime);
    }

    /// Returns when every late UDP reply is sent.
    pub(super) async fn finish_late(&self) {
        self.late.close();
        self.late.wait().await;
    }
}

/// Counts a reply that the cache gave; its octets.
fn cached(written: Written, query: &Query<'_>, own: &WorkerCounters) -> usize {
    own.add_cached();
    if written.is_cut && query.transport == Transport::Tcp {
        own.add_capped_rrset();
    }
    written.octets
}

/// The reply to a query that is not ours.
fn relayed(octets: usize, origin: Origin, refresh: Option<Box<Refresh>>) -> ServeAction {
    ServeAction::Reply(octets, Answered { reason: Reason::Forward, origin }, refresh)
}

/// The client as client lists and limits see it: an IPv4-mapped address is the IPv4 one.
pub(super) fn client(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// Random numbers for one thread (wyrand): they order RRsets and spread ages, nothing secret depends on them.
#[derive(Debug)]
pub(super) struct Seeds(u64);

impl Seeds {
    /// Starts with random numbers of the system.
    pub(super) fn new() -> Self {
        Self(RandomState::new().hash_one(std::thread::current().id()))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }
}

#[cfg(test)]
pub(in crate::serve) mod tests;
