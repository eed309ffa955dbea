//! A chain whose parts are all in the cache is answered on the thread that read the query: it takes no place and no task
//! (FW42, FW52).

use crds::between_planes::{self, ede};
use dataplane_core::{
    Forward, Freshness, LookupKey, Relayed, ReplyHead, Resolution, Step, Surroundings, Written,
};

use super::cache::Found;
use super::{Forwarder, Upstreams};
use crate::origin::Origin;

/// What a person reads of a failure that is remembered. The operator reads these words too: they distinguish silence from
/// errors.
pub(super) const fn remembered(was_silent: bool) -> &'static str {
    match was_silent {
        true => between_planes::SILENCE_BEFORE,
        false => between_planes::ERRORS_BEFORE,
    }
}

/// A reply from the cache that is only a part of the answer.
#[derive(Debug)]
pub struct Held {
    pub relayed: Relayed,
    pub freshness: Freshness,
    /// Whether an upstream is asked: before an expired reply is used, unless that failed a moment ago (CA20, CA41);
    /// and beside a fresh one that expires soon (CA30).
    pub refresh: bool,
    /// The earlier parts of the chain.
    pub(super) chain: Resolution,
}

/// Which parts of a chain are taken from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hops {
    /// Those for which no upstream is asked.
    OfUse,
    /// All of them: no upstream may be asked (N20).
    All,
}

/// How far the cache goes.
#[derive(Debug)]
pub(super) enum Walked {
    /// The cache has the whole chain.
    Ended(Ended),
    /// An upstream must be asked for the next part.
    Open(Held),
}

/// How a chain ended in the cache.
#[derive(Debug)]
pub(super) enum Ended {
    Whole(Resolution),
    /// It cannot be resolved, or the lookup of a part failed a moment ago: an Extended DNS Error and its text.
    Failed(u16, &'static str, Origin),
}

impl Ended {
    /// Writes the client's reply; also says where it comes from.
    pub(super) fn write(
        &self,
        head: &ReplyHead<'_>,
        seed: u64,
        buffer: &mut [u8],
    ) -> (Written, Origin) {
        match self {
            Ended::Whole(chain) => {
                let origin = if chain.is_stale() { Origin::Stale } else { Origin::Cache };
                (chain.write(head, seed, buffer), origin)
            }
            Ended::Failed(ede, text, origin) => {
                (Written::whole(head.fail(*ede, text, buffer)), *origin)
            }
        }
    }
}

/// Follows the chain that `held` leaves open, as far as the cache goes; `part` says what it has for a group and a key.
pub(super) fn walk(
    upstreams: &Upstreams,
    forward: &Forward<'_>,
    held: Held,
    around: &Surroundings<'_>,
    mut part: impl FnMut(usize, &LookupKey) -> Found,
) -> Walked {
    let Held { mut relayed, mut freshness, refresh, mut chain } = held;
    let mut asked = forward.group;
    loop {
        if upstreams.removes_private_addresses(asked) {
            chain.protect();
        }
        let before = chain.clone();
        let (group, key) = match chain.answered(relayed.clone(), freshness, around) {
            Step::Ask { group, key } => (group, key),
            Step::Done => return Walked::Ended(Ended::Whole(chain)),
            Step::Failed { ede, text } => {
                return Walked::Ended(Ended::Failed(ede, text, Origin::Failed));
            }
        };
        match part(group, &key) {
            Found::Reply { relayed: next, freshness: age, .. } => {
                (relayed, freshness, asked) = (next, age, group);
            }
            Found::Failed { was_silent } => {
                let text = remembered(was_silent);
                return Walked::Ended(Ended::Failed(ede::CACHED_ERROR, text, Origin::Cache));
            }
            Found::Nothing => {
                // An expired part at the end was asked for a moment ago, and the first part waits for a later query.
                let refresh = refresh && freshness != Freshness::Stale;
                let held = Held { relayed, freshness, refresh, chain: before };
                return Walked::Open(held);
            }
        }
    }
}

/// The reply where no upstream may be asked, if the cache has all of it: and where it comes from.
pub(super) fn all_kept(
    upstreams: &Upstreams,
    forward: &Forward<'_>,
    held: Held,
    around: &Surroundings<'_>,
    buffer: &mut [u8],
    part: impl FnMut(usize, &LookupKey) -> Found,
) -> Option<(Written, Origin)> {
    if !forward.head.form.follows(&held.relayed) {
        let Held { relayed, freshness, .. } = held;
        let written = relayed.write(&forward.head, freshness, around.seed, buffer);
        return Some((written, Origin::Stale));
    }
    match walk(upstreams, forward, held, around, part) {
        Walked::Ended(chain) => Some(chain.write(&forward.head, around.seed, buffer)),
        Walked::Open(_) => None,
    }
}

impl Forwarder {
    /// What the cache has for a part of a chain. If an upstream must be asked, the result is nothing, and it is not
    /// counted, because the lookup asks the cache again.
    pub(super) fn part(
        &self,
        upstreams: &Upstreams,
        group: usize,
        key: &LookupKey,
        hops: Hops,
    ) -> Found {
        let Some(route) = upstreams.route(group) else { return Found::Nothing };
        let (now_ms, recoveries) = (self.clock.now_ms(), upstreams.recoveries(group));
        let limits = upstreams.cache();
        match self.cache.peek(route, key, (now_ms, recoveries), limits).map(|peeked| peeked.found) {
            None | Some(Found::Nothing) => Found::Nothing,
            Some(Found::Reply { refresh: true, .. }) if hops == Hops::OfUse => Found::Nothing,
            Some(_) => self.cache.find(route, key, now_ms, recoveries, limits),
        }
    }
}
