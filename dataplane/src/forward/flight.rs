//! The first query of a lookup, which for nearly all of them is the only one. It leaves from the thread that asks, and the
//! task that reads the socket ends the lookup with a good reply: no task, no timer and no waking of another thread for it.
//! The task of [`Lookup::run`] does the rest: errors, datagrams to wait past, silence.

use std::sync::Arc;

use dataplane_core::LookupKey;

use super::attempt::{AttemptResult, Datagrams};
use super::cache::CacheLimits;
use super::lookup::{Asked, Lookup, Outcome};
use super::plan::Send;
use super::server::Sent;
use super::sockets::{self, Arrived, Departed, Exchange};
use super::table::{Ended, Running};
use super::upstreams::Group;
use super::{Forwarder, Slot, now};

/// A lookup that has begun, with what its end needs.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) group: Arc<Group>,
    pub(super) running: Box<Running>,
    /// The place of the client that began it.
    pub(super) slot: Arc<Slot>,
    pub(super) limits: CacheLimits,
    /// The state of the group when the lookup began.
    pub(super) recoveries: u64,
}

impl Begun {
    fn key(&self) -> &LookupKey {
        self.running.key()
    }

    /// Keeps the result, and gives it to all who wait.
    fn end(self, ended: Ended) {
        let Begun { forwarder, group, running, slot, limits, recoveries } = self;
        forwarder.count_end(&ended);
        // Before it ends: the next query finds the lookup or what it left.
        forwarder.keep(group.route(), running.key(), &ended, recoveries, &limits);
        drop(slot);
        running.end(ended);
    }

    /// Continues in a task of its own.
    fn spawn(self, lookup: Lookup, asked: Option<Asked>) {
        let forwarder = Arc::clone(&self.forwarder);
        forwarder.spawn(async move {
            let ended = lookup.run(self.key(), asked).await;
            self.end(ended);
        });
    }
}

/// The first query, on its way.
#[derive(Debug)]
struct Flight {
    begun: Begun,
    lookup: Lookup,
    send: Send,
    sent: Sent,
    datagrams: Datagrams,
}

/// Begins a lookup that asks these members of its group.
pub(super) fn begin(begun: Begun, members: &[usize]) {
    let started = now();
    let mut lookup = match Lookup::new(&begun.group, members, started) {
        Ok(lookup) => lookup,
        Err(why) => return begun.end(Err(why)),
    };
    let Some((send, sent, server)) = lookup.take_first(started) else {
        return begun.spawn(lookup, None);
    };
    let datagrams = Datagrams::new(lookup.question(begun.key()), &server, send.edns);
    let flight = Box::new(Flight { begun, lookup, send, sent, datagrams });
    #[expect(
        clippy::borrowed_box,
        reason = "what departs is the box, which is as wide as a pointer"
    )]
    let query = |flight: &Box<Flight>, id| flight.datagrams.query(flight.begun.key(), id);
    let landed = |flight: Box<Flight>, id, came: Arrived<'_>| {
        let forwarder = Arc::clone(&flight.begun.forwarder);
        forwarder.guarded(|| flight.landed(id, came));
    };
    match sockets::depart(&server.pool, flight, query, landed) {
        Departed::Shared => {}
        Departed::Own(exchange, flight) => flight.wait(exchange),
        Departed::NoPort(flight) => flight.failed(AttemptResult::NoPort),
        Departed::Failed(flight) => flight.failed(AttemptResult::Unreachable),
    }
}

impl Flight {
    /// Something arrived for the query with this id.
    fn landed(mut self: Box<Self>, id: u16, came: Arrived<'_>) {
        match came {
            Arrived::Datagram(octets, place) => {
                let question = self.lookup.question(self.begun.key());
                match self.datagrams.judge(question, id, octets) {
                    Some(outcome @ AttemptResult::Good(_)) => self.ended(outcome),
                    Some(outcome) => self.failed(outcome),
                    None => self.wait(place.listen()),
                }
            }
            Arrived::Stray(listening) => match self.datagrams.stray() {
                Some(outcome) => self.failed(outcome),
                None => self.wait(Exchange::Shared(listening)),
            },
            Arrived::Failed => self.failed(AttemptResult::Unreachable),
            Arrived::Unsent => self.failed(AttemptResult::NoPort),
            Arrived::Overdue(listening) => self.wait(Exchange::Shared(listening)),
        }
    }

    fn ended(self, outcome: AttemptResult) {
        let Flight { begun, mut lookup, send, sent, datagrams } = self;
        // It shows the reply before the client has it.
        drop(datagrams);
        if let Some(relayed) = lookup.ended(send, sent, outcome) {
            begun.end(Ok(relayed));
        }
    }

    fn failed(self, outcome: AttemptResult) {
        let Flight { begun, lookup, send, sent, datagrams: _ } = self;
        begun.spawn(lookup, Some(Asked { send, sent, outcome: Outcome::Ended(outcome) }));
    }

    fn wait(self, exchange: Exchange) {
        let Flight { begun, lookup, send, sent, datagrams } = self;
        let outcome = Outcome::Waits(datagrams, exchange);
        begun.spawn(lookup, Some(Asked { send, sent, outcome }));
    }
}

#[cfg(test)]
mod tests;
