//! The loop that asks: one thread that never sleeps, so that its own waking up is in no latency. It wants a processor of
//! its own; where it has none it gives way at each turn. Sockets are a [`Carrier`]'s.

use std::io;
use std::time::{Duration, Instant, UNIX_EPOCH};

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

    /// Gives every message that has come to `reply`, without waiting. Returns how many came.
    ///
    /// # Errors
    /// A socket cannot be used any more.
    fn receive(&mut self, reply: impl FnMut(Arrival<'_>)) -> io::Result<usize>;
}

/// A message that came to a socket.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub socket: usize,
    pub octets: &'a [u8],
    /// Nanoseconds since 1970 when the kernel put it into the socket, where the carrier asks for that.
    pub at: Option<u64>,
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

/// One client: how it asks, what, and how fast.
#[derive(Debug)]
pub struct Client<'c, C> {
    pub generator: &'c mut Generator<C>,
    pub trace: &'c Trace,
    pub pace: Pace,
}

/// Two clients at the same time, in turns of one loop: as two threads, each would wait for the processor of the other.
///
/// # Errors
/// What the system says of a socket.
pub fn run_beside<A: Carrier, B: Carrier>(
    first: Client<'_, A>,
    second: Client<'_, B>,
    lasting: Duration,
) -> io::Result<(Outcome, Outcome)> {
    let begun = Instant::now();
    run_beside_by(first, second, lasting, || begun.elapsed().as_nanos() as u64)
}

/// The same by this clock.
fn run_beside_by<A: Carrier, B: Carrier>(
    first: Client<'_, A>,
    second: Client<'_, B>,
    lasting: Duration,
    clock: impl Fn() -> u64,
) -> io::Result<(Outcome, Outcome)> {
    let mut one = Running::new(first.trace, first.pace, lasting);
    let mut other = Running::new(second.trace, second.pace, lasting);
    loop {
        let turns =
            (first.generator.turn(&mut one, &clock)?, second.generator.turn(&mut other, &clock)?);
        match turns {
            (Turn::Over, Turn::Over) => break,
            (Turn::Busy, _) | (_, Turn::Busy) => {}
            (Turn::Idle | Turn::Over, Turn::Idle | Turn::Over) => std::thread::yield_now(),
        }
    }
    let one = one.ended(&mut first.generator.flights);
    Ok((one, other.ended(&mut second.generator.flights)))
}

/// What a turn of the loop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Something was sent or has come.
    Busy,
    Idle,
    /// Nothing is due or waited for any more.
    Over,
}

/// A run that has begun.
struct Running<'t> {
    trace: &'t Trace,
    pace: Pace,
    /// In nanoseconds, when the last question may be sent.
    end: u64,
    /// Nanoseconds after that in which replies are waited for.
    grace: u64,
    last_reply: u64,
    outcome: Outcome,
}

