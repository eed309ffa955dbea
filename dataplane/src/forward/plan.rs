//! Which servers one lookup asks, over which transport, and when (FW22-FW26): decided here, without sockets. Time
//! comes as an argument.

mod ranking;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(super) use ranking::{order, signing_first};

/// Sends in one lookup (FW23).
pub(super) const MAX_SENDS: usize = 8;
/// UDP sends to one server, besides the one over TCP; sends to a server that has streams only (FW23).
const MAX_SENDS_PER_SERVER: usize = 3;
/// From the beginning of a lookup to its last send, where one server is left to ask (FW23). With the usual time between sends the
/// four would be over after 1.5 s, and clients that come later, and wait for this lookup, would learn nothing of a server that
/// answers again.
const LAST_TO_ONE: Duration = Duration::from_millis(2500);

/// The transport of one send: datagrams, or a connection of the server's own transport (TCP for UDP servers). So a
/// plan cannot choose clear text for an encrypted server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Connection,
}

/// How a server is ranked within its group (FW22), best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has not answered lately, and this lookup asks it first to learn whether it does now (FW27).
    InTurn,
    Healthy,
    /// It is up, but others are asked first, except with `Sequential`: in this group it answers with errors only, or it has not
    /// answered lately.
    Avoided,
    /// It does not reply at all.
    Down,
}

impl Standing {
    /// As `/upstreams` and metrics call it: one that is only silent at times is `healthy` there.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Standing::InTurn | Standing::Healthy => "healthy",
            Standing::Avoided => "failing",
            Standing::Down => "down",
        }
    }
}

/// Times of a lookup (FW23, FW24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Between sends, unless a failure is explicit.
    pub(super) interval: Duration,
    /// From the query to the reply.
    pub(super) budget: Duration,
    /// Whether each server is asked once and no more.
    is_once: bool,
}

/// From the query to the reply: stub resolvers give up at 5 s (FW24).
const BUDGET: Duration = Duration::from_secs(4);
pub(super) const USUAL: Pace =
    Pace { interval: Duration::from_millis(500), budget: BUDGET, is_once: false };
/// While every server of the group is down (FW24).
const ALL_DOWN: Pace =
    Pace { interval: Duration::from_millis(250), budget: Duration::from_secs(2), is_once: true };

/// A server that one lookup may ask, in its state when the lookup begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its place in the group.
    pub(super) member: usize,
    /// What it is asked over first.
    pub(super) transport: Transport,
    /// Its UDP gives no replies (FW27): it is asked over TCP, and over UDP only in the end.
    pub(super) has_silent_udp: bool,
    pub(super) standing: Standing,
    /// Smoothed; none before the first reply.
    pub(super) latency: Option<Duration>,
    /// Whether it understands EDNS as far as is known (FW25).
    pub(super) edns: bool,
    /// The same of TCP, where it is asked over UDP and TCP.
    pub(super) edns_over_tcp: bool,
    /// Only its TCP answers queries with an OPT record (FW25).
    pub(super) signs_over_tcp: bool,
}

impl Candidate {
    /// Whether a query over this transport has an OPT record.
    fn has_opt(&self, over: Transport) -> bool {
        match over {
            Transport::Udp => self.edns,
            Transport::Connection => self.edns_over_tcp,
        }
    }

    /// Asks it for a client that wants signatures: over TCP where only that brings them.
    pub(super) fn ask_for_signatures(&mut self) {
        if self.signs_over_tcp {
            (self.transport, self.has_silent_udp) = (Transport::Connection, true);
        }
    }
}

/// One query to send: to which server, over what, with which timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Send {
    /// Its place in the order.
    pub(super) place: usize,
    pub(super) transport: Transport,
    /// Send an OPT record (RFC 6891).
    pub(super) edns: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Send(Send),
    /// Only listen until this time.
    Wait(Instant),
    /// No send is left; listen until this time.
    Listen(Instant),
    /// 4 s (`BUDGET`) are over without a usable reply.
    Expired,
}

/// The sends of one lookup.
#[derive(Debug)]
pub(super) struct Plan {
    order: Vec<Place>,
    pace: Pace,
    deadline: Instant,
    next_at: Instant,
    /// Before this the last send is not due, where one server is left.
    last_at: Instant,
    /// To send at once: another form of a query that a server did not take.
    urgent: VecDeque<Send>,
    /// The next in `order`, and how often the order was walked before.
    place: usize,
    round: usize,
    sends: usize,
}

