//! Answers from the cache before an upstream is asked, and what a lookup leaves in it (docs/dns.md §6.5).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crds::between_planes::ede;
use dataplane_core::{
    CLIENT_TIMER_MS, Forward, Freshness, LookupKey, OwnedHead, Relayed, Resolution, Surroundings,
    Waiting, Written,
};
use tokio::time::timeout_at;

use super::cache::{CacheLimits, Found};
use super::cached_chain::{Held, Hops, Walked, all_kept, remembered, walk};
use super::chain::{Chain, NoHop};
use super::lookup::Answered;
use super::unresolved::Unresolved;
use super::{Client, Forwarder, Purpose, RouteId, Upstreams, random};
use crate::origin::Origin;
use crate::state::Published;

/// The result of asking the cache for one query.
#[derive(Debug)]
pub enum Cached {
    /// A reply is in the buffer.
    Reply {
        /// Its octets are at the start of the buffer.
        written: Written,
        /// `Cache`, or `Stale` if the entry has expired.
        origin: Origin,
        /// The caller also asks an upstream, which refreshes the cache; this client does not wait for it (CA30).
        refresh: bool,
    },
    /// Upstreams must be asked. An expired reply is the answer if that takes too long or fails (CA40); a fresh one is the
    /// beginning of a chain that continues elsewhere (FW42).
    Ask(Option<Held>),
}

impl Cached {
    /// Handles what the cache has for a query; a reply that can be sent now is written into `buffer`.
    pub(super) fn of(found: Found, forward: &Forward<'_>, seed: u64, buffer: &mut [u8]) -> Cached {
        match found {
            Found::Nothing => Cached::Ask(None),
            Found::Failed { was_silent } => {
                let octets = forward.head.fail(ede::CACHED_ERROR, remembered(was_silent), buffer);
                let written = Written::whole(octets);
                Cached::Reply { written, origin: Origin::Cache, refresh: false }
            }
            Found::Reply { relayed, freshness, refresh }
                if forward.head.form.follows(&relayed)
                    || (refresh && freshness == Freshness::Stale) =>
            {
                Cached::Ask(Some(Held {
                    relayed,
                    freshness,
                    refresh,
                    chain: Resolution::default(),
                }))
            }
            Found::Reply { relayed, freshness, refresh } => {
                let written = relayed.write(&forward.head, freshness, seed, buffer);
                let origin = match freshness {
                    Freshness::Fresh { .. } => Origin::Cache,
                    Freshness::Stale => Origin::Stale,
                };
                Cached::Reply { written, origin, refresh }
            }
        }
    }
}

/// What happens to a query that waits without a task.
#[derive(Debug)]
pub(crate) enum LateEnd {
    Resolved(Resolved),
    /// The reply is the first part of a chain: [`Forwarder::resolve_for`] continues it for this client.
    Chain(Held, Client),
}

impl LateEnd {
    pub(super) fn of(ended: Result<(Relayed, Freshness), Unresolved>, client: Client) -> LateEnd {
        match ended {
            Ok((relayed, freshness)) if relayed.is_partial() => {
                let chain = Resolution::default();
                // The reply is as old as this.
                let client = Client { came: super::now(), ..client };
                LateEnd::Chain(Held { relayed, freshness, refresh: false, chain }, client)
            }
            ended => LateEnd::Resolved(Resolved(End::One(ended))),
        }
    }
}

/// The end of a query that waited for upstreams. The client's reply is written later, in a separate step: a waiting
/// query holds no buffer for a reply.
#[derive(Debug)]
pub struct Resolved(pub(super) End);

/// One reply, or several that make a chain.
#[derive(Debug)]
pub(super) enum End {
    One(Result<(Relayed, Freshness), Unresolved>),
    Chain(Chain),
}

impl Resolved {
    /// Where the client's reply comes from.
    pub fn origin(&self) -> Origin {
        match &self.0 {
            End::One(Ok((_, Freshness::Stale))) => Origin::Stale,
            End::Chain(Chain::Whole(chain)) if chain.is_stale() => Origin::Stale,
            End::One(Ok((_, Freshness::Fresh { .. }))) | End::Chain(Chain::Whole(_)) => {
                Origin::Upstream
            }
            End::One(Err(_)) | End::Chain(Chain::Failed(_) | Chain::Nowhere(..)) => Origin::Failed,
        }
    }

