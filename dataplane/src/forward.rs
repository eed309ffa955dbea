//! Relays what is not ours: longest stub domain, else the default upstreams, in order, bounded
//! (docs/dns.md §6 without cache, health and shared lookups, which are the full forwarder's).
//!
//! `respond` decides the group; [`Forwarder::slot`] says whether there is room; [`Forwarder::resolve`]
//! asks; [`Resolved::write`] writes the reply. Nothing here can fail: what cannot be resolved is SERVFAIL.

mod attempt;
mod down;
mod limits;
mod lookup;
mod own;
mod plan;
mod resolv_conf;
mod upstreams;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dataplane_core::{Discard, Freshness, OwnedHead, Relayed, Waiting};

use crate::state::Published;
pub use down::Down;
use limits::InFlight;
pub use limits::{Limit, Slot};
use lookup::Unresolved;
use own::OwnAddresses;
pub use resolv_conf::ResolvConf;
use upstreams::Member;
pub use upstreams::Upstreams;

/// The forwarding side of the process: limits, shared by every listener.
#[derive(Debug, Default)]
pub struct Forwarder {
    in_flight: InFlight,
    counts: Counts,
    own: OnceLock<OwnAddresses>,
}

/// What the forwarder counts besides each server's own numbers.
#[derive(Debug, Default)]
struct Counts {
    discards: [AtomicU64; Discard::ALL.len()],
    resolved: AtomicU64,
    unresolved: [AtomicU64; Unresolved::ALL.len()],
}

/// How a lookup ended. The client's reply is written from it in a step of its own: while upstreams are waited for,
/// nobody holds a buffer for a reply of any size.
#[derive(Debug)]
pub struct Resolved(Result<Relayed, Unresolved>);

impl Resolved {
    /// Writes the client's reply into `buffer`, which holds what [`Relayed::write`] asks for; returns its length.
    pub fn write(&self, head: &OwnedHead, buffer: &mut [u8]) -> usize {
        let head = head.borrow();
        match &self.0 {
            Ok(relayed) => relayed.write(&head, Freshness::Fresh { age_s: 0 }, random(), buffer),
            Err(why) => head.fail(why.ede(), why.text(), buffer),
        }
    }
}

impl Forwarder {
    /// A forwarder with nothing in progress.
    pub fn new() -> Arc<Forwarder> {
        Arc::default()
    }

    /// Says where this process listens: whatever the configuration says, it is never asked itself
    /// (A34). Counts for configurations that have not been used yet, so it is said before anybody is served.
    pub(crate) fn listening_on(&self, addresses: &[SocketAddr]) {
        // Once per process: a second time changes nothing.
        let _ = self.own.set(OwnAddresses::new(addresses));
    }

    /// Takes a place for one query of this client to this group, or `None` at a limit (FW52): the
    /// caller answers with `head.fail(0, ..)` at once (N20).
    pub fn slot(
        self: &Arc<Self>,
        upstreams: &Upstreams,
        group: usize,
        client: IpAddr,
    ) -> Option<Slot> {
        limits::take(self, upstreams, group, client)
    }

    /// Counts a query for which there was no room among the buffers of its transport (N20, WR44).
    pub fn refuse_for_buffers(&self) {
        self.in_flight.refuse(Limit::TcpBuffers);
    }

    /// Asks the group. Never fails and never takes longer than the budget (FW24): what cannot be
    /// resolved is SERVFAIL.
    pub async fn resolve(&self, published: &Published, waiting: &Waiting, slot: Slot) -> Resolved {
        let upstreams = &published.upstreams;
        let outcome = match upstreams.group(waiting.group) {
            Some(group) => {
                let members = group.askable(|member| self.is_other(upstreams, member));
                lookup::lookup(upstreams, group, members, &waiting.key, &self.counts).await
            }
            None => Err(Unresolved::NoServer),
        };
        drop(slot);
        if matches!(outcome, Err(Unresolved::NoPort)) {
            self.in_flight.refuse(Limit::UpstreamPorts);
        }
        let count = match &outcome {
            Ok(_) => &self.counts.resolved,
            Err(why) => &self.counts.unresolved[*why as usize],
        };
        count.fetch_add(1, Ordering::Relaxed);
        Resolved(outcome)
    }

    fn is_other(&self, upstreams: &Upstreams, member: &Member) -> bool {
        let address = upstreams.servers()[member.server].address;
        let is_own = self.own.get().is_some_and(|own| own.contains(address));
        if is_own {
            tracing::warn!(
                "upstream {address} is an address this process answers on: it is not asked, as every query \
                 would come back; correct upstreams or stubDomains"
            );
        }
        !is_own
    }

    /// Forwarded queries in progress.
    pub fn in_flight(&self) -> usize {
        self.in_flight.total()
    }

    /// Messages from upstreams that were not the reply waited for (FW13).
    pub fn discarded(&self, reason: Discard) -> u64 {
        self.counts.discards[reason as usize].load(Ordering::Relaxed)
    }

    /// Queries turned away at this limit (N20).
    pub fn limited(&self, limit: Limit) -> u64 {
        self.in_flight.refused(limit)
    }

    /// Lookups that ended with a good reply (N17).
    pub fn resolved(&self) -> u64 {
        self.counts.resolved.load(Ordering::Relaxed)
    }

    /// Lookups that ended without one, each with a metrics label (N16, N18).
    pub fn unresolved(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |why: Unresolved| &self.counts.unresolved[why as usize];
        Unresolved::ALL
            .into_iter()
            .map(move |why| (why.label(), count(why).load(Ordering::Relaxed)))
    }
}

/// A number nobody can guess. The system call behind it fails only where it does not exist.
fn random() -> u64 {
    getrandom::u64().expect("this system gives random numbers")
}
