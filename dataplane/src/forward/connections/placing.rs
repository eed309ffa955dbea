//! A place for a query that finds none on an open connection: it waits until one is free there, or on a new connection (FW54).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::Either;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::alone::MAX_REPLACED;
use super::connect_turns::Beginning;
use super::connection::{Connection, Place};
use super::pause::SHORT_PAUSE;
use super::{Connections, Failure, HOLD_OFF, MAX_CONNECTIONS, now};

/// Time of a handshake, from the first packet on. A handshake continues without the query that began it.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(3);
/// A query waits for a handshake this long before it takes a place in a crowd: less than the time between two sends.
const LONG_HANDSHAKE: Duration = Duration::from_millis(200);

impl Connections {
    /// Waits for `wanted`, or until a place on an open connection is free.
    async fn place_or<T>(
        &self,
        after: u64,
        query: &impl Fn(u16) -> Vec<u8>,
        wanted: impl Future<Output = T>,
    ) -> Either<Place, T> {
        let (mut wanted, mut too_long) = (pin!(wanted), pin!(sleep(LONG_HANDSHAKE)));
        // A query that was lost needs a later connection, so it must not take a notice that others wait for.
        let (takes_others, mut waits) = (after == 0, after == 0);
        loop {
            tokio::select! {
                biased;
                got = &mut wanted => return Either::Right(got),
                () = self.shared.freed.notified(), if takes_others => {
                    if let Some(place) = self.place(after, query, now()) {
                        // There may be more places than this one.
                        self.shared.freed.notify_one();
                        return Either::Left(place);
                    }
                }
                () = &mut too_long, if waits => {
                    waits = false;
                    if let Some(place) = self.place_in_crowd(false, query) {
                        return Either::Left(place);
                    }
                }
            }
        }
    }

    /// A place on a connection later than this number: one that another query has opened meanwhile, else a new one. A
    /// place on another connection that becomes free before is taken instead.
    pub(super) async fn place_on_new(
        &self,
        after: u64,
        query: impl Fn(u16) -> Vec<u8>,
        opening: impl Future<Output = Result<Arc<Connection>, Failure>> + Send + 'static,
    ) -> Result<Place, Failure> {
        if let Some(place) = self.place_among_stalled(&query) {
            return Ok(place);
        }
        let turn = self.place_or(after, &query, self.turns.take(|| self.gives_one())).await;
        let mut turn = match turn {
            Either::Left(place) => return Ok(place),
            Either::Right(turn) => turn,
        };
        if let Some(place) = self.place(after, &query, now()) {
            return Ok(place);
        }
        self.close_finished();
        if !self.is_tried()
            && let Some(place) = self.place_beside_late(after, &query, now())
        {
            return Ok(place);
        }
        let gives_one = self.gives_one();
        if gives_one {
            turn.share();
        }
        // One query has each connection of such a server for itself: its silence says nothing about the server.
        let is_silent =
            !gives_one && self.open().iter().any(|connection| connection.is_useless(now()));
        if let Some((_, left)) = self.shared.pause.holds(is_silent, now())
            && left <= SHORT_PAUSE
            && let Either::Left(place) = self.place_or(after, &query, sleep(left)).await
        {
            return Ok(place);
        }
        if let Some((failure, _)) = self.shared.pause.holds(is_silent, now()) {
            let is_full = self.open().iter().any(|connection| connection.is_open());
            let failure = if is_full { Failure::full() } else { failure };
            return self.place_in_crowd(is_silent, &query).ok_or(failure);
        }
        let Some(beginning) = self.begin(gives_one) else {
            // A slow server may be silent on each of them.
            return self
                .place_in_crowd(true, &query)
                .ok_or_else(|| self.counted_failure(Failure::full()));
        };
        let task = self.begun(opening, beginning, turn);
        // We keep the turn until we have a place; otherwise those who wait would take all places.
        let (opened, _turn) = match self.place_or(after, &query, task).await {
            Either::Left(place) => return Ok(place),
            Either::Right(ended) => ended.map_err(|_| Failure::broken())?,
        };
        let opened = match opened {
            Ok(opened) => opened,
            // The server may allow no more connections than there are.
            Err(failure) => return self.place_in_crowd(false, &query).ok_or(failure),
        };
        if let Some(place) = opened.place(&query, now()) {
            return Ok(place);
        }
        if opened.is_open() || !opened.loss_counts() {
            // Others were faster: it says nothing about the server.
            return self.place_in_crowd(false, &query).ok_or_else(Failure::taken);
        }
        let failure = self.counted_failure(Failure::broken());
        self.shared.pause.failed(&failure, now());
        Err(failure)
    }

    /// A handshake. It runs in a task of its own: a lookup that another server answers does not end it. Otherwise a slower server
    /// would never get a connection. The task counts the result, also when no query waits.
    pub(super) fn begun<T: Send + 'static>(
        &self,
        opening: impl Future<Output = Result<Arc<Connection>, Failure>> + Send + 'static,
        beginning: Beginning,
        turn: T,
    ) -> JoinHandle<(Result<Arc<Connection>, Failure>, T)> {
        let (shared, common) = (Arc::clone(&self.shared), Arc::clone(&self.common));
        tokio::spawn(async move {
            let opened = common.guarded(timeout(HANDSHAKE, opening)).await;
            // After a panic, which is a defect of ours, too: the next handshake would meet it again.
            let opened = opened.map_or_else(
                || Err(Failure::broken()),
                |opened| opened.unwrap_or_else(|_| Err(Failure::slow())),
            );
            drop(beginning);
            match &opened {
                Ok(_) => shared.pause.connected(now()),
                Err(failure) => {
                    shared.counts.failed(failure, now());
                    shared.pause.failed(failure, now());
                }
            }
            (opened, turn)
        })
    }

    /// Whether the latest connection that is not for one query alone has given a reply. Else what is late may be the server, and the
    /// next one waits.
    fn is_tried(&self) -> bool {
        let open = self.open().clone();
        let latest = open.iter().rev().find(|connection| !connection.is_alone());
        latest.is_none_or(|connection| connection.is_tried(now() - HOLD_OFF))
    }

    fn gives_one(&self) -> bool {
        self.shared.gives_one.load(Ordering::Relaxed)
    }

    /// Begins a connection, if there may be one more. Where each has one query, another may end for it.
    fn begin(&self, gives_one: bool) -> Option<Beginning> {
        let begin = |most| {
            let open = self.open();
            self.turns.begin(open.len(), most)
        };
        let in_place = || {
            let beginning = begin(MAX_CONNECTIONS + MAX_REPLACED)?;
            self.end_one().then_some(beginning)
        };
        begin(MAX_CONNECTIONS).or_else(|| gives_one.then(in_place).flatten())
    }

    /// Ends a connection that can be spared, and of several the one that is needed least; whether there is one.
    fn end_one(&self) -> bool {
        let (open, now) = (self.open().clone(), now());
        let spared = |it: &Arc<Connection>| Some((it.spared(now)?, Arc::clone(it)));
        let mut spared: Vec<_> = open.iter().filter_map(spared).collect();
        spared.sort_by_key(|(by, _)| *by);
        spared.iter().any(|(_, connection)| connection.end_if_spared(now))
    }

    /// Counts why a query got no place on any connection.
    pub(super) fn counted_failure(&self, failure: Failure) -> Failure {
        self.shared.counts.failed(&failure, now());
        failure
    }
}
