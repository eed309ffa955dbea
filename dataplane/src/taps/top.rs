//! The heaviest names, clients and denied names of the last minutes, from a sketch with fixed memory. Off unless a person
//! asks on loopback, and then for a limited time: off it costs nothing beside the load of [`Wanted`](super::Wanted).
//!
//! On, queries are drawn so that few thousand a second are counted, each with the weight of all queries that it
//! represents. A thread that finds the sketch in use passes its query over: no one waits.

mod heaviest;

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crds::between_planes::LONGEST_TOP as LONGEST;
use dataplane_core::Name;
use serde::Serialize;

use super::exchange::Exchange;
use crate::rrtype;
use heaviest::{Heaviest, Weighed};

/// About how many queries are counted in a second; when there are twice as many, half of them are drawn.
const PER_SECOND: u32 = 2_000;
/// One of 2^16 queries is drawn at least.
const MAX_HALVINGS: u32 = 16;
/// Rows of each list that are shown.
const SHOWN: usize = 50;
/// Octets of a DNS header (RFC 1035 §4.1.1).
const HEADER: usize = 12;
/// NXDOMAIN (RFC 1035 §4.1.1).
const NXDOMAIN: u8 = 3;

/// The sketch, while there is one.
#[derive(Debug, Default)]
pub struct Top {
    sketch: Mutex<Option<Sketch>>,
    /// One of 2^this queries is drawn.
    halvings: AtomicU32,
    /// Queries that were drawn while another thread counted.
    passed_over: AtomicU64,
}

#[derive(Debug)]
struct Sketch {
    began: Instant,
    until: Instant,
    /// When the current second began, and queries counted in it.
    second: Instant,
    counted: u32,
    weight: u64,
    names: Heaviest<(Name, u16)>,
    clients: Heaviest<IpAddr>,
    denials: Heaviest<(Name, u16)>,
}

/// The content of `/top`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopView {
    /// Whether queries are counted now; if not, everything else is empty.
    pub is_on: bool,
    /// For how long they will be.
    pub seconds_left: u64,
    /// For how long they have been.
    pub seconds: u64,
    /// Queries in that time, by the weight of those that were counted.
    pub queries: u64,
    /// One of this many is counted at present.
    pub one_of: u32,
    /// Queries that were not counted because another thread did so at that moment.
    pub passed_over: u64,
    /// Names and types, the heaviest first.
    pub names: Vec<TopRow>,
    /// Addresses of clients, the heaviest first.
    pub clients: Vec<TopRow>,
    /// Names and types that were answered with NXDOMAIN.
    pub denials: Vec<TopRow>,
}

/// One of the heaviest names or clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopRow {
    /// A name, or an address.
    pub key: String,
    /// Record type; only for names.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub qtype: Option<String>,
    /// Queries, never too few.
    pub count: u64,
    /// The count is too high by this at most.
    pub error: u64,
}

impl Top {
    /// Counts for this time from now, [`LONGEST`] at most; what was counted is kept. `on` is called when it can begin.
    pub(super) fn start(&self, now: Instant, during: Duration, on: impl FnOnce()) {
        let mut place = self.lock();
        let until = now + during.min(LONGEST);
        match place.as_mut() {
            Some(sketch) if sketch.until > now => sketch.until = sketch.until.max(until),
            Some(_) | None => {
                self.halvings.store(0, Ordering::Relaxed);
                self.passed_over.store(0, Ordering::Relaxed);
                *place = Some(Sketch::new(now, until));
            }
        }
        on();
    }

    /// Counts one query, if it is drawn. `off` is called when the time is over, and the memory is given back.
    pub(super) fn put(&self, now: Instant, exchange: &Exchange<'_>, off: impl FnOnce()) {
        let halvings = self.halvings.load(Ordering::Relaxed);
        if drawn() & ((1 << halvings) - 1) != 0 {
            return;
        }
        let Ok(mut place) = self.sketch.try_lock() else {
            self.passed_over.fetch_add(1, Ordering::Relaxed);
            return;
        };
        match place.as_mut() {
            Some(sketch) if now < sketch.until => {
                sketch.count(exchange, 1 << halvings);
                let halvings = sketch.next_halvings(now, halvings);
                self.halvings.store(halvings, Ordering::Relaxed);
            }
            Some(_) | None => {
                *place = None;
                off();
            }
        }
    }