#[derive(Debug)]
struct Place {
    candidate: Candidate,
    /// Not asked again: it gave an error or a referral (FW21), or its stream was asked at once.
    is_done: bool,
    gave_error: bool,
    streamed: bool,
    /// Its datagrams of the walk: the same without an OPT record is beside them (FW25).
    datagrams: usize,
    /// A query over its stream fell into a pause, and is tried again.
    was_held_off: bool,
    /// What it is asked as soon as it has a place.
    waits: Option<Send>,
    /// When that is tried again, without a notice that there is a place.
    again_at: Option<Instant>,
}

impl Plan {
    /// A plan for these servers, best first; `started` is when the lookup began.
    pub(super) fn new(order: Vec<Candidate>, started: Instant) -> Plan {
        let all_down = order.iter().all(|candidate| candidate.standing == Standing::Down);
        let pace = if all_down { ALL_DOWN } else { USUAL };
        let place = |candidate| Place {
            candidate,
            is_done: false,
            gave_error: false,
            streamed: false,
            datagrams: 0,
            was_held_off: false,
            waits: None,
            again_at: None,
        };
        Plan {
            order: order.into_iter().map(place).collect(),
            pace,
            deadline: started + pace.budget,
            next_at: started,
            last_at: started + LAST_TO_ONE,
            urgent: VecDeque::new(),
            place: 0,
            round: 0,
            sends: 0,
        }
    }

    /// Whether the first send is to a server that is not down: nearly always it is the only one.
    pub(super) fn begins_at_once(&self) -> bool {
        self.pace == USUAL && self.sends == 0 && !self.order.is_empty()
    }

    /// Which member of the group is at a place of the order.
    pub(super) fn member(&self, place: usize) -> usize {
        self.order[place].candidate.member
    }

