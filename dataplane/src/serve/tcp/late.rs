//! Replies that waited for an upstream. Each is written when its connection has its turn and has room: until then those of
//! one lookup share what the upstream sent, however many wait for it, and none has a buffer of its own (WR44).

use std::cell::Cell;
use std::future::Future;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane_core::{Reason, Waiting, Written, pad};

use super::super::counters::{ServeCounters, add};
use super::super::responder::{AskedLater, Responder};
use super::MESSAGE_OCTETS;
use super::frame::{LATER_OCTETS, WAITING_OCTETS};
use crate::forward::{Held, Resolved, Slot, Upstreams};
use crate::origin::{Answered, ServedOver};

/// Lookups of one connection at a time (WR41), with those whose reply is not written.
pub(super) const AT_ONCE: usize = 64;
/// More than a failure takes, with aliases of ours before it.
const FAILURE_OCTETS: usize = 4 << 10;

/// A reply still to come.
pub(super) type Late = Pin<Box<dyn Future<Output = LateReply> + Send>>;

/// A query whose lookup begins when this is called.
pub(super) type Later = Box<dyn FnOnce() -> Late>;

/// A reply that has come and is not written yet.
pub(super) type LateReply = Box<dyn Unwritten>;

pub(super) trait Unwritten: Send {
    /// Its part of the octets that it is made of: others may share them.
    fn octets(&self) -> usize;

    /// Writes the message into a buffer for the largest one.
    fn write(&self, buffer: &mut [u8]) -> Written;
}

/// What an unwritten reply counts as.
pub(super) fn held(reply: &LateReply) -> usize {
    reply.octets().max(WAITING_OCTETS)
}

/// Writes a reply; a panic, which is a defect of ours, is counted and leaves its client without one.
pub(super) fn write(
    reply: LateReply,
    buffer: &mut [u8],
    counters: &ServeCounters,
) -> Option<Written> {
    guarded(|| reply.write(buffer), counters)
}

fn guarded(write: impl FnOnce() -> Written, counters: &ServeCounters) -> Option<Written> {
    let written = catch_unwind(AssertUnwindSafe(write));
    add(&counters.panics, usize::from(written.is_err()));
    written.ok()
}

/// A query that an upstream is asked for. No records are held: a lookup that waits for seconds must not keep old records in
/// memory.
pub(super) struct Lookup {
    pub(super) responder: Arc<Responder>,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) waiting: Box<Waiting>,
    pub(super) held: Option<Held>,
    pub(super) client: IpAddr,
    pub(super) shown: Shown,
}

/// What is counted and shown of a query with its reply.
pub(super) struct Shown {
    pub(super) asked: Option<Box<AskedLater>>,
    pub(super) over: ServedOver,
    /// The counters of its transport, among those of all threads.
    pub(super) place: usize,
    pub(super) is_padded: bool,
    /// When the query was read.
    pub(super) read: Instant,
}

impl Lookup {
    /// Asks in this place.
    pub(super) fn begin(self, slot: Slot) -> Late {
        self.resolve(Some(slot))
    }

    /// The same when its turn has come: it takes its place then. If its client goes before that, it has no reply, and none is
    /// counted: a client that asks much and leaves would else look like a failure of upstreams.
    pub(super) fn later(self) -> Later {
        debug_assert!(size_of::<Lookup>() + size_of::<Waiting>() <= LATER_OCTETS);
        Box::new(move || self.resolve(None))
    }

    fn resolve(self, slot: Option<Slot>) -> Late {
        let late = async move {
            let Lookup { responder, upstreams, waiting, held, client, shown } = self;
            let (published, forwarder) = (&responder.state.published, &responder.forwarder);
            let resolved = match slot {
                Some(slot) => forwarder.resolve(published, upstreams, &waiting, held, slot).await,
                None => {
                    let came = (client, shown.read);
                    forwarder.resolve_in_turn(published, upstreams, &waiting, held, came).await
                }
            };
            Resolution::of(responder, waiting, resolved, shown)
        };
        debug_assert!(size_of_val(&late) + size_of::<Waiting>() <= WAITING_OCTETS);
        Box::pin(late)
    }
}

/// The real [`Unwritten`]: what the forwarder found. One that no client waits for any more is counted and shown when it is
/// dropped.
struct Resolution {
    responder: Arc<Responder>,
    waiting: Box<Waiting>,
    resolved: Resolved,
    shown: Shown,
    /// From its query to the end of the lookup: how fast a client reads is not counted.
    took: Duration,
    is_written: Cell<bool>,
}

impl Resolution {
    fn of(
        responder: Arc<Responder>,
        waiting: Box<Waiting>,
        resolved: Resolved,
        shown: Shown,
    ) -> LateReply {
        let (took, is_written) = (shown.read.elapsed(), Cell::default());
        Box::new(Resolution { responder, waiting, resolved, shown, took, is_written })
    }
}

impl Unwritten for Resolution {
    fn octets(&self) -> usize {
        self.resolved.octets()
    }

    fn write(&self, buffer: &mut [u8]) -> Written {
        self.is_written.set(true);
        let Written { octets, is_cut } = self.resolved.write(&self.waiting.head, buffer);
        let Shown { asked, over, place, is_padded, .. } = &self.shown;
        let octets = if *is_padded { pad(buffer, octets) } else { octets };
        let message = &buffer[..octets];
        let origin = self.resolved.origin();
        let answered = Answered { reason: Reason::Forward, origin };
        let traffic = self.responder.counters.traffic.late(*over);
        traffic.reply(answered, message);
        if is_cut {
            traffic.capped();
        }
        traffic.took(origin, self.took);
        if let Some(asked) = asked {
            self.responder.show(*place, &asked.borrow(), answered, message);
        }
        Written { octets, is_cut }
    }
}

impl Drop for Resolution {
    fn drop(&mut self) {
        if !self.is_written.get() {
            // A connection that ends may leave a thousand failures.
            let room = if self.resolved.octets() > 0 { MESSAGE_OCTETS } else { FAILURE_OCTETS };
            guarded(|| self.write(&mut vec![0; room]), &self.responder.counters);
        }
    }
}

#[cfg(test)]
mod tests;
