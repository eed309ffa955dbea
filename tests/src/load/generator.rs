//! The loop that asks: one thread that never sleeps, so that its own waking up is in no latency. It wants a processor of
//! its own; where it has none it gives way at each turn. Sockets are a [`Carrier`]'s.

use std::io;
use std::time::{Duration, Instant};

use super::check::{Verdict, judge};
use super::flights::{Flights, PER_SOCKET};
use super::outcome::{LATE_NS, Outcome};
use super::schedule::{Pace, Schedule};
use super::trace::Trace;

/// Questions that leave one socket together when that many are due.
pub const BATCH: usize = 32;
/// Longest question that is sent.
pub const QUERY_OCTETS: usize = 512;
/// How long replies are waited for after the last question.
const GRACE: Duration = Duration::from_millis(500);
/// Time without a reply after which a closed loop counts its questions as lost.
const STALL: Duration = Duration::from_millis(100);

/// Sockets to one server: datagrams or streams.
pub trait Carrier {
    fn sockets(&self) -> usize;

    /// Sends these queries from one socket, without waiting; returns how many it took, the first ones.
    ///
    /// # Errors
    /// The socket cannot be used any more.
    fn send(&mut self, socket: usize, queries: &Queries) -> io::Result<usize>;

    /// Gives every message that has come to `reply` with the number of its socket, without waiting. Returns how many came.
    ///
    /// # Errors
    /// A socket cannot be used any more.
    fn receive(&mut self, reply: impl FnMut(usize, &[u8])) -> io::Result<usize>;
}

/// The buffers of queries that are sent together.
#[derive(Debug)]
pub struct Queries {
    octets: Box<[[u8; QUERY_OCTETS]; BATCH]>,
    lengths: [usize; BATCH],
    ids: [u16; BATCH],
    count: usize,
}

impl Queries {
    fn new() -> Queries {
        let octets = Box::new([[0; QUERY_OCTETS]; BATCH]);
        Queries { octets, lengths: [0; BATCH], ids: [0; BATCH], count: 0 }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// One of them; empty behind the last.
    pub fn get(&self, at: usize) -> &[u8] {
        &self.octets[at][..if at < self.count { self.lengths[at] } else { 0 }]
    }

    fn push(&mut self, query: &[u8], id: u16) {
        let at = self.count;
        self.octets[at][..query.len()].copy_from_slice(query);
        self.octets[at][..2].copy_from_slice(&id.to_be_bytes());
        (self.lengths[at], self.ids[at], self.count) = (query.len(), id, at + 1);
    }
}

/// Asks a server over a carrier's sockets.
#[derive(Debug)]
pub struct Generator<C> {
    carrier: C,
    flights: Flights,
    queries: Queries,
    /// The next question of the trace.
    position: usize,
    next_socket: usize,
}

impl<C: Carrier> Generator<C> {
    /// Sends through this carrier.
    pub fn new(carrier: C) -> Generator<C> {
        let flights = Flights::new(carrier.sockets());
        Generator { carrier, flights, queries: Queries::new(), position: 0, next_socket: 0 }
    }

    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    /// Asks for this time, continuing the trace where the last run ended, then waits for what is on its way.
    ///
    /// # Errors
    /// What the system says of a socket.
    pub fn run(&mut self, trace: &Trace, pace: Pace, lasting: Duration) -> io::Result<Outcome> {
        let begun = Instant::now();
        self.run_by(trace, pace, lasting, || begun.elapsed().as_nanos() as u64)
    }

    /// The same by this clock, which counts nanoseconds from the start.
    fn run_by(
        &mut self,
        trace: &Trace,
        pace: Pace,
        lasting: Duration,
        clock: impl Fn() -> u64,
    ) -> io::Result<Outcome> {
        let mut outcome = Outcome { lasted: lasting, ..Outcome::default() };
        let end = lasting.as_nanos() as u64;
        let give_up = end + GRACE.as_nanos() as u64;
        let mut last_reply = 0;
        loop {
            let now = clock();
            let is_over = now >= end;
            if is_over && (self.flights.waiting() == 0 || now > give_up) {
                break;
            }
            let room = if is_over { 0 } else { self.room(pace, now, outcome.sent) };
            if room > 0 {
                self.send(trace, pace, room.min(BATCH), now, &mut outcome)?;
            }
            let flights = &mut self.flights;
            let count = self.carrier.receive(|socket, reply| {
                arrived(flights, socket, reply, trace, clock(), &mut outcome);
            })?;
            match count {
                0 if room == 0 => {
                    let is_stalled = now > last_reply + STALL.as_nanos() as u64;
                    if matches!(pace, Pace::Window(_)) && is_stalled && !is_over {
                        outcome.lost += self.flights.give_up();
                        last_reply = now;
                    }
                    std::thread::yield_now();
                }
                0 => {}
                _ => last_reply = now,
            }
        }
        outcome.lost += self.flights.give_up();
        outcome.due = match pace {
            // Up to the end, not at it.
            Pace::Rate(per_s) => Schedule::new(per_s).due_by(end.saturating_sub(1)),
            Pace::Window(_) => outcome.sent,
        };
        // What was due in the last turn of the loop was not sent, which is no sign of a lack of time.
        if outcome.sent + BATCH as u64 >= outcome.due {
            outcome.due = outcome.sent;
        }
        Ok(outcome)
    }

