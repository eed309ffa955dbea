//! The queries that wait on one connection: how many it takes, and which of them gives way to another. Pure: time comes as an
//! argument.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{
    Ended, IDLE, LINGER, MAX_AGE, MAX_QUERIES, MAX_STREAMS, MAX_WAITING, OnArrival, SILENCE, Waiter,
};

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Open,
    /// It takes no more queries; those that wait still have their time.
    Draining,
    /// Its tasks end at once.
    Closed,
}

/// How a query takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Free,
    /// In place of the query with this id.
    Instead(u16),
}

/// Why a connection can end for another query, where each has one; who loses least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::forward::connections) enum Spared {
    /// No lookup waits for its queries, although the server may still work on them.
    Left,
    /// It gave its reply then, and its server has not closed it yet. The latest is first: earlier ones may soon be used again,
    /// and show that their server answers several.
    Answered(Reverse<Instant>),
    /// Its queries are overdue, the latest one since then.
    Overdue(Instant),
}

/// A query that had no task, and where its reply comes from now on.
pub(super) struct Taken {
    pub(super) id: u16,
    pub(super) call: OnArrival,
    pub(super) reply: oneshot::Receiver<Ended>,
}

/// The queries on one connection, and how it is used.
#[derive(Debug)]
pub(super) struct Waiting {
    /// One whose client is gone stays until its reply, because the server still works on it.
    replies: HashMap<u16, Waiter>,
    /// The same, first to last, each with the time at which it is overdue.
    order: VecDeque<(u16, Instant)>,
    /// How many of these need no look any more: a task waits for each.
    looked_at: usize,
    /// How many queries the connection may have.
    places: usize,
    /// How many it may have in a crowd, where each has a stream; else they need ids only.
    streams: Option<usize>,
    /// The only query on it waits alone: no other one is sent behind it.
    is_alone: bool,
    /// Since when queries wait without any message.
    pub(super) silent_since: Option<Instant>,
    /// The first of them was sent on an idle connection, and no reply has come since.
    pub(super) was_idle: bool,
    /// When the connection was made.
    pub(super) opened: Instant,
    /// When the latest query left or the latest reply came.
    pub(super) used: Instant,
    /// Replies that were not found wrong.
    pub(super) good: u64,
    /// A query was lost on it.
    pub(super) has_lost: bool,
    /// Its server has ended it, and it is not closed yet.
    pub(super) server_left: bool,
    /// Connections to its server that were made before it ended; before that, itself.
    pub(super) made_before: u64,
    pub(super) state: ConnectionState,
}

impl Waiting {
    pub(super) fn new(number: u64, has_streams: bool, now: Instant) -> Waiting {
        Waiting {
            replies: HashMap::new(),
            order: VecDeque::new(),
            looked_at: 0,
            places: MAX_QUERIES,
            streams: has_streams.then_some(MAX_QUERIES),
            is_alone: false,
            silent_since: None,
            was_idle: false,
            opened: now,
            used: now,
            good: 0,
            has_lost: false,
            server_left: false,
            made_before: number,
            state: ConnectionState::Open,
        }
    }

    /// How one more query takes a place, if it may have one. `gives_one`: the server may answer one query on each connection.
    /// The last query of one that is too old has left.
    pub(super) fn way(&mut self, now: Instant, gives_one: bool) -> Option<Way> {
        if now >= self.opened + MAX_AGE {
            self.retire();
        }
        let is_open = self.state == ConnectionState::Open && !self.is_alone();
        let fits = match gives_one && self.good < 2 {
            true => self.len() == 0 && (self.good == 0 || self.used + LINGER <= now),
            false => self.in_progress(now) < self.places && self.len() < MAX_WAITING,
        };
        // The query that was alone may have ended.
        let way = (is_open && fits).then_some(Way::Free)?;
        self.is_alone = false;
        Some(way)
    }

    /// The same for a query that must not wait behind another one.
    pub(super) fn way_alone(&mut self, now: Instant, gives_one: bool) -> Option<Way> {
        let way = self.way(now, gives_one).filter(|_| self.len() == 0)?;
        self.is_alone = true;
        Some(way)
    }

