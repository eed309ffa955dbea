//! One UDP thread: a batch in, answers beside it, a batch out. Nothing here waits, allocates or takes a lock for
//! an answer of our own, unless the query log or dnstap is on. Upstreams are asked when the replies of the batch have left,
//! for a few queries between two batches, and for each client in its turn.

mod client_queues;

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dataplane_core::{Ahead, AheadRoom, OwnedHead, Query, Reason, Transport, Waiting};
use dataplane_udp::{Batch, DATAGRAM_OCTETS, Datagram, Local, Socket};
use tokio::runtime::Handle;

use super::counters::add;
use super::responder::{
    Asked, AskedLater, Asker, Refresh, Responder, Room, Seeds, ServeAction, client,
};
use super::traffic::ServedOver;
use crate::forward::{Client, Held, Reading, Resolved, Slot, Together, Upstreams};
use crate::origin::{Answered, Origin};
use crate::state::Published;
use crate::taps::{Began, Wanted};
use client_queues::ClientQueues;

/// Pause after receiving failed for another reason than a datagram: long enough not to spin, and short enough to lose
/// little time.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

/// Longest wait for a query or a reply of an upstream, after which it is seen whether to stop.
const LOOK: Duration = Duration::from_secs(1);
/// For how many queries upstreams are asked between two batches. Each may cost a socket, some 10 µs: a client that asks for
/// names of the cluster waits for no more of them, however many names another one asks upstreams for (L2).
const ASKED_AT_ONCE: usize = 4;

/// For how many while more replies wait than are read: these wait behind those of a client that floods, queries have turns (L2).
const ASKED_BEHIND: usize = 2;

/// Full batches that are answered before upstreams are asked. While there are some, clients ask faster than upstreams can be
/// asked, and what is not read waits in the queue of the socket, where a client that floods takes the places of all others.
const FULL_BATCHES: usize = 2;

/// Length of the turns of this thread on its processor: a query over UDP does not wait until lookups that need a task have had
/// their turn (L3).
const TURN: Duration = Duration::from_micros(200);

/// A full batch. There is room for the notes about one; a larger batch allocates once.
const BATCH: usize = 32;

/// One socket and who serves it.
pub(super) struct Worker {
    socket: Arc<Socket>,
    responder: Arc<Responder>,
    number: usize,
    stale: Duration,
    stop: Arc<AtomicBool>,
    seeds: Seeds,
    /// The names of the batch.
    room: AheadRoom,
    /// Of each reply of the batch: where it came from, and how long its query waited to be read.
    answered: Vec<(Origin, Duration)>,
    /// What an upstream is asked for: when the replies of the batch have left, as each may cost a socket.
    later: ClientQueues<Ask>,
    /// Full batches in a row after which no upstream was asked.
    full: usize,
    /// New queries go to the sockets of others, as this one will close (D3).
    has_turned_away: bool,
    /// The latest receive failed.
    cannot_receive: bool,
    /// A message whose handling panics, as a defect would.
    #[cfg(test)]
    defect: Option<Vec<u8>>,
    /// The next turn panics behind its answers.
    #[cfg(test)]
    fails_next: bool,
    /// Every receive fails.
    #[cfg(test)]
    is_broken: bool,
}

/// What an upstream is asked for, of those that were in use when it was decided.
enum Ask {
    ForClient(Box<Later>, Arc<Upstreams>),
    Again(Box<Refresh>, Arc<Upstreams>),
}

/// A query for which an upstream is asked.
struct Later {
    waiting: Box<Waiting>,
    held: Option<Held>,
    slot: Slot,
    peer: SocketAddr,
    from: Local,
    waited: Duration,
    /// When it was read.
    read: Instant,
    asked: Option<Box<AskedLater>>,
}

