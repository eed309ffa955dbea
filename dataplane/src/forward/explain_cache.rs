//! What the cache has for a question, one part of its chain after the other, for people who ask (`/explain`). The reply is
//! made as for a client, but nothing is asked, counted or noted.

use dataplane_core::{Forward, LookupKey, Name, Surroundings};

use super::answer::Cached;
use super::cache::{Found, Member, Peeked};
use super::cached_chain::all_kept;
use super::{Forwarder, Upstreams};
use crate::origin::Origin;

/// What the cache has for a question.
#[derive(Debug)]
pub struct Kept {
    /// One for each name that upstreams are asked for, in their order. The last may have nothing.
    pub parts: Vec<KeptPart>,
    /// Octets of the reply in the buffer and where it comes from; none where a part has nothing. Where a part has expired, an
    /// upstream may be asked before the reply is used.
    pub reply: Option<(usize, Origin)>,
}

/// What the cache has for one name.
#[derive(Debug)]
pub struct KeptPart {
    /// The group whose name it is.
    pub group: usize,
    pub found: Found,
    /// Of a reply that was found. A failure has none: what is known of the slot is the age of a reply before it.
    pub entry: Option<KeptEntry>,
    /// The next name that is asked for, where the reply is only a part of a chain (FW42).
    pub leads_to: Option<Name>,
}

/// What is known of an entry.
#[derive(Clone, Copy, Debug)]
pub struct KeptEntry {
    /// Seconds since the reply came.
    pub age_s: u64,
    /// For how many it is fresh.
    pub lifetime_s: u32,
    /// Which server of the group gave the reply, if that is known.
    pub server: Option<Member>,
}

impl Forwarder {
    /// What [`Forwarder::from_cache`] and [`Forwarder::without_asking`] would answer now.
    pub fn explain(
        &self,
        upstreams: &Upstreams,
        forward: &Forward<'_>,
        around: &Surroundings<'_>,
        buffer: &mut [u8],
    ) -> Kept {
        let mut parts = Vec::new();
        let mut part = |group: usize, key: &LookupKey| {
            let (found, entry) = self.seen(upstreams, group, key);
            let leads_to = match &found {
                Found::Reply { relayed, .. } if forward.head.form.follows(relayed) => {
                    relayed.unresolved_target()
                }
                Found::Reply { .. } | Found::Nothing | Found::Failed { .. } => None,
            };
            parts.push(KeptPart { group, found: found.clone(), entry, leads_to });
            found
        };
        let first = part(forward.group, &forward.key);
        let reply = match Cached::of(first, forward, around.seed, buffer) {
            Cached::Reply { written, origin, .. } => Some((written, origin)),
            Cached::Ask(Some(held)) => all_kept(upstreams, forward, held, around, buffer, part),
            Cached::Ask(None) => None,
        };
        let reply = reply.map(|(written, origin)| (written.octets, origin));
        Kept { parts, reply }
    }

    fn seen(
        &self,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
    ) -> (Found, Option<KeptEntry>) {
        let at = (self.clock.now_ms(), upstreams.recoveries(group));
        let route = upstreams.route(group);
        let peeked = route.and_then(|route| self.cache.peek(route, key, at, upstreams.cache()));
        let Some(Peeked { found, age, server }) = peeked else { return (Found::Nothing, None) };
        let (age_s, lifetime_s) = age.seconds(at.0);
        let entry = match found {
            Found::Nothing | Found::Failed { .. } => None,
            Found::Reply { .. } => Some(KeptEntry { age_s, lifetime_s, server }),
        };
        (found, entry)
    }
}
