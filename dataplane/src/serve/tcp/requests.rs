//! Connections on which requests come side by side, each on a stream of its own: what each holds, and when the
//! connection ends. HTTPS and QUIC share it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dataplane_core::Written;
use futures::FutureExt;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

use super::super::counters::{CloseReason, add};
use super::super::responder::{Asker, Room};
use super::deadline::{FIRST_QUERY_WITHIN, lifetime};
use super::frame::{LATER_OCTETS, WAITING_OCTETS};
use super::late::{self, AT_ONCE, Late, LateReply};
use super::table::Permit;
use super::{TcpAction, TcpServer};

/// Requests in progress on one connection: more than lookups, so that slow names leave room for what needs none (FW53).
pub(super) const STREAMS: u32 = 256;
/// How often a connection is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After a deadline, the time until the second look, which counts: where the process stood still, its timers run before it
/// has read what came meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// One client's connection over HTTPS or QUIC, on which each query is a stream.
pub(super) struct Requests {
    pub(super) server: Rc<TcpServer>,
    asker: Asker,
    pub(super) permit: Rc<Permit>,
    /// Octets that each request counts besides what it holds, from its beginning to its end.
    request_octets: usize,
    /// What each request holds, by number.
    held: RefCell<HashMap<u64, Held>>,
    next: Cell<u64>,
    /// Those who wait for a lookup are served in the order in which they came (WR41).
    lookups: Semaphore,
    /// When a request last came, was answered or took octets.
    moved: Cell<Instant>,
    /// When it is time to move to another replica (WR45).
    old: Instant,
    asked: Cell<bool>,
    opened: Instant,
    emptied: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    octets: usize,
    stage: Stage,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its client has not sent all of it.
    Arriving,
    /// It waits for its turn, it is looked up, or its reply is being written.
    InProgress,
    /// Its whole reply is written, but the client has not confirmed it.
    Written,
}

/// One request, from its first octet to the last one of its reply.
pub(super) struct Work {
    requests: Rc<Requests>,
    number: u64,
}

/// A reply as a client gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replied {
    pub(super) message: Vec<u8>,
    /// Records of its answer are missing, and nothing in it says so (WR23).
    pub(super) is_cut: bool,
}

/// Why a message has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The message is a reply, and replies are not answered (N1).
    NotAQuery,
    /// A defect of ours ended its lookup.
    Failed,
    /// Its connection closes for another one at a limit (WR44).
    GivesWay,
}

/// How a connection ends.
pub(super) enum Ending {
    Now(CloseReason),
    /// What is in progress is still answered.
    WhenDone(CloseReason),
}

impl Requests {
    /// `request_octets`: what a stream and a task of this protocol take, however little its client asks or reads (WR44).
    pub(super) fn new(
        server: Rc<TcpServer>,
        asker: Asker,
        permit: Permit,
        request_octets: usize,
    ) -> Rc<Requests> {
        let (now, seed) = (Instant::now(), server.seeds.borrow_mut().next());
        let old = now + lifetime(server.table.deadlines().age, seed);
        let requests = Rc::new(Requests {
            server,
            asker,
            permit: Rc::new(permit),
            request_octets,
            held: RefCell::default(),
            next: Cell::new(0),
            lookups: Semaphore::new(AT_ONCE),
            moved: Cell::new(now),
            old,
            asked: Cell::new(false),
            opened: now,
            emptied: Notify::new(),
        });
        requests.note();
        requests
    }

    /// Whether no request is in progress.
    fn is_idle(&self) -> bool {
        self.held.borrow().is_empty()
    }

    /// Returns when no request is in progress.
    pub(super) async fn done(&self) {
        while !self.is_idle() {
            self.emptied.notified().await;
        }
    }

    /// A request begins. Until it is known that some of it is missing, it waits for its turn and not for its client.
    pub(super) fn begin(self: &Rc<Self>) -> Work {
        let number = self.next.replace(self.next.get() + 1);
        self.held.borrow_mut().insert(number, Held { octets: 0, stage: Stage::InProgress });
        self.asked.set(true);
        self.note();
        Work { requests: Rc::clone(self), number }
    }

