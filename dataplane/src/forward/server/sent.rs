//! One query of a client that was sent to a server: the place that it takes, and what its reply or its silence shows
//! about the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dataplane_core::RelayError;

use super::{Heard, Server};
use crate::forward::now;
use crate::forward::plan::{Transport, USUAL};

/// A query that was sent. It holds one of the places of its server until its reply comes or is overdue. Dropped without an
/// outcome, because another server was faster or the budget is spent, it counts as silence if the server had its time.
#[derive(Debug)]
pub(in crate::forward) struct Sent {
    server: Arc<Server>,
    at: Instant,
    /// The transport of this query.
    over: Transport,
    with_edns: bool,
    is_overdue: bool,
    /// It holds its place still.
    has_place: bool,
    /// Its result is known, or it was not sent.
    is_settled: bool,
    /// It is among those that were sent, as metrics show them.
    is_counted: bool,
    /// The response code of its reply.
    rcode: u16,
    /// The same is asked again in another form, and the reply to that shows how fast the server is.
    is_asked_again: bool,
    /// Its end says nothing about how many queries the server can have at once.
    spares_places: bool,
}

impl Server {
    /// Takes a place for one query of a client, or none if the server has as many as it is given at once.
    pub(in crate::forward) fn send(self: &Arc<Self>, with_edns: bool) -> Option<Sent> {
        // While others wait none is free.
        let has_place = self.state().window.enter();
        has_place.then(|| self.sent_now(with_edns))
    }

    /// The same with a place that was given.
    pub(super) fn sent_now(self: &Arc<Self>, with_edns: bool) -> Sent {
        let server = Arc::clone(self);
        Sent {
            over: server.transport(),
            server,
            at: now(),
            with_edns,
            is_overdue: false,
            has_place: true,
            is_settled: false,
            is_counted: false,
            rcode: 0,
            is_asked_again: false,
            spares_places: false,
        }
    }
}

impl Sent {
    /// The same over this transport, where it is not the one that its server has in the configuration.
    pub(in crate::forward) fn over(mut self, over: Transport) -> Sent {
        self.over = over;
        self
    }

    /// When it was sent.
    pub(in crate::forward) fn at(&self) -> Instant {
        self.at
    }

    /// When its reply is overdue: after the time between two sends. `None` once it is overdue.
    pub(in crate::forward) fn overdue_at(&self) -> Option<Instant> {
        (!self.is_overdue).then(|| self.at + USUAL.interval)
    }

    /// Looks at the time: an overdue query gives its place back, so that names without a reply do not take the places
    /// of names that the server answers. Limits per group and in all bound the number of overdue queries. True: it is overdue since
    /// this look.
    pub(in crate::forward) fn look(&mut self, now: Instant) -> bool {
        let is_news = self.overdue_at().is_some_and(|at| now >= at);
        if is_news {
            self.is_overdue = true;
            self.count();
            let mut state = self.server.state();
            self.has_place = false;
            state.window.leave();
            state.window.was_silent(self.at, now);
            state.latency.waited(now.saturating_duration_since(self.at));
            state.give_places();
            self.server.hear(state, Heard::Nothing, self.over, now);
        }
        is_news
    }

    /// Records its result.
    pub(in crate::forward) fn settle(mut self, heard: Heard) {
        self.settle_at(heard, now());
    }

    /// The time of its lookup is over. It is silence only where the server had at least half of the time between two sends:
    /// the last query of a lookup has nearly all of it, and one that got its place late says nothing about its server.
    pub(in crate::forward) fn expire(self, now: Instant) {
        if now >= self.at + USUAL.interval / 2 {
            self.settle(Heard::Nothing);
        }
    }

    /// Its reply came, with this response code.
    pub(in crate::forward) fn replied(mut self, heard: Heard, rcode: u16) {
        self.rcode = rcode;
        self.settle_at(heard, now());
    }

    /// It was refused with this response code, maybe for its OPT record, and is sent again without (FW25).
    pub(in crate::forward) fn refused_edns(mut self, rcode: u16) {
        self.is_asked_again = true;
        self.replied(Heard::Error, rcode);
    }

    /// A reply came that is no answer, though its response code is no error: a referral, or a chain that cannot be used.
    /// The attempt failed (FW21), the server did not (FW28).
    pub(in crate::forward) fn was_no_answer(mut self, error: RelayError) {
        if let Some(reason) = error.unusable() {
            self.server.common.was_unusable(reason);
        }
        self.settle_at(Heard::Error, now());
    }

    /// The query was for a connection, which failed or was refused, or which the pause after such a failure kept from being
    /// made (FW54). Where the server is asked over UDP first, it keeps its places: many servers take no TCP at all.
    pub(in crate::forward) fn stream_failed(mut self) {
        self.spares_places = self.server.asked_over() == Transport::Udp;
        self.server.state().answers_tcp = false;
        self.settle_at(Heard::Nothing, now());
    }

    /// The server was not asked.
    pub(in crate::forward) fn cancel(mut self) {
        self.is_settled = true;
        self.is_counted = true;
    }

    /// Counts it once, as soon as it is known that it was sent: a count that is shown never decreases.
    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.server.of_address.shown.sent.fetch_add(1, Ordering::Relaxed);
            self.server.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn settle_at(&mut self, heard: Heard, now: Instant) {
        self.is_settled = true;
        self.count();
        let server = &self.server;
        server.heard[heard as usize].fetch_add(1, Ordering::Relaxed);
        if heard != Heard::Good {
            server.of_address.shown.failed.fetch_add(1, Ordering::Relaxed);
        }
        // This silence was counted before.
        if heard == Heard::Nothing && self.is_overdue {
            return;
        }
        let after = now.saturating_duration_since(self.at);
        let mut state = server.state();
        // One lock for all: other threads use it too.
        if std::mem::take(&mut self.has_place) {
            state.window.leave();
        }
        match heard {
            Heard::Good | Heard::Error => {
                if self.is_overdue {
                    state.window.was_slow(self.at);
                }
                state.window.replied(now);
                server.replied(self.rcode, after);
            }
            Heard::Nothing if self.spares_places => {}
            Heard::Nothing => state.window.was_silent(self.at, now),
        }
        match heard {
            Heard::Good => state.latency.measured(after),
            Heard::Error if self.is_asked_again => {}
            // What fails at once is no fast server, also where it replies: another one must be asked.
            Heard::Error | Heard::Nothing => state.latency.waited(after.max(USUAL.interval)),
        }
        // A reply over TCP says nothing of OPT records over UDP.
        if heard == Heard::Good && self.with_edns && self.over == server.transport() {
            state.edns.answered();
        }
        state.give_places();
        server.hear(state, heard, self.over, now);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.count();
        if !self.is_settled {
            let now = now();
            if now >= self.at + USUAL.interval {
                self.settle_at(Heard::Nothing, now);
            }
        }
        if self.has_place {
            let mut state = self.server.state();
            state.window.leave();
            state.give_places();
        }
    }
}