    /// How many questions may be sent now.
    fn room(&self, pace: Pace, now: u64, sent: u64) -> usize {
        match pace {
            Pace::Rate(per_s) => (Schedule::new(per_s).due_by(now) - sent) as usize,
            Pace::Window(window) => {
                let window = window.min(self.carrier.sockets() * PER_SOCKET / 2);
                let room = window.saturating_sub(self.flights.waiting());
                // By the batch: the server should find them together, as it would under such a load.
                if room >= BATCH.min(window) { room } else { 0 }
            }
        }
    }

    /// Sends a batch from the next socket.
    fn send(
        &mut self,
        trace: &Trace,
        pace: Pace,
        count: usize,
        now: u64,
        outcome: &mut Outcome,
    ) -> io::Result<()> {
        let socket = self.next_socket;
        self.next_socket = (socket + 1) % self.carrier.sockets();
        self.queries.count = 0;
        for at in 0..count {
            let number = (self.position + at) % trace.len();
            let due = match pace {
                Pace::Rate(per_s) => Schedule::new(per_s).due_at(outcome.sent + at as u64),
                Pace::Window(_) => now,
            };
            let id = self.flights.depart(socket, number as u32, due);
            self.queries.push(trace.get(number).0, id);
            outcome.late += u64::from(now > due + LATE_NS);
        }
        let sent = self.carrier.send(socket, &self.queries)?.min(count);
        // The rest is tried again from the next socket.
        for id in &self.queries.ids[sent..count] {
            self.flights.arrive(socket, *id);
        }
        self.position = (self.position + sent) % trace.len();
        outcome.sent += sent as u64;
        Ok(())
    }
}

/// Matches a reply to its query and counts it.
fn arrived(
    flights: &mut Flights,
    socket: usize,
    reply: &[u8],
    trace: &Trace,
    now: u64,
    outcome: &mut Outcome,
) {
    let id = reply.first_chunk().map(|id| u16::from_be_bytes(*id));
    let Some(flight) = id.and_then(|id| flights.arrive(socket, id)) else {
        outcome.foreign += 1;
        return;
    };
    let (query, expected) = trace.get(flight.question as usize);
    let (verdict, rcode) = judge(query, reply, expected);
    outcome.answered += 1;
    outcome.rcodes[usize::from(rcode)] += 1;
    outcome.latency.saturating_record(now.saturating_sub(flight.due_ns));
    if verdict != Verdict::Right {
        outcome.wrong += 1;
        outcome.example.get_or_insert_with(|| {
            format!("expected {expected:?}, got {verdict:?}: {}", reply.escape_ascii())
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::load::upstream;

    /// A server without sockets: it answers some, is silent to others, and takes a few at a time.
    #[derive(Default)]
    struct Table {
        takes: usize,
        silent_every: Option<usize>,
        lies: bool,
        asked: usize,
        waiting: Vec<(usize, Vec<u8>)>,
    }

    impl Carrier for Table {
        fn sockets(&self) -> usize {
            4
        }

        fn send(&mut self, socket: usize, queries: &Queries) -> io::Result<usize> {
            let count = queries.count().min(self.takes);
            for at in 0..count {
                self.asked += 1;
                if self.silent_every.is_some_and(|every| self.asked.is_multiple_of(every)) {
                    continue;
                }
                let mut message = queries.get(at).to_vec();
                let length = message.len();
                message.resize(512, 0);
                let length = upstream::reply(&mut message, length);
                message.truncate(length);
                if self.lies {
                    *message.last_mut().expect("an address") ^= 1;
                }
                self.waiting.push((socket, message));
            }
            Ok(count)
        }

        fn receive(&mut self, mut reply: impl FnMut(usize, &[u8])) -> io::Result<usize> {
            let count = self.waiting.len();
            self.waiting.drain(..).for_each(|(socket, message)| reply(socket, &message));
            Ok(count)
        }
    }

    const BRIEFLY: Duration = Duration::from_millis(20);

    fn run(table: Table, pace: Pace) -> Outcome {
        let trace = Trace::external(100, 1_000, 1);
        // A clock that is 50 microseconds later whenever it is looked at.
        let ns = Cell::new(0);
        let clock = || {
            ns.set(ns.get() + 50_000);
            ns.get()
        };
        Generator::new(table).run_by(&trace, pace, BRIEFLY, clock).expect("no socket can fail")
    }

    #[test]
    fn every_question_that_was_due_is_sent_and_answered_once() {
        let outcome = run(Table { takes: BATCH, ..Table::default() }, Pace::Rate(5_000));
        assert_eq!((outcome.due, outcome.sent, outcome.late), (100, 100, 0));
        assert_eq!((outcome.answered, outcome.wrong, outcome.foreign), (outcome.sent, 0, 0));
        assert_eq!((outcome.lost, outcome.rcodes[0]), (0, outcome.sent));
        assert_eq!(outcome.latency.len(), outcome.sent);
    }

    #[test]
    fn what_a_socket_does_not_take_is_sent_later_and_not_lost() {
        let outcome = run(Table { takes: 3, ..Table::default() }, Pace::Window(64));
        assert!(outcome.sent > 3);
        assert_eq!((outcome.answered, outcome.lost), (outcome.sent, 0));
    }

    #[test]
    fn silence_is_loss_and_lies_are_wrong() {
        let every = Some(10);
        let table = Table { takes: BATCH, silent_every: every, ..Table::default() };
        let outcome = run(table, Pace::Rate(5_000));
        assert_eq!(outcome.lost, outcome.sent / 10);
        let lying = run(Table { takes: BATCH, lies: true, ..Table::default() }, Pace::Rate(5_000));
        assert_eq!(lying.wrong, lying.sent);
        assert!(lying.example.is_some_and(|text| text.contains("Wrong")));
    }
}