    /// Octets of what upstreams replied, without the parts of others that share it.
    pub(crate) fn octets(&self) -> usize {
        match &self.0 {
            End::One(Ok((relayed, _))) => relayed.share_octets(),
            End::Chain(Chain::Whole(chain)) => chain.share_octets(),
            End::One(Err(_)) | End::Chain(Chain::Failed(_) | Chain::Nowhere(..)) => 0,
        }
    }

    /// Writes the client's reply into `buffer`, which holds what [`Relayed::write`] asks for.
    pub fn write(&self, head: &OwnedHead, buffer: &mut [u8]) -> Written {
        match &self.0 {
            End::One(Ok((relayed, freshness))) => {
                relayed.write(&head.borrow(), *freshness, random(), buffer)
            }
            End::One(Err(why)) => Written::whole(why.write(&head.borrow(), buffer)),
            End::Chain(chain) => chain.write(head, buffer),
        }
    }
}

impl Forwarder {
    /// Asks the cache; what can be answered at once is written into `buffer`. Does not wait, and allocates for chains only.
    /// `around` is of the state in which the group was decided.
    pub fn from_cache(
        &self,
        upstreams: &Upstreams,
        forward: &Forward<'_>,
        around: &Surroundings<'_>,
        buffer: &mut [u8],
    ) -> Cached {
        let Some(route) = upstreams.route(forward.group) else { return Cached::Ask(None) };
        let now_ms = self.clock.now_ms();
        let recoveries = upstreams.recoveries(forward.group);
        let found = self.cache.find(route, &forward.key, now_ms, recoveries, upstreams.cache());
        match Cached::of(found, forward, around.seed, buffer) {
            Cached::Ask(Some(held)) if !held.refresh || held.freshness != Freshness::Stale => {
                let refresh = held.refresh;
                let part =
                    |group: usize, key: &LookupKey| self.part(upstreams, group, key, Hops::OfUse);
                match walk(upstreams, forward, held, around, part) {
                    Walked::Ended(chain) => {
                        let (written, origin) = chain.write(&forward.head, around.seed, buffer);
                        Cached::Reply { written, origin, refresh }
                    }
                    Walked::Open(held) => Cached::Ask(Some(held)),
                }
            }
            cached => cached,
        }
    }

    /// The reply to a query that may not ask an upstream (N20), from what the cache held, if there is one.
    pub fn without_asking(
        &self,
        upstreams: &Upstreams,
        forward: &Forward<'_>,
        held: Held,
        around: &Surroundings<'_>,
        buffer: &mut [u8],
    ) -> Option<(Written, Origin)> {
        let part = |group: usize, key: &LookupKey| self.part(upstreams, group, key, Hops::All);
        all_kept(upstreams, forward, held, around, buffer, part)
    }

    /// The same as [`Forwarder::resolve`] for a query that came then from this client and has waited for its turn (WR41). It has
    /// no place before. What the lookup of another one has left in the cache meanwhile needs none.
    pub(crate) async fn resolve_in_turn(
        self: &Arc<Self>,
        published: &ArcSwap<Published>,
        upstreams: Arc<Upstreams>,
        waiting: &Waiting,
        held: Option<Held>,
        came: (IpAddr, Instant),
    ) -> Resolved {
        let group = waiting.group;
        let is_whole = |held: &Held| !waiting.head.borrow().form.follows(&held.relayed);
        let one = |held: Held| Resolved(End::One(Ok((held.relayed, held.freshness))));
        // What has expired may be asked for meanwhile, by another client.
        let has_expired = |held: &Held| held.freshness == Freshness::Stale;
        let fresh = held.as_ref().is_none_or(has_expired).then(|| {
            let (relayed, freshness) = self.fresh(&upstreams, group, &waiting.key)?;
            Some(Held { relayed, freshness, refresh: false, chain: Resolution::default() })
        });
        let held = fresh.flatten().or(held);
        let held = match held {
            Some(held) if !held.refresh && is_whole(&held) => return one(held),
            held => held,
        };
        match self.slot_in_turn(&upstreams, group, came) {
            Ok(slot) => {
                let client = Client::new(came.1, slot);
                self.resolve_for(published, upstreams, waiting, held, client).await
            }
            // N20. What has expired is an answer, too.
            Err(limit) => match held {
                Some(held) if is_whole(&held) => one(held),
                Some(_) | None => Resolved(End::One(Err(Unresolved::Limited(limit)))),
            },
        }
    }

