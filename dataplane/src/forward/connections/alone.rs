//! A query that waits on a stalled connection: its server may answer the queries on each connection one after the other, as CoreDNS
//! and dnsmasq do, or the connection may be dead. So it is asked once more, alone on another connection (L16), if the server
//! answers a query of ours there. It keeps its place, so it loses nothing where neither is so.

use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use dataplane_core::{LookupKey, Name, QueryForm};
use tokio::time::{sleep, sleep_until, timeout};

use super::connection::{Connection, Place, Reply};
use super::patience::MOST;
use super::pause::SHORT_PAUSE;
use super::{Asker, Connections, Failure, MAX_CONNECTIONS, now};
use crate::forward::plan::USUAL;

/// Queries that wait alone at the same time; where no copy has helped lately.
const MAX_ALONE: usize = 16;
const MAX_ALONE_AT_FIRST: usize = 4;
/// Times that one query is asked again in this way, where its copies gave way or were lost.
const MAX_TIMES: usize = 2;
/// The next query of a lookup waits no longer than this once the one before is overdue: its connection may be dead.
const LONGEST: Duration = Duration::from_millis(1500);
/// Connections to one server beyond [`MAX_CONNECTIONS`], each in place of one that has been ended for it.
pub(super) const MAX_REPLACED: usize = 8;

/// The type of the query by which a server is tried (RFC 1035 §3.2.2).
const NS: u16 = 2;

impl Connections {
    /// The end of a query that was sent, and the connection on which it ended.
    pub(super) async fn reply_to(
        self: &Arc<Self>,
        place: Place,
        asker: Asker<'_>,
        query: &impl Fn(u16) -> Vec<u8>,
    ) -> (Arc<Connection>, Result<Reply, Failure>) {
        let (connection, id) = (Arc::clone(&place.connection), place.id);
        let (mut first, copies) = (pin!(place.reply()), &self.shared.copies);
        // A query with a stream for itself waits for no other one.
        let overdue_at = connection.overdue_at(id).filter(|_| !connection.has_streams());
        let Some(overdue_at) = overdue_at else {
            asker.next.cancel();
            return (connection, first.await);
        };
        let mut look_at = match copies.has_helped(now()) {
            true => overdue_at - USUAL.interval + self.shared.patience.get(),
            false => overdue_at,
        };
        for _ in 0..MAX_TIMES {
            let second = loop {
                tokio::select! {
                    biased;
                    ended = &mut first => return (connection, ended),
                    () = sleep_until(look_at.into()) => {}
                }
                look_at = now() + USUAL.interval;
                let has_helped = copies.has_helped(now());
                // The first one is what is late, and would only stall another connection. So would one that is asked again.
                let is_behind = !connection.is_first(id) && !asker.is_repeat;
                if connection.is_stalled(now()) && is_behind {
                    tokio::select! {
                        biased;
                        ended = &mut first => return (connection, ended),
                        placed = self.copy(&connection, asker.client, query) => if let Some(second) = placed {
                            break second;
                        }
                    }
                }
                let is_kept =
                    has_helped && now() < overdue_at + LONGEST && connection.is_stalled(now());
                if !is_kept {
                    asker.next.cancel();
                }
            };
            if let Some(ended) = self.first_of(&connection, first.as_mut(), second, asker).await {
                return ended;
            }
            look_at = now() + USUAL.interval;
        }
        asker.next.cancel();
        (connection, first.await)
    }

    /// The end of a query that waits on a connection and of which a copy waits alone, and where it ended. `None` if the copy has ended
    /// without a reply and the query still waits.
    async fn first_of(
        &self,
        connection: &Arc<Connection>,
        mut first: Pin<&mut impl Future<Output = Result<Reply, Failure>>>,
        copy: Place,
        asker: Asker<'_>,
    ) -> Option<(Arc<Connection>, Result<Reply, Failure>)> {
        let (other, sent, copies) = (Arc::clone(&copy.connection), now(), &self.shared.copies);
        let mut overdue = pin!(sleep(USUAL.interval));
        let (mut copy, mut is_overdue) = (pin!(copy.reply()), false);
        loop {
            tokio::select! {
                biased;
                ended = &mut first => {
                    let Err(lost) = ended else { return Some((Arc::clone(connection), ended)) };
                    asker.next.cancel();
                    return Some(match copy.await {
                        Ok(reply) => (other, Ok(reply)),
                        Err(_) => (Arc::clone(connection), Err(lost)),
                    });
                }
                ended = &mut copy => {
                    let reply = ended.ok()?;
                    let waited = now().saturating_duration_since(sent);
                    if connection.is_stalled(now()) && waited < MOST {
                        copies.helped(asker.client, now());
                    }
                    return Some((other, Ok(reply)));
                }
                () = &mut overdue, if !is_overdue => {
                    is_overdue = true;
                    if !copies.has_helped(now()) {
                        asker.next.cancel();
                    }
                }
            }
        }
    }

