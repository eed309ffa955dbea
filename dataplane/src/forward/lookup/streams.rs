//! The attempts of one lookup over a connection. The query of the one before may be asked again by itself (FW54): a later attempt to
//! the same server waits until it has ended, or is not asked again.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::forward::connections::Asker;
use crate::forward::plan::{Send, Transport};

/// The attempt before: what lets the next one begin, and whether its query waits at the server.
#[derive(Clone, Debug)]
struct Before {
    next: CancellationToken,
    waits: Arc<AtomicBool>,
}

/// What lets the next attempt over a connection to each place of the plan begin, in each form of the query.
#[derive(Debug)]
pub(super) struct Streams {
    client: IpAddr,
    latest: Vec<(usize, bool, Before)>,
}

/// The turn of one attempt; the next one has its turn when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    client: IpAddr,
    before: Option<Before>,
    own: Before,
}

impl Streams {
    /// No attempt of a lookup for this client yet.
    pub(super) fn of(client: IpAddr) -> Streams {
        Streams { client, latest: Vec::new() }
    }

    /// The turn of an attempt that begins.
    pub(super) fn turn(&mut self, send: Send) -> Turn {
        let waits = Arc::new(AtomicBool::new(true));
        let (own, mut before) = (Before { next: CancellationToken::new(), waits }, None);
        if send.transport == Transport::Connection {
            let of =
                |(place, edns, _): &(usize, bool, _)| (*place, *edns) == (send.place, send.edns);
            before = self.latest.iter().position(of).map(|at| self.latest.swap_remove(at).2);
            self.latest.push((send.place, send.edns, own.clone()));
        }
        Turn { client: self.client, before, own }
    }
}

impl Turn {
    /// Waits for this turn.
    pub(super) async fn wait(&self) -> Asker<'_> {
        if let Some(before) = &self.before {
            before.next.cancelled().await;
        }
        let waits = |before: &Before| before.waits.load(Ordering::Relaxed);
        let is_repeat = self.before.as_ref().is_some_and(waits);
        Asker { client: self.client, next: &self.own.next, waits: &self.own.waits, is_repeat }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.own.waits.store(false, Ordering::Relaxed);
        self.own.next.cancel();
    }
}