    /// Returns when it is the turn of this client to have one more request read, which takes of its share (WR44).
    pub(super) async fn turn(&self) {
        self.server.turns.share(self.permit.share()).await;
        self.server.turns.took(self.permit.share(), 0);
    }

    /// Has this connection count as many handshakes of its client, because it was expensive.
    pub(super) fn charge(&self) {
        let server = &self.server;
        server.rates.charge(self.asker.client.ip(), &server.table.limits(), Instant::now());
    }

    /// Reports held octets, and whether the client is slow, to the table of limits.
    fn note(&self) {
        let now = Instant::now();
        self.moved.set(now);
        let held = self.held.borrow();
        let each = held.len() * self.request_octets;
        self.permit.hold(each + held.values().map(|held| held.octets).sum::<usize>());
        let quiet = held.values().all(|held| held.stage == Stage::Written);
        self.permit.set_quiet_since(quiet.then_some(now));
        // A message begun does not count as work of ours: only its client can end it (L15).
        let waits = held.values().all(|held| held.stage != Stage::InProgress);
        self.permit.set_waits_since(self.permit.waits_since().or(Some(now)).filter(|_| waits));
    }

    /// Returns when the connection must end (WR42, WR44, WR45, E45).
    pub(super) async fn closing(&self, is_ending: bool) -> Ending {
        let deadlines = self.server.table.deadlines();
        let mut overdue = None;
        loop {
            let look = match overdue {
                None => LOOK_EVERY.min(deadlines.idle / 4),
                Some(_) => LOOK_AGAIN,
            };
            let look = tokio::time::sleep(look);
            tokio::select! {
                // A look ends what is new.
                reason = poll_fn(|cx| self.permit.poll_close_unless(cx, self.is_new())) => match reason {
                    CloseReason::Drain if !is_ending => return Ending::WhenDone(reason),
                    CloseReason::Drain => look_away().await,
                    reason => return Ending::Now(reason),
                },
                () = look => {}
            }
            let (now, still) = (Instant::now(), self.moved.get());
            let (due, reason) = match self.is_idle() {
                true => (still + deadlines.idle, CloseReason::Idle),
                // Lookups have their own end: a stream without progress for this time is a client that does not read.
                false => (still + 2 * deadlines.write, CloseReason::SlowReader),
            };
            match overdue.take() {
                Some(before) if now >= due && before == still => return Ending::Now(reason),
                _ => overdue = (now >= due).then_some(still),
            }
            if !is_ending && let Some(reason) = self.leaves(now) {
                return Ending::WhenDone(reason);
            }
        }
    }

    /// Whether its first query may be on its way.
    pub(super) fn is_new(&self) -> bool {
        !self.asked.get() && Instant::now() < self.opened + FIRST_QUERY_WITHIN
    }

    /// Why the connection must end once nothing is in progress.
    fn leaves(&self, now: Instant) -> Option<CloseReason> {
        if self.server.draining.get() && !self.is_new() {
            Some(CloseReason::Drain)
        } else if now >= self.old {
            Some(CloseReason::Age)
        } else {
            self.permit.is_surplus().then_some(CloseReason::Evicted)
        }
    }

