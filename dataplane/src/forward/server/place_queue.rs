//! Lookups that wait for a place at a server. A place that becomes free is given to the one that has waited longest, before
//! any other query can take it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Sent, Server, ServerState};

/// Those who wait, by their number: first come, first served. While there are any, no place is free.
#[derive(Debug, Default)]
pub(super) struct PlaceQueue {
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    next: u64,
}

impl ServerState {
    /// Gives free places to those who wait. It must be called after all that may have made one free.
    pub(super) fn give_places(&mut self) {
        while !self.turns.waiting.is_empty() && self.window.enter() {
            if let Some((_, first)) = self.turns.waiting.pop_first() {
                // It is there: who leaves takes itself off this list first.
                let _ = first.send(());
            }
        }
    }
}

/// A lookup in the queue of a server. As a future it is ready when it has a place. Dropped it leaves the queue, and a place
/// that it did not use is for the next.
#[derive(Debug)]
pub(in crate::forward) struct Waiting {
    server: Arc<Server>,
    number: u64,
    given: oneshot::Receiver<()>,
    is_used: bool,
}

impl Server {
    /// Joins the queue for places, behind all who wait.
    pub(in crate::forward) fn wait(self: &Arc<Self>) -> Waiting {
        let (give, given) = oneshot::channel();
        let mut state = self.state();
        let number = state.turns.next;
        state.turns.next += 1;
        state.turns.waiting.insert(number, give);
        // One may be free since the lookup has looked.
        state.give_places();
        drop(state);
        Waiting { server: Arc::clone(self), number, given, is_used: false }
    }
}

impl Waiting {
    /// Uses the place for one query of a client. It must be ready.
    pub(in crate::forward) fn send(mut self, with_edns: bool) -> Sent {
        self.is_used = true;
        self.server.sent_now(with_edns)
    }
}

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.given).poll(context).map(|_| ())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let mut state = self.server.state();
        if state.turns.waiting.remove(&self.number).is_none() {
            state.window.leave();
            state.give_places();
        }
    }
}