    /// A place alone for a query that waits on a stalled connection, if it is known that the server answers others.
    async fn copy(
        self: &Arc<Self>,
        stalled: &Connection,
        client: IpAddr,
        query: &impl Fn(u16) -> Vec<u8>,
    ) -> Option<Place> {
        let copies = &self.shared.copies;
        if !copies.has_helped(now()) {
            // The names of clients may be late, all of them.
            let placed = if copies.try_one(now()) { self.placed_alone(&trial).await } else { None };
            let ended = timeout(MOST, placed?.reply()).await;
            if !stalled.is_stalled(now()) {
                return None;
            }
            if !ended.is_ok_and(|ended| ended.is_ok()) {
                // The server may have to ask others for that name, too.
                return self.placed_alone(query).await;
            }
            copies.helped(client, now());
        }
        if !copies.take(client, now()) {
            return None;
        }
        let placed = self.placed_alone(query).await;
        if placed.is_none() {
            copies.give_back(client);
        }
        placed
    }

    /// A place on a connection on which no other query waits, an idle one or one that is made for it.
    pub(super) async fn placed_alone(
        self: &Arc<Self>,
        query: &impl Fn(u16) -> Vec<u8>,
    ) -> Option<Place> {
        let has_room = || self.give_way().is_none_or(|connections| !connections.is_empty());
        let is_held = || self.shared.pause.holds(false, now()).is_some_and(|it| it.1 > SHORT_PAUSE);
        if !has_room() {
            return None;
        }
        if let Some(place) = self.place_alone(query) {
            return Some(place);
        }
        if is_held() {
            return None;
        }
        let turn = self.shared.copies.turn().await;
        if let Some((_, left)) = self.shared.pause.holds(false, now()) {
            sleep(left.min(SHORT_PAUSE)).await;
        }
        if let Some(place) = self.place_alone(query) {
            return Some(place);
        }
        self.close_finished();
        if is_held() {
            return None;
        }
        let beginning = {
            let open = self.open();
            self.turns.begin(open.len(), MAX_CONNECTIONS + MAX_REPLACED)?
        };
        if !self.make_room() {
            return None;
        }
        let (opened, _turn) = self.begun(self.opening(), beginning, turn).await.ok()?;
        self.make_room().then(|| opened.ok()?.place_alone(query, now()))?
    }

    /// Whether one more query may wait alone. Another one may give way to it.
    fn make_room(&self) -> bool {
        let ends = |connection: &Arc<Connection>| connection.end_if_alone(now());
        self.give_way().is_none_or(|connections| connections.iter().any(ends))
    }

    /// Where as many queries wait alone as there may be: the connections of those that give way to another one, the first to end
    /// first.
    fn give_way(&self) -> Option<Vec<Arc<Connection>>> {
        let (open, now) = (self.open().clone(), now());
        let most = if self.shared.copies.has_helped(now) { MAX_ALONE } else { MAX_ALONE_AT_FIRST };
        let is_full = open.iter().filter(|connection| connection.is_alone()).count() >= most;
        is_full.then(|| {
            let gives = |it: Arc<Connection>| Some((it.gives_way(now)?, it));
            let mut give_way: Vec<_> = open.into_iter().filter_map(gives).collect();
            give_way.sort_by_key(|(since, _)| *since);
            give_way.into_iter().map(|(_, connection)| connection).collect()
        })
    }

    fn place_alone(&self, query: impl Fn(u16) -> Vec<u8>) -> Option<Place> {
        let (open, now) = (self.open().clone(), now());
        let is_free = |it: &Arc<Connection>| it.in_progress() == 0 && it.is_open();
        if !open.iter().any(is_free) || !self.make_room() {
            return None;
        }
        open.iter().find_map(|connection| connection.place_alone(&query, now))
    }
}

/// A query that any server answers at once, if it answers at all.
fn trial(id: u16) -> Vec<u8> {
    let form = QueryForm { edns: false, ..QueryForm::USUAL };
    LookupKey::new(Name::ROOT, NS, false, false).upstream_query_as(id, form).wire
}