    /// What was counted. `off` is called when the time is over.
    pub(super) fn view(&self, now: Instant, off: impl FnOnce()) -> TopView {
        self.end(now, off);
        let place = self.lock();
        let Some(sketch) = place.as_ref() else { return TopView::default() };
        let named = |it: Weighed<(Name, u16)>| TopRow {
            key: it.key.0.to_string(),
            qtype: Some(rrtype::text(it.key.1)),
            count: it.count,
            error: it.error,
        };
        let client = |it: Weighed<IpAddr>| TopRow {
            key: it.key.to_string(),
            qtype: None,
            count: it.count,
            error: it.error,
        };
        TopView {
            is_on: true,
            seconds_left: sketch.until.saturating_duration_since(now).as_secs(),
            seconds: now.saturating_duration_since(sketch.began).as_secs(),
            queries: sketch.weight,
            one_of: 1 << self.halvings.load(Ordering::Relaxed),
            passed_over: self.passed_over.load(Ordering::Relaxed),
            names: sketch.names.first(SHOWN).into_iter().map(named).collect(),
            clients: sketch.clients.first(SHOWN).into_iter().map(client).collect(),
            denials: sketch.denials.first(SHOWN).into_iter().map(named).collect(),
        }
    }

    /// Gives the memory back when the time is over. `off` is called then.
    pub(super) fn end(&self, now: Instant, off: impl FnOnce()) {
        let mut place = self.lock();
        if place.as_ref().is_none_or(|sketch| now >= sketch.until) {
            *place = None;
            off();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sketch>> {
        self.sketch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sketch {
    fn new(began: Instant, until: Instant) -> Sketch {
        let (names, clients, denials) = (Heaviest::new(), Heaviest::new(), Heaviest::new());
        Sketch { began, until, second: began, counted: 0, weight: 0, names, clients, denials }
    }

    fn count(&mut self, exchange: &Exchange<'_>, weight: u64) {
        self.weight += weight;
        self.clients.add(exchange.client.ip(), weight);
        let Some(question) = question(exchange.query) else { return };
        if exchange.reply.get(3).is_some_and(|octet| octet & 0x0f == NXDOMAIN) {
            self.denials.add(question.clone(), weight);
        }
        self.names.add(question, weight);
    }

    /// More are counted than there should be: half of them are drawn from here on. Far fewer: twice as many.
    fn next_halvings(&mut self, now: Instant, halvings: u32) -> u32 {
        self.counted += 1;
        if self.counted >= PER_SECOND {
            (self.counted, self.second) = (0, now);
            return (halvings + 1).min(MAX_HALVINGS);
        }
        if now.saturating_duration_since(self.second) < Duration::from_secs(1) {
            return halvings;
        }
        let is_far_below = self.counted < PER_SECOND / 4;
        (self.counted, self.second) = (0, now);
        if is_far_below { halvings.saturating_sub(1) } else { halvings }
    }
}

/// The name and type of the question.
fn question(query: &[u8]) -> Option<(Name, u16)> {
    let rest = query.get(HEADER..)?;
    let name = Name::from_wire(rest)?;
    let qtype = rest.get(name.wire().len()..)?.first_chunk()?;
    Some((name, u16::from_be_bytes(*qtype)))
}

/// A random number of this thread (wyrand): nothing secret depends on it.
fn drawn() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    STATE.with(|state| {
        let next = state.get().wrapping_add(0xa076_1d64_78bd_642f);
        state.set(next);
        let product = u128::from(next) * u128::from(next ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    })
}

#[cfg(test)]
mod tests;