    /// The reply to one name of a chain, from the cache or its group.
    pub(super) async fn hop(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
        client: &Client,
    ) -> Result<(Relayed, Freshness), NoHop> {
        // It did not wait for a turn: what ended before is another answer.
        let client = &Client { came: super::now(), slot: Arc::clone(&client.slot), ..*client };
        let now_ms = self.clock.now_ms();
        let recoveries = upstreams.recoveries(group);
        let found = upstreams
            .route(group)
            .map(|route| self.cache.find(route, key, now_ms, recoveries, upstreams.cache()));
        match found {
            Some(Found::Failed { was_silent }) => Err(NoHop::Remembered { was_silent }),
            Some(Found::Reply { relayed, freshness: Freshness::Stale, refresh: true }) => {
                let refreshed = self.refreshed(upstreams, group, key, relayed, client).await;
                refreshed.map_err(NoHop::Unresolved)
            }
            Some(Found::Reply { relayed, freshness, refresh }) => {
                if refresh {
                    self.prefetch_beside(upstreams, group, key, client);
                }
                Ok((relayed, freshness))
            }
            Some(Found::Nothing) | None => {
                let asked = self.look_up(upstreams, group, key, client, Purpose::Miss).await;
                let relayed = asked.map_err(NoHop::Unresolved)?;
                Ok((relayed, Freshness::Fresh { age_s: 0 }))
            }
        }
    }

    /// The reply of an upstream, if it comes within 1.8 s after the query of the client, else the stale reply (CA40): the
    /// hops of a chain share this time. The lookup begins in any case, and continues after that (CA41).
    pub(super) async fn refreshed(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
        stale: Relayed,
        client: &Client,
    ) -> Result<(Relayed, Freshness), Unresolved> {
        if let Some(refreshed) = self.fresh(upstreams, group, key) {
            return Ok(refreshed);
        }
        let lookup = self.look_up(upstreams, group, key, client, Purpose::Stale);
        let timer = client.started + Duration::from_millis(CLIENT_TIMER_MS);
        // A timer that has run out still lets the lookup begin.
        match timeout_at(timer.into(), lookup).await {
            Ok(Ok(relayed)) if !relayed.is_cut() => Ok((relayed, Freshness::Fresh { age_s: 0 })),
            // N18, N20, or silence so far; or a part (FW26), which is less than the whole answer from before.
            Ok(Ok(_) | Err(_)) | Err(_) => Ok((stale, Freshness::Stale)),
        }
    }

    /// What the cache has by now, with its age: a query that has waited for its turn was decided before the lookup of another one
    /// ended (FW11).
    pub(super) fn fresh(
        &self,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
    ) -> Option<(Relayed, Freshness)> {
        let at = (self.clock.now_ms(), upstreams.recoveries(group));
        match self.cache.peek(upstreams.route(group)?, key, at, upstreams.cache())?.found {
            Found::Reply { relayed, freshness: freshness @ Freshness::Fresh { .. }, .. } => {
                self.count_joined();
                Some((relayed, freshness))
            }
            Found::Reply { .. } | Found::Failed { .. } | Found::Nothing => None,
        }
    }

    /// Keeps the result of a lookup: its reply, or the failure of its servers (CA2, CA3, CA20). A lookup that ended
    /// for lack of a server, a place or a port is no failure of a server, and is not kept. `recoveries` is from when
    /// the lookup began: failures from before a server came back do not count (FW29). Returns whether it is kept.
    pub(super) fn keep(
        &self,
        route: RouteId,
        key: &LookupKey,
        ended: &Result<Answered, Unresolved>,
        recoveries: u64,
        limits: &CacheLimits,
    ) -> bool {
        let now_ms = self.clock.now_ms();
        match ended {
            Ok(Answered { relayed, .. }) if relayed.is_cut() => {
                self.cache.note_cut(route, key, recoveries);
                false
            }
            Ok(Answered { relayed, server, most_s }) => {
                self.cache.keep(route, (relayed, *server), *most_s, now_ms, limits)
            }
            Err(why @ (Unresolved::Silence | Unresolved::Errors(_))) => {
                let was_silent = *why == Unresolved::Silence;
                self.cache.note_failure(route, key, was_silent, (now_ms, recoveries), limits)
            }
            Err(Unresolved::NoServer | Unresolved::Limited(_)) => {
                self.cache.note_no_refresh(route, key);
                false
            }
        }
    }
}
