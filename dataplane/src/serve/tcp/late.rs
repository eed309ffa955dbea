//! Replies that waited for an upstream. Each is written when its connection has its turn and has room: until then those of
//! one lookup share what the upstream sent, however many wait for it, and none has a buffer of its own (WR44).

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use dataplane_core::{Reason, Waiting, pad};

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
    let written = catch_unwind(AssertUnwindSafe(|| reply.write(buffer)));
    add(&counters.panics, usize::from(written.is_err()));
    written.ok()
}

/// A reply that its client does not wait for any more: it is counted and shown, as the others are.
pub(super) fn given_up(reply: LateReply, counters: &ServeCounters) {
    write(reply, &mut vec![0; MESSAGE_OCTETS], counters);
}

/// The real [`Unwritten`]: what the forwarder found.
pub(super) struct Resolution {
    pub(super) responder: Arc<Responder>,
    pub(super) waiting: Box<Waiting>,
    pub(super) resolved: Resolved,
    pub(super) asked: Option<Box<AskedLater>>,
    pub(super) over: ServedOver,
    /// The counters of its transport, among those of all threads.
    pub(super) place: usize,
    pub(super) is_padded: bool,
    /// When its query was read.
    pub(super) read: Instant,
}

impl Unwritten for Resolution {
    fn octets(&self) -> usize {
        self.resolved.octets()
    }

    fn write(&self, buffer: &mut [u8]) -> usize {
        let octets = self.resolved.write(&self.waiting.head, buffer);
        let octets = if self.is_padded { pad(buffer, octets) } else { octets };
        let message = &buffer[..octets];
        let origin = self.resolved.origin();
        let answered = Answered { reason: Reason::Forward, origin };
        let traffic = self.responder.counters.traffic.late(self.over);
        traffic.reply(answered, message);
        traffic.took(origin, self.read.elapsed());
        if let Some(asked) = &self.asked {
            self.responder.show(self.place, &asked.borrow(), answered, message);
        }
        octets
    }
}

#[cfg(test)]
mod tests;
