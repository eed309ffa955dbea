//! Turns of the thread that serves all connections: in each, a client gets answers of this many octets, however many
//! connections it has. What one asks for beyond that waits until the others had theirs (WR44). And in each, all clients
//! together have this many octets of HTTP/2 read, which take much more memory until their requests were looked at; one of
//! them has half of it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Octets of replies that one client gets in one turn: as many as the largest reply has, or some hundred small ones.
const TURN_OCTETS: usize = 64 << 10;

/// Octets of HTTP/2 that one client has read in one turn. Frames may need no answer, so these are not in its share of answers.
const READ_OCTETS: usize = TURN_OCTETS / 2;

/// What an answer counts for each microsecond that it took, if that is more than its octets. The work follows the octets (L12),
/// except where much was read of which little is left: all private addresses of a large Service (FW43).
const OCTETS_PER_US: u128 = 128;

/// The minimum cost of an answer, also of one that is not there yet: finding it takes longer than writing few octets.
const LEAST_OCTETS: usize = 512;

/// The turns of one thread.
#[derive(Debug, Default)]
pub(super) struct Turns {
    number: Cell<u64>,
    /// Who waits for the next turn, in the order in which they are asked again.
    waiting: RefCell<Vec<Waker>>,
    /// The same of clients that had nothing of this turn because of others. They come first.
    left_out: RefCell<Vec<Waker>>,
    is_ending: Cell<bool>,
}

/// The octets that a client got in a turn.
#[derive(Debug, Default)]
pub(super) struct Share {
    turn: Cell<u64>,
    octets: Cell<usize>,
}

/// The octets that all connections of HTTP/2 have read in a turn. A request is looked at by a task of its own, at the end of
/// the turn: until then the library holds its headers, which may be a hundred times as large as on the way, and the whole
/// buffers in which pieces of its body came.
#[derive(Debug, Default)]
pub(super) struct AllReads {
    turns: Rc<Turns>,
    all: Rc<Share>,
}

/// When one connection may be read.
#[derive(Debug)]
pub(super) struct Reads {
    turns: Rc<Turns>,
    own: Rc<Share>,
    /// Where octets count, not only time.
    all: Option<Rc<Share>>,
}

impl AllReads {
    /// The reads of one connection of HTTP/2, whose client has read this much of it.
    pub(super) fn of(&self, own: &Rc<Share>) -> Reads {
        let (turns, all) = (Rc::clone(&self.turns), Some(Rc::clone(&self.all)));
        Reads { turns, own: Rc::clone(own), all }
    }
}

impl Reads {
    /// Whether more may be read now.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(all) = &self.all else { return self.turns.poll_share(&self.own, cx) };
        let used = self.turns.used(&self.own);
        if used < READ_OCTETS && self.turns.has_share(all) {
            return Poll::Ready(());
        }
        let among = if used == 0 { &self.turns.left_out } else { &self.turns.waiting };
        self.turns.wait(among, cx);
        Poll::Pending
    }

    /// The connection has read this many octets, or nothing of use, which took this long: much of TLS is no data.
    pub(super) fn took(&self, octets: Option<usize>, within: Duration) {
        match (octets, &self.all) {
            (Some(octets), Some(all)) => {
                self.turns.took(&self.own, octets.max(worth(within)));
                self.turns.took(all, octets);
            }
            _ => self.turns.took_long(&self.own, within),
        }
    }
}

/// The octets that work of this time counts as.
fn worth(within: Duration) -> usize {
    usize::try_from(within.as_micros() * OCTETS_PER_US)
        .map_or(TURN_OCTETS, |it| it.min(TURN_OCTETS))
}

impl Turns {
    /// How many have ended.
    #[cfg(test)]
    pub(super) fn ended(&self) -> u64 {
        self.number.get()
    }

    /// Whether this client may have one more answer in this turn.
    pub(super) fn has_share(&self, share: &Share) -> bool {
        self.used(share) < TURN_OCTETS
    }

    /// What was used of a share in this turn.
    fn used(&self, share: &Share) -> usize {
        if share.turn.get() == self.number.get() { share.octets.get() } else { 0 }
    }

    /// The reads of one connection of this client, which count towards its answers where they take long.
    pub(super) fn reads(self: &Rc<Self>, own: &Rc<Share>) -> Reads {
        Reads { turns: Rc::clone(self), own: Rc::clone(own), all: None }
    }

    /// This client got an answer of this many octets, which took this long.
    pub(super) fn answered(&self, share: &Share, octets: usize, within: Duration) {
        self.took(share, octets.max(worth(within)));
    }

    /// The same for what has no answer yet and whose least share was taken before.
    pub(super) fn took_long(&self, share: &Share, within: Duration) {
        if worth(within) > LEAST_OCTETS {
            self.took(share, worth(within));
        }
    }

    /// This client used this many octets of its share.
    pub(super) fn took(&self, share: &Share, octets: usize) {
        share.octets.set(self.used(share) + octets.max(LEAST_OCTETS));
        share.turn.set(self.number.get());
    }

    /// Resolves when this client may have another answer.
    pub(super) fn poll_share(self: &Rc<Self>, share: &Share, cx: &Context<'_>) -> Poll<()> {
        if self.has_share(share) {
            return Poll::Ready(());
        }
        self.wait(&self.waiting, cx);
        Poll::Pending
    }

    /// Has this task asked again in the next turn, among those.
    fn wait(self: &Rc<Self>, among: &RefCell<Vec<Waker>>, cx: &Context<'_>) {
        among.borrow_mut().push(cx.waker().clone());
        if !self.is_ending.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).end());
        }
    }

    /// Returns when this client may have another answer.
    pub(super) async fn share(self: &Rc<Self>, share: &Share) {
        poll_fn(|cx| self.poll_share(share, cx)).await;
    }

    /// Ends the turn once everything that is ready now has run, and sockets were looked at.
    async fn end(self: Rc<Self>) {
        tokio::task::yield_now().await;
        self.is_ending.set(false);
        self.number.set(self.number.get() + 1);
        let waiting = self.left_out.take().into_iter().chain(self.waiting.take());
        waiting.for_each(Waker::wake);
    }
}