    /// The reply to one DNS message, as over TCP.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn reply(
        &self,
        message: Vec<u8>,
        work: &mut Work,
    ) -> Result<Replied, Unanswered> {
        let server = &self.server;
        self.permit.message_came(Instant::now());
        server.turns.share(self.permit.share()).await;
        // Until its reply is written, if it needs a lookup. None is free while others wait for one.
        let place = self.lookups.try_acquire().ok();
        let room = match (self.permit.has_room(WAITING_OCTETS), &place) {
            (true, Some(_)) => Room::Now,
            (true, None) => Room::Later,
            (false, _) => Room::None,
        };
        let outcome = {
            let mut buffer = server.scratch.borrow_mut();
            let begun = std::time::Instant::now();
            let action = (server.answer)(&message, self.asker, room, &mut buffer);
            let within = begun.elapsed();
            match action {
                TcpAction::Reply(written) => {
                    server.turns.answered(self.permit.share(), written.octets, within);
                    return Ok(Replied::of(&buffer, written));
                }
                outcome => {
                    // Its share of 512 octets was taken when it was read.
                    server.turns.took_long(self.permit.share(), within);
                    outcome
                }
            }
        };
        // A lookup has its own copy of what it needs, which is counted with it.
        drop(message);
        match outcome {
            TcpAction::Late(late) => self.looked_up(late, work).await,
            TcpAction::Later(later) => {
                work.hold(LATER_OCTETS);
                let _place = self.lookups.acquire().await.map_err(|_| Unanswered::Failed)?;
                self.looked_up(later(), work).await
            }
            TcpAction::Failed => Err(Unanswered::Failed),
            TcpAction::Reply(_) | TcpAction::Close => Err(Unanswered::NotAQuery),
        }
    }

    /// The reply of an upstream. A request that is given up waits no longer; its lookup ends by itself, and is then counted and
    /// shown.
    async fn looked_up(&self, late: Late, work: &mut Work) -> Result<Replied, Unanswered> {
        work.hold(WAITING_OCTETS);
        let counters = Arc::clone(&self.server.counters);
        let (ends, ended) = oneshot::channel();
        self.server.runtime.spawn(async move {
            let ended = AssertUnwindSafe(late).catch_unwind().await;
            add(&counters.panics, usize::from(ended.is_err()));
            if let Ok(reply) = ended {
                let _ = ends.send(reply);
            }
        });
        let reply = ended.await.map_err(|_| Unanswered::Failed)?;
        self.write(reply, work).await
    }

    /// Writes the reply of an upstream in the turn of its client. One that closes for another gets none: what it holds does
    /// not count any more.
    async fn write(&self, reply: LateReply, work: &mut Work) -> Result<Replied, Unanswered> {
        let (server, share) = (&self.server, self.permit.share());
        work.hold(late::held(&reply));
        server.turns.share(share).await;
        if self.permit.gives_way() {
            return Err(Unanswered::GivesWay);
        }
        let mut buffer = server.scratch.borrow_mut();
        let begun = std::time::Instant::now();
        let written = late::write(reply, &mut buffer, &server.counters);
        let written = written.ok_or(Unanswered::Failed)?;
        server.turns.answered(share, written.octets, begun.elapsed());
        work.hold(written.octets);
        Ok(Replied::of(&buffer, written))
    }
}

impl Replied {
    fn of(buffer: &[u8], Written { octets, is_cut }: Written) -> Replied {
        Replied { message: buffer[..octets].to_vec(), is_cut }
    }
}

impl Work {
    /// This many octets of the request are here, and not all of them.
    pub(super) fn arrives(&mut self, octets: usize) {
        self.set(Held { octets, stage: Stage::Arriving });
    }

    /// From here on the request holds this many octets.
    pub(super) fn hold(&mut self, octets: usize) {
        self.set(Held { octets, stage: Stage::InProgress });
    }

    /// Its client takes some of the reply.
    pub(super) fn moves(&self) {
        self.requests.moved.set(Instant::now());
    }

    /// All of its reply, of this many octets, is written. It no longer keeps its connection from being closed for another.
    pub(super) fn written(&mut self, octets: usize) {
        self.set(Held { octets, stage: Stage::Written });
    }

    fn set(&mut self, held: Held) {
        self.requests.held.borrow_mut().insert(self.number, held);
        self.requests.note();
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.requests.held.borrow_mut().remove(&self.number);
        self.requests.note();
        self.requests.emptied.notify_waiters();
    }
}

/// A connection that must end closes when its requests are done.
async fn look_away() {
    tokio::time::sleep(LOOK_EVERY).await;
}

#[cfg(test)]
mod tests;
