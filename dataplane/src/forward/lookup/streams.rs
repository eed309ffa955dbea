//! The attempts of one lookup over a connection. The query of the one before may be asked again by itself (FW54): a later attempt to
//! the same server waits until it has ended, or is not asked again.

use std::net::IpAddr;

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::forward::connections::Asker;
use crate::forward::plan::{Send, Transport};

/// What lets the next attempt over a connection to each place of the plan begin, in each form of the query.
#[derive(Debug)]
pub(super) struct Streams {
    client: IpAddr,
    latest: Vec<(usize, bool, CancellationToken)>,
}

/// The turn of one attempt; the next one has its turn when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    client: IpAddr,
    before: Option<CancellationToken>,
    next: DropGuard,
}

impl Streams {
    /// No attempt of a lookup for this client yet.
    pub(super) fn of(client: IpAddr) -> Streams {
        Streams { client, latest: Vec::new() }
    }

    /// The turn of an attempt that begins.
    pub(super) fn turn(&mut self, send: Send) -> Turn {
        let next = CancellationToken::new();
        let mut before = None;
        if send.transport == Transport::Connection {
            let of =
                |(place, edns, _): &(usize, bool, _)| (*place, *edns) == (send.place, send.edns);
            before = self.latest.iter().position(of).map(|at| self.latest.swap_remove(at).2);
            self.latest.push((send.place, send.edns, next.clone()));
        }
        Turn { client: self.client, before, next: next.drop_guard() }
    }
}

impl Turn {
    /// Waits for this turn.
    pub(super) async fn wait(&self) -> Asker<'_> {
        if let Some(before) = &self.before {
            before.cancelled().await;
        }
        let is_repeat = self.before.is_some();
        Asker { client: self.client, next: self.next.token(), is_repeat }
    }
}
