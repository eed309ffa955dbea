//! The first query of a lookup, which for nearly all of them is the only one. It leaves from the thread that asks, and the
//! reader of the socket ends the lookup with a good reply: no task, no timer and no waking of another thread for it.
//! The task of [`Lookup::run`] does the rest: errors, datagrams to wait past, silence, connections to open.

use std::sync::Arc;
use std::time::Instant;

use dataplane_core::LookupKey;

use super::attempt::{AttemptResult, Datagrams, Messages};
use super::cache::CacheLimits;
use super::connections::{self, Progress};
use super::limits::Taken;
use super::lookup::{Answered, Asked, Lookup, Open, Outcome};
use super::plan::{Send, Transport};
use super::server::{Sent, Server};
use super::sockets::{self, Arrived, Departed, Exchange};
use super::table::Running;
use super::unresolved::Unresolved;
use super::upstreams::Group;
use super::{Forwarder, Purpose};

/// A lookup that has begun, with what its end needs.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) group: Arc<Group>,
    pub(super) running: Box<Running>,
    /// The place of the client that began it.
    pub(super) slot: Taken,
    pub(super) limits: CacheLimits,
    /// The state of the group when the lookup began.
    pub(super) recoveries: u64,
    pub(super) purpose: Purpose,
}

impl Begun {
    fn key(&self) -> &LookupKey {
        self.running.key()
    }

    /// Keeps the result, and gives it to all who wait.
    fn end(self, result: Result<Answered, Unresolved>) {
        let Begun { forwarder, group, running, slot, limits, recoveries, purpose } = self;
        forwarder.count_end(result.as_ref().err().copied(), purpose);
        // Before it ends: the next query finds the lookup or what it left.
        let is_kept = forwarder.keep(group.route(), running.key(), &result, recoveries, &limits);
        drop(slot);
        let ended = result.map(|answered| answered.relayed);
        if is_kept { running.end(ended) } else { running.end_unkept(ended) }
    }

    /// Continues in a task of its own.
    fn spawn(self, lookup: Lookup, asked: Option<Asked>) {
        let forwarder = Arc::clone(&self.forwarder);
        forwarder.spawn(async move {
            let result = lookup.run(self.key(), asked).await;
            self.end(result);
        });
    }
}

/// The first query, on its way; `W` is how it is written and its reply judged.
#[derive(Debug)]
struct Flight<W> {
    begun: Begun,
    lookup: Lookup,
    send: Send,
    sent: Sent,
    way: W,
}

/// Begins a lookup that asks these members of its group. The budget runs from `started`.
pub(super) fn begin(begun: Begun, members: &[usize], started: Instant) {
    let mut lookup =
        match Lookup::new(&begun.group, members, begun.slot.client(), begun.key(), started) {
            Ok(lookup) => lookup,
            Err(why) => return begun.end(Err(why)),
        };
    let Some((send, sent, server)) = lookup.take_first(started) else {
        return begun.spawn(lookup, None);
    };
    match send.transport {
        Transport::Udp => {
            let way = Datagrams::new(lookup.question(begun.key()), &server, send.edns);
            by_datagram(Box::new(Flight { begun, lookup, send, sent, way }), &server);
        }
        Transport::Connection => {
            let way = Messages::new(&server, send.edns);
            over_connection(Box::new(Flight { begun, lookup, send, sent, way }), &server);
        }
    }
}

fn by_datagram(flight: Box<Flight<Datagrams>>, server: &Server) {
    #[expect(
        clippy::borrowed_box,
        reason = "what departs is the box, which is as wide as a pointer"
    )]
    let query = |flight: &Box<Flight<Datagrams>>, id| flight.way.query(flight.begun.key(), id);
    let landed = |flight: Box<Flight<Datagrams>>, id, came: Arrived<'_>| {
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

fn over_connection(flight: Box<Flight<Messages>>, server: &Server) {
    #[expect(
        clippy::borrowed_box,
        reason = "what departs is the box, which is as wide as a pointer"
    )]
    let query = |flight: &Box<Flight<Messages>>, id| flight.way.query(flight.begun.key(), id);
    let landed = |flight: Box<Flight<Messages>>, came: connections::Arrived| {
        let forwarder = Arc::clone(&flight.begun.forwarder);
        forwarder.guarded(|| flight.landed(came));
    };
    if let Some(flight) = connections::depart(&server.connections, flight, query, landed) {
        flight.open(Progress::Unsent);
    }
}

impl Flight<Datagrams> {
    /// Something arrived for the query with this id.
    fn landed(mut self: Box<Self>, id: u16, came: Arrived<'_>) {
        match came {
            Arrived::Datagram(octets, place) => {
                let question = self.lookup.question(self.begun.key());
                match self.way.judge(question, id, octets) {
                    Some(outcome @ AttemptResult::Good(_)) => self.ended(outcome),
                    Some(outcome) => self.failed(outcome),
                    None => self.wait(place.listen()),
                }
            }
            Arrived::Stray(listening) => match self.way.stray() {
                Some(outcome) => self.failed(outcome),
                None => self.wait(Exchange::Shared(listening)),
            },
            Arrived::Failed => self.failed(AttemptResult::Unreachable),
            Arrived::Unsent => self.failed(AttemptResult::NoPort),
            Arrived::Overdue(listening) => self.wait(Exchange::Shared(listening)),
        }
    }

    fn wait(self, exchange: Exchange) {
        self.hand_over(|datagrams| Outcome::Open(Open::Datagrams(datagrams, exchange)));
    }
}

impl Flight<Messages> {
    /// Something arrived for the query.
    fn landed(mut self: Box<Self>, came: connections::Arrived) {
        match came {
            connections::Arrived::Reply(reply) => {
                let question = self.lookup.question(self.begun.key());
                match self.way.judge(question, &reply) {
                    outcome @ AttemptResult::Good(_) => self.ended(outcome),
                    outcome => self.failed(outcome),
                }
            }
            connections::Arrived::Failed(failure, after) if failure.is_loss() => {
                self.open(Progress::Lost(after));
            }
            connections::Arrived::Failed(..) => self.failed(AttemptResult::Unreachable),
            connections::Arrived::Overdue(place) => self.open(Progress::Waits(place)),
        }
    }

    fn open(self, progress: Progress) {
        self.hand_over(|messages| Outcome::Open(Open::Connection(messages, progress)));
    }
}

impl<W> Flight<W> {
    fn ended(self, outcome: AttemptResult) {
        let Flight { begun, mut lookup, send, sent, way } = self;
        // It shows the reply before the client has it.
        drop(way);
        if let Some(answered) = lookup.ended(send, sent, outcome) {
            begun.end(Ok(answered));
        }
    }

    fn failed(self, result: AttemptResult) {
        self.hand_over(|_| Outcome::Ended(result));
    }

    /// The task of the lookup does the rest.
    fn hand_over(self, outcome: impl FnOnce(W) -> Outcome) {
        let Flight { begun, lookup, send, sent, way } = self;
        begun.spawn(lookup, Some(Asked { send, sent, outcome: outcome(way) }));
    }
}

#[cfg(test)]
mod tests;