    /// What to do at `now`; a send is taken by this.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        if now >= self.deadline {
            return Next::Expired;
        }
        let again_at = self.try_again(now);
        if self.sends < MAX_SENDS
            && let Some(send) = self.urgent.pop_front()
        {
            return self.take(send, now);
        }
        let until = again_at.map_or(self.deadline, |at| at.min(self.deadline));
        match self.peek() {
            None if again_at.is_some() => Next::Wait(until),
            None => Next::Listen(self.deadline),
            Some(send) => {
                let due = self.due(send);
                if now < due {
                    return Next::Wait(due.min(until));
                }
                self.place += 1;
                self.order[send.place].datagrams += usize::from(send.transport == Transport::Udp);
                self.take(send, now)
            }
        }
    }

    /// When this send of the walk is due. Datagrams need the time: over a stream the system sends again what was lost.
    fn due(&self, send: Send) -> Instant {
        let is_last = self.round == MAX_SENDS_PER_SERVER && send.transport == Transport::Udp;
        if is_last { self.next_at.max(self.last_at) } else { self.next_at }
    }

    fn take(&mut self, send: Send, now: Instant) -> Next {
        self.sends += 1;
        self.next_at = now + self.pace.interval;
        self.order[send.place].streamed |= send.transport == Transport::Connection;
        Next::Send(send)
    }

    /// The next send of the walk, if there is one.
    fn peek(&mut self) -> Option<Send> {
        if self.order.iter().all(|place| place.is_done || place.waits.is_some()) {
            return None;
        }
        let rounds = if self.pace.is_once { 0 } else { MAX_SENDS_PER_SERVER };
        // The stream comes before the last datagram, which then has all the time that is left.
        let is_alone = self.order.iter().filter(|place| !place.is_done).count() == 1;
        while self.sends < MAX_SENDS && self.round <= rounds {
            let Some(place) = self.order.get(self.place) else {
                self.place = 0;
                self.round += 1;
                continue;
            };
            let is_last = self.round == MAX_SENDS_PER_SERVER;
            let over_stream = is_last || (is_alone && self.round + 1 == MAX_SENDS_PER_SERVER);
            let transport = match place.candidate.transport {
                Transport::Udp if over_stream && !place.streamed => Some(Transport::Connection),
                Transport::Udp => {
                    (place.datagrams < MAX_SENDS_PER_SERVER).then_some(Transport::Udp)
                }
                Transport::Connection if !is_last => Some(Transport::Connection),
                Transport::Connection => (place.candidate.has_silent_udp && place.datagrams == 0)
                    .then_some(Transport::Udp),
            };
            match transport {
                Some(transport) if !place.is_done && place.waits.is_none() => {
                    let edns = place.candidate.has_opt(transport);
                    return Some(Send { place: self.place, transport, edns });
                }
                _ => self.place += 1,
            }
        }
        None
    }

    /// The attempt failed before its time: a server that was not asked yet is asked at once (FW21).
    fn move_on(&mut self, now: Instant) {
        if self.peek().is_some() && self.round == 0 {
            self.next_at = now;
        }
    }

    /// It gave an error: it is not asked again, nor waited for, and the next one is asked at once (FW21).
    pub(super) fn error(&mut self, place: usize, now: Instant) {
        self.order[place].gave_error = true;
        self.leave_out(place, now);
    }

    /// The same for a server that cannot be asked, because there is no port.
    pub(super) fn leave_out(&mut self, place: usize, now: Instant) {
        let of = &mut self.order[place];
        (of.is_done, of.waits, of.again_at) = (true, None, None);
        self.move_on(now);
    }

    /// The network gave an error. Asking a closed port again and again at once is no use; another server is.
    pub(super) fn unreachable(&mut self, now: Instant) {
        self.move_on(now);
    }

    /// A connection to it has failed a moment ago, and it was not asked (FW54). Where its stream is all that is left to ask, this
    /// is tried once more at the time of the next send, when the pause is over: its other sends come then by themselves.
    pub(super) fn held_off(&mut self, send: Send, now: Instant) {
        self.move_on(now);
        let place = &mut self.order[send.place];
        let is_truncated = place.is_done && place.candidate.transport == Transport::Udp;
        if is_truncated && !place.was_held_off && !self.pace.is_once {
            place.was_held_off = true;
            (place.waits, place.again_at) = (Some(send), Some(now + self.pace.interval));
        }
    }

    /// Its window is full: the next server is asked, and this one when a place is [free](Plan::freed). While every
    /// server is down, no place is waited for, because none would become free.
    pub(super) fn full(&mut self, send: Send, now: Instant) {
        self.sends -= 1;
        let place = &mut self.order[send.place];
        match self.pace.is_once {
            true => place.is_done = true,
            false => place.waits = Some(send),
        }
        self.move_on(now);
    }

    /// No connection to it has a place: the next server is asked, and this one again when its next send would be, because
    /// nothing tells when there is a place.
    pub(super) fn no_place(&mut self, send: Send, now: Instant) {
        self.full(send, now);
        let place = &mut self.order[send.place];
        place.again_at = place.waits.map(|_| now + self.pace.interval);
    }

    /// Takes up what must be tried again by now; returns when the next is.
    fn try_again(&mut self, now: Instant) -> Option<Instant> {
        for place in &mut self.order {
            if place.again_at.is_some_and(|at| at <= now) {
                place.again_at = None;
                self.urgent.extend(place.waits.take());
            }
        }
        self.order.iter().filter_map(|place| place.again_at).min()
    }

    /// Servers that are asked as soon as they have a place, of which there is a notice.
    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> {
        let waits = |place: &usize| {
            let place = &self.order[*place];
            place.waits.is_some() && place.again_at.is_none()
        };
        (0..self.order.len()).filter(waits)
    }

    /// It has a place: it is asked at once.
    pub(super) fn freed(&mut self, place: usize) {
        self.urgent.extend(self.order[place].waits.take());
    }

    /// Until when replies to these sends are waited for, where no other send is left. A server that gave an error to one query
    /// may still answer an earlier one (FW23), which may be lost as well: so until the next send would be (FW21).
    pub(super) fn listens_until(&self, mut open: impl Iterator<Item = Send>) -> Instant {
        let expects = |send: Send| {
            let place = &self.order[send.place];
            // The stream on which the rest of a truncated reply is read says more than a datagram.
            let is_rest = send.transport == Transport::Connection
                && place.candidate.transport == Transport::Udp;
            is_rest || !place.gave_error
        };
        if open.any(expects) { self.deadline } else { self.next_at.min(self.deadline) }
    }

    /// Its datagrams are truncated (FW26) or not to be believed (FW13, FW14): its stream is asked at once, if it was
    /// not asked before.
    pub(super) fn over_stream(&mut self, place: usize, now: Instant) {
        let of = &mut self.order[place];
        of.is_done = true;
        // What waits may be the query over its stream.
        if of.waits.is_some_and(|send| send.transport == Transport::Udp) {
            (of.waits, of.again_at) = (None, None);
        }
        if of.streamed {
            self.move_on(now);
        } else {
            of.streamed = true;
            let edns = of.candidate.has_opt(Transport::Connection);
            self.urgent.push_back(Send { place, transport: Transport::Connection, edns });
        }
    }

    /// It refused a query with an OPT record: the same without (FW25).
    pub(super) fn without_edns(&mut self, send: Send) {
        let candidate = &mut self.order[send.place].candidate;
        (candidate.edns, candidate.edns_over_tcp) = (false, false);
        self.urgent.push_back(Send { edns: false, ..send });
    }
}

#[cfg(test)]
mod tests;
