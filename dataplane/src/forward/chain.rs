//! A chain that an upstream leaves open is continued where its target belongs (FW42), within the client's budget. What
//! comes next is decided in the core; here it is asked.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use crds::between_planes::ede;
use dataplane_core::{Freshness, OwnedHead, Relayed, Resolution, Step, Surroundings, Written};

use super::cached_chain::remembered;
use super::unresolved::Unresolved;
use super::{Client, Forwarder, random};
use crate::state::Published;

/// The result of a question whose chain needed several lookups.
#[derive(Debug)]
pub(super) enum Chain {
    /// Every name of the chain was resolved.
    Whole(Resolution),
    Failed(NoHop),
    /// It could not be resolved: an Extended DNS Error and its text.
    Nowhere(u16, &'static str),
}

/// Why one name of a chain has no reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoHop {
    Unresolved(Unresolved),
    /// Its lookup failed a moment ago (N19).
    Remembered {
        was_silent: bool,
    },
}

impl Chain {
    /// Writes the client's reply.
    pub(super) fn write(&self, head: &OwnedHead, buffer: &mut [u8]) -> Written {
        let head = head.borrow();
        match self {
            Chain::Whole(resolution) => resolution.write(&head, random(), buffer),
            Chain::Failed(NoHop::Unresolved(why)) => Written::whole(why.write(&head, buffer)),
            Chain::Failed(NoHop::Remembered { was_silent }) => {
                Written::whole(head.fail(ede::CACHED_ERROR, remembered(*was_silent), buffer))
            }
            Chain::Nowhere(ede, text) => Written::whole(head.fail(*ede, text, buffer)),
        }
    }
}

impl Forwarder {
    /// Follows the chain that `first` leaves open. All hops share the budget of `client`. Each hop uses the state
    /// that is published when it begins, records and upstreams together; while an upstream is asked, no records are
    /// held. `before` are the parts before `first`, which was taken `since`; `limit` is the size of the largest reply that
    /// the client may get.
    pub(super) async fn follow(
        self: &Arc<Self>,
        published: &ArcSwap<Published>,
        (first, freshness, since): (Relayed, Freshness, Instant),
        before: Resolution,
        limit: usize,
        client: &Client,
    ) -> Chain {
        let mut resolution = before;
        let (mut answered, mut freshness, mut since) = (first, freshness, since);
        loop {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (step, upstreams) = {
                let published = published.load();
                let (records, now_s) = (&*published.records, now.as_secs());
                let around = Surroundings { records, now_s, seed: random(), limit };
                let step = resolution.answered(answered, freshness, &around);
                (step, Arc::clone(&published.upstreams))
            };
            let (group, key) = match step {
                Step::Ask { group, key } => (group, key),
                Step::Done => return Chain::Whole(resolution),
                Step::Failed { ede, text } => return Chain::Nowhere(ede, text),
            };
            if upstreams.removes_private_addresses(group) {
                resolution.protect();
            }
            match self.hop(&upstreams, group, &key, client).await {
                Ok(hop) => (answered, freshness) = hop,
                Err(why) => return Chain::Failed(why),
            }
            let now = super::now();
            resolution.waited(now.saturating_duration_since(since));
            since = now;
        }
    }
}