    /// Whether one query waits alone.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone && self.len() > 0
    }

    /// Queries to which a reply may come. None came for a while to those that are left out: they need their ids, so that
    /// no other query gets a late reply, and nothing else.
    fn in_progress(&self, now: Instant) -> usize {
        let is_old = |(_, overdue_at): &(u16, Instant)| *overdue_at + IDLE <= now;
        match self.streams {
            Some(_) => self.len(),
            None => self.len() - self.order.partition_point(is_old),
        }
    }

    /// The same where no other connection has a place: names without a reply must not take the places of others. There are ids
    /// for many more queries, and a connection whose ids are taken ends. There are some more streams, and a query that is
    /// overdue gives its own to another.
    pub(super) fn way_in_crowd(&mut self, now: Instant, gives_one: bool) -> Option<Way> {
        let way = self.way(now, gives_one);
        // A query in a crowd would be lost where one is answered.
        let is_closed = self.state != ConnectionState::Open || self.is_alone();
        if way.is_some() || is_closed || (gives_one && self.good < 2) {
            return way;
        }
        match self.streams {
            Some(streams) if self.len() >= streams => self.first_to_give_way(now).map(Way::Instead),
            None if self.len() >= MAX_WAITING => {
                self.retire();
                None
            }
            Some(_) | None => Some(Way::Free),
        }
    }

    /// Of those that are overdue the first whose lookup is over, else the first.
    fn first_to_give_way(&self, now: Instant) -> Option<u16> {
        let mut overdue = self.order.iter().take_while(|(_, at)| *at <= now).map(|(id, _)| *id);
        let first = overdue.clone().next();
        overdue.find(|id| self.replies.get(id).is_some_and(Waiter::is_gone)).or(first)
    }

    pub(super) fn add(&mut self, id: u16, waiter: Waiter, overdue_at: Instant) {
        self.replies.insert(id, waiter);
        self.order.push_back((id, overdue_at));
    }

    /// Takes the query with this id, and whether an earlier one waits.
    pub(super) fn remove(&mut self, id: u16) -> Option<(Waiter, bool)> {
        let waiter = self.replies.remove(&id)?;
        let mut is_later = false;
        // Most replies are to late queries: those that get none are the first.
        if let Some(place) = self.order.iter().rposition(|(other, _)| *other == id) {
            self.order.remove(place);
            is_later = place > 0;
            self.looked_at -= usize::from(place < self.looked_at);
        }
        Some((waiter, is_later))
    }

    pub(super) fn overdue_at(&self, id: u16) -> Option<Instant> {
        self.order.iter().rev().find(|(other, _)| *other == id).map(|(_, at)| *at)
    }

    /// All of them: the connection has ended.
    pub(super) fn take_all(&mut self) -> HashMap<u16, Waiter> {
        self.order.clear();
        self.looked_at = 0;
        std::mem::take(&mut self.replies)
    }

    pub(super) fn has(&self, id: u16) -> bool {
        self.replies.contains_key(&id)
    }

    /// The first query that is overdue and has no task; one waits from here on, at the returned end. Else when the next one
    /// will be. All calls together cost as much as there are queries: each is passed once.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Result<Taken, Option<Instant>> {
        while let Some((id, overdue_at)) = self.order.get(self.looked_at) {
            if let Some(waiter @ Waiter::Call(_)) = self.replies.get_mut(id) {
                if *overdue_at > now {
                    return Err(Some(*overdue_at));
                }
                let (sender, reply) = oneshot::channel();
                if let Waiter::Call(call) = std::mem::replace(waiter, Waiter::Task(sender)) {
                    return Ok(Taken { id: *id, call, reply });
                }
            }
            self.looked_at += 1;
        }
        Err(None)
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    /// Sets how many queries there may be at once; returns whether there are more places than before.
    pub(super) fn allow(&mut self, streams: usize) -> bool {
        self.streams = self.streams.map(|_| streams.min(MAX_STREAMS));
        let places = streams.min(MAX_QUERIES);
        places > std::mem::replace(&mut self.places, places)
    }

    /// When the connection ends, unless something happens before.
    pub(super) fn ends_at(&self) -> Instant {
        self.silent_since.unwrap_or(self.used) + IDLE
    }

    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.silent_since.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE)
    }

    /// Whether queries wait on it, and the time between two replies is longer than usual, or the first is overdue. On a stream of
    /// its own no query waits for another one.
    pub(super) fn is_stalled(&self, patience: Duration, now: Instant) -> bool {
        let is_long = |since| now.saturating_duration_since(since) >= patience;
        let is_overdue = |(_, overdue_at): &(u16, Instant)| *overdue_at <= now;
        self.streams.is_none()
            && (self.silent_since.is_some_and(is_long)
                || self.order.front().is_some_and(is_overdue))
    }

    /// Whether no earlier query waits than the one with this id.
    pub(super) fn is_first(&self, id: u16) -> bool {
        self.order.front().is_some_and(|(first, _)| *first == id)
    }

    pub(super) fn retire(&mut self) {
        if self.state == ConnectionState::Open {
            self.state = ConnectionState::Draining;
        }
    }

    /// Queries that its server has answered, or still has.
    pub(super) fn took(&self) -> u64 {
        self.good + self.len() as u64
    }

    /// Why it can end for another query, if it can. One that has given several replies has place for others.
    pub(super) fn spared(&self, now: Instant) -> Option<Spared> {
        let is_left = self.len() > 0 && self.replies.values().all(Waiter::is_gone);
        match self.order.back() {
            _ if self.state == ConnectionState::Closed => None,
            Some(_) if is_left => Some(Spared::Left),
            _ if self.good > 1 => None,
            Some((_, overdue_at)) => (*overdue_at <= now).then_some(Spared::Overdue(*overdue_at)),
            None => (self.good == 1).then_some(Spared::Answered(Reverse(self.used))),
        }
    }

    /// Whether a query waits alone for longer than the usual time between two replies. Nearly always its lookup waits on another
    /// connection, too.
    pub(super) fn gives_way(&self, patience: Duration, now: Instant) -> bool {
        self.is_alone() && self.is_stalled(patience, now)
    }

    /// Forgets its queries where it takes no others, or where it is silent while the server replies on others (`has_replied`), and no
    /// lookup waits for a reply to any of them; whether that is so.
    pub(super) fn forget_all_gone(&mut self, has_replied: bool, now: Instant) -> bool {
        let is_used = match self.state {
            ConnectionState::Open => !has_replied || !self.is_silent(now),
            ConnectionState::Draining => false,
            ConnectionState::Closed => true,
        };
        let is_over = !is_used && self.replies.values().all(Waiter::is_gone);
        if is_over {
            self.retire();
            self.take_all();
        }
        is_over
    }
}
