//! One lookup: attempts at the servers of a group, side by side, until one answers (FW21, FW23, FW24).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dataplane_core::{LookupKey, Relayed};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::attempt::{Ask, Failure};
use super::plan::{Plan, order};
use super::upstreams::{Group, Member, Upstreams};
use super::{Counts, random};

/// Between sends, unless a failure is explicit (FW23).
pub(super) const HEDGE: Duration = Duration::from_millis(500);
/// From the query to the reply: stub resolvers give up at 5 s (FW24).
const BUDGET: Duration = Duration::from_secs(4);

/// Why a lookup ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// N16: the group has no server that can be asked.
    NoServer,
    /// N18: nobody answered.
    Silence,
    /// N18: there were replies, none of them an answer.
    Errors,
    /// N20: no port was left to ask from.
    NoPort,
}

impl Unresolved {
    pub(super) const ALL: [Unresolved; 4] =
        [Unresolved::NoServer, Unresolved::Silence, Unresolved::Errors, Unresolved::NoPort];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Unresolved::NoServer => "no_server",
            Unresolved::Silence => "silence",
            Unresolved::Errors => "errors",
            Unresolved::NoPort => "no_port",
        }
    }

    /// The Extended DNS Error (RFC 8914, §5.2).
    pub(super) const fn ede(self) -> u16 {
        match self {
            Unresolved::NoServer | Unresolved::NoPort => 0,
            Unresolved::Silence => 22,
            Unresolved::Errors => 23,
        }
    }

    /// What a person with `dig` reads; at most 64 octets.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Unresolved::NoServer => "no usable upstream server is configured",
            Unresolved::Silence => "no upstream server answered",
            Unresolved::Errors => "upstream servers answered only with errors",
            Unresolved::NoPort => "forward limit",
        }
    }
}

/// Asks the group; the first good reply from any of the attempts wins.
pub(super) async fn lookup(
    upstreams: &Upstreams,
    group: &Group,
    members: &[Member],
    key: &LookupKey,
    counts: &Counts,
) -> Result<Relayed, Unresolved> {
    if members.is_empty() {
        return Err(Unresolved::NoServer);
    }
    let started = Instant::now();
    let turn = group.lookups.fetch_add(1, Ordering::Relaxed);
    let mut plan = Plan::new(order(members, group.policy, turn, random()));
    let expired = AtomicBool::new(false);
    let mut attempts = FuturesUnordered::new();
    let mut next_send = started;
    let mut why = Unresolved::Silence;
    while plan.peek().is_some() || !attempts.is_empty() {
        tokio::select! {
            biased;
            Some((place, result)) = attempts.next(), if !attempts.is_empty() => match result {
                Ok(relayed) => return Ok(relayed),
                // An explicit failure moves on at once (FW21) ...
                Err(Failure::Reply) => {
                    why = Unresolved::Errors;
                    plan.exclude(place);
                    next_send = Instant::now();
                }
                // ... but asking a closed port again and again at once is no use.
                Err(Failure::Network) if plan.next_is_new() => next_send = Instant::now(),
                Err(Failure::Network) => {}
                // Waiting for a port would hold up the client; what was sent before may still be answered.
                Err(Failure::NoPort) if attempts.is_empty() => return Err(Unresolved::NoPort),
                Err(Failure::NoPort) => {}
            },
            () = sleep_until(next_send), if plan.peek().is_some() => {
                if let Some((place, member, transport)) = plan.next() {
                    let ask = Ask {
                        key,
                        server: &upstreams.servers()[member.server],
                        failing: upstreams.failing(member),
                        caps: &group.caps,
                        discards: &counts.discards,
                        sockets: &upstreams.sockets,
                        expired: &expired,
                    };
                    attempts.push(async move { (place, ask.over(transport).await) });
                }
                next_send = Instant::now() + HEDGE;
            }
            () = sleep_until(started + BUDGET) => {
                expired.store(true, Ordering::Relaxed);
                break;
            }
        }
    }
    Err(why)
}