impl Worker {
    pub(super) fn new(
        socket: Arc<Socket>,
        responder: Arc<Responder>,
        number: usize,
        stale: Duration,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            socket,
            responder,
            number,
            stale,
            stop,
            seeds: Seeds::new(),
            room: AheadRoom::new(),
            answered: Vec::with_capacity(BATCH),
            later: ClientQueues::new(),
            full: 0,
            has_turned_away: false,
            cannot_receive: false,
            #[cfg(test)]
            defect: None,
            #[cfg(test)]
            fails_next: false,
            #[cfg(test)]
            is_broken: false,
        }
    }

    /// Serves until it is asked to stop. Then the kernel gives new queries to other sockets of the port, and what is
    /// queued is answered (D3). It reads the sockets over which it asks upstreams itself, so that a reply wakes no other
    /// thread.
    pub(super) fn run(mut self) {
        super::ask_for_turns(TURN);
        // Sockets and tasks of lookups are the runtime's.
        let runtime = self.responder.runtime.clone();
        let _lookups = runtime.enter();
        let (mut batch, mut reading) = (Batch::new(), Reading::begin());
        while self.guarded_turn(&mut batch, reading.as_mut()) {}
        if let Some(mut reading) = reading.filter(Reading::has_ports) {
            // It was woken, and would wake who waits for it without end.
            reading.leave(&*self.socket);
            finish(reading, runtime.clone());
        }
    }

    /// A turn in which a defect costs no more than itself: the kernel would give a thread that ended its part of all clients
    /// still. What is not guarded for each query is what upstreams sent.
    fn guarded_turn(&mut self, batch: &mut Batch, reading: Option<&mut Reading>) -> bool {
        let turn = catch_unwind(AssertUnwindSafe(|| self.turn(batch, reading)));
        turn.unwrap_or_else(|_| {
            add(&self.responder.counters.panics, 1);
            std::thread::sleep(RECEIVE_PAUSE);
            true
        })
    }

    /// Answers a batch, then reads what upstreams reply and asks them, unless clients are read again at once. Returns
    /// whether there is another turn.
    fn turn(&mut self, batch: &mut Batch, mut reading: Option<&mut Reading>) -> bool {
        // Read before receiving: nothing is left behind by a stop that comes in between.
        let stopping = self.stop.load(Ordering::Acquire);
        if stopping && !self.has_turned_away {
            self.has_turned_away = true;
            if let Err(error) = self.socket.turn_away() {
                tracing::debug!(%error, "queries still come to a socket that will close");
            }
        }
        let received = self.receive(batch, reading.as_deref_mut(), stopping);
        let could_receive = !std::mem::replace(&mut self.cannot_receive, received.is_err());
        match received {
            Ok(0) if stopping && self.later.is_empty() => return false,
            Ok(0) => self.full = 0,
            Ok(queries) => {
                self.answer(batch);
                if self.reads_on(queries) {
                    return true;
                }
            }
            Err(error) => {
                // A system without memory would else have 100 lines a second of each thread.
                if could_receive {
                    tracing::warn!(%error, address = %self.socket.local_addr(), "cannot receive for now");
                }
                add(&self.responder.counters.udp_receive_failed, 1);
                if stopping && self.later.is_empty() {
                    return false;
                }
                std::thread::sleep(RECEIVE_PAUSE);
            }
        }
        #[cfg(test)]
        assert!(!std::mem::take(&mut self.fails_next), "a defect");
        // Answers of ours have left.
        let is_behind = reading.is_some_and(Reading::read);
        self.ask(if is_behind { ASKED_BEHIND } else { ASKED_AT_ONCE });
        true
    }

    /// Waits for queries, and for what upstreams reply while a reply to this thread is awaited. Waits for
    /// nothing while upstreams are still to be asked.
    fn receive(
        &self,
        batch: &mut Batch,
        reading: Option<&mut Reading>,
        stopping: bool,
    ) -> io::Result<usize> {
        #[cfg(test)]
        if self.is_broken {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (socket, is_idle) = (&*self.socket, self.later.is_empty());
        let recv = |batch| if is_idle { socket.recv(batch) } else { socket.recv_now(batch) };
        let Some(reading) = reading else { return recv(batch) };
        if reading.is_alone() {
            return recv(batch).inspect(|asked| reading.was_alone(socket, is_idle && *asked == 0));
        }
        let for_clients = reading.wait(socket, if is_idle { LOOK } else { Duration::ZERO })?;
        if for_clients || stopping { socket.recv_now(batch) } else { Ok(0) }
    }

    /// Whether clients are read again at once after a batch of this many queries.
    fn reads_on(&mut self, queries: usize) -> bool {
        self.full = if queries < BATCH { 0 } else { (self.full + 1) % FULL_BATCHES };
        self.full > 0
    }

    fn answer(&mut self, batch: &mut Batch) {
        // No reference is counted for a batch: that is a locked instruction, on a count that all threads share.
        let published = self.responder.state.published.load();
        let received = batch.now();
        self.decide_batch(&published, batch);
        self.responder.counters.add_unsent(self.socket.send(batch));
        self.note_durations(received);
    }

    /// Writes the replies of a batch, and notes for which queries an upstream is asked.
    fn decide_batch(&mut self, published: &Arc<Published>, batch: &mut Batch) {
        let (now_s, wanted) = (batch.now().as_secs(), self.responder.state.taps.wanted());
        let (mut is_first, mut room) = (true, std::mem::take(&mut self.room));
        let mut panics = 0;
        let mut answer = || {
            let reads = std::mem::take(&mut is_first);
            batch.answer_ahead(
                |packets| {
                    reads.then(|| Ahead::read(&published.records, &mut room, packets)).flatten()
                },
                |ahead, datagram, buffer| {
                    self.reply((published, ahead.as_ref()), now_s, wanted, datagram, buffer)
                },
            );
        };
        // A panic because of one message must cost neither the thread nor the others of its batch: a second call continues behind it.
        while catch_unwind(AssertUnwindSafe(&mut answer)).is_err() {
            panics += 1;
        }
        self.room = room;
        if panics > 0 {
            add(&self.responder.counters.panics, panics);
        }
    }

    /// Asks upstreams for this many of the queries that wait at most. A panic because of one query must not end this thread.
    fn ask(&mut self, most: usize) {
        if self.later.is_empty() {
            return;
        }
        let _together = Together::begin();
        for _ in 0..most {
            let asks = match self.later.pop() {
                None => break,
                Some(Ask::Again(refresh, upstreams)) => {
                    self.responder.refresh(&upstreams, &refresh);
                    continue;
                }
                Some(Ask::ForClient(later, upstreams)) => {
                    AssertUnwindSafe(|| self.ask_for_client(upstreams, *later))
                }
            };
            if catch_unwind(asks).is_err() {
                add(&self.responder.counters.panics, 1);
            }
        }
    }

    /// The replies of a batch leave together: one look at the clock is enough for all. It is the clock of the time stamps
    /// that the kernel puts on datagrams, so it may be set meanwhile: a query that waits longer than the bound has no reply, and
    /// none counts for longer than both.
    fn note_durations(&mut self, received: Duration) {
        if self.answered.is_empty() {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let within = now.saturating_sub(received).min(self.stale);
        let traffic = self.responder.counters.traffic.udp(self.number);
        for (origin, waited) in self.answered.drain(..) {
            traffic.took(origin, waited + within);
        }
    }

    /// Octets of the reply to send now, 0 for none.
    fn reply<'a>(
        &mut self,
        (published, ahead): (&'a Arc<Published>, Option<&Ahead<'_, 'a>>),
        now_s: u64,
        wanted: Wanted,
        datagram: Datagram<'a>,
        buffer: &mut [u8],
    ) -> usize {
        if datagram.waited > self.stale {
            add(&self.responder.counters.udp_stale, 1);
            return 0;
        }
        #[cfg(test)]
        assert!(self.defect.as_deref() != Some(datagram.bytes), "a defect");
        let responder = &*self.responder;
        let traffic = responder.counters.traffic.udp(self.number);
        traffic.query(datagram.bytes.len());
        let query = Query {
            packet: datagram.bytes,
            client: client(datagram.peer),
            transport: Transport::Udp,
            now_s,
            seed: self.seeds.next(),
        };
        let began = wanted.begin(datagram.waited);
        let asked = began.as_ref().map(|began| self.asked(began, &datagram));
        match responder.decide((published, ahead), self.number, &query, Room::Now, buffer) {
            ServeAction::Reply(octets, answered, refresh) => {
                if let Some(refresh) = refresh {
                    let upstreams = Arc::clone(&published.upstreams);
                    self.later.push(query.client.ip(), Ask::Again(refresh, upstreams));
                }
                traffic.reply(answered, &buffer[..octets]);
                if let Some(asked) = &asked {
                    responder.show(self.number, asked, answered, &buffer[..octets]);
                }
                self.answered.push((answered.origin, datagram.waited));
                octets
            }
            // It is asked for now, so none is left for later.
            ServeAction::Drop | ServeAction::Later(..) => 0,
            ServeAction::Forward(waiting, held, slot) => {
                let asked = asked.map(|asked| asked.keep());
                let Datagram { peer, local: from, waited, bytes: _ } = datagram;
                let read = Instant::now();
                let later = Later { waiting, held, slot, peer, from, waited, read, asked };
                let upstreams = Arc::clone(&published.upstreams);
                self.later.push(query.client.ip(), Ask::ForClient(Box::new(later), upstreams));
                0
            }
        }
    }

    fn asked<'a>(&self, began: &'a Began, datagram: &Datagram<'a>) -> Asked<'a> {
        let server = SocketAddr::new(datagram.local.address, self.socket.local_addr().port());
        let asker = Asker { client: client(datagram.peer), server, over: ServedOver::Udp };
        Asked { began, asker, query: datagram.bytes, is_cut: false }
    }

    fn ask_for_client(&self, upstreams: Arc<Upstreams>, later: Later) {
        let Later { waiting, held, slot, peer, from, waited, read, asked } = later;
        let place = self.number;
        let (responder, socket) = (Arc::clone(&self.responder), Arc::clone(&self.socket));
        let late = move |head: &OwnedHead, resolved: &Resolved| {
            let mut buffer = [0; DATAGRAM_OCTETS];
            let octets = resolved.write(head, &mut buffer).octets;
            responder.counters.add_unsent(socket.send_to(&buffer[..octets], from, peer));
            let answered = Answered { reason: Reason::Forward, origin: resolved.origin() };
            let traffic = responder.counters.traffic.late(ServedOver::Udp);
            traffic.reply(answered, &buffer[..octets]);
            traffic.took(answered.origin, waited + read.elapsed());
            if let Some(asked) = &asked {
                responder.show(place, &asked.borrow(), answered, &buffer[..octets]);
            }
        };
        self.responder.reply_late(upstreams, waiting, held, Client::new(read, slot), late);
    }
}

/// Others may have asked over the sockets of a thread that ends: they are read as long as they are open.
fn finish(reading: Reading, runtime: Handle) {
    let reads = move || {
        let _lookups = runtime.enter();
        reading.finish(LOOK);
    };
    if let Err(error) = std::thread::Builder::new().name("upstreams".into()).spawn(reads) {
        tracing::warn!(%error, "no thread reads what upstreams still reply");
    }
}

#[cfg(test)]
mod tests;
