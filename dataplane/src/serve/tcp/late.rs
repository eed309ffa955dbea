//! Replies that waited for an upstream. Each is written when its connection has its turn and has room: until then those of
//! one lookup share what the upstream sent, however many wait for it, and none has a buffer of its own (WR44).

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dataplane_core::{Reason, Waiting, Written, pad};

use super::super::counters::{ServeCounters, add};
use super::super::responder::{AskedLater, Responder};
use super::MESSAGE_OCTETS;
use super::frame::WAITING_OCTETS;
use crate::forward::Resolved;
use crate::origin::{Answered, ServedOver};

/// A reply still to come.
pub(super) type Late = Pin<Box<dyn Future<Output = LateReply> + Send>>;

/// A reply that has come and is not written yet.
pub(super) type LateReply = Box<dyn Unwritten>;

pub(super) trait Unwritten: Send {
    /// Its part of the octets that it is made of: others may share them.
    fn octets(&self) -> usize;

    /// Writes the message into a buffer for the largest one, and returns its length.
    fn write(&self, buffer: &mut [u8]) -> usize;
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
) -> Option<usize> {
    guarded(|| reply.write(buffer), counters)
}

fn guarded(write: impl FnOnce() -> usize, counters: &ServeCounters) -> Option<usize> {
    let written = catch_unwind(AssertUnwindSafe(write));
    add(&counters.panics, usize::from(written.is_err()));
    written.ok()
}

/// The real [`Unwritten`]: what the forwarder found. One that no client waits for any more is counted and shown when it is
/// dropped.
pub(super) struct Resolution {
    pub(super) responder: Arc<Responder>,
    pub(super) waiting: Box<Waiting>,
    pub(super) resolved: Resolved,
    pub(super) asked: Option<Box<AskedLater>>,
    pub(super) over: ServedOver,
    /// The counters of its transport, among those of all threads.
    pub(super) place: usize,
    pub(super) is_padded: bool,
    /// From its query to the end of the lookup: how fast a client reads is not counted.
    pub(super) took: Duration,
    pub(super) is_written: Cell<bool>,
}

impl Unwritten for Resolution {
    fn octets(&self) -> usize {
        self.resolved.octets()
    }

    fn write(&self, buffer: &mut [u8]) -> usize {
        self.is_written.set(true);
        let Written { octets, is_cut } = self.resolved.write(&self.waiting.head, buffer);
        let octets = if self.is_padded { pad(buffer, octets) } else { octets };
        let message = &buffer[..octets];
        let origin = self.resolved.origin();
        let answered = Answered { reason: Reason::Forward, origin };
        let traffic = self.responder.counters.traffic.late(self.over);
        traffic.reply(answered, message);
        if is_cut {
            traffic.capped();
        }
        traffic.took(origin, self.took);
        if let Some(asked) = &self.asked {
            self.responder.show(self.place, &asked.borrow(), answered, message);
        }
        octets
    }
}

impl Drop for Resolution {
    fn drop(&mut self) {
        if !self.is_written.get() {
            guarded(|| self.write(&mut vec![0; MESSAGE_OCTETS]), &self.responder.counters);
        }
    }
}

#[cfg(test)]
mod tests;