impl<'t> Running<'t> {
    fn new(trace: &'t Trace, pace: Pace, lasting: Duration) -> Running<'t> {
        let outcome = Outcome { lasted: lasting, ..Outcome::default() };
        let (end, grace) = (lasting.as_nanos() as u64, GRACE.as_nanos() as u64);
        Running { trace, pace, end, grace, last_reply: 0, outcome }
    }

    fn ended(mut self, flights: &mut Flights) -> Outcome {
        let outcome = &mut self.outcome;
        outcome.lost += flights.give_up();
        outcome.due = match self.pace {
            // Up to the end, not at it.
            Pace::Rate(per_s) => Schedule::new(per_s).due_by(self.end.saturating_sub(1)),
            Pace::Window(_) => outcome.sent,
        };
        // What was due in the last turn of the loop was not sent, which is no sign of a lack of time.
        if outcome.sent + BATCH as u64 >= outcome.due {
            outcome.due = outcome.sent;
        }
        self.outcome
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
    /// Questions that one socket sends together.
    together: usize,
}

impl<C: Carrier> Generator<C> {
    /// Sends through this carrier.
    pub fn new(carrier: C) -> Generator<C> {
        Generator::with_room(carrier, PER_SOCKET)
    }

    /// The same where this many questions of each socket may wait.
    pub fn with_room(carrier: C, per_socket: usize) -> Generator<C> {
        let flights = Flights::new(carrier.sockets(), per_socket);
        let (queries, position, next_socket) = (Queries::new(), 0, 0);
        Generator { carrier, flights, queries, position, next_socket, together: BATCH }
    }

    /// The same where each socket is a client: the next question is that of the next client, also when many are due at once
    /// because the generator had to wait for its processor. Sent together they would be those of one client, which then waits
    /// for its own.
    pub fn of_clients(carrier: C) -> Generator<C> {
        Generator { together: 1, ..Generator::new(carrier) }
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
        let run = Running::new(trace, pace, lasting);
        self.run_by(run, || begun.elapsed().as_nanos() as u64)
    }

    /// The same without the wait at the end, and by the batch: what is on its way then counts as lost.
    ///
    /// # Errors
    /// What the system says of a socket.
    pub fn flood(&mut self, trace: &Trace, pace: Pace, lasting: Duration) -> io::Result<Outcome> {
        let begun = Instant::now();
        let run = Running { grace: 0, ..Running::new(trace, pace, lasting) };
        self.run_by(run, || begun.elapsed().as_nanos() as u64)
    }

    /// Runs by this clock, which counts nanoseconds from the start.
    fn run_by(&mut self, mut run: Running<'_>, clock: impl Fn() -> u64) -> io::Result<Outcome> {
        loop {
            match self.turn(&mut run, &clock)? {
                Turn::Over => return Ok(run.ended(&mut self.flights)),
                Turn::Idle => std::thread::yield_now(),
                Turn::Busy => {}
            }
        }
    }

    /// Sends what is due now, and reads what has come.
    fn turn(&mut self, run: &mut Running<'_>, clock: &impl Fn() -> u64) -> io::Result<Turn> {
        let now = clock();
        let is_over = now >= run.end;
        if is_over && (self.flights.waiting() == 0 || now > run.end + run.grace) {
            return Ok(Turn::Over);
        }
        let room = if is_over { 0 } else { self.room(run.pace, now, run.outcome.sent) };
        // In the batches of a window: what is answered is compared with what is answered to those.
        let room = if run.grace == 0 && room < BATCH { 0 } else { room };
        if room > 0 {
            self.send(run.trace, run.pace, room.min(self.together), now, &mut run.outcome)?;
        }
        let (flights, outcome) = (&mut self.flights, &mut run.outcome);
        let count = self.carrier.receive(|arrival| {
            arrived(flights, arrival, run.trace, clock(), outcome);
        })?;
        if count > 0 {
            run.last_reply = now;
            return Ok(Turn::Busy);
        }
        if room > 0 {
            return Ok(Turn::Busy);
        }
        let is_stalled = now > run.last_reply + STALL.as_nanos() as u64;
        if matches!(run.pace, Pace::Window(_)) && is_stalled && !is_over {
            run.outcome.lost += self.flights.give_up();
            run.last_reply = now;
        }
        Ok(Turn::Idle)
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
        let sent_at = since_1970();
        for at in 0..count {
            let number = (self.position + at) % trace.len();
            let due = match pace {
                Pace::Rate(per_s) => Schedule::new(per_s).due_at(outcome.sent + at as u64),
                Pace::Window(_) => now,
            };
            let id = self.flights.depart(socket, number as u32, due, sent_at);
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

/// The clock by which the kernel stamps what arrives, in nanoseconds.
pub(super) fn since_1970() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

/// Matches a reply to its query and counts it.
fn arrived(
    flights: &mut Flights,
    Arrival { socket, octets: reply, at }: Arrival<'_>,
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
    if let Some(at) = at {
        outcome.between.saturating_record(at.saturating_sub(flight.sent_at));
    }
    if verdict != Verdict::Right {
        outcome.wrong += 1;
        outcome.example.get_or_insert_with(|| {
            format!("expected {expected:?}, got {verdict:?}: {}", reply.escape_ascii())
        });
    }
}

#[cfg(test)]
mod tests;
