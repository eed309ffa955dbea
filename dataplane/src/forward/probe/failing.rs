//! Probes of servers for the groups in which they are failing (FW28), each with the question of its group: a reply about the
//! names of another group says nothing.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;

use super::{Probed, ask_as_a_client};
use crate::forward::now;
use crate::forward::server::Heard;
use crate::forward::upstreams::{Group, Upstreams};

/// Begins every probe that is due and has a place; returns when the next one is due.
pub(super) fn probe_due(upstreams: &Upstreams, now: Instant) -> Option<Instant> {
    let (mut due, mut next) = (Vec::new(), None::<Instant>);
    for group in upstreams.groups() {
        for member in 0..group.servers.len() {
            match group.failing_probe_at(member) {
                Some(at) if at <= now => due.push((at, group, member)),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
    }
    // Those that have waited longest are first, so that each has its turn. The end of a probe wakes those that find no place.
    due.sort_by_key(|(at, ..)| *at);
    for (_, group, member) in due {
        let server = &group.servers[member];
        // One that is silent, or leads back to us, is not asked by clients either.
        if server.is_up()
            && let Ok(place) = Arc::clone(&server.probe_places).try_acquire_owned()
        {
            probe(group, member, place);
        }
    }
    next
}

fn probe(group: &Arc<Group>, member: usize, place: OwnedSemaphorePermit) {
    group.failing_probe_started(member);
    let group = Arc::clone(group);
    tokio::spawn(async move {
        let server = &group.servers[member];
        let (edns, over) = (server.uses_edns(now()), server.asked_over());
        // After a panic too the server must be probed again, which waits for what came of this one.
        let asked = server.common.guarded(ask_as_a_client(&group.probe, server, over, edns)).await;
        let (probed, refuses_edns) = asked.unwrap_or((Probed::Unsent, false));
        let (heard, edns) = match probed {
            Probed::Unsent => (None, edns),
            Probed::Silent => (Some(Heard::Nothing), edns),
            Probed::Error(..) => (Some(Heard::Error), edns),
            Probed::Reply { with_edns, .. } => (Some(Heard::Good), with_edns),
        };
        if refuses_edns && heard == Some(Heard::Good) {
            // The names of one group do not decide that (FW25): a probe of all its groups does.
            server.doubt_edns(now());
        }
        if let Some(heard) = heard {
            server.failing_probed(edns, heard, over, now());
        }
        group.failing_probe_ended(member, heard.unwrap_or(Heard::Nothing), now());
        drop(place);
        server.common.woken.notify_one();
    });
}

#[cfg(test)]
mod tests;
